"""Store the revisions, the files and the late stamps (delayed `updated_at`) of data sources."""

from dataclasses import replace
from datetime import UTC, datetime

from tableau_sandbox.clock import stamp, stamp_after
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Datasource


def content_files(database: Database) -> list[str]:
    """Return the names of the files of all data sources and revisions."""
    sql = "SELECT hyper_file FROM datasource UNION SELECT hyper_file FROM revision"
    return [row["hyper_file"] for row in database.rows(sql)]


def add_revision(
    database: Database, datasource: Datasource, *, publisher: str, published_at: str, keep: int
) -> None:
    """Add the latest revision, and remove the oldest revisions beyond `keep`."""
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
    """Apply the late stamps that are due: move `updated_at` forward to the time of the stamp.

    With `distinct`, the new `updated_at` is at least a second later than the old value.
    """
    with database.transaction():
        for row in database.rows(
            "SELECT rowid AS number, datasource, due FROM late_stamp WHERE due <= ? ORDER BY due",
            now.timestamp(),
        ):
            due = datetime.fromtimestamp(row["due"], UTC)
            # One data source may have several due stamps.
            for source in database.all(Datasource, luid=row["datasource"]):
                previous = source.updated_at
                moved = stamp_after(previous, due) if distinct else max(previous, stamp(due))
                database.save("datasource", vars(replace(source, updated_at=moved)))
            database.delete("late_stamp", rowid=row["number"])
