from dataclasses import fields

from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Datasource, Revision

_COLUMNS = [field.name for field in fields(Revision) if field.name != "publisher_name"]
_SELECT = (
    "SELECT revision.*, user.name AS publisher_name FROM revision"
    " JOIN user ON user.luid = revision.publisher WHERE datasource = ?"
)


def add_revision(
    database: Database, datasource: Datasource, *, publisher: str, published_at: str, keep: int
) -> None:
    """Add the latest revision, and remove the oldest ones beyond `keep`."""
    values = {
        "datasource": datasource.luid,
        "number": datasource.revision,
        "publisher": publisher,
        "published_at": published_at,
        "hyper_file": datasource.hyper_file,
        "hyper_bytes": datasource.hyper_bytes,
        "packaged_path": datasource.packaged_path,
        "tds": datasource.tds,
    }
    database.change(
        f"INSERT INTO revision ({', '.join(_COLUMNS)})"  # noqa: S608
        f" VALUES ({', '.join('?' * len(_COLUMNS))})",
        *(values[column] for column in _COLUMNS),
    )
    database.change(
        "DELETE FROM revision WHERE datasource = ? AND number <= ?",
        datasource.luid,
        datasource.revision - keep,
    )


def revisions(database: Database, datasource: str) -> list[Revision]:
    """Return the kept revisions of a data source, oldest first."""
    rows = database.rows(f"{_SELECT} ORDER BY number", datasource)
    return [Revision.of(row) for row in rows]


def delete_revision(database: Database, datasource: str, number: int) -> bool:
    """Delete one revision of a data source; return False if there is none."""
    sql = "DELETE FROM revision WHERE datasource = ? AND number = ?"
    return database.change(sql, datasource, number) > 0


def revision(database: Database, datasource: str, number: int) -> Revision | None:
    """Return one revision of a data source."""
    row = database.row(f"{_SELECT} AND number = ?", datasource, number)
    return Revision.of(row) if row else None
