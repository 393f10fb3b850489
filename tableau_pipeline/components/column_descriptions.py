"""What the assets of models, and dbt, say of columns already."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg

from tableau_pipeline.components.dbt import DbtTrigger, columns_of, nodes_beside
from tableau_pipeline.components.triggers import Trigger
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.fields import FieldMetadata, Inherited
from tableau_pipeline.dagster_internals import AssetGraph

# The keys of dagster-dbt.
_MANIFEST, _NODE = "dagster_dbt/manifest", "dagster_dbt/unique_id"


def inherited_fields(
    declaration: Declaration, graph: AssetGraph, trigger: Trigger | None = None
) -> Inherited:
    """Return what is said of columns, by model and column.

    A model's own asset comes first: its `dagster/column_schema`, which dagster-dbt fills from the
    descriptions in dbt, and `meta.tableau` of a column in dbt. Then come the dbt models that it
    reads, for columns of the same name: those of its parents, or those of a `dbt` trigger.

    Raises:
        RefusedError: `meta.tableau` has an unknown key or value.
        RefreshError: the manifest beside the `run_results.json` of the trigger cannot be read.
    """
    found: dict[tuple[str, str], FieldMetadata] = {}
    for model, columns in _said(declaration, graph, trigger):
        for column, said in columns:
            found.setdefault((model, column), said)
    return found


def _said(
    declaration: Declaration, graph: AssetGraph, trigger: Trigger | None
) -> Iterator[tuple[str, Iterator[tuple[str, FieldMetadata]]]]:
    """Yield what is said of a model's columns, each place before those that it overrides."""
    for model in declaration.models:
        key = dg.AssetKey.from_user_string(model)
        if graph.has(key):
            yield model, _columns(graph.get(key).metadata)
            parents = [graph.get(each).metadata for each in sorted(graph.get(key).parent_keys)]
            yield from ((model, _columns(each)) for each in parents if _MANIFEST in each)
    if isinstance(trigger, DbtTrigger):
        nodes = nodes_beside(trigger.dbt)
        for model in declaration.models:
            # Without names, all models of the dbt project feed it, in which names of columns recur.
            for name in trigger.models or (model.split("/")[-1],):
                for node in (each for each in nodes if name in (each, nodes[each].get("name"))):
                    yield model, columns_of(nodes, node)


def _columns(metadata: Mapping[str, Any]) -> Iterator[tuple[str, FieldMetadata]]:
    schema = metadata.get("dagster/column_schema")
    if isinstance(schema, dg.TableSchemaMetadataValue):
        schema = schema.schema
    columns = schema.columns if isinstance(schema, dg.TableSchema) else ()
    described = {each.name: each.description or "" for each in columns}
    in_dbt = metadata[_MANIFEST].manifest["nodes"] if _MANIFEST in metadata else {}
    tableau = dict(columns_of(in_dbt, metadata[_NODE])) if in_dbt else {}
    for name in described | tableau:
        said = tableau.get(name, FieldMetadata())
        yield name, replace(said, description=said.description or described.get(name, ""))
