from tableau_pipeline.sandbox.identity import hash_secret, seeded_luid
from tableau_pipeline.sandbox.options import ADMIN, Options, UserSeed
from tableau_pipeline.sandbox.store.database import Database

DEFAULT_PROJECT = "Default"


def seed(database: Database, options: Options, *, created_at: str) -> None:
    """Insert the initial content of a sandbox; existing content does not change."""
    with database.transaction():
        for user in (ADMIN, *options.users):
            _add_user(database, user)
        for content_url in ("", *options.sites):
            _add_site(database, content_url, created_at=created_at)


def default_project_luid(site: str) -> str:
    """Return the LUID of the default project of a site, which cannot be deleted."""
    return seeded_luid("project", site, DEFAULT_PROJECT)


def _add_user(database: Database, user: UserSeed) -> None:
    luid = seeded_luid("user", user.name)
    if database.row("SELECT 1 FROM user WHERE name = ?", user.name) is None:
        database.change(
            "INSERT INTO user (luid, name, password_hash, site_role) VALUES (?, ?, ?, ?)",
            luid,
            user.name,
            hash_secret(user.password),
            user.site_role,
        )
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
        seeded_luid("user", ADMIN.name),
        DEFAULT_PROJECT,
        "The project that every site has from the start.",
        created_at,
        created_at,
    )
