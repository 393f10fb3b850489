"""Process uploaded files with hyperd: read `.hyper` files, append rows, and convert Parquet."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tableauhyperapi import Connection, CreateMode, HyperProcess, Nullability, TableName

from tableau_sandbox.hyperd import UnreadableFileError, connect, string_literal, with_hyperd

_SAMPLE_ROWS = 10
_SAMPLE_CHARACTERS = 200
_FOREIGN_KEYS = """
    SELECT child_schema.nspname, child.relname, parent_schema.nspname, parent.relname,
           array_to_string(pg_constraint.conkey, ','), array_to_string(pg_constraint.confkey, ',')
    FROM pg_catalog.pg_constraint
    JOIN pg_catalog.pg_class AS child ON child.oid = pg_constraint.conrelid
    JOIN pg_catalog.pg_namespace AS child_schema ON child_schema.oid = child.relnamespace
    JOIN pg_catalog.pg_class AS parent ON parent.oid = pg_constraint.confrelid
    JOIN pg_catalog.pg_namespace AS parent_schema ON parent_schema.oid = parent.relnamespace
    WHERE pg_constraint.contype = 'f'
"""


@dataclass(frozen=True)
class Column:
    """A column; `type` is the name of its Hyper type, such as "NUMERIC(18, 2)"."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True)
class Table:
    """A table with its row count and its first rows as text."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    row_count: int
    sample: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True)
class ForeignKey:
    """An assumed foreign key: pairs of columns that relate a child table to its parent table.

    A table is a pair: (schema, name).
    """

    child: tuple[str, str]
    parent: tuple[str, str]
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class HyperContent:
    """The tables of a `.hyper` file and their assumed foreign keys."""

    tables: tuple[Table, ...]
    foreign_keys: tuple[ForeignKey, ...]


def read_hyper_file(path: Path) -> HyperContent:
    """Read the content of a `.hyper` file.

    Raises:
        UnreadableFileError: the file is not a `.hyper` file, or hyperd cannot open it.
    """
    return with_hyperd(lambda hyper: _content(hyper, path), path)


def _content(hyper: HyperProcess, path: Path) -> HyperContent:
    with connect(hyper, path) as connection:
        names = [
            name
            for schema in connection.catalog.get_schema_names()
            for name in connection.catalog.get_table_names(schema)
        ]
        tables = tuple(_table(connection, name) for name in sorted(names, key=str))
        return HyperContent(tables, _foreign_keys(connection, tables))


def _table(connection: Connection, name: TableName) -> Table:
    columns = tuple(
        Column(column.name.unescaped, str(column.type), column.nullability is Nullability.NULLABLE)
        for column in connection.catalog.get_table_definition(name).columns
    )
    schema = name.schema_name.name.unescaped if name.schema_name else "public"
    count = cast(int, connection.execute_scalar_query(f"SELECT count(*) FROM {name}"))  # noqa: S608
    return Table(schema, name.name.unescaped, columns, count, _sample(connection, name, columns))


def _sample(
    connection: Connection, name: TableName, columns: tuple[Column, ...]
) -> tuple[tuple[str | None, ...], ...]:
    if not columns:
        return ()
    query = f"SELECT * FROM {name} LIMIT {_SAMPLE_ROWS}"  # noqa: S608
    rows = connection.execute_list_query(query)
    return tuple(tuple(_text(value) for value in row) for row in rows)


def _text(value: object) -> str | None:
    if value is None:
        return None
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text[:_SAMPLE_CHARACTERS]


def _foreign_keys(connection: Connection, tables: tuple[Table, ...]) -> tuple[ForeignKey, ...]:
    columns = {
        (table.schema, table.name): [column.name for column in table.columns] for table in tables
    }

    def column(table: tuple[str, str], number: str) -> str:
        return columns[table][int(number) - 1]

    keys = []
    for row in connection.execute_list_query(_FOREIGN_KEYS):
        child_schema, child_table, parent_schema, parent_table, numbers, parent_numbers = map(
            str, row
        )
        child, parent = (child_schema, child_table), (parent_schema, parent_table)
        pairs = zip(numbers.split(","), parent_numbers.split(","), strict=True)
        keys.append(
            ForeignKey(
                child, parent, tuple((column(child, a), column(parent, b)) for a, b in pairs)
            )
        )
    return tuple(sorted(keys, key=lambda key: (key.child, key.parent)))


def convert_parquet(parquet: Path, *, hyper_path: Path) -> None:
    """Convert a Parquet file to a `.hyper` file with the table "Extract"."Extract".

    Raises:
        UnreadableFileError: the file is not in Parquet, or Hyper lacks the type of a column.
    """
    with_hyperd(lambda hyper: _convert(hyper, parquet, hyper_path), parquet, hyper_path)


def _convert(hyper: HyperProcess, parquet: Path, hyper_path: Path) -> None:
    source = f"external({string_literal(str(parquet))}, FORMAT => 'parquet')"
    with connect(hyper, hyper_path, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command('CREATE SCHEMA "Extract"')
        connection.execute_command(
            f'CREATE TABLE "Extract"."Extract" AS (SELECT * FROM {source})'  # noqa: S608
        )


class NotAppendableError(ValueError):
    """The rows cannot be appended; the message states why."""


def append_rows(stored: Path, uploaded: Path, *, result: Path) -> HyperContent:
    """Write the rows of two files into a new file; columns match by name.

    Args:
        stored: the published file, which does not change.
        uploaded: the file with the additional rows.
        result: the path of the new file.

    Returns:
        the content of the new file.

    Raises:
        NotAppendableError: a file has several tables, the tables differ in more than the order of
            their columns, or hyperd cannot read a file.
    """
    try:
        table = _only_table(read_hyper_file(stored), "The published data source")
        added = _only_table(read_hyper_file(uploaded), "The file")
        _check_same_columns(table, added)
        with_hyperd(
            lambda hyper: _append(hyper, table, stored, uploaded, result=result),
            *(stored, uploaded, result),
        )
        return read_hyper_file(result)
    except UnreadableFileError as error:
        raise NotAppendableError(str(error)) from error


def _append(
    hyper: HyperProcess, table: Table, stored: Path, uploaded: Path, *, result: Path
) -> None:
    shutil.copyfile(stored, result)
    columns = ", ".join(_quoted(column.name) for column in table.columns)
    target = TableName("stored", table.schema, table.name)
    source = TableName("uploaded", table.schema, table.name)
    with connect(hyper) as connection:
        connection.catalog.attach_database(result, "stored")
        connection.catalog.attach_database(uploaded, "uploaded")
        connection.execute_command(
            f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}"  # noqa: S608
        )


def _only_table(content: HyperContent, whose: str) -> Table:
    if len(content.tables) != 1:
        raise NotAppendableError(
            f"{whose} has {len(content.tables)} tables; it must have exactly one table."
        )
    return content.tables[0]


def _check_same_columns(table: Table, added: Table) -> None:
    if (table.schema, table.name) != (added.schema, added.name):
        raise NotAppendableError(
            f'The table "{added.schema}"."{added.name}" cannot be appended to'
            f' "{table.schema}"."{table.name}".'
        )
    old = {column.name: column.type for column in table.columns}
    new = {column.name: column.type for column in added.columns}
    differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if differing:
        described = "; ".join(
            f'"{name}" is {new.get(name, "missing")} instead of {old.get(name, "missing")}'
            for name in differing
        )
        raise NotAppendableError(f"The columns of the file do not fit: {described}.")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
