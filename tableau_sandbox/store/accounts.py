"""Store sites, users, groups, personal access tokens and sessions."""

from collections import Counter
from collections.abc import Iterable

from tableau_sandbox import identity
from tableau_sandbox.options import ADMIN, Options, UserSeed
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Session, Site, User

ALL_USERS = "All Users"
_DEFAULT_PROJECT = "Default"
# The administrator keeps this LUID under every name.
_ADMIN_LUID = identity.seeded_luid("user", ADMIN.name)


def user_of_password(database: Database, name: str, password: str) -> User | None:
    """Return the user with this name and password, or None."""
    row = database.row("SELECT * FROM user WHERE name = ?", name)
    if row is None or not identity.secret_matches(password, row["password_hash"]):
        return None
    return User.of(row)


def user_of_access_token(database: Database, name: str, secret: str) -> User | None:
    """Return the user with this personal access token, or None."""
    row = database.row(
        "SELECT user.*, secret_hash FROM access_token JOIN user ON user.luid = access_token.user"
        " WHERE access_token.name = ?",
        name,
    )
    if row is None or not identity.secret_matches(secret, row["secret_hash"]):
        return None
    return User.of(row)


def access_tokens(database: Database, user: str) -> list[str]:
    """Return the names of a user's personal access tokens."""
    rows = database.rows("SELECT name FROM access_token WHERE user = ? ORDER BY name", user)
    return [row["name"] for row in rows]


def all_users_luid(site: str) -> str:
    """Return the LUID of the group of all users of a site."""
    return identity.seeded_luid("group", site, ALL_USERS)


def default_project_luid(site: str) -> str:
    """Return the LUID of the default project of a site. This project cannot be deleted."""
    return identity.seeded_luid("project", site, _DEFAULT_PROJECT)


def groups_of(database: Database, user: str, *, site: str) -> list[str]:
    """Return the LUIDs of the groups of a user; `user` is the user's LUID."""
    sql = (
        "SELECT user_group.luid FROM user_group"
        " JOIN group_member ON group_member.user_group = user_group.luid"
        " WHERE site = ? AND user = ?"
    )
    return [all_users_luid(site), *(row["luid"] for row in database.rows(sql, site, user))]


def open_session(
    database: Database,
    *,
    user: User,
    site: Site,
    access_token: str | None,
    scopes: Iterable[str],
    expires_at: float,
) -> str:
    """Open a session, and return its token. The database stores only a digest of the token."""
    token = identity.new_token(site.luid)
    digest = identity.digest(token)
    with database.transaction():
        database.add(
            "session",
            token_digest=digest,
            user=user.luid,
            site=site.luid,
            access_token=access_token,
            expires_at=expires_at,
        )
        for scope in scopes:
            database.add("session_scope", token_digest=digest, scope=scope)
    return token


def session(database: Database, token: str, *, now: float) -> Session | None:
    """Return the session of a token; None if it is not valid at `now` (seconds since the epoch)."""
    digest = identity.digest(token)
    sql = "SELECT * FROM session WHERE token_digest = ? AND expires_at > ?"
    row = database.row(sql, digest, now)
    if row is None:
        return None
    (site,) = database.all(Site, luid=row["site"])
    (owner,) = database.all(User, luid=row["user"])
    scopes = database.rows("SELECT scope FROM session_scope WHERE token_digest = ?", digest)
    return Session(digest, owner, site, tuple(found["scope"] for found in scopes))


def end_sessions_of_user(database: Database, name: str | None) -> None:
    """End all sessions of the user with this name; None means all users."""
    for user in database.all(User, **({} if name is None else {"name": name})):
        database.delete("session", user=user.luid)


def forget_expired_sessions(database: Database, *, now: float) -> None:
    """Remove expired sessions, and the records of signed tokens that have expired."""
    database.change("DELETE FROM session WHERE expires_at <= ?", now)
    database.change("DELETE FROM used_token WHERE expires_at <= ?", now)


class NameTakenError(RuntimeError):
    """Two users would have the same name; the case of letters does not count."""


def seed(database: Database, options: Options, *, created_at: str) -> None:
    """Insert the initial content of a sandbox; existing content does not change.

    The administrator is an exception: the options always set the name, the password and the token.

    Raises:
        NameTakenError: another user has the administrator's name, or two users have the same name.
    """
    names = Counter(user.name.casefold() for user in (options.admin, *options.users))
    if repeated := [name for name, count in names.items() if count > 1]:
        raise NameTakenError(f"Several users are called '{repeated[0]}'; choose other names.")
    with database.transaction():
        _set_administrator(database, options.admin)
        for user in options.users:
            _add_user(database, user)
        for content_url in ("", *options.sites):
            _add_site(database, content_url, created_at=created_at)


def _set_administrator(database: Database, admin: UserSeed) -> None:
    if _is_current(database, admin):
        return
    if database.row("SELECT 1 FROM user WHERE name = ? AND luid <> ?", admin.name, _ADMIN_LUID):
        raise NameTakenError(f"Another user of the data directory is called '{admin.name}'.")
    # End the sessions, because the password or token that opened them is no longer valid.
    database.delete("session", user=_ADMIN_LUID)
    database.delete("access_token", user=_ADMIN_LUID)
    _save_user(database, _ADMIN_LUID, admin)


def _is_current(database: Database, admin: UserSeed) -> bool:
    user = User(_ADMIN_LUID, admin.name, admin.site_role)
    return (
        user_of_password(database, admin.name, admin.password) == user
        and {*access_tokens(database, _ADMIN_LUID)} == dict(admin.tokens).keys()
        and all(user_of_access_token(database, *token) == user for token in admin.tokens)
    )


def _add_user(database: Database, user: UserSeed) -> None:
    luid = identity.seeded_luid("user", user.name)
    if luid == _ADMIN_LUID:
        # The administrator has this LUID but another name, so this user needs another LUID.
        luid = identity.seeded_luid("user", "other", user.name)
    # The database ignores the case of names.
    stored = database.find(User, name=user.name)
    if stored is None:
        _save_user(database, luid, user)
    else:
        _add_tokens(database, stored.luid, user)


def _save_user(database: Database, luid: str, user: UserSeed) -> None:
    secret = identity.hash_secret(user.password)
    database.save("user", {**vars(user), "luid": luid, "password_hash": secret})
    _add_tokens(database, luid, user)


def _add_tokens(database: Database, luid: str, user: UserSeed) -> None:
    for name, secret in user.tokens:
        hashed = identity.hash_secret(secret)
        database.add("access_token", name=name, secret_hash=hashed, user=luid)


def _add_site(database: Database, content_url: str, *, created_at: str) -> None:
    luid = identity.seeded_luid("site", content_url)
    database.add("site", luid=luid, name=content_url or "Default", content_url=content_url)
    database.add("user_group", luid=all_users_luid(luid), site=luid, name=ALL_USERS)
    database.add(
        "project",
        luid=default_project_luid(luid),
        site=luid,
        owner=_ADMIN_LUID,
        name=_DEFAULT_PROJECT,
        description="The project that every site has from the start.",
        content_permissions="ManagedByOwner",
        created_at=created_at,
        updated_at=created_at,
    )
