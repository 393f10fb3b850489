"""Comments that document the columns of a file."""

from collections import defaultdict
from collections.abc import Mapping
from uuid import uuid4

from tableauhyperapi import Connection, SchemaName, TableName, escape_name

from tableau_pipeline.hyper.types.literals import string_literal

_FIND = """
    SELECT nspname, relname, attname, description
    FROM pg_catalog.pg_description
    JOIN pg_catalog.pg_class c ON c.oid = objoid
    JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
    JOIN pg_catalog.pg_attribute ON attrelid = objoid AND attnum = objsubid
"""


def comment(connection: Connection, table: TableName, comments: Mapping[str, str]) -> None:
    """Set the comments of columns of a table, by column name."""
    for column, text in comments.items():
        connection.execute_command(
            f"COMMENT ON COLUMN {table}.{escape_name(column)} IS {string_literal(text)}"
        )
    if comments:
        # hyperd loses new comments unless something else in the schema changes too.
        database = table.schema_name.database_name if table.schema_name else None
        name = f"passing {uuid4()}"
        passing = SchemaName(database, name) if database else SchemaName(name)
        connection.execute_command(f"CREATE SCHEMA {passing}")
        connection.execute_command(f"DROP SCHEMA {passing}")


def copy_comments(old: Connection, new: Connection) -> None:
    """Copy the comments of all columns from one file to another."""
    found: dict[TableName, dict[str, str]] = defaultdict(dict)
    for row in old.execute_list_query(_FIND):
        schema, table, column, text = map(str, row)
        found[TableName(schema, table)][column] = text
    for name, comments in found.items():
        comment(new, name, comments)
