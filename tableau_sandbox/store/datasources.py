from dataclasses import fields
from typing import Any

from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import ConnectionSettings, Datasource

_SELECT = (
    "SELECT datasource.*, project.name AS project_name, user.name AS owner_name FROM datasource"
    " JOIN project ON project.luid = datasource.project"
    " JOIN user ON user.luid = datasource.owner"
)
_COLUMNS = [
    field.name
    for field in fields(Datasource)
    if field.name not in ("project_name", "owner_name", "tags")
]
_SAVE = (
    f"INSERT INTO datasource ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
    " ON CONFLICT (luid) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS[1:])
)


def datasources(database: Database, site: str) -> list[Datasource]:
    """Return all data sources of a site, oldest first."""
    with database.lock:
        rows = database.rows(f"{_SELECT} WHERE datasource.site = ? ORDER BY datasource.rowid", site)
        return [_record(database, row) for row in rows]


def datasource(database: Database, site: str, luid: str) -> Datasource | None:
    """Return the data source with this LUID."""
    with database.lock:
        row = database.row(
            f"{_SELECT} WHERE datasource.site = ? AND datasource.luid = ?", site, luid
        )
        return _record(database, row) if row else None


def find_by_name(database: Database, site: str, *, project: str, name: str) -> Datasource | None:
    """Return the data source with this name, in any case of letters, in a project."""
    sql = "SELECT luid, name FROM datasource WHERE site = ? AND project = ?"
    with database.lock:
        for row in database.rows(sql, site, project):
            # SQLite ignores the case of ASCII letters only.
            if row["name"].casefold() == name.casefold():
                return datasource(database, site, row["luid"])
    return None


def content_url_taken(database: Database, site: str, content_url: str) -> bool:
    """Whether a data source of the site has this content URL."""
    found = database.row(
        "SELECT 1 FROM datasource WHERE site = ? AND content_url = ?", site, content_url
    )
    return found is not None


def save_datasource(database: Database, datasource: Datasource) -> None:
    """Insert a data source, or replace its earlier state; tags are stored separately."""
    database.change(_SAVE, *(getattr(datasource, column) for column in _COLUMNS))


def set_updated_at(database: Database, luid: str, updated_at: str) -> None:
    """Set the time of the last change of a data source."""
    database.change("UPDATE datasource SET updated_at = ? WHERE luid = ?", updated_at, luid)


def delete_datasource(database: Database, luid: str) -> None:
    """Remove a data source."""
    database.change("DELETE FROM datasource WHERE luid = ?", luid)


def add_tag(database: Database, luid: str, label: str) -> None:
    """Add a tag to a data source, unless it already has it."""
    database.change("INSERT OR IGNORE INTO tag (datasource, label) VALUES (?, ?)", luid, label)


def remove_tag(database: Database, luid: str, label: str) -> bool:
    """Remove a tag; return False if the data source does not have it."""
    sql = "DELETE FROM tag WHERE datasource = ? AND label = ?"
    return database.change(sql, luid, label) > 0


def content_files(database: Database) -> list[str]:
    """Return the names of all files of data sources and their revisions."""
    sql = "SELECT hyper_file FROM datasource UNION SELECT hyper_file FROM revision"
    return [row["hyper_file"] for row in database.rows(sql)]


def _record(database: Database, row: dict[str, Any]) -> Datasource:
    tags = database.rows("SELECT label FROM tag WHERE datasource = ? ORDER BY label", row["luid"])
    return Datasource.of({**row, "tags": tuple(tag["label"] for tag in tags)})


def connection_settings(database: Database, datasource: str) -> ConnectionSettings:
    """Return the settings of a connection that were made since the last publish."""
    row = database.row("SELECT * FROM connection_settings WHERE datasource = ?", datasource)
    return ConnectionSettings.of(row) if row else ConnectionSettings()


def save_connection_settings(
    database: Database, datasource: str, changed: ConnectionSettings
) -> None:
    """Replace the settings of a connection."""
    database.change(
        "INSERT OR REPLACE INTO connection_settings"
        " (datasource, server_address, server_port, user_name, embed_password)"
        " VALUES (?, ?, ?, ?, ?)",
        datasource,
        changed.server_address,
        changed.server_port,
        changed.user_name,
        changed.embed_password,
    )


def forget_connection_settings(database: Database, datasource: str) -> None:
    """Return to the settings of the published file."""
    database.change("DELETE FROM connection_settings WHERE datasource = ?", datasource)
