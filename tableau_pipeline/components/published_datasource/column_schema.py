"""The column schema and column lineage of a published data source."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import dagster as dg

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.spark_types import UnsupportedTypeError, hyper_type

# By model and column.
Descriptions = Mapping[tuple[str, str], str]
NO_DESCRIPTIONS: Descriptions = MappingProxyType({})


def column_metadata(
    declaration: Declaration, checkpoint: Checkpoint, descriptions: Descriptions = NO_DESCRIPTIONS
) -> dict[str, Any]:
    """Return schema and lineage; with several tables, columns are named "table.column"."""
    schema, lineage = [], {}
    for name, table, column in _columns(declaration, checkpoint):
        description = descriptions.get((table.model, column.name))
        schema.append(dg.TableColumn(name, _type(column), description))
        model = dg.AssetKey.from_user_string(table.model)
        lineage[name] = [dg.TableColumnDep(model, column.name)]
    return {
        "dagster/column_schema": dg.TableSchema(columns=schema),
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
    }


def descriptions_of(context: dg.AssetExecutionContext, declaration: Declaration) -> Descriptions:
    """Return the column descriptions in `dagster/column_schema` of the models' assets."""
    graph, found = context.job_def.asset_layer.asset_graph, {}
    for model in declaration.models:
        key = dg.AssetKey.from_user_string(model)
        metadata = graph.get(key).metadata if graph.has(key) else {}
        schema = metadata.get("dagster/column_schema")
        if isinstance(schema, dg.TableSchemaMetadataValue):
            schema = schema.schema
        for column in schema.columns if isinstance(schema, dg.TableSchema) else ():
            if column.description:
                found[model, column.name] = column.description
    return found


def _type(column: Column) -> str:
    try:
        return hyper_type(column, table="")
    except UnsupportedTypeError:
        # A Parquet file that is sent unread may have types that only the server converts.
        return column.type


def _columns(
    declaration: Declaration, checkpoint: Checkpoint
) -> Iterator[tuple[str, Table, Column]]:
    alone = len(declaration.tables) == 1
    for table in declaration.tables:
        for column in checkpoint.tables[table.name].columns:
            yield column.name if alone else f"{table.name}.{column.name}", table, column
