"""Sites, users, groups, personal access tokens and sessions."""

from collections.abc import Iterable

from tableau_sandbox import identity
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Group, Session, Site, User

ALL_USERS = "All Users"


def sites(database: Database) -> list[Site]:
    """Return all sites, the default one first."""
    return [Site.of(row) for row in database.rows("SELECT * FROM site ORDER BY rowid")]


def site_by_content_url(database: Database, content_url: str) -> Site | None:
    """Return the site with this content URL; "" is the default site."""
    row = database.row("SELECT * FROM site WHERE content_url = ?", content_url)
    return Site.of(row) if row else None


def users(database: Database) -> list[User]:
    """Return all users; they belong to every site."""
    return [User.of(row) for row in database.rows("SELECT * FROM user ORDER BY rowid")]


def user(database: Database, luid: str) -> User | None:
    """Return the user with this LUID."""
    row = database.row("SELECT * FROM user WHERE luid = ?", luid)
    return User.of(row) if row else None


def user_of_password(database: Database, name: str, password: str) -> User | None:
    """Return the user with this name and password."""
    row = database.row("SELECT * FROM user WHERE name = ?", name)
    if row is None or not identity.secret_matches(password, row["password_hash"]):
        return None
    return User.of(row)


def user_of_access_token(database: Database, name: str, secret: str) -> User | None:
    """Return the user with this personal access token."""
    row = database.row(
        "SELECT user.*, secret_hash FROM access_token JOIN user ON user.luid = access_token.user"
        " WHERE access_token.name = ?",
        name,
    )
    if row is None or not identity.secret_matches(secret, row["secret_hash"]):
        return None
    return User.of(row)


def user_of_name(database: Database, name: str) -> User | None:
    """Return the user with this name."""
    row = database.row("SELECT * FROM user WHERE name = ?", name)
    return User.of(row) if row else None


def all_users_luid(site: str) -> str:
    """Return the LUID of the group of all users of a site."""
    return identity.seeded_luid("group", site, ALL_USERS)


def groups(database: Database, site: str) -> list[Group]:
    """Return the groups of a site, that of all users first."""
    everyone = Group(all_users_luid(site), site, ALL_USERS)
    rows = database.rows("SELECT * FROM user_group WHERE site = ? ORDER BY rowid", site)
    return [everyone, *(Group.of(row) for row in rows)]


def group(database: Database, site: str, luid: str) -> Group | None:
    """Return the group of a site with this LUID."""
    return next((each for each in groups(database, site) if each.luid == luid), None)


def groups_of_user(database: Database, site: str, user: str) -> list[str]:
    """Return the LUIDs of the groups of a site that a user, given by LUID, belongs to."""
    sql = (
        "SELECT user_group FROM membership JOIN user_group ON user_group.luid = user_group"
        " WHERE site = ? AND user = ?"
    )
    rows = database.rows(sql, site, user)
    return [all_users_luid(site), *(row["user_group"] for row in rows)]


def users_of_group(database: Database, group: Group) -> list[User]:
    """Return the users who belong to a group."""
    if group.luid == all_users_luid(group.site):
        return users(database)
    sql = (
        "SELECT user.* FROM membership JOIN user ON user.luid = user"
        " WHERE user_group = ? ORDER BY user.rowid"
    )
    return [User.of(row) for row in database.rows(sql, group.luid)]


def add_group(database: Database, group: Group) -> None:
    """Add a group without users."""
    sql = "INSERT INTO user_group (luid, site, name) VALUES (?, ?, ?)"
    database.change(sql, group.luid, group.site, group.name)


def delete_group(database: Database, group: Group) -> None:
    """Remove a group, and the rules about it."""
    database.change("DELETE FROM user_group WHERE luid = ?", group.luid)


def add_to_group(database: Database, group: Group, user: User) -> bool:
    """Make a user belong to a group; return False if the user does already."""
    sql = "INSERT OR IGNORE INTO membership (user_group, user) VALUES (?, ?)"
    return database.change(sql, group.luid, user.luid) > 0


def remove_from_group(database: Database, group: Group, user: User) -> bool:
    """End that a user belongs to a group; return False if the user does not."""
    sql = "DELETE FROM membership WHERE user_group = ? AND user = ?"
    return database.change(sql, group.luid, user.luid) > 0


def use_token_once(database: Database, identifier: str, *, expires_at: float) -> bool:
    """Record the use of a signed token; return whether it is the first use."""
    sql = "INSERT OR IGNORE INTO used_token (identifier, expires_at) VALUES (?, ?)"
    return database.change(sql, identifier, expires_at) > 0


def open_session(
    database: Database,
    *,
    user: User,
    site: Site,
    access_token: str | None,
    scopes: Iterable[str],
    expires_at: float,
) -> str:
    """Open a session; return its token, of which only a digest is stored."""
    token = identity.new_token(site.luid)
    with database.transaction():
        database.change(
            "INSERT INTO session (token_digest, user, site, access_token, expires_at)"
            " VALUES (?, ?, ?, ?, ?)",
            identity.digest(token),
            user.luid,
            site.luid,
            access_token,
            expires_at,
        )
        for scope in scopes:
            sql = "INSERT OR IGNORE INTO session_scope (token_digest, scope) VALUES (?, ?)"
            database.change(sql, identity.digest(token), scope)
    return token


def session(database: Database, token: str, *, now: float) -> Session | None:
    """Return the session of a token, if it is valid at `now` (seconds of the epoch)."""
    row = database.row(
        "SELECT * FROM session WHERE token_digest = ? AND expires_at > ?",
        identity.digest(token),
        now,
    )
    if row is None:
        return None
    site_row = database.row("SELECT * FROM site WHERE luid = ?", row["site"])
    user_row = database.row("SELECT * FROM user WHERE luid = ?", row["user"])
    if site_row is None or user_row is None:
        return None
    scopes = database.rows(
        "SELECT scope FROM session_scope WHERE token_digest = ?", row["token_digest"]
    )
    return Session(
        row["token_digest"],
        User.of(user_row),
        Site.of(site_row),
        row["access_token"],
        tuple(found["scope"] for found in scopes),
        row["expires_at"],
    )


def end_session(database: Database, ended: Session) -> None:
    """End one session."""
    database.change("DELETE FROM session WHERE token_digest = ?", ended.token_digest)


def end_sessions_of_access_token(database: Database, name: str) -> None:
    """End every session of this personal access token."""
    database.change("DELETE FROM session WHERE access_token = ?", name)


def end_sessions_of_user(database: Database, name: str | None) -> None:
    """End every session of the user with this name; None for all users."""
    if name is None:
        database.change("DELETE FROM session")
    else:
        sql = "DELETE FROM session WHERE user = (SELECT luid FROM user WHERE name = ?)"
        database.change(sql, name)


def forget_expired_sessions(database: Database, *, now: float) -> None:
    """Remove expired sessions and signed tokens."""
    database.change("DELETE FROM session WHERE expires_at <= ?", now)
    database.change("DELETE FROM used_token WHERE expires_at <= ?", now)
