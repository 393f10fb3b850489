"""Inspect, read and change an open `.hyper` file, by SQL and by Arrow."""

import shutil
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol

import pyarrow as pa
from tableauhyperapi import Connection, HyperException, HyperProcess, TableName, escape_name

from tableau_pipeline.hyper.build import (
    atomic_path,
    comment,
    create_table,
    new_file,
    rows_in,
    saved,
    table_names,
)
from tableau_pipeline.hyper.messages import reason_not_opened
from tableau_pipeline.hyper.parquet import names
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.hyper.types import (
    LOWEST,
    arrow_sql_type,
    plain_field,
    sql_type,
    string_literal,
)


class ArrowStream(Protocol):
    """Any Arrow data: tables, record batch readers, and data frames of most libraries."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


@dataclass(frozen=True, slots=True)
class Scan:
    """An SQL relation with Arrow data; `types` maps column names to SQL types."""

    relation: str
    types: dict[str, str]


@contextmanager
def scanned(data: ArrowStream) -> Generator[Scan]:
    """Let hyperd read Arrow data within the block; yield the relation to use in SQL.

    Raises:
        UnsupportedArrowTypeError: names the column and its type.
        pyarrow.ArrowInvalid: a value does not fit its SQL type, such as a time in nanoseconds.
    """
    with TemporaryDirectory() as folder, pa.RecordBatchReader.from_stream(data) as reader:
        schema = pa.schema([plain_field(field) for field in reader.schema])
        # Write a file, because a pipe can be read only once. The check of keys reads the rows, and
        # the command reads them again.
        file = Path(folder) / "rows.arrows"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in reader:
                writer.write_batch(batch.cast(schema))
        types = {field.name: arrow_sql_type(field.type) for field in schema}
        columns = ", ".join(f"{escape_name(name)} {type_}" for name, type_ in types.items())
        path = string_literal(str(file))
        yield Scan(
            f"external({path}, COLUMNS => DESCRIPTOR({columns}), FORMAT => 'arrowstream')", types
        )


class HyperFileError(Exception):
    """A `.hyper` file cannot be opened, or data do not fit a table of the file."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a file; `columns` maps names to SQL types."""

    name: TableName
    columns: dict[str, str]
    rows: int


