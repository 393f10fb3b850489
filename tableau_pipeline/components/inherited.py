"""What the models' assets say of their columns already: in Dagster, and in dbt's manifest."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from pydantic import ValidationError
from upath import UPath

from tableau_pipeline.components.triggers import DbtTrigger, Trigger
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.metadata.fields import FieldMetadata, Inherited


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
    for model in declaration.models:
        key = dg.AssetKey.from_user_string(model)
        if not graph.has(key):
            continue
        node = graph.get(key)
        parents = [graph.get(each).metadata for each in sorted(node.parent_keys)]
        for metadata in (node.metadata, *(each for each in parents if _MANIFEST in each)):
            for column, said in _columns(metadata):
                found.setdefault((model, column), said)
    if isinstance(trigger, DbtTrigger):
        nodes = _nodes_beside(trigger.dbt)
        for model in declaration.models:
            # Without names, all models of the dbt project feed it, in which names of columns recur.
            for name in trigger.models or (model.split("/")[-1],):
                for node in (each for each in nodes if name in (each, nodes[each].get("name"))):
                    for column, said in _in_dbt(nodes, node):
                        found.setdefault((model, column), said)
    return found


# The keys of dagster-dbt.
_MANIFEST, _NODE = "dagster_dbt/manifest", "dagster_dbt/unique_id"


def _columns(metadata: Mapping[str, Any]) -> Iterator[tuple[str, FieldMetadata]]:
    schema = metadata.get("dagster/column_schema")
    if isinstance(schema, dg.TableSchemaMetadataValue):
        schema = schema.schema
    columns = schema.columns if isinstance(schema, dg.TableSchema) else ()
    described = {each.name: each.description or "" for each in columns}
    in_dbt = metadata[_MANIFEST].manifest["nodes"] if _MANIFEST in metadata else {}
    tableau = dict(_in_dbt(in_dbt, metadata[_NODE])) if in_dbt else {}
    for name in described | tableau:
        said = tableau.get(name, FieldMetadata())
        yield name, replace(said, description=said.description or described.get(name, ""))


def _nodes_beside(run_results: str) -> Mapping[str, Any]:
    """Return the nodes of the manifest that dbt wrote beside this file; none if it wrote none."""
    manifest = UPath(run_results).with_name("manifest.json")
    try:
        return json.loads(manifest.read_bytes())["nodes"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError) as error:
        raise RefreshError(
            f"{manifest} cannot be read, perhaps because dbt is writing it: {error}. Run again"
        ) from error


def _in_dbt(nodes: Mapping[str, Any], node: str) -> Iterator[tuple[str, FieldMetadata]]:
    for name, column in nodes[node].get("columns", {}).items():
        meta = column.get("meta") or column.get("config", {}).get("meta") or {}
        try:
            said = FieldMetadata(**meta.get("tableau", {}))
        except ValidationError as error:
            (first, *_) = error.errors()
            raise RefusedError(
                f'meta.tableau of the column "{name}" of {node} in dbt: '
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}. Its keys are those of a "
                "field: caption, description, format, role, aggregation, hidden and folder"
            ) from error
        yield name, replace(said, description=said.description or column.get("description", ""))
