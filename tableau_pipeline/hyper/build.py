"""Build a multi-table `.hyper` file from Parquet files, which hyperd reads directly."""

import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tableauhyperapi import (
    Connection,
    HyperException,
    HyperProcess,
    SchemaName,
    TableName,
    escape_name,
)

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.messages import is_disk_full
from tableau_pipeline.hyper.parquet import TableSource, names, select_sql
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, file_version, hyper_type, string_literal


def comment(connection: Connection, table: TableName, comments: Mapping[str, str]) -> None:
    """Set the comments of a table's columns; the keys are column names."""
    for column, text in comments.items():
        connection.execute_command(
            f"COMMENT ON COLUMN {table}.{escape_name(column)} IS {string_literal(text)}"
        )
    if comments:
        # hyperd saves new comments only if something else changes in the database, so create and
        # drop a schema.
        database = table.schema_name.database_name if table.schema_name else None
        name = f"passing {uuid4()}"
        passing = SchemaName(database, name) if database else SchemaName(name)
        connection.execute_command(f"CREATE SCHEMA {passing}")
        connection.execute_command(f"DROP SCHEMA {passing}")


@contextmanager
def atomic_path(path: Path) -> Generator[Path]:
    """Yield a path for an unfinished file; if the block succeeds, the file moves to `path`."""
    # hyperd requires the suffix ".hyper". A fixed name is enough: a refresh locks its data source,
    # and `open_hyper` keeps other threads out.
    unfinished = path.absolute().with_name(f".{path.name}.unfinished.hyper")
    unfinished.unlink(missing_ok=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield unfinished
        # Keep the permissions of the old file, which only some users may be allowed to read.
        with suppress(FileNotFoundError):
            shutil.copymode(path, unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def saved(
    hyper: HyperProcess, path: Path, connection: Connection, *, name: str, database: str = ""
) -> Generator[None]:
    """Close the connection to a file after the block; then check that the file holds all rows.

    Args:
        path: the file that the block writes through the connection.
        name: the name of the file in messages.
        database: the name of the file's database in the connection; "" if it is the only database.

    Raises:
        RefreshError: no space is left on the disk, or the file does not hold all rows.
    """
    try:
        with connection:
            yield
            written = _row_counts(connection, database)
            # Detach the database before closing. On a full disk, closing alone would leave a file
            # without tables and raise no error.
            connection.catalog.detach_all_databases()
    except HyperException as error:
        if not is_disk_full(error):
            raise
        free = shutil.disk_usage(path.parent).free
        raise RefreshError(
            f"No space is left for {name}: hyperd could not write it, and {free / 1e6:,.1f} MB are "
            f"free in {path.parent}. Make room there, or set TMPDIR to a folder on a larger disk; "
            "then run again."
        ) from error
    try:
        with connect(hyper, path) as saved_file:
            saved_rows: Mapping[str, int] | str = _row_counts(saved_file)
    except HyperException as error:
        saved_rows = str(error)
    if saved_rows != written:
        raise RefreshError(
            f"hyperd did not save {name} correctly: expected the row counts {written}, found "
            f"{saved_rows}. Check that there is room in {path.parent}; then run again."
        )


def table_names(connection: Connection, database: str = "") -> list[TableName]:
    """Return the tables of all schemas; `database` may be "" if there is only one database."""
    catalog = connection.catalog
    by_schema = map(catalog.get_table_names, catalog.get_schema_names(database or None))
    return [table for tables in by_schema for table in tables]


def rows_in(connection: Connection, relation: TableName | str) -> int:
    """Count the rows of a table, or of a relation, given as the SQL that follows FROM."""
    return int(str(connection.execute_scalar_query(f"SELECT COUNT(*) FROM {relation}")))  # noqa: S608


def _row_counts(connection: Connection, database: str = "") -> Mapping[str, int]:
    """Return the number of rows of each table of a database; the keys are "schema.table"."""
    return {
        # Leave out the name of the database, which differs between the two connections to a file.
        f"{table.schema_name and table.schema_name.name}.{table.name}": rows_in(connection, table)
        for table in table_names(connection, database)
    }


# The name of the new file within the connection that writes it.
NEW = "new_file"


@contextmanager
def new_file(hyper: HyperProcess, path: Path, *, version: int) -> Generator[Connection]:
    """Open a connection to a new database, `NEW`, which becomes the file if the block succeeds.

    Args:
        version: the version of the file format.

    Raises:
        RefreshError: no space is left on the disk, or the file does not hold all rows.
    """
    with atomic_path(path) as unfinished:
        connection, database = connect(hyper), escape_name(str(unfinished))
        with saved(hyper, unfinished, connection, name=path.name, database=NEW):
            connection.execute_command(f"CREATE DATABASE {database} WITH VERSION {version}")
            connection.execute_command(f"ATTACH DATABASE {database} AS {NEW}")
            yield connection


def create_table(
    connection: Connection, table: TableName, types: Mapping[str, str], *, key: Sequence[str] = ()
) -> None:
    """Create a table; the columns in `key`, if any, become the assumed primary key.

    Args:
        types: the SQL type of each column, by column name.
    """
    definitions = [
        f"{escape_name(name)} {type_}{' NOT NULL' if name in key else ''}"
        for name, type_ in types.items()
    ]
    if key:
        definitions.append(f"ASSUMED PRIMARY KEY ({names(key)})")
    if table.schema_name:
        connection.catalog.create_schema_if_not_exists(table.schema_name)
    connection.execute_command(f"CREATE TABLE {table} ({', '.join(definitions)})")


@dataclass(frozen=True, slots=True)
class Extract:
    """A complete `.hyper` file; `rows` has the row count of each table, `size` is in bytes."""

    path: Path
    rows: dict[str, int]
    size: int
    version: int


def build_extract(
    hyper: HyperProcess,
    path: Path,
    *,
    tables: Sequence[TableSource],
    relationships: Sequence[Relationship] = (),
) -> Extract:
    """Write a `.hyper` file; the file appears at `path` only when it is complete.

    The tables get explicit columns and types. The `one` side of a relationship gets an assumed
    primary key, and Hyper requires NOT NULL for the columns of this key. The `many` side gets an
    assumed foreign key. Tableau infers its data model from these keys.

    Raises:
        UnsupportedTypeError: Tableau has no type for a column. Nothing was written.
        HyperException: hyperd cannot read the files, or a key column contains NULL.
    """
    selects = {table.name: select_sql(table) for table in tables}
    version = file_version(column for table in tables for column in table.columns)
    keys = {relationship.one: relationship.key for relationship in relationships}
    written = {}
    with new_file(hyper, path, version=version) as connection:
        for table in tables:
            target = TableName(NEW, EXTRACT_SCHEMA, table.name)
            types = {column.name: hyper_type(column, table=table.name) for column in table.columns}
            create_table(connection, target, types, key=keys.get(table.name, ()))
            inserted = connection.execute_command(
                f"INSERT INTO {target} SELECT * FROM {selects[table.name]} source"  # noqa: S608
            )
            written[table.name] = inserted or 0
            comment(connection, target, table.comments)
        # Add foreign keys after all tables, because a key may refer to a later table.
        for relationship in relationships:
            many, one = (
                TableName(NEW, EXTRACT_SCHEMA, table)
                for table in (relationship.many, relationship.one)
            )
            foreign = names([column for column, _ in relationship.on])
            connection.execute_command(
                f"ALTER TABLE {many} ADD ASSUMED FOREIGN KEY ({foreign}) "
                f"REFERENCES {one} ({names(relationship.key)})"
            )
    return Extract(path=path, rows=written, size=path.stat().st_size, version=version)


# The number of repeated keys that a message shows.
_SAMPLES = 3
_MORE = "to see some, plan with --samples, or run with samples: true"


def key_problem(
    hyper: HyperProcess, table: TableSource, key: Sequence[str], *, samples: bool
) -> str | None:
    """Return why `key` does not identify the rows of `table`; None if it identifies them.

    Args:
        samples: whether to show values of some rows.
    """
    if problem := null_problem(hyper, table, key, samples=samples):
        return problem
    grouped = (
        f"SELECT {names(key)}, COUNT(*) AS n FROM {select_sql(table)} source "  # noqa: S608
        f"GROUP BY {names(key)} HAVING COUNT(*) > 1"
    )
    with connect(hyper) as connection:
        count: Any = connection.execute_scalar_query(f"SELECT COUNT(*) FROM ({grouped}) repeated")  # noqa: S608
        if not count:
            return None
        repeated = (
            connection.execute_list_query(f"{grouped} ORDER BY {names(key)} LIMIT {_SAMPLES}")
            if samples
            else []
        )
    shown = ", ".join(f"{_quoted(values)} ({times} times)" for *values, times in repeated)
    instances = f"for instance {shown}" if samples else _MORE
    return (
        f'table "{table.name}": {", ".join(key)} is not unique: {count:,} '
        f"value{'s' * (count > 1)} of it repeat{'s' * (count == 1)} ({instances})"
    )


def null_problem(
    hyper: HyperProcess, table: TableSource, columns: Sequence[str], *, samples: bool
) -> str | None:
    """Return a phrase if some columns contain NULL; None if no column does.

    With `samples`, the phrase shows a row.
    """
    missing = " OR ".join(f"{escape_name(column)} IS NULL" for column in columns)
    where = f"FROM {select_sql(table)} source WHERE {missing}"
    with connect(hyper) as connection:
        count: Any = connection.execute_scalar_query(f"SELECT COUNT(*) {where}")
        if not count:
            return None
        rows = f'table "{table.name}": {" or ".join(columns)} is NULL in {count:,} row'
        rows += "s" * (count > 1)
        if not samples:
            return f"{rows} ({_MORE})"
        # Sort, so that a plan and the refresh after it show the same row.
        order = names([column.name for column in table.columns])
        (sample,) = connection.execute_list_query(f"SELECT * {where} ORDER BY {order} LIMIT 1")
    values = ", ".join(
        f"{column.name} = {value}"
        for column, value in zip(table.columns, sample, strict=True)
        if value is not None
    )
    return f"{rows}, for instance in the one with {values or 'nothing else'!s:.200}"


def _quoted(values: Sequence[Any]) -> str:
    # Quotes show where a value begins and ends.
    texts = (text if text.strip() == text != "" else f'"{text}"' for text in map(str, values))
    return " / ".join(texts)
