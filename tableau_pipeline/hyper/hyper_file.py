"""An open `.hyper` file: look into it, read it, and change it, by SQL and by Arrow."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tableauhyperapi import Connection, TableName, escape_name

from tableau_pipeline.hyper.arrow_streams import ArrowStream, Scan, scanned, streamed
from tableau_pipeline.hyper.comments import comment
from tableau_pipeline.hyper.rows import names
from tableau_pipeline.hyper.types.sql_types import sql_type


class HyperFileError(Exception):
    """A `.hyper` file cannot be opened, or what was asked of it makes no sense."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a file; `columns` by name, with their types in SQL."""

    name: TableName
    columns: dict[str, str]
    rows: int


@dataclass(frozen=True, slots=True)
class HyperFile:
    """An open file. Tables are named `TableName("Extract", "Extract")`.

    Data comes as anything that has columns in Arrow's memory: its tables and record batch readers,
    and data frames of most libraries. Columns are matched by name, never by their order.

    Attributes:
        connection: for all else that SQL can do.
    """

    connection: Connection

    def schemas(self) -> list[str]:
        """The names of its schemas."""
        return [name.name.unescaped for name in self.connection.catalog.get_schema_names()]

    def tables(self) -> list[TableInfo]:
        """What tables it has, over all schemas."""
        return [self._info(table) for table in self.table_names()]

    def table_names(self) -> list[TableName]:
        """The tables over all schemas, by name."""
        catalog = self.connection.catalog
        found = (catalog.get_table_names(schema) for schema in catalog.get_schema_names())
        return sorted((name for tables in found for name in tables), key=str)

    def columns(self, table: TableName) -> dict[str, str]:
        """The types of a table's columns in SQL, by name and in order."""
        definition = self.connection.catalog.get_table_definition(table)
        return {
            column.name.unescaped: sql_type(column.type, column.collation)
            for column in definition.columns
        }

    def reading(self, what: TableName | str) -> AbstractContextManager[pa.RecordBatchReader]:
        """The rows of a table or a query, batch by batch, while the block lasts."""
        query = f"SELECT * FROM {what}" if isinstance(what, TableName) else what  # noqa: S608
        return streamed(self.connection, query)

    def read(self, what: TableName | str) -> pa.Table:
        """The rows of a table or a query, at once; in no particular order without ORDER BY."""
        with self.reading(what) as reader:
            return reader.read_all()

    def execute(self, sql: str) -> int:
        """Carry out a command: how many rows it affected."""
        return self.connection.execute_command(sql) or 0

    def create(self, table: TableName, data: ArrowStream, *, key: Sequence[str] = ()) -> int:
        """A new table with the columns and rows of `data`: how many rows.

        Args:
            key: columns that become its assumed primary key; they may hold no NULL.

        Raises:
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(data) as scan:
            definitions = [
                f"{escape_name(name)} {type_}{' NOT NULL' if name in key else ''}"
                for name, type_ in scan.types.items()
            ]
            if key:
                definitions.append(f"ASSUMED PRIMARY KEY ({names(key)})")
            if table.schema_name:
                self.connection.catalog.create_schema_if_not_exists(table.schema_name)
            self.execute(f"CREATE TABLE {table} ({', '.join(definitions)})")
            return self._insert(table, scan, where="TRUE")

    def insert(self, table: TableName, data: ArrowStream) -> int:
        """Append rows: how many. Columns of the table that `data` lacks are NULL in them.

        Raises:
            HyperFileError: `data` has a column that the table lacks.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(data) as scan:
            self._check(table, scan)
            return self._insert(table, scan, where="TRUE")

    def update(self, table: TableName, data: ArrowStream, *, key: Sequence[str]) -> int:
        """Set the other columns of `data` in the rows that have its keys: how many rows.

        A NULL key is the same as another one.

        Raises:
            HyperFileError: a column is missing on either side, or a key comes twice in `data`.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(data) as scan:
            self._check(table, scan, key=key)
            return self._update(table, scan, key)

    def upsert(self, table: TableName, data: ArrowStream, *, key: Sequence[str]) -> int:
        """Update the rows that have the keys of `data`, insert the others: how many rows in all.

        Raises:
            HyperFileError: a column is missing on either side, or a key comes twice in `data`.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(data) as scan:
            self._check(table, scan, key=key)
            exists = f"EXISTS (SELECT 1 FROM {table} target WHERE {_same(key)})"  # noqa: S608
            with self._transaction():
                updated = self._update(table, scan, key)
                return updated + self._insert(table, scan, where=f"NOT {exists}")

    def delete(self, table: TableName, keys: ArrowStream) -> int:
        """Delete the rows that have one of these keys, by all columns of `keys`: how many.

        Raises:
            HyperFileError: `keys` has a column that the table lacks.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(keys) as scan:
            self._check(table, scan)
            matches = f"SELECT 1 FROM {scan.relation} source WHERE {_same(list(scan.types))}"  # noqa: S608
            return self.execute(f"DELETE FROM {table} target WHERE EXISTS ({matches})")  # noqa: S608

    def comment(self, table: TableName, comments: Mapping[str, str]) -> None:
        """Say what columns of a table mean, by name."""
        comment(self.connection, table, comments)

    def _info(self, table: TableName) -> TableInfo:
        rows: Any = self.connection.execute_scalar_query(f"SELECT COUNT(*) FROM {table}")  # noqa: S608
        return TableInfo(table, self.columns(table), rows)

    def _insert(self, table: TableName, scan: Scan, *, where: str) -> int:
        columns = names(list(scan.types))
        return self.execute(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {scan.relation} source "  # noqa: S608
            f"WHERE {where}"
        )

    def _update(self, table: TableName, scan: Scan, key: Sequence[str]) -> int:
        others = [escape_name(name) for name in scan.types if name not in key]
        if not others:
            raise HyperFileError(f"{table}: the data has the key alone, and nothing to set")
        changes = ", ".join(f"{name} = source.{name}" for name in others)
        return self.execute(
            f"UPDATE {table} target SET {changes} FROM {scan.relation} source WHERE {_same(key)}"  # noqa: S608
        )

    def _check(self, table: TableName, scan: Scan, *, key: Sequence[str] = ()) -> None:
        known = self.columns(table)
        if unknown := [name for name in scan.types if name not in known]:
            raise HyperFileError(
                f"{table} has no column {', '.join(unknown)}; it has {', '.join(known)}"
            )
        if missing := [name for name in key if name not in scan.types]:
            raise HyperFileError(
                f"{table}: the data has no column {', '.join(missing)}, which the key names"
            )
        if key:
            self._check_unique(table, scan, key)

    def _check_unique(self, table: TableName, scan: Scan, key: Sequence[str]) -> None:
        repeated = self.connection.execute_list_query(
            f"SELECT {names(key)} FROM {scan.relation} source GROUP BY {names(key)} "  # noqa: S608
            "HAVING COUNT(*) > 1 LIMIT 1"
        )
        if repeated:
            shown = ", ".join(map(str, repeated[0]))
            raise HyperFileError(f"{table}: the key ({shown}) comes more than once in the data")

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self.execute("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")


def _same(key: Sequence[str]) -> str:
    return " AND ".join(
        f"target.{name} IS NOT DISTINCT FROM source.{name}" for name in map(escape_name, key)
    )
