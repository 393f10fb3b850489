"""All names of Dagster that this package uses beyond Dagster's public interface.

A minor release of Dagster may move or change these names.
`tableau_pipeline_tests/test_dagster_internals.py` tries each name separately, and so shows which
name an upgrade broke. Only this module may import private modules of Dagster; `make check` reports
any other import.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.definitions_load_context import (
    DefinitionsLoadContext,
    DefinitionsLoadType,
)
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._core.definitions.node_definition import NodeDefinition
from dagster._core.definitions.output import OutputDefinition
from dagster._core.errors import DagsterExecutionInterruptedError, DagsterUserCodeProcessError
from dagster._core.scheduler.instigation import InstigatorStatus
from dagster._core.secrets.env_file import get_env_var_dict
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG as REPOSITORY_TAG
from dagster._core.storage.tags import USER_TAG
from dagster._utils.error import SerializableErrorInfo
from dagster._utils.pydantic_yaml import enrich_validation_errors_with_source_position
from dagster._utils.schedules import (
    get_latest_completed_cron_tick,
    get_next_cron_tick,
    is_valid_cron_schedule,
)
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.core.decl import (
    ComponentLoaderDecl,
    YamlDecl,
    YamlFileDecl,
    build_component_decl_from_yaml_file,
)
from dagster.components.core.defs_module import ComponentPath
from dagster.components.definitions import LazyDefinitions
from dagster_shared.check import CheckError, not_none
from dagster_shared.error import DagsterUnresolvableSymbolError
from dagster_shared.libraries import DagsterLibraryRegistry
from dagster_shared.record import replace
from dagster_shared.yaml_utils import parse_yamls_with_source_position

__all__ = [
    "ASSET_JOB",
    "IS_VALIDATION",
    "REPOSITORY_TAG",
    "USER_TAG",
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    "AssetGraph",
    "AssetSelectionByGraph",
    "BaseAssetGraph",
    "CheckError",
    "ComponentLoaderDecl",
    "ComponentTreeException",
    "CronFreshnessPolicy",
    "DagsterExecutionInterruptedError",
    "DagsterProject",
    "DagsterUnresolvableSymbolError",
    "DagsterUserCodeProcessError",
    "InstigatorStatus",
    "LazyDefinitions",
    "SerializableErrorInfo",
    "TimeWindowFreshnessPolicy",
    "check_history",
    "component_of",
    "declared_in",
    "enrich_validation_errors_with_source_position",
    "evaluation_of",
    "find_project",
    "folder_of",
    "function_of",
    "get_latest_completed_cron_tick",
    "get_next_cron_tick",
    "is_hourly",
    "is_left_out",
    "is_valid_cron_schedule",
    "loading_alone",
    "location_of",
    "name_of_storage",
    "newest_by_partition",
    "newest_results",
    "not_none",
    "output_of",
    "parse_yamls_with_source_position",
    "replace",
    "run_graph",
    "step_key",
    "step_of",
    "variables_of",
]

# The name of the job that each code location has for all its assets.
ASSET_JOB = "__ASSET_JOB"
# A variable that is set while `dg check defs` validates definitions.
IS_VALIDATION = "DAGSTER_IS_DEFS_VALIDATION_CLI"


# Let Dagster show the release of this package in its list of libraries. With
# `is_dagster_package=False`, Dagster does not compare the release with its own release.
DagsterLibraryRegistry.register(
    "tableau-pipeline", version("tableau_pipeline"), is_dagster_package=False
)


# Projects and definitions.


@dataclasses.dataclass(frozen=True, slots=True)
class DagsterProject:
    """A Dagster project.

    Attributes:
        root: the root of the project; outside a project, the folder given to `find_project`.
        module: the module of the definitions; None outside a project.
    """

    root: Path
    module: str | None


def find_project(folder: Path) -> DagsterProject:
    """Return the Dagster project around a folder."""
    # Import this module only here, because the import takes 0.2 s, and no run needs the module.
    from dagster_dg_core.context import DgContext

    found = DgContext.from_file_discovery_and_command_line_config(folder, {})
    module = found.code_location_target_module_name if found.is_project else None
    return DagsterProject(found.root_path, module)


def variables_of(folder: Path) -> Mapping[str, str]:
    """Return the variables in the `.env` files of a folder and of the folders above it."""
    return get_env_var_dict(str(folder))


def loading_alone() -> Any:
    """Return a context manager in which definitions load without queries to the instance."""
    context = DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)
    return DefinitionsLoadContext.scoped(context)


def folder_of(definitions: dg.Definitions) -> Path | None:
    """Return the folder `defs` from which definitions were loaded; None without such a folder."""
    tree = definitions.component_tree
    return tree.defs_module_path.resolve() if tree else None


def declared_in(
    file: Path, kind: type[dg.Component], *, definitions: dg.Definitions, folder: Path
) -> Iterator[Any]:
    """Yield the components of a kind in a YAML file. The call builds no assets.

    Args:
        definitions: the definitions of the location, whose components the file may use.
        folder: the folder to use as the root of components, instead of the location's folder
            `defs`.
    """
    tree = definitions.component_tree
    if tree is None:
        raise ValueError("the definitions were not loaded from a folder")
    context = dataclasses.replace(tree.decl_load_context, defs_module_path=folder)
    here = context.for_component_loc(ComponentPath.from_path(file.parent))
    declaration = build_component_decl_from_yaml_file(here, file)
    for each in declaration.decls if isinstance(declaration, YamlFileDecl) else ():
        if isinstance(each, YamlDecl) and issubclass(each.component_type, kind):
            component: Any = each._load_component()
            yield component


def component_of(spec: dg.AssetSpec) -> Any:
    """Return the component that made an asset; None if no component made it."""
    return getattr(spec.metadata.get("dagster/component_origin"), "instance", None)


def step_of(asset: dg.AssetsDefinition) -> NodeDefinition:
    """Return the op or graph that makes an asset."""
    return asset.node_def


def function_of(asset: object) -> Callable[..., object] | None:
    """Return the function that makes an asset; None if no function makes it."""
    is_made = isinstance(asset, dg.AssetsDefinition) and asset.is_executable
    step = step_of(asset) if is_made else None
    return getattr(getattr(step, "compute_fn", None), "decorated_fn", None)


def output_of(asset: dg.AssetsDefinition, key: dg.AssetKey) -> OutputDefinition:
    """Return the output of the step that makes an asset."""
    name = asset.get_output_name_for_asset_key(key)
    output, _ = step_of(asset).resolve_output_to_origin(name, None)
    return output


@dataclasses.dataclass(frozen=True)
class AssetSelectionByGraph(dg.AssetSelection):
    """A selection of assets that needs the location's whole asset graph."""

    chosen: Callable[[BaseAssetGraph], Set[dg.AssetKey]]

    def resolve_inner(self, asset_graph: BaseAssetGraph, allow_missing: bool) -> Set[dg.AssetKey]:
        """Return the keys of the selected assets; Dagster calls this method."""
        return self.chosen(asset_graph)


