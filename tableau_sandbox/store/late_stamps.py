from datetime import UTC, datetime

from tableau_sandbox.clock import stamp, stamp_after
from tableau_sandbox.store import datasources
from tableau_sandbox.store.database import Database


def add_late_stamp(database: Database, datasource: str, *, due: float) -> None:
    """Schedule a later `updated_at` of a data source, in seconds of the epoch."""
    database.change("INSERT INTO late_stamp (datasource, due) VALUES (?, ?)", datasource, due)


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
                datasources.set_updated_at(database, row["datasource"], moved)
            database.change("DELETE FROM late_stamp WHERE rowid = ?", row["number"])
