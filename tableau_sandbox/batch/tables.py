"""Find the tables that an action names."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableauhyperapi import Connection, Nullability, SchemaName, SqlType, TableName

from tableau_sandbox.batch.conditions import Side
from tableau_sandbox.batch.errors import BatchError, Code
from tableau_sandbox.batch.grammar.batches import TableReference


@dataclass(frozen=True)
class ColumnType:
    """The type of a column; two columns need the same one to exchange values."""

    type: SqlType
    collation: str | None

    def __str__(self) -> str:
        collated = f" COLLATE {self.collation}" if self.collation else ""
        return f"{self.type}{collated}"


@dataclass(frozen=True)
class Table:
    """A table of an attached database.

    Attributes:
        side: the database, attached under this name.
        name: the name in SQL.
        types: the types of its columns, by name and in order.
        required: the columns that cannot be NULL.
    """

    side: Side
    name: TableName
    types: Mapping[str, ColumnType]
    required: frozenset[str]

    @property
    def title(self) -> str:
        """The name for messages, without the database, which only the sandbox knows."""
        return f"{self.side} table {self.name.name}"


def find_table(
    connection: Connection, side: Side, reference: TableReference, *, action: int
) -> Table:
    """Find the table of a database that a reference names.

    Raises:
        BatchError: there is none, or the schema is needed to identify it.
    """
    found = [name for name in _tables(connection, side) if name.name.unescaped == reference.name]
    schema = (
        reference.schema
        if reference.schema is not None
        else _only_schema(connection, side, action=action)
    )
    for name in found:
        if name.schema_name is not None and name.schema_name.name.unescaped == schema:
            return _table(connection, side, name)
    raise BatchError(
        Code.NO_SUCH_TABLE,
        f"There was a problem retrieving table information for the {side} table."
        f" Specified table does not exist: {reference.name}.",
        action,
    )


def _only_schema(connection: Connection, side: Side, *, action: int) -> str | None:
    """Return the schema that has tables: every file also has a schema "public", mostly empty."""
    schemas = {
        name.schema_name.name.unescaped
        for name in _tables(connection, side)
        if name.schema_name is not None
    }
    if len(schemas) > 1:
        raise BatchError(
            Code.SCHEMA_NEEDED,
            f"The {side} holds tables in several schemas, so '{side}-schema' must name one of"
            f" them: {', '.join(sorted(schemas))}.",
            action,
        )
    return next(iter(schemas), None)


def _tables(connection: Connection, side: Side) -> list[TableName]:
    catalog = connection.catalog
    return [
        table
        for schema in catalog.get_schema_names(side)
        for table in catalog.get_table_names(SchemaName(side, schema.name))
    ]


def _table(connection: Connection, side: Side, name: TableName) -> Table:
    columns = connection.catalog.get_table_definition(name).columns
    return Table(
        side,
        name,
        {column.name.unescaped: ColumnType(column.type, column.collation) for column in columns},
        frozenset(
            column.name.unescaped
            for column in columns
            if column.nullability is Nullability.NOT_NULLABLE
        ),
    )
