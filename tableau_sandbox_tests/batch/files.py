"""`.hyper` files from the model's tables, and back."""

from collections import Counter
from pathlib import Path
from typing import Any

from tableauhyperapi import (
    Connection,
    CreateMode,
    Date,
    Inserter,
    TableName,
    Timestamp,
    escape_name,
)

from tableau_sandbox.hyperd import hyper_process
from tableau_sandbox_tests.batch.model import Tables

Contents = dict[tuple[str, str], Counter]


def write_tables(path: Path, tables: Tables) -> Path:
    with Connection(hyper_process().endpoint, path, CreateMode.CREATE_AND_REPLACE) as connection:
        for schema in {schema for schema, _ in tables}:
            connection.execute_command(f"CREATE SCHEMA IF NOT EXISTS {escape_name(schema)}")
        for (schema, name), table in tables.items():
            columns = ", ".join(
                f"{escape_name(column.name)} {column.type} {'' if column.nullable else 'NOT NULL'}"
                for column in table.columns
            )
            connection.execute_command(f"CREATE TABLE {TableName(schema, name)} ({columns})")
            if table.rows:
                with Inserter(connection, TableName(schema, name)) as inserter:
                    inserter.add_rows(table.rows)
                    inserter.execute()
    return path


def read_tables(path: Path) -> Contents:
    with Connection(hyper_process().endpoint, path) as connection:
        catalog = connection.catalog
        return {
            (schema.name.unescaped, table.name.unescaped): Counter(
                tuple(map(plain, row))
                for row in connection.execute_list_query(f"SELECT * FROM {table}")
            )
            for schema in catalog.get_schema_names()
            for table in catalog.get_table_names(schema)
        }


def contents(tables: Tables) -> Contents:
    return {
        key: Counter(tuple(map(plain, row)) for row in rows.rows) for key, rows in tables.items()
    }


def plain(value: Any) -> Any:
    """A value that equals another one exactly if Hyper cannot tell them apart."""
    if isinstance(value, Timestamp):
        return value.to_datetime()
    if isinstance(value, Date):
        return value.to_date()
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value
