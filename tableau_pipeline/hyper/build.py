"""Build a multi-table `.hyper` file from Parquet files, which hyperd reads directly."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tableauhyperapi import HyperProcess, TableName

from tableau_pipeline.hyper.comments import comment
from tableau_pipeline.hyper.new_file import NEW, create_table, new_file
from tableau_pipeline.hyper.parquet.rows import names, rows
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA, Relationship, TableSource
from tableau_pipeline.hyper.types.spark_types import file_version


@dataclass(frozen=True, slots=True)
class Extract:
    """A complete `.hyper` file; `rows` by table, `size` in bytes."""

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
    primary keys, for whose columns Hyper requires NOT NULL. The `many` sides get assumed foreign
    keys. Tableau infers its data model from these keys.

    Raises:
        UnsupportedTypeError: raised before anything is written.
        HyperException: hyperd cannot read the files, or a key column contains NULL.
    """
    selects = {table.name: rows(table) for table in tables}
    version = file_version(column for table in tables for column in table.columns)
    keys = {relationship.one: relationship.key for relationship in relationships}
    written = {}
    with new_file(hyper, path, version=version) as connection:
        for table in tables:
            target = _target(table.name)
            create_table(connection, target, table.columns, key=keys.get(table.name, ()))
            inserted = connection.execute_command(
                f"INSERT INTO {target} SELECT * FROM {selects[table.name]} source"  # noqa: S608
            )
            written[table.name] = inserted or 0
            comment(connection, target, table.comments)
        # Only now, as a key may refer to a table that comes later in the list.
        for relationship in relationships:
            connection.execute_command(_foreign_key(relationship))
    return Extract(path=path, rows=written, size=path.stat().st_size, version=version)


def _target(table: str) -> TableName:
    return TableName(NEW, EXTRACT_SCHEMA, table)


def _foreign_key(relationship: Relationship) -> str:
    return (
        f"ALTER TABLE {_target(relationship.many)} "
        f"ADD ASSUMED FOREIGN KEY ({names([column for column, _ in relationship.on])}) "
        f"REFERENCES {_target(relationship.one)} ({names(relationship.key)})"
    )
