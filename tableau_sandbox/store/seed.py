from tableau_sandbox.identity import hash_secret, secret_matches, seeded_luid
from tableau_sandbox.options import ADMIN_NAME, Options, UserSeed
from tableau_sandbox.store.database import Database

DEFAULT_PROJECT = "Default"
# The administrator is the same one under every name.
_ADMIN_LUID = seeded_luid("user", ADMIN_NAME)


class NameTakenError(RuntimeError):
    """Another user of the data directory has the name that the administrator should have."""


def seed(database: Database, options: Options, *, created_at: str) -> None:
    """Insert the initial content of a sandbox; existing content does not change.

    The name, the password and the token of the administrator are those of the options, always.

    Raises:
        NameTakenError: another user has this name.
    """
    with database.transaction():
        _set_administrator(database, options.admin)
        for user in options.users:
            _add_user(database, user)
        for content_url in ("", *options.sites):
            _add_site(database, content_url, created_at=created_at)


def default_project_luid(site: str) -> str:
    """Return the LUID of the default project of a site, which cannot be deleted."""
    return seeded_luid("project", site, DEFAULT_PROJECT)


def _set_administrator(database: Database, admin: UserSeed) -> None:
    if database.row("SELECT 1 FROM user WHERE luid = ?", _ADMIN_LUID) is None:
        _insert_user(database, _ADMIN_LUID, admin)
    elif not _is_current(database, admin):
        sql = "SELECT 1 FROM user WHERE name = ? AND luid <> ?"
        if database.row(sql, admin.name, _ADMIN_LUID):
            raise NameTakenError(f"Another user of the data directory is called '{admin.name}'.")
        # Whoever signed in with what is no longer valid has to do it again.
        database.change("DELETE FROM session WHERE user = ?", _ADMIN_LUID)
        database.change("DELETE FROM access_token WHERE user = ?", _ADMIN_LUID)
        database.change(
            "UPDATE user SET name = ?, password_hash = ?, site_role = ? WHERE luid = ?",
            admin.name,
            hash_secret(admin.password),
            admin.site_role,
            _ADMIN_LUID,
        )
        _add_tokens(database, _ADMIN_LUID, admin)


def _is_current(database: Database, admin: UserSeed) -> bool:
    user = database.row("SELECT * FROM user WHERE luid = ?", _ADMIN_LUID)
    stored = database.rows("SELECT * FROM access_token WHERE user = ?", _ADMIN_LUID)
    hashes = {token["name"]: token["secret_hash"] for token in stored}
    return (
        user is not None
        and (user["name"], user["site_role"]) == (admin.name, admin.site_role)
        and secret_matches(admin.password, user["password_hash"])
        and hashes.keys() == dict(admin.tokens).keys()
        and all(secret_matches(secret, hashes[name]) for name, secret in admin.tokens)
    )


def _add_user(database: Database, user: UserSeed) -> None:
    luid = seeded_luid("user", user.name)
    if luid == _ADMIN_LUID:
        # The administrator has another name, so that this one is free.
        luid = seeded_luid("user", "other", user.name)
    if database.row("SELECT 1 FROM user WHERE name = ?", user.name) is None:
        _insert_user(database, luid, user)
    else:
        _add_tokens(database, luid, user)


def _insert_user(database: Database, luid: str, user: UserSeed) -> None:
    database.change(
        "INSERT INTO user (luid, name, password_hash, site_role) VALUES (?, ?, ?, ?)",
        luid,
        user.name,
        hash_secret(user.password),
        user.site_role,
    )
    _add_tokens(database, luid, user)


def _add_tokens(database: Database, luid: str, user: UserSeed) -> None:
    for name, secret in user.tokens:
        database.change(
            "INSERT OR IGNORE INTO access_token (name, secret_hash, user) VALUES (?, ?, ?)",
            name,
            hash_secret(secret),
            luid,
        )


def _add_site(database: Database, content_url: str, *, created_at: str) -> None:
    luid = seeded_luid("site", content_url)
    database.change(
        "INSERT OR IGNORE INTO site (luid, name, content_url) VALUES (?, ?, ?)",
        luid,
        content_url or "Default",
        content_url,
    )
    database.change(
        "INSERT OR IGNORE INTO project (luid, site, parent, owner, name, description,"
        " content_permissions, created_at, updated_at)"
        " VALUES (?, ?, NULL, ?, ?, ?, 'ManagedByOwner', ?, ?)",
        default_project_luid(luid),
        luid,
        _ADMIN_LUID,
        DEFAULT_PROJECT,
        "The project that every site has from the start.",
        created_at,
        created_at,
    )
