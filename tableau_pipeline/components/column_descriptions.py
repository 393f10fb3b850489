"""Collect descriptions and other metadata of columns from the assets of models and from dbt."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg

from tableau_pipeline.components.dbt import DbtTrigger, manifest_nodes, node_columns
from tableau_pipeline.components.triggers import Trigger
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.fields import FieldMetadata, Inherited
from tableau_pipeline.dagster_internals import AssetGraph

# The metadata keys of dagster-dbt.
_MANIFEST, _NODE = "dagster_dbt/manifest", "dagster_dbt/unique_id"


def inherited_fields(
    declaration: Declaration, graph: AssetGraph, trigger: Trigger | None = None
) -> Inherited:
    """Map each model and column to the metadata that the model's asset and dbt provide.

    The model's own asset takes precedence. It may have a `dagster/column_schema`, which dagster-dbt
    fills with the descriptions in dbt. If dagster-dbt makes the asset, its columns may also have
    `meta.tableau` in dbt. Next come dbt models with columns of the same name: first the parents of
    the model, then the dbt models of a `dbt` trigger.

    Raises:
        RefusedError: `meta.tableau` has an unknown key or value.
        RefreshError: the manifest in the folder of the trigger's `run_results.json` is unreadable.
    """
    inherited: dict[tuple[str, str], FieldMetadata] = {}
    for model, columns in _sources(declaration, graph, trigger):
        for column, field in columns:
            inherited.setdefault((model, column), field)
    return inherited


def _sources(
    declaration: Declaration, graph: AssetGraph, trigger: Trigger | None
) -> Iterator[tuple[str, Iterator[tuple[str, FieldMetadata]]]]:
    """Yield sources of metadata, each as a model and columns. Earlier sources take precedence."""
    for model in declaration.models:
        key = dg.AssetKey.from_user_string(model)
        if graph.has(key):
            yield model, _columns(graph.get(key).metadata)
            parents = [graph.get(parent).metadata for parent in sorted(graph.get(key).parent_keys)]
            yield from ((model, _columns(item)) for item in parents if _MANIFEST in item)
    if isinstance(trigger, DbtTrigger):
        nodes = manifest_nodes(trigger.dbt)
        for model in declaration.models:
            # A trigger that names no dbt models follows all dbt models. In this case, take only the
            # dbt model that has the name of `model`: in other dbt models, columns of the same name
            # may mean something else.
            for name in trigger.models or (model.split("/")[-1],):
                for node in (id_ for id_ in nodes if name in (id_, nodes[id_].get("name"))):
                    yield model, node_columns(nodes, node)


def _columns(metadata: Mapping[str, Any]) -> Iterator[tuple[str, FieldMetadata]]:
    """Yield the columns in an asset's metadata. `meta.tableau` takes precedence over the schema."""
    schema = metadata.get("dagster/column_schema")
    if isinstance(schema, dg.TableSchemaMetadataValue):
        schema = schema.schema
    columns = schema.columns if isinstance(schema, dg.TableSchema) else ()
    described = {column.name: column.description or "" for column in columns}
    in_dbt = metadata[_MANIFEST].manifest["nodes"] if _MANIFEST in metadata else {}
    tableau = dict(node_columns(in_dbt, metadata[_NODE])) if in_dbt else {}
    for name in described | tableau:
        field = tableau.get(name, FieldMetadata())
        yield name, replace(field, description=field.description or described.get(name, ""))
