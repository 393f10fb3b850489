"""A multi-table `.hyper` file from Parquet files, which hyperd reads itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tableauhyperapi import HyperProcess, TableName, escape_name, escape_string_literal

from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA, Relationship, TableSource
from tableau_pipeline.hyper.types import file_version, hyper_type


@dataclass(frozen=True, slots=True)
class Extract:
    """A finished `.hyper` file; `rows` by table, `size` in bytes."""

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
    """Write `path`, which appears under its name only when it is complete.

    The tables get explicit columns and types. The `one` sides of the relationships get assumed
    primary keys, whose columns Hyper wants NOT NULL, and the `many` sides assumed foreign keys:
    from these Tableau infers its data model.

    Raises:
        UnsupportedTypeError: before anything is written.
        HyperException: hyperd cannot read the files, or a key column holds a NULL.
    """
    types = {
        table.name: [hyper_type(column, table=table.name) for column in table.columns]
        for table in tables
    }
    version = file_version(column for table in tables for column in table.columns)
    keys = {relationship.one: relationship.key for relationship in relationships}
    # hyperd opens files by their ending, and the name is ours alone: one lock guards a data source.
    unfinished = path.absolute().with_name(f".{path.name}.unfinished.hyper")
    unfinished.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with connect(hyper) as connection:
            run = connection.execute_command
            database = escape_name(str(unfinished))
            run(f"CREATE DATABASE {database} WITH VERSION {version}")
            run(f"ATTACH DATABASE {database} AS extract")
            run(f"CREATE SCHEMA {_qualified()}")
            rows = {}
            for table in tables:
                run(_create_table(table, types[table.name], key=keys.get(table.name, ())))
                rows[table.name] = run(_insert(table, types[table.name])) if table.files else 0
            for relationship in relationships:
                run(_foreign_key(relationship))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return Extract(path=path, rows=rows, size=path.stat().st_size, version=version)


def _qualified(table: str | None = None) -> str:
    return (
        str(TableName("extract", EXTRACT_SCHEMA, table)) if table else f'extract."{EXTRACT_SCHEMA}"'
    )


def _names(columns: Sequence[str]) -> str:
    return ", ".join(escape_name(column) for column in columns)


def _create_table(table: TableSource, types: Sequence[str], *, key: Sequence[str]) -> str:
    columns = [
        f"{escape_name(column.name)} {type_}{' NOT NULL' if column.name in key else ''}"
        for column, type_ in zip(table.columns, types, strict=True)
    ]
    constraint = [f"ASSUMED PRIMARY KEY ({_names(key)})"] if key else []
    return f"CREATE TABLE {_qualified(table.name)} ({', '.join(columns + constraint)})"


def _insert(table: TableSource, types: Sequence[str]) -> str:
    values = ", ".join(
        f"CAST({escape_name(column.name)} AS {type_})"
        for column, type_ in zip(table.columns, types, strict=True)
    )
    return f"INSERT INTO {_qualified(table.name)} SELECT {values} FROM {parquet(table.files)}"  # noqa: S608


def parquet(files: Sequence[str]) -> str:
    """The SQL that reads Parquet files as one table."""
    paths = ", ".join(escape_string_literal(file) for file in files)
    return f"external(ARRAY[{paths}], FORMAT => 'parquet')"


def _foreign_key(relationship: Relationship) -> str:
    return (
        f"ALTER TABLE {_qualified(relationship.many)} "
        f"ADD ASSUMED FOREIGN KEY ({_names([column for column, _ in relationship.on])}) "
        f"REFERENCES {_qualified(relationship.one)} ({_names(relationship.key)})"
    )
