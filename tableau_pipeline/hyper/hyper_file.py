"""An open `.hyper` file: inspect, read and change it, by SQL and by Arrow."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tableauhyperapi import Connection, TableName, escape_name

from tableau_pipeline.hyper.arrow_streams import ArrowStream, Scan, scanned, streamed
from tableau_pipeline.hyper.comments import comment
from tableau_pipeline.hyper.parquet.rows import names
from tableau_pipeline.hyper.types.sql_types import sql_type


class HyperFileError(Exception):
    """A `.hyper` file cannot be opened, or a request does not fit its tables."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a file; `columns` maps names to SQL types."""

    name: TableName
    columns: dict[str, str]
    rows: int


@dataclass(frozen=True, slots=True)
class HyperFile:
    """An open file. Tables are named `TableName("Extract", "Extract")`.

    Data may be anything with columns in Arrow's memory format: Arrow tables, record batch readers,
    and data frames of most libraries. Columns are matched by name, never by order.

    Attributes:
        connection: for everything else that SQL can do.
    """

    connection: Connection

    def schemas(self) -> list[str]:
        """Return the names of its schemas."""
        return [name.name.unescaped for name in self.connection.catalog.get_schema_names()]

    def tables(self) -> list[TableInfo]:
        """Return the tables of all schemas."""
        return [self._info(table) for table in self.table_names()]

    def table_names(self) -> list[TableName]:
        """Return the names of the tables of all schemas, sorted."""
        catalog = self.connection.catalog
        found = (catalog.get_table_names(schema) for schema in catalog.get_schema_names())
        return sorted((name for tables in found for name in tables), key=str)

    def columns(self, table: TableName) -> dict[str, str]:
        """Return the SQL types of a table's columns, by name and in order."""
        definition = self.connection.catalog.get_table_definition(table)
        return {
            column.name.unescaped: sql_type(column.type, column.collation)
            for column in definition.columns
        }

    def reading(self, what: TableName | str) -> AbstractContextManager[pa.RecordBatchReader]:
        """Read the rows of a table or a query, batch by batch, within the block."""
        query = f"SELECT * FROM {what}" if isinstance(what, TableName) else what  # noqa: S608
        return streamed(self.connection, query)

    def read(self, what: TableName | str) -> pa.Table:
        """Read all rows of a table or a query; without ORDER BY in no particular order."""
        with self.reading(what) as reader:
            return reader.read_all()

    def execute(self, sql: str) -> int:
        """Execute a command; return the number of affected rows."""
        return self.connection.execute_command(sql) or 0

    def create(self, table: TableName, data: ArrowStream, *, key: Sequence[str] = ()) -> int:
        """Create a table with the columns and rows of `data`; return the number of rows.

        Args:
            key: columns that become its assumed primary key; they must not contain NULL.

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
        """Append rows; return their number. Columns that `data` lacks become NULL.

        Raises:
            HyperFileError: `data` has a column that the table lacks.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(data) as scan:
            self._check(table, scan)
            return self._insert(table, scan, where="TRUE")

    def update(self, table: TableName, data: ArrowStream, *, key: Sequence[str]) -> int:
        """Set the other columns of `data` in the rows with its keys; return the number of rows.

        A NULL in the key matches NULL.

        Raises:
            HyperFileError: a column is missing on either side, or a key is repeated in `data`.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(data) as scan:
            self._check(table, scan, key=key)
            return self._update(table, scan, key)

    def upsert(self, table: TableName, data: ArrowStream, *, key: Sequence[str]) -> int:
        """Update the rows with the keys of `data`, insert the others; return the number of rows.

        Raises:
            HyperFileError: a column is missing on either side, or a key is repeated in `data`.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(data) as scan:
            self._check(table, scan, key=key)
            exists = f"EXISTS (SELECT 1 FROM {table} target WHERE {_same(key)})"  # noqa: S608
            # The caller may catch an error of the insert, and must not keep half of the upsert.
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
        """Delete the rows that match a row of `keys` in all its columns; return their number.

        Raises:
            HyperFileError: `keys` has a column that the table lacks.
            UnsupportedArrowTypeError: names the column and its type.
        """
        with scanned(keys) as scan:
            self._check(table, scan)
            matches = f"SELECT 1 FROM {scan.relation} source WHERE {_same(list(scan.types))}"  # noqa: S608
            return self.execute(f"DELETE FROM {table} target WHERE EXISTS ({matches})")  # noqa: S608

    def comment(self, table: TableName, comments: Mapping[str, str]) -> None:
        """Set the comments of columns of a table, by column name."""
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
            raise HyperFileError(f"{table}: the data has only the key, so there is nothing to set")
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
        # hyperd would take the values of any one of the rows that share a key.
        repeated = self.connection.execute_list_query(
            f"SELECT {names(key)} FROM {scan.relation} source GROUP BY {names(key)} "  # noqa: S608
            "HAVING COUNT(*) > 1 LIMIT 1"
        )
        if repeated:
            shown = ", ".join(map(str, repeated[0]))
            raise HyperFileError(f"{table}: the key ({shown}) is repeated in the data")


def _same(key: Sequence[str]) -> str:
    return " AND ".join(
        f"target.{name} IS NOT DISTINCT FROM source.{name}" for name in map(escape_name, key)
    )
