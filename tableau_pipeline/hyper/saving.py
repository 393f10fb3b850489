"""Save a `.hyper` file, and check that it holds what was written."""

import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tableauhyperapi import Connection, HyperException, HyperProcess

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.process import connect

# In hyperd's words; a limit on the size of files ends the same way.
_NO_SPACE = "growing the database file failed"


@contextmanager
def saved(
    hyper: HyperProcess, path: Path, connection: Connection, *, name: str, database: str = ""
) -> Generator[None]:
    """Close a connection that writes the file at `path`, once the block has succeeded.

    Args:
        name: of the file, in messages.
        database: its name within the connection; "" if it is the only one.

    Raises:
        RefreshError: no space is left, or the file does not hold what was written.
    """
    try:
        with connection:
            yield
            written = _rows(connection, database)
            # Closing would save it, too, but is silent on a full disk: the file has no tables then.
            connection.catalog.detach_all_databases()
    except HyperException as error:
        if _NO_SPACE not in str(error):
            raise
        free = shutil.disk_usage(path.parent).free
        raise RefreshError(
            f"No space is left for {name}: hyperd could not write it, and {free / 1e6:,.1f} MB are "
            f"free in {path.parent}. Make room there, or set TMPDIR to a folder on a larger disk; "
            "then run again."
        ) from error
    if (found := _saved_rows(hyper, path)) != written:
        raise RefreshError(
            f"hyperd has not saved {name} as it was written: it holds {found}, not {written}. "
            f"Look whether there is room in {path.parent}; then run again."
        )


def _saved_rows(hyper: HyperProcess, path: Path) -> Mapping[str, int] | str:
    """Return the rows in a file by table, or why they cannot be counted."""
    try:
        with connect(hyper, path) as connection:
            return _rows(connection)
    except HyperException as error:
        return str(error)


def _rows(connection: Connection, database: str = "") -> Mapping[str, int]:
    """Return the number of rows of each table of a database."""
    catalog = connection.catalog
    tables = [
        table
        for schema in catalog.get_schema_names(database or None)
        for table in catalog.get_table_names(schema)
    ]
    return {
        # The name of the database within the connection is left out.
        f"{table.schema_name and table.schema_name.name}.{table.name}": int(
            str(connection.execute_scalar_query(f"SELECT COUNT(*) FROM {table}"))  # noqa: S608
        )
        for table in tables
    }
