"""Open the code location and the Dagster instance of the current folder for a command."""

import os
import sys
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import dagster as dg

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.column_descriptions import inherited_fields
from tableau_pipeline.components.journal import journal_of, setup_of
from tableau_pipeline.components.loading import evaluate_definitions, specs_of
from tableau_pipeline.components.published_datasource import snapshots_of
from tableau_pipeline.components.rejected import rejected_models
from tableau_pipeline.dagster_internals import (
    DagsterProject,
    LazyDefinitions,
    component_of,
    find_project,
    loading_alone,
    variables_of,
)
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.yaml_keys import guess


@dataclass(frozen=True)
class CodeLocation:
    """A code location, the folder of its module, and the Dagster instance of its runs."""

    definitions: dg.Definitions
    folder: Path
    instance: dg.DagsterInstance

    @cached_property
    def datasources(self) -> Mapping[str, PublishedDatasource]:
        """Maps asset keys to the declared data sources, in the order of their names."""
        components = map(component_of, specs_of(self.definitions))
        datasources = {
            component.key: component
            for component in components
            if isinstance(component, PublishedDatasource)
        }
        return dict(sorted(datasources.items(), key=lambda item: item[1].name.casefold()))

    def named(self, names: Sequence[str]) -> Mapping[str, PublishedDatasource]:
        """Return the data sources with these asset keys or names; without names, all data sources.

        Raises:
            click.UsageError: a name matches no data source.
        """
        if not names:
            return self.datasources
        keys = {source.name.casefold(): key for key, source in self.datasources.items()}
        datasources = {}
        for name in names:
            key = name if name in self.datasources else keys.get(name.casefold())
            if key is None:
                declared = [*self.datasources, *(item.name for item in self.datasources.values())]
                listed = ", ".join(self.datasources) or "none"
                raise click.UsageError(
                    f'No data source is called "{name}": {guess(name, declared)}'
                    f"The declared ones are {listed}"
                )
            datasources[key] = self.datasources[key]
        return datasources

    @cached_property
    def rejected(self) -> Mapping[str, Sequence[str]]:
        """Maps each rejected model to the checks that rejected its newest rows."""
        models = {model for source in self.datasources.values() for model in source.models}
        return rejected_models(self.instance, self.definitions.resolve_asset_graph(), models)

    def setup(self, declared: PublishedDatasource, resources: Any) -> Setup:
        """Return the setup to refresh or preview a data source outside a run of Dagster."""
        graph = self.definitions.resolve_asset_graph()
        return setup_of(
            declared,
            journal_of(self.instance, declared.key),
            snapshots=snapshots_of(declared, resources.snapshots, graph),
            hyper=resources.hyper,
            tableau=resources.tableau,
            inherited=inherited_fields(declared, graph, declared.trigger),
            rejected=lambda: self.rejected,
        )

    @contextmanager
    def resources(self) -> Generator[Any]:
        """Set up the resources `snapshots`, `hyper` and `tableau` of the location.

        Raises:
            RefusedError: the location lacks one of these resources.
        """
        given = dict(self.definitions.resources or {})
        names = ("snapshots", "hyper", "tableau")
        if missing := [name for name in names if name not in given]:
            raise RefusedError(
                f'The code location has no resource "{missing[0]}": add resources_from_env() of '
                "tableau_pipeline.resources to its definitions",
                code=Code.PROJECT,
            )
        with dg.build_resources({name: given[name] for name in names}) as resources:
            yield resources


@contextmanager
def open_project(module: str | None, *, without_runs: bool = False) -> Generator[CodeLocation]:
    """Load the code location and open the instance.

    Args:
        module: the module of the definitions; None for the module of the current folder's project.
        without_runs: whether to use an empty instance, which has no runs, if DAGSTER_HOME is not
            set. Otherwise, a missing DAGSTER_HOME is an error.

    Raises:
        RefusedError: there is no project, there is no instance, or a declaration is wrong.
    """
    # Look for the project before the instance. In a wrong folder, users need the message that there
    # is no project.
    location = _module(prepare(), module)
    with ExitStack() as stack:
        is_empty = without_runs and not os.environ.get("DAGSTER_HOME")
        instance = stack.enter_context(dg.DagsterInstance.ephemeral() if is_empty else _instance())
        yield CodeLocation(*_definitions(location), instance)


def prepare() -> DagsterProject:
    """Set environment variables and the module path for the project of the current folder.

    A command must set both, because Dagster sets them only in Dagster's own processes.
    """
    project = find_project(Path.cwd())
    os.environ.update(variables_of(project.root))
    for folder in (project.root, project.root / "src") if project.module else ():
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return project


def _module(project: DagsterProject, named: str | None) -> str:
    if module := named or project.module:
        return module
    raise RefusedError(
        f"{Path.cwd()} is no Dagster project: no pyproject.toml here or above has a table "
        "[tool.dg.project]. Go to the folder of your project, or name the module of its "
        "definitions by --module",
        code=Code.PROJECT,
    )


def _definitions(module: str) -> tuple[dg.Definitions, Path]:
    # `loading_alone` sets a load context. Without a load context, Dagster would query the instance
    # for each file of the project.
    with warnings.catch_warnings(), loading_alone():
        # Hide warnings, because they address the author of the definitions.
        warnings.simplefilter("ignore")
        try:
            loaded = import_module(module)
        except ModuleNotFoundError as error:
            raise RefusedError(
                f"The module {module} cannot be imported: {error}. Install the project, or name "
                "the module of its definitions by --module",
                code=Code.PROJECT,
            ) from error
        for value in vars(loaded).values():
            if isinstance(value, LazyDefinitions | dg.Definitions):
                folder = Path(str(loaded.__file__)).parent
                return evaluate_definitions(value, folder), folder
    raise RefusedError(f"The module {module} has no dg.Definitions", code=Code.PROJECT)


def _instance() -> dg.DagsterInstance:
    home = os.environ.get("DAGSTER_HOME")
    if not home or not Path(home).is_dir():
        lacks = f"is {home}, and there is no such folder" if home else "is not set"
        raise RefusedError(
            f"DAGSTER_HOME {lacks}, so no run of a refresh is known: set it to the folder of "
            "your instance, the one with dagster.yaml",
            code=Code.PROJECT,
        )
    return dg.DagsterInstance.get()