@dataclass(frozen=True, slots=True)
class HyperFile:
    """An open file. Tables have names such as `TableName("Extract", "Extract")`.

    Data may be anything with columns in Arrow's memory format: Arrow tables, record batch readers,
    and data frames of most libraries. Columns are matched by name, never by order.

    Methods that take data raise an UnsupportedArrowTypeError if Hyper cannot hold a type. All of
    them except `create` raise a HyperFileError if the table lacks a column of the data. `insert`,
    `update` and `upsert` also raise this error if a column of the table would change a value.
    `update` and `upsert` also raise this error if the data lack a column of the key, or repeat a
    key.

    Attributes:
        connection: the open connection, for SQL that no method covers.
    """

    connection: Connection

    def tables(self) -> list[TableInfo]:
        """Return the tables of all schemas."""
        return [
            TableInfo(name, self.columns(name), rows_in(self.connection, name))
            for name in self.table_names()
        ]

    def table_names(self) -> list[TableName]:
        """Return the names of the tables of all schemas, sorted."""
        return sorted(table_names(self.connection), key=str)

    def columns(self, table: TableName) -> dict[str, str]:
        """Return the SQL types of a table's columns in order; the keys are column names."""
        definition = self.connection.catalog.get_table_definition(table)
        return {
            column.name.unescaped: sql_type(column.type, column.collation)
            for column in definition.columns
        }

    @contextmanager
    def reading(self, what: TableName | str) -> Generator[pa.RecordBatchReader]:
        """Read the rows of a table or a query, batch by batch, within the block."""
        query = f"SELECT * FROM {what}" if isinstance(what, TableName) else what  # noqa: S608
        with TemporaryDirectory() as folder:
            # Let hyperd write the rows to a file, because handling each row in Python is slow.
            file = Path(folder) / "rows.arrows"
            self.execute(f"COPY ({query}) TO {string_literal(str(file))} WITH (FORMAT arrowstream)")
            with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as reader:
                # Cast, because hyperd writes dates as milliseconds and calls the time zone "Utc".
                yield reader.cast(pa.schema([plain_field(field) for field in reader.schema]))

    def read(self, what: TableName | str) -> pa.Table:
        """Read all rows of a table or a query; to sort the rows, use a query with ORDER BY."""
        with self.reading(what) as reader:
            return reader.read_all()

    def execute(self, sql: str) -> int:
        """Execute a command; return the number of affected rows."""
        return self.connection.execute_command(sql) or 0

    def create(self, table: TableName, data: ArrowStream, *, key: Sequence[str] = ()) -> int:
        """Create a table with the columns and rows of `data`; return the number of rows.

        Args:
            key: the columns of the assumed primary key of the table, which must not contain NULL.
        """
        with scanned(data) as scan:
            create_table(self.connection, table, scan.types, key=key)
            return self._insert(table, scan)

    def insert(self, table: TableName, data: ArrowStream) -> int:
        """Append rows; return the number of rows. Columns that `data` lacks become NULL."""
        with scanned(data) as scan:
            self._check(table, scan)
            self._check_values(table, scan)
            return self._insert(table, scan)

    def update(self, table: TableName, data: ArrowStream, *, key: Sequence[str]) -> int:
        """Copy the values of `data` to the rows with the same key; return how many rows were set.

        A NULL in the key matches NULL.
        """
        with scanned(data) as scan:
            self._check(table, scan, key=key)
            self._check_values(table, scan, besides=key)
            return self._update(table, scan, key)

    def upsert(self, table: TableName, data: ArrowStream, *, key: Sequence[str]) -> int:
        """Update rows whose key exists, and insert the other rows; return how many were written."""
        with scanned(data) as scan:
            self._check(table, scan, key=key)
            self._check_values(table, scan)
            exists = f"EXISTS (SELECT 1 FROM {table} target WHERE {_matches(key)})"  # noqa: S608
            # Use a transaction, so that a failed insert also undoes the update. The caller may
            # catch the error and go on.
            self.execute("BEGIN TRANSACTION")
            try:
                changed = self._update(table, scan, key)
                changed += self._insert(table, scan, where=f"NOT {exists}")
            except BaseException:
                self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")
            return changed

    def delete(self, table: TableName, keys: ArrowStream) -> int:
        """Delete rows that equal a row of `keys` in the columns of `keys`; return their number."""
        with scanned(keys) as scan:
            self._check(table, scan)
            matches = f"SELECT 1 FROM {scan.relation} source WHERE {_matches(list(scan.types))}"  # noqa: S608
            return self.execute(f"DELETE FROM {table} target WHERE EXISTS ({matches})")  # noqa: S608

    def comment(self, table: TableName, comments: Mapping[str, str]) -> None:
        """Set the comments of a table's columns; the keys are column names."""
        comment(self.connection, table, comments)

    def _insert(self, table: TableName, scan: Scan, *, where: str = "TRUE") -> int:
        columns = names(list(scan.types))
        return self.execute(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {scan.relation} source "  # noqa: S608
            f"WHERE {where}"
        )

    def _update(self, table: TableName, scan: Scan, key: Sequence[str]) -> int:
        others = [escape_name(name) for name in scan.types if name not in key]
        if not others:
            raise HyperFileError(f"{table}: the data has only the key, so there is nothing to set")
        changes = ", ".join(f"{name} = source.{name}" for name in others)
        return self.execute(
            f"UPDATE {table} target SET {changes} FROM {scan.relation} source WHERE {_matches(key)}"  # noqa: S608
        )

    def _check(self, table: TableName, scan: Scan, *, key: Sequence[str] = ()) -> None:
        """Refuse data that repeat a key, or whose columns do not fit the table."""
        columns = self.columns(table)
        if not scan.types:
            raise HyperFileError(f"{table}: the data has no columns")
        if unknown := [name for name in scan.types if name not in columns]:
            raise HyperFileError(
                f"{table} has no column {', '.join(unknown)}; it has {', '.join(columns)}"
            )
        if missing := [name for name in key if name not in scan.types]:
            raise HyperFileError(
                f"{table}: the data has no column {', '.join(missing)}, which the key names"
            )
        if not key:
            return
        # Refuse repeated keys, because hyperd would pick any of the rows that share a key. Compare
        # in the collation of the table, in which different texts may be equal.
        compared = ", ".join(
            escape_name(name) + "".join(columns[name].partition(" COLLATE ")[1:])
            if scan.types[name] == "TEXT"
            else escape_name(name)
            for name in key
        )
        repeated = self.connection.execute_list_query(
            f"SELECT {compared} FROM {scan.relation} source GROUP BY {compared} "  # noqa: S608
            "HAVING COUNT(*) > 1 LIMIT 1"
        )
        if repeated:
            values = ", ".join(map(str, repeated[0]))
            raise HyperFileError(f"{table}: the key ({values}) is repeated in the data")

    def _check_values(self, table: TableName, scan: Scan, *, besides: Sequence[str] = ()) -> None:
        """Refuse values that hyperd would round or cut off to fit the column of the table."""
        columns = self.columns(table)
        for name, type_ in scan.types.items():
            target = columns[name]
            if name in besides or type_ == target or not _may_change(type_, target):
                continue
            value = escape_name(name)
            # Cast BIGINT back to a wider type, because rounding may move a large number beyond the
            # range of BIGINT.
            back = "NUMERIC(38,0)" if type_ == "BIGINT" else type_
            found = self.connection.execute_list_query(
                f"SELECT {value} FROM {scan.relation} source "  # noqa: S608
                f"WHERE CAST(CAST({value} AS {target}) AS {back}) IS DISTINCT FROM {value} LIMIT 1"
            )
            if found:
                raise HyperFileError(
                    f'{table}: the column "{name}" is {target}, which cannot hold {found[0][0]} '
                    f"({type_}) without a change: cast the data, or give the table another type"
                )


