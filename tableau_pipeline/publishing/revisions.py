"""Count the rows that changed between two revisions of a published data source."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tableauhyperapi import Connection, HyperException, TableName, escape_name

from tableau_pipeline.hyper.build import rows_in, table_names
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.types import sql_type
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.publishing import packages
from tableau_pipeline.publishing.errors import DOWNLOAD_REMEDIES
from tableau_pipeline.publishing.packages import unpacked
from tableau_pipeline.publishing.site import TableauSite

_OLDER, _NEWER = "older", "newer"


class IncomparableError(ValueError):
    """Two revisions cannot be compared; the message shows no values of their rows."""


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """How many rows a data source has now, and how many differ from an earlier revision.

    Attributes:
        changed: the number of rows that only the newer revision has, or the number of rows that
            only the older revision has, whichever is larger. For several tables, these numbers are
            added.
    """

    rows: int
    changed: int


def changed_rows(
    site: TableauSite, hyper: Hyperd, luid: str, *, revision: int, limit: int
) -> ChangedRows:
    """Download a data source and an earlier revision, and compare their rows.

    The downloads go to a temporary folder, which is removed afterwards.

    Args:
        revision: the number of the earlier revision.
        limit: the most bytes of each download.

    Raises:
        RefusedError: this user may not download the data source.
        RefreshError: a revision cannot be downloaded, or is larger than `limit`.
        ValueError: the revisions cannot be compared; the message says why.
    """
    with TemporaryDirectory(prefix="revisions ", dir=scratch()) as folder:
        newer = _file(site, luid, Path(folder) / _NEWER, revision=None, limit=limit)
        older = _file(site, luid, Path(folder) / _OLDER, revision=revision, limit=limit)
        return compare_files(hyper, older, newer)


def _file(site: TableauSite, luid: str, folder: Path, *, revision: int | None, limit: int) -> Path:
    folder.mkdir()
    phrase = f"its revision {revision}" if revision else "it"

    def download() -> Path:
        with packages.open_content(site.tsc, luid, limit=limit, revision=revision) as answer:
            return packages.save_content(answer, folder / "content")

    package = site.ask(f"Downloading {phrase}", download, remedies=DOWNLOAD_REMEDIES)
    try:
        return unpacked(package, folder / "published.hyper")
    finally:
        package.unlink()


def compare_files(hyper: Hyperd, older: Path, newer: Path) -> ChangedRows:
    """Compare the rows of two `.hyper` files, table by table, without regard to keys.

    Raises:
        ValueError: the files have different tables or columns, or hyperd cannot compare the rows.
    """
    try:
        with connect(hyper) as connection:
            for path, alias in ((older, _OLDER), (newer, _NEWER)):
                connection.catalog.attach_database(path, alias)
            before, after = (_tables(connection, database) for database in (_OLDER, _NEWER))
            if before != after:
                raise IncomparableError("the two revisions have different tables or columns")
            tables = [_changes(connection, name, list(types)) for name, types in after.items()]
    except HyperException as error:
        raise ValueError(f"hyperd cannot compare them: {error.main_message}") from error
    return ChangedRows(sum(table.rows for table in tables), sum(table.changed for table in tables))


_TableKey = tuple[str, str]


def _tables(connection: Connection, database: str) -> Mapping[_TableKey, Mapping[str, str]]:
    """Return the SQL type of each column, by table; the key of a table is its schema and name."""
    tables = {}
    for table in table_names(connection, database):
        definition = connection.catalog.get_table_definition(table)
        schema = table.schema_name.name.unescaped if table.schema_name else ""
        types = {
            column.name.unescaped: sql_type(column.type, column.collation)
            for column in definition.columns
        }
        tables[schema, table.name.unescaped] = types
    return tables


def _changes(connection: Connection, name: _TableKey, columns: list[str]) -> ChangedRows:
    older, newer = (TableName(database, *name) for database in (_OLDER, _NEWER))
    # Name the columns, because the files may have them in different orders.
    names = ", ".join(map(escape_name, columns))
    differences = [
        f"(SELECT {names} FROM {table} EXCEPT ALL SELECT {names} FROM {other}) AS only_one"  # noqa: S608
        for table, other in ((newer, older), (older, newer))
    ]
    rows = rows_in(connection, newer)
    return ChangedRows(rows, max(rows_in(connection, query) for query in differences))
