"""Small files to publish, and the rows of what was published."""

import zipfile
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tableauhyperapi import Connection, CreateMode

from tableau_sandbox.facts.answer import Deviation
from tableau_sandbox.hyperd import hyper_process

TABLE = '"Extract"."Extract"'
_COLUMNS = "id INTEGER, name TEXT"


# Many facts need the same few files, and each takes some 50 ms to make.
@lru_cache
def hyper_file(*statements: str) -> bytes:
    """Return a `.hyper` file with a schema "Extract", made by these statements."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "made.hyper")
        mode = CreateMode.CREATE_AND_REPLACE
        with Connection(hyper_process().endpoint, path, mode) as connection:
            for statement in ('CREATE SCHEMA "Extract"', *statements):
                connection.execute_command(statement)
        return path.read_bytes()


def table_file(columns: str, *rows: str) -> bytes:
    """Return a `.hyper` file with one table; its columns and rows are in SQL."""
    insert = (f"INSERT INTO {TABLE} VALUES {', '.join(rows)}",) if rows else ()  # noqa: S608
    return hyper_file(f"CREATE TABLE {TABLE} ({columns})", *insert)


def rows_file(*rows: tuple[int | None, str | None], columns: str = _COLUMNS) -> bytes:
    """Return a `.hyper` file with one table of numbered names."""
    values = (f"({_literal(number)}, {_literal(name)})" for number, name in rows)
    return table_file(columns, *values)


def packaged_hyper(package: bytes) -> tuple[str, bytes]:
    """Return the path and the content of the `.hyper` file in a `.tdsx`.

    Raises:
        Deviation: it is no package with one such file.
    """
    try:
        with zipfile.ZipFile(BytesIO(package)) as archive:
            names = [name for name in archive.namelist() if name.endswith(".hyper")]
            if len(names) != 1:
                raise Deviation("a package with one .hyper file", f"one with {len(names)}")
            return names[0], archive.read(names[0])
    except zipfile.BadZipFile as error:
        raise Deviation("a package", "another file") from error


def rows_of(hyper: bytes, *, table: str = TABLE) -> list[tuple]:
    """Return the rows of a table, in order."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "read.hyper")
        path.write_bytes(hyper)
        with Connection(hyper_process().endpoint, path) as connection:
            found = connection.execute_list_query(f"SELECT * FROM {table}")  # noqa: S608
    return sorted(map(tuple, found), key=repr)


def _literal(value: int | str | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