# For each type, the types to which hyperd casts values by rounding them or cutting off a part.
# Rounding 64-bit floats to 32 bits is allowed: users choose 32-bit floats in order to round.
_WHOLE = ("SMALLINT", "INTEGER", "BIGINT")
_ROUNDED = {
    "INTEGER": ("REAL",),
    "BIGINT": ("REAL", "DOUBLE PRECISION"),
    "DOUBLE PRECISION": (*_WHOLE, "NUMERIC"),
    "NUMERIC": (*_WHOLE, "NUMERIC", "REAL", "DOUBLE PRECISION"),
    "TIMESTAMP": ("DATE",),
    "TIMESTAMPTZ": ("DATE",),
}


def _may_change(type_: str, target: str) -> bool:
    """Whether a cast from an SQL type to the target type may change a value without an error."""
    return target.partition("(")[0] in _ROUNDED.get(type_.partition("(")[0], ())


def _matches(key: Sequence[str]) -> str:
    """Return SQL that is true if `target` and `source` have the same key; NULL equals NULL."""
    return " AND ".join(
        f"target.{name} IS NOT DISTINCT FROM source.{name}" for name in map(escape_name, key)
    )


# The files that threads of this process are changing.
_changing: set[Path] = set()
_lock = threading.Lock()


@contextmanager
def open_hyper(
    path: Path | str,
    mode: Literal["r", "a", "w"] = "r",
    *,
    version: int = LOWEST,
    hyper: HyperProcess | None = None,
) -> Generator[HyperFile]:
    """Open a `.hyper` file to read it ("r"), to change it ("a"), or to create or replace it ("w").

    Changes are made to a copy, which replaces the file when the block succeeds. So readers see all
    changes or no change, and an error leaves the file unchanged. A replaced file keeps its
    permissions. If `path` is a link, the target of the link is replaced.

    Args:
        version: the format version of a new file.
        hyper: the hyperd to use; by default, the shared hyperd of this process.

    Raises:
        HyperFileError: the file does not exist, is not a .hyper file, is damaged, or is in use.
        RefreshError: no space is left on the disk, or the file does not hold all rows.
    """
    hyper, path = hyper or hyper_process(), Path(path).absolute()
    if mode == "r":
        with _connect(hyper, path) as connection:
            yield HyperFile(connection)
        return
    path = path.resolve()
    with _exclusive(path):
        if mode == "w":
            with new_file(hyper, path, version=version) as connection:
                yield HyperFile(connection)
            return
        # Keep the original file open, so that no other process can change it during the block.
        with atomic_path(path) as unfinished, _connect(hyper, path):
            shutil.copyfile(path, unfinished)
            connection = _connect(hyper, unfinished)
            with saved(hyper, unfinished, connection, name=path.name):
                yield HyperFile(connection)


def table_columns(hyper: HyperProcess, path: Path) -> dict[TableName, dict[str, str]]:
    """Return the SQL types of each table's columns, in order, by table name and column name."""
    with open_hyper(path, hyper=hyper) as file:
        return {table: file.columns(table) for table in file.table_names()}


def read_table(hyper: HyperProcess, path: Path, table: TableName) -> pa.Table:
    """Read the rows of a table, in no particular order."""
    with open_hyper(path, hyper=hyper) as file:
        return file.read(table)


def _connect(hyper: HyperProcess, path: Path) -> Connection:
    """Connect to a file; if the connection fails, raise a HyperFileError with hyperd's reason."""
    if path.suffix != ".hyper":
        raise HyperFileError(f"{path}: the name must end in .hyper")
    try:
        return connect(hyper, path)
    except HyperException as error:
        raise HyperFileError(f"{path}: {reason_not_opened(error)}") from error


@contextmanager
def _exclusive(path: Path) -> Generator[None]:
    """Keep other threads from changing the file; hyperd's lock stops only other processes."""
    with _lock:
        if path in _changing:
            raise HyperFileError(f"{path}: another thread is changing it")
        _changing.add(path)
    try:
        yield
    finally:
        _changing.discard(path)
