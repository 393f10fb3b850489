"""Data sources, with what belongs to them: tags, revisions, connections and late stamps."""

from datetime import UTC, datetime

from tableau_sandbox.clock import stamp, stamp_after
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import ConnectionSettings, Datasource, Revision


def datasources(database: Database, site: str) -> list[Datasource]:
    """Return all data sources of a site, oldest first."""
    rest = "WHERE datasource.site = ? ORDER BY datasource.rowid"
    return database.records(Datasource, rest, site)


def datasource(database: Database, site: str, luid: str) -> Datasource | None:
    """Return the data source with this LUID."""
    rest = "WHERE datasource.site = ? AND datasource.luid = ?"
    return database.record(Datasource, rest, site, luid)


def find_by_name(database: Database, site: str, *, project: str, name: str) -> Datasource | None:
    """Return the data source with this name, in any case of letters, in a project."""
    sql = "SELECT luid, name FROM datasource WHERE site = ? AND project = ?"
    found = database.rows(sql, site, project)
    # SQLite ignores the case of ASCII letters only.
    luids = [row["luid"] for row in found if row["name"].casefold() == name.casefold()]
    return datasource(database, site, luids[0]) if luids else None


def content_url_taken(database: Database, site: str, content_url: str) -> bool:
    """Whether a data source of the site has this content URL."""
    found = database.row(
        "SELECT 1 FROM datasource WHERE site = ? AND content_url = ?", site, content_url
    )
    return found is not None


def save_datasource(database: Database, datasource: Datasource) -> None:
    """Insert a data source, or replace its earlier state; tags are stored separately."""
    database.save("datasource", vars(datasource))


def set_updated_at(database: Database, luid: str, updated_at: str) -> None:
    """Set the time of the last change of a data source."""
    database.change("UPDATE datasource SET updated_at = ? WHERE luid = ?", updated_at, luid)


def delete_datasource(database: Database, luid: str) -> None:
    """Remove a data source."""
    database.change("DELETE FROM datasource WHERE luid = ?", luid)


def add_tag(database: Database, luid: str, label: str) -> None:
    """Add a tag to a data source, unless it already has it."""
    database.add("tag", datasource=luid, label=label)


def remove_tag(database: Database, luid: str, label: str) -> bool:
    """Remove a tag; return False if the data source does not have it."""
    sql = "DELETE FROM tag WHERE datasource = ? AND label = ?"
    return database.change(sql, luid, label) > 0


def content_files(database: Database) -> list[str]:
    """Return the names of all files of data sources and their revisions."""
    sql = "SELECT hyper_file FROM datasource UNION SELECT hyper_file FROM revision"
    return [row["hyper_file"] for row in database.rows(sql)]


def connection_settings(database: Database, datasource: str) -> ConnectionSettings:
    """Return the settings of a connection that were made since the last publish."""
    found = database.record(ConnectionSettings, "WHERE datasource = ?", datasource)
    return found or ConnectionSettings()


def save_connection_settings(
    database: Database, datasource: str, changed: ConnectionSettings
) -> None:
    """Replace the settings of a connection."""
    database.save("connection_settings", {**vars(changed), "datasource": datasource})


def forget_connection_settings(database: Database, datasource: str) -> None:
    """Return to the settings of the published file."""
    database.change("DELETE FROM connection_settings WHERE datasource = ?", datasource)


def add_revision(
    database: Database, datasource: Datasource, *, publisher: str, published_at: str, keep: int
) -> None:
    """Add the latest revision, and remove the oldest ones beyond `keep`."""
    added = {
        "datasource": datasource.luid,
        "number": datasource.revision,
        "publisher": publisher,
        "published_at": published_at,
    }
    database.save("revision", {**vars(datasource), **added})
    database.change(
        "DELETE FROM revision WHERE datasource = ? AND number <= ?",
        datasource.luid,
        datasource.revision - keep,
    )


def revisions(database: Database, datasource: str) -> list[Revision]:
    """Return the kept revisions of a data source, oldest first."""
    return database.records(Revision, "WHERE datasource = ? ORDER BY number", datasource)


def revision(database: Database, datasource: str, number: int) -> Revision | None:
    """Return one revision of a data source."""
    return database.record(Revision, "WHERE datasource = ? AND number = ?", datasource, number)


def add_late_stamp(database: Database, datasource: str, *, due: float) -> None:
    """Schedule a later `updated_at` of a data source, in seconds of the epoch."""
    database.add("late_stamp", datasource=datasource, due=due)


def apply_due_stamps(database: Database, *, now: datetime, distinct: bool) -> None:
    """Set the `updated_at` of the data sources with due stamps to the due times.

    If each change must have its own stamp, a data source that has changed since gets a still later
    one.
    """
    with database.transaction():
        for row in database.rows(
            "SELECT rowid AS number, datasource, due FROM late_stamp WHERE due <= ? ORDER BY due",
            now.timestamp(),
        ):
            due = datetime.fromtimestamp(row["due"], UTC)
            # Several stamps may be due for one data source.
            sql = "SELECT updated_at FROM datasource WHERE luid = ?"
            for source in database.rows(sql, row["datasource"]):
                previous = source["updated_at"]
                moved = stamp_after(previous, due) if distinct else max(previous, stamp(due))
                set_updated_at(database, row["datasource"], moved)
            database.change("DELETE FROM late_stamp WHERE rowid = ?", row["number"])
