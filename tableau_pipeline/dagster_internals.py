"""All that this package uses of Dagster beyond its public interface.

A minor release of Dagster may move or change it. `tableau_pipeline_tests/test_dagster_internals.py`
tries each name alone, and so shows which one an upgrade broke. Nothing else here may import a
private module of Dagster: `make check` finds it.
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

# The job of each code location that materializes any of its assets.
ASSET_JOB = "__ASSET_JOB"
# Set while `dg check defs` validates definitions.
IS_VALIDATION = "DAGSTER_IS_DEFS_VALIDATION_CLI"


# Lets Dagster show our release with those of its own libraries. It checks only the numbers of the
# latter.
DagsterLibraryRegistry.register(
    "tableau-pipeline", version("tableau_pipeline"), is_dagster_package=False
)


# Projects and definitions.


@dataclasses.dataclass(frozen=True, slots=True)
class DagsterProject:
    """A project of Dagster's: its root, and the module of its definitions.

    Attributes:
        module: None if the folder is in no project; the root is that folder then.
    """

    root: Path
    module: str | None


def find_project(folder: Path) -> DagsterProject:
    """Return the project that a folder is in."""
    # Import this only here: the import takes 0.2 s, and no run needs it.
    from dagster_dg_core.context import DgContext

    found = DgContext.from_file_discovery_and_command_line_config(folder, {})
    module = found.code_location_target_module_name if found.is_project else None
    return DagsterProject(found.root_path, module)


def variables_of(folder: Path) -> Mapping[str, str]:
    """Return the variables in the `.env` files of a folder, and of those above it."""
    return get_env_var_dict(str(folder))


def loading_alone() -> Any:
    """Return a context in which definitions are loaded without queries to the instance."""
    context = DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)
    return DefinitionsLoadContext.scoped(context)


def folder_of(definitions: dg.Definitions) -> Path | None:
    """Return the folder `defs` from which definitions were loaded; None if there is none."""
    tree = definitions.component_tree
    return tree.defs_module_path.resolve() if tree else None


def declared_in(
    file: Path, kind: type[dg.Component], *, definitions: dg.Definitions, folder: Path
) -> Iterator[Any]:
    """Yield the components of a kind that a YAML file declares, without their assets.

    Args:
        definitions: those of the location whose components the file may name.
        folder: takes the place of the folder `defs`.
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
    """Return the component that has made an asset; None if none has."""
    return getattr(spec.metadata.get("dagster/component_origin"), "instance", None)


def step_of(asset: dg.AssetsDefinition) -> NodeDefinition:
    """Return the op or graph that makes an asset."""
    return asset.node_def


def function_of(asset: object) -> Callable[..., object] | None:
    """Return the function of an asset; None if none makes it."""
    is_made = isinstance(asset, dg.AssetsDefinition) and asset.is_executable
    step = step_of(asset) if is_made else None
    return getattr(getattr(step, "compute_fn", None), "decorated_fn", None)


def output_of(asset: dg.AssetsDefinition, key: dg.AssetKey) -> OutputDefinition:
    """Return the output by which an asset's step returns what it has made."""
    name = asset.get_output_name_for_asset_key(key)
    output, _ = step_of(asset).resolve_output_to_origin(name, None)
    return output


@dataclasses.dataclass(frozen=True)
class AssetSelectionByGraph(dg.AssetSelection):
    """Assets that are chosen only once Dagster knows the whole graph of the location.

    Attributes:
        chosen: returns their keys.
    """

    chosen: Callable[[BaseAssetGraph], Set[dg.AssetKey]]

    def resolve_inner(self, asset_graph: BaseAssetGraph, allow_missing: bool) -> Set[dg.AssetKey]:
        """Return what is chosen, as Dagster asks for it."""
        return self.chosen(asset_graph)


# Windows of time.


def is_hourly(definition: dg.TimeWindowPartitionsDefinition) -> bool:
    """Whether each whole hour is a window, and none is left out."""
    return definition.is_basic_hourly


def is_left_out(definition: dg.TimeWindowPartitionsDefinition, start: Any) -> bool:
    """Whether the definition leaves out the window that begins at this time."""
    return definition.is_window_start_excluded(start)


# Steps.


def step_key(context: dg.OpExecutionContext) -> str:
    """Return the key of a running step."""
    return context.get_step_execution_context().step.key


def location_of(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
) -> dg.RepositoryDefinition | None:
    """Return all definitions of the location of a step; None if its job runs without them."""
    return context.get_step_execution_context().job.get_repository_definition()


def run_graph(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> AssetGraph:
    """Return the assets that the run of a step knows."""
    return context.job_def.asset_layer.asset_graph


# The instance.


def newest_by_partition(
    instance: dg.DagsterInstance, key: dg.AssetKey, kind: dg.DagsterEventType
) -> Mapping[str, int]:
    """Return the storage id of the newest event about each partition of an asset."""
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
    """Return the last result of each check that was ever evaluated."""
    return instance.event_log_storage.get_latest_asset_check_execution_by_key([*checks])


def evaluation_of(result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """Return a result as it is reported outside of any run."""
    return dg.AssetCheckEvaluation(**result._asdict())


def name_of_storage(instance: dg.DagsterInstance) -> str:
    """Return the class of the storage of events, which names the kind of database."""
    return type(instance.event_log_storage).__name__
