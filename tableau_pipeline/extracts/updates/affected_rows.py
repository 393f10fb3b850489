"""The affected rows of a table: an update deletes them and inserts their current version.

Small tables of the payload, the key tables, identify them: a row is affected if it matches a row of
any key table. Keys, windows and cutoffs are sent as tables because constants in a batch cannot be
decimals or dates, and have milliseconds only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tableauhyperapi import Connection, TableName, escape_name

from tableau_pipeline.actions.batch import Delete, all_of, source, target
from tableau_pipeline.actions.conditions import Condition
from tableau_pipeline.hyper.new_file import NEW, create_table
from tableau_pipeline.hyper.parquet.rows import names
from tableau_pipeline.hyper.tables import Column

Kind = Literal["keys", "expired", "values"]

_SQL = {"eq": "=", "lt": "<", "gte": ">="}


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """A row's `column` compared with the column `by` of a key table."""

    column: str
    operator: Literal["eq", "lt", "gte"]
    by: str

    def sql(self, row: str, keys: str) -> str:
        """The comparison in SQL, between two relations given by their aliases."""
        left, right = escape_name(self.column), escape_name(self.by)
        return f"{row}.{left} {_SQL[self.operator]} {keys}.{right}"

    @property
    def condition(self) -> Condition:
        """The comparison as a condition of an action."""
        left, right = target(self.column), source(self.by)
        if self.operator == "eq":
            return left == right
        return left < right if self.operator == "lt" else left >= right


@dataclass(frozen=True, slots=True)
class KeyTable:
    """A key table of the payload, in the schema `kind`, and how rows match it."""

    kind: Kind
    name: str
    matches: tuple[KeyMatch, ...]

    @property
    def table(self) -> TableName:
        """Its name in the finished payload."""
        return TableName(self.kind, self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns; the server accepts no others."""
        return tuple(dict.fromkeys(match.by for match in self.matches))

    def affects(self, row: str) -> str:
        """Return SQL that is true for matching rows of the relation with this alias."""
        comparisons = " AND ".join(match.sql(row, "keys") for match in self.matches)
        return f"EXISTS (SELECT 1 FROM {in_payload(self.kind, self.name)} keys WHERE {comparisons})"  # noqa: S608

    def delete(self, published: TableName) -> Delete:
        """Return the action that deletes the matching rows."""
        where = all_of(match.condition for match in self.matches)
        return Delete(target=published, source=self.table, where=where)


@dataclass(frozen=True, slots=True)
class Affected:
    """The affected rows of a table: they match a row of any of the key tables.

    Attributes:
        equal: the number of pairs of rows, one of either version, whose columns are all equal, in
            the files that the versions do not share; None if their columns were not compared.
    """

    keys: Sequence[KeyTable]
    equal: int | None


def fill(connection: Connection, keys: KeyTable, columns: Sequence[Column], select: str) -> None:
    """Create a key table in the payload from the rows of a query."""
    table = in_payload(keys.kind, keys.name)
    create_table(connection, table, columns)
    connection.execute_command(
        f"INSERT INTO {table} ({names([column.name for column in columns])}) {select}"
    )


def in_payload(schema: str, table: str) -> TableName:
    """Return the name of a table while the payload is being written."""
    return TableName(NEW, schema, table)


def affected(keys: Sequence[KeyTable], row: str) -> str:
    """Return SQL that is true for the affected rows of the relation with this alias."""
    return f"({' OR '.join(each.affects(row) for each in keys) or 'FALSE'})"
