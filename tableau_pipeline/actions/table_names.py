"""Find the tables that an action names in a file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tableauhyperapi import TableName

from tableau_pipeline.actions.conditions import Side
from tableau_pipeline.actions.names import schema_and_table
from tableau_pipeline.errors import BatchError
from tableau_pipeline.hyper.types.sql_types import type_family

# The tables of a file, each with the SQL types of its columns.
Tables = Mapping[TableName, Mapping[str, str]]

_MOST_LISTED = 10


@dataclass(frozen=True)
class KnownTable:
    """A table that exists.

    Attributes:
        side: the file that holds it.
        name: the name of the table, with its schema.
        types: the SQL types of its columns by name.
    """

    side: Side
    name: TableName
    types: Mapping[str, str]

    def __str__(self) -> str:
        return f"the {self.side} table {self.name}"


def find_table(tables: Tables, side: Side, name: TableName | str) -> KnownTable:
    """Find the table of a file that an action names.

    Raises:
        BatchError: there is none, or the schema is needed to identify it.
    """
    known = {schema_and_table(table, what=f"a {side} table"): table for table in tables}
    schema, table = schema_and_table(name, what=f"the {side} table")
    if schema is None:
        schema = _only_schema(known, side, table)
    found = known.get((schema, table))
    if found is None:
        wanted = TableName(table) if schema is None else TableName(schema, table)
        raise BatchError(
            f"the {side} has no table {wanted}; it has "
            f"{listed(map(str, tables)) or 'no tables at all'} (names are exact, also in case)"
        )
    return KnownTable(side, found, tables[found])


def check_types(tables: Tables) -> None:
    """Refuse unknown types.

    Raises:
        ValueError: a type is not spelled as `table_columns` spells it.
    """
    for table, types in tables.items():
        for column, sql in types.items():
            try:
                type_family(sql)
            except ValueError as error:
                raise ValueError(f'{table}, column "{column}": {error}') from None


def listed(names: Iterable[str]) -> str:
    """List names in a sentence; only the first ones if there are many."""
    names = list(names)
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _only_schema(known: Iterable[tuple[str | None, str]], side: Side, table: str) -> str | None:
    # The key is needed because None, for no schema, does not compare with text.
    schemas = sorted({schema for schema, _ in known}, key=str)
    if len(schemas) > 1:
        raise BatchError(
            f"the {side} holds tables in several schemas, {listed(map(str, schemas))}: name one, "
            f'as in TableName("{schemas[0]}", "{table}")'
        )
    return schemas[0] if schemas else None
