"""The tables that an action names, as hyperd finds them."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableauhyperapi import Connection, Nullability, SchemaName, SqlType, TableName

from tableau_pipeline.sandbox.batch.conditions import Side
from tableau_pipeline.sandbox.batch.errors import BatchError, Code
from tableau_pipeline.sandbox.batch.grammar.batches import TableReference


@dataclass(frozen=True)
class ColumnType:
    """What two columns must have in common to take each other's values."""

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
        name: as SQL has it.
        types: the types of its columns by name, in order.
        required: the columns that cannot be NULL.
    """

    side: Side
    name: TableName
    types: Mapping[str, ColumnType]
    required: frozenset[str]

    @property
    def title(self) -> str:
        """What people call it: without the database, which is a matter of the sandbox."""
        return f"{self.side} table {self.name.name}"


def find_table(
    connection: Connection, side: Side, reference: TableReference, *, action: int
) -> Table:
    """The table of a database that a reference stands for.

    Raises:
        BatchError: there is none, or a schema is needed to tell.
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
    """The schema that holds tables: every file also has a schema "public", mostly empty."""
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
