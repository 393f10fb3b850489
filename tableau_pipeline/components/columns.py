"""The columns of a published data source, as Dagster shows them: their types and origins."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types import UnsupportedTypeError, hyper_type


def column_metadata(declaration: Declaration, checkpoint: Checkpoint) -> dict[str, Any]:
    """Schema and lineage; with several tables, a column is called "table.column"."""
    schema, lineage = [], {}
    for name, table, column in _columns(declaration, checkpoint):
        schema.append(dg.TableColumn(name, _type(column)))
        model = dg.AssetKey.from_user_string(table.model)
        lineage[name] = [dg.TableColumnDep(model, column.name)]
    return {
        "dagster/column_schema": dg.TableSchema(columns=schema),
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
    }


def _type(column: Column) -> str:
    try:
        return hyper_type(column, table="")
    except UnsupportedTypeError:
        # Of a file that is published as it is: its own type, whatever the server makes of it.
        return column.type


def _columns(
    declaration: Declaration, checkpoint: Checkpoint
) -> Iterator[tuple[str, Table, Column]]:
    alone = len(declaration.tables) == 1
    for table in declaration.tables:
        for column in checkpoint.tables[table.name].columns:
            yield column.name if alone else f"{table.name}.{column.name}", table, column
