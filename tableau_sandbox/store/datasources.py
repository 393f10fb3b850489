"""Data sources, with what belongs to them: tags, revisions, connections and late stamps."""

from dataclasses import replace
from datetime import UTC, datetime

from tableau_sandbox.clock import stamp, stamp_after
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Datasource


def content_files(database: Database) -> list[str]:
    """Return the names of all files of data sources and their revisions."""
    sql = "SELECT hyper_file FROM datasource UNION SELECT hyper_file FROM revision"
    return [row["hyper_file"] for row in database.rows(sql)]


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
            for source in database.all(Datasource, luid=row["datasource"]):
                previous = source.updated_at
                moved = stamp_after(previous, due) if distinct else max(previous, stamp(due))
                database.save("datasource", vars(replace(source, updated_at=moved)))
            database.delete("late_stamp", rowid=row["number"])
