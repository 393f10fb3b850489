from datetime import datetime

from tableau_pipeline.sandbox.clock import stamp_after
from tableau_pipeline.sandbox.store.database import Database


def add_late_stamp(database: Database, datasource: str, *, due: float) -> None:
    """Let the `updated_at` of a data source move at a later time, in seconds of the epoch."""
    database.change("INSERT INTO late_stamp (datasource, due) VALUES (?, ?)", datasource, due)


def apply_due_stamps(database: Database, *, now: datetime) -> None:
    """Move the `updated_at` of the data sources for which the time has come."""
    with database.transaction():
        for row in database.rows(
            "SELECT late_stamp.rowid AS number, datasource.luid, datasource.updated_at"
            " FROM late_stamp JOIN datasource ON datasource.luid = late_stamp.datasource"
            " WHERE due <= ?",
            now.timestamp(),
        ):
            moved = stamp_after(row["updated_at"], now)
            sql = "UPDATE datasource SET updated_at = ? WHERE luid = ?"
            database.change(sql, moved, row["luid"])
            database.change("DELETE FROM late_stamp WHERE rowid = ?", row["number"])