# Time partitions.


def is_hourly(definition: dg.TimeWindowPartitionsDefinition) -> bool:
    """Whether each whole hour is one partition."""
    return definition.is_basic_hourly


def is_left_out(definition: dg.TimeWindowPartitionsDefinition, start: Any) -> bool:
    """Whether the definition leaves out the partition that begins at `start`."""
    return definition.is_window_start_excluded(start)


# Steps.


def step_key(context: dg.OpExecutionContext) -> str:
    """Return the key of a running step."""
    return context.get_step_execution_context().step.key


def location_of(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
) -> dg.RepositoryDefinition | None:
    """Return the definitions of a step's code location; None if the job runs without a location."""
    return context.get_step_execution_context().job.get_repository_definition()


def run_graph(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> AssetGraph:
    """Return the asset graph of a step's run."""
    return context.job_def.asset_layer.asset_graph


# The instance.


def newest_by_partition(
    instance: dg.DagsterInstance, key: dg.AssetKey, kind: dg.DagsterEventType
) -> Mapping[str, int]:
    """Map each partition of an asset to the storage id of its newest event of a kind."""
    return instance.event_log_storage.get_latest_storage_id_by_partition(key, kind)


def check_history(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, *, limit: int
) -> Sequence[AssetCheckExecutionRecord]:
    """Return the last results of a check, the newest first."""
    return instance.event_log_storage.get_asset_check_execution_history(
        check, limit=limit, status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    )


def newest_results(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> Mapping[dg.AssetCheckKey, AssetCheckExecutionRecord]:
    """Map each check that has results to the last result."""
    return instance.event_log_storage.get_latest_asset_check_execution_by_key([*checks])


def evaluation_of(result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """Convert a check result to an evaluation, which Dagster accepts outside a run, too."""
    return dg.AssetCheckEvaluation(**result._asdict())


def name_of_storage(instance: dg.DagsterInstance) -> str:
    """Return the class name of the event storage, which shows the kind of database."""
    return type(instance.event_log_storage).__name__
