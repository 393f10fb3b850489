"""Problems of a code location as a whole, which no single file of it shows."""

import logging
import os
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import cast, get_args

import dagster as dg
import yaml
from pyspark.sql import DataFrame

from tableau_pipeline.components.asset_names import asset_keys
from tableau_pipeline.components.automation import due, runs_models
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.dagster_internals import (
    IS_VALIDATION,
    ComponentTreeException,
    DagsterUnresolvableSymbolError,
    LazyDefinitions,
    component_of,
    function_of,
    output_of,
    parse_yamls_with_source_position,
    replace,
    step_of,
)
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.checks import TypedSnapshots, checked_models
from tableau_pipeline.resources import SnapshotIOManager
from tableau_pipeline.resources.snapshots import unsupported
from tableau_pipeline.yaml_keys import guess

_LISTED = 10
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Datasource:
    """A data source of the location; its declaration begins at `line` of `file`, 0 in Python."""

    component: PublishedDatasource
    file: Path
    line: int

    def at(self, *keys: str) -> str:
        """Return "file:line: key" for the innermost of these nested keys that exists."""
        if not self.line:
            return str(self.file)
        text, found = self.file.read_text("utf-8"), []
        trees = [each.source_position_tree for each in parse_yamls_with_source_position(text)]
        tree = next(each for each in trees if each.position.start.line == self.line)
        for key in ("attributes", *keys):
            if child := tree.children.get(key):
                tree = child
                found.append(key)
        return f"{self.file}:{tree.position.start.line}: {'.'.join(found)}"

    @property
    def place(self) -> tuple[str, ...]:
        """Its name and project, which differ from those of all others by more than case."""
        project = self.component.project
        names = project.split("/") if isinstance(project, str) else project
        return tuple(name.strip().casefold() for name in (self.component.name, *names))

    @property
    def models(self) -> Iterator[tuple[Sequence[str], str]]:
        """Each model, with the keys under which it is named."""
        for table in self.component.tables:
            yield ("tables", table.name, "model"), table.model
            if isinstance(table.policy, Diff) and table.policy.feed:
                keys = ("refresh", "diff", "changes", "feed")
                yield ("tables", table.name, *keys), table.policy.feed.model


def datasources_of(definitions: dg.Definitions) -> list[Datasource]:
    """Return the data sources that are declared."""
    found = {}
    for spec in specs_of(definitions):
        if isinstance(component := component_of(spec), PublishedDatasource):
            # Its two assets share it.
            found[id(component)] = Datasource(component, *_declared(spec))
    return list(found.values())


def _repeated_keys(definitions: dg.Definitions, datasources: Sequence[Datasource]) -> Iterator[str]:
    """Report data sources whose asset key another asset already has."""
    places = defaultdict[dg.AssetKey, list[tuple[object, str]]](list)
    for asset in definitions.assets or ():
        for spec in _specs_in(asset):
            file, line = _declared(spec)
            where = f"{file}:{line}" if line else _written(asset)
            places[spec.key].append((component_of(spec), where))
    for each in datasources:
        for key in reversed(asset_keys(each.component.key)):
            others = [where for maker, where in places[key] if maker is not each.component]
            if others:
                yield (
                    f'{each.at("name")}: "{each.component.name}" makes an asset with the key '
                    f'"{key.to_user_string()}", which the asset of {others[0]} has too: give the '
                    "data source a `key` of its own, or another name"
                )
                # Both of its keys come from one name, so a second report would say the same.
                break


def _repeated_places(_: dg.Definitions, datasources: Sequence[Datasource]) -> Iterator[str]:
    """Report data sources with the name and project of another one: they would replace it."""
    first: dict[tuple[str, ...], Datasource] = {}
    for each in sorted(datasources, key=lambda each: each.line > 0):
        declared, other = each.component, first.setdefault(each.place, each)
        if other is not each:
            yield (
                f'{each.at("name")}: "{declared.name}" in the project "{declared.project_path}", '
                f'with the key "{declared.key}", is declared in {other.at("name").split(": ")[0]}, '
                f'too, with the key "{other.component.key}": each would replace the rows of '
                "the other. Give one of them another name or project"
            )


def _models(definitions: dg.Definitions, datasources: Sequence[Datasource]) -> Iterator[str]:
    """Report models that no asset makes, or that cannot be stored as snapshots."""
    models = _other_assets(definitions)
    listed = ", ".join(models[:_LISTED]) + (", ..." if len(models) > _LISTED else "") or "none"
    snapshots, pickled = _snapshots(definitions), {*_pickled(definitions)}
    problems = {
        key: unsupported(asset.partitions_def)
        for key, asset, io_manager in _frames(definitions)
        if isinstance(_given(definitions, asset).get(io_manager), SnapshotIOManager)
    }
    for each in datasources:
        for keys, model in each.models:
            # A stored snapshot shows that another code location makes the model.
            if model not in models and not (snapshots and snapshots.store.newest(model)):
                yield (
                    f'{each.at(*keys)}: there is no asset "{model}": {guess(model, models)}The '
                    f"assets of this location are {listed}. For a model of another location that "
                    f'is not materialized yet, declare dg.AssetSpec("{model}")'
                )
            elif model in pickled:
                yield (
                    f'{each.at(*keys)}: "{each.component.name}" publishes the model "{model}", '
                    "whose asset has Dagster's own IO manager, which stores no snapshots: set "
                    'io_manager_key="snapshots" in its @dg.asset'
                )
            elif problem := problems.get(model):
                named = f'"{each.component.name}" publishes the model "{model}"'
                yield f"{each.at(*keys)}: {named}; {problem}"


def _schedules(definitions: dg.Definitions, datasources: Sequence[Datasource]) -> Iterator[str]:
    """Report models that a trigger with `upstream` cannot run."""
    for each in datasources:
        try:
            if runs_models(each.component):
                due(each.component, definitions.resolve_asset_graph())
        except DeclarationError as error:
            yield f"{each.at('trigger', 'upstream')}: {error}"


def _passed_over(definitions: dg.Definitions, folder: Path) -> Iterator[str]:
    """Tell which assets Dagster passes over, because their file has a function `@dg.definitions`.

    Of such a file, Dagster takes only what that function returns.
    """
    taken = [each for each in definitions.assets or () if isinstance(each, dg.AssetsDefinition)]
    keys = {key for asset in taken for key in asset.keys}
    # The function may have given an asset another key.
    steps = {id(step_of(asset)) for asset in taken if asset.is_executable}
    for module in list(sys.modules.values()):
        file, found = getattr(module, "__file__", None) or "", vars(module).values()
        if not file.startswith(f"{folder}{os.sep}") or not any(
            isinstance(each, dg.Definitions | LazyDefinitions) for each in found
        ):
            continue
        for asset in found:
            is_made = isinstance(asset, dg.AssetsDefinition) and asset.is_executable
            if is_made and not keys & set(asset.keys) and id(step_of(asset)) not in steps:
                name = step_of(asset).name
                yield (
                    f"{file}: Dagster passes over `{name}`: of a file with @dg.definitions, it "
                    f"takes only what that function returns. Return `{name}` there, too, or move "
                    "one of them to another file"
                )


def misspelled(definitions: dg.Definitions, declared: PublishedDatasource) -> Iterator[str]:
    """Tell which models no asset makes whose name is almost that of one."""
    assets = _other_assets(definitions)
    for model in declared.models:
        if model not in assets and (meant := guess(model, assets)):
            yield f'there is no asset "{model}": {meant.strip()}'


def _column_problems(
    definitions: dg.Definitions, datasources: Sequence[Datasource]
) -> Iterator[str]:
    """Tell which columns, keys and types do not fit the newest snapshots of the models."""
    if not (snapshots := _snapshots(definitions)):
        return
    for each in datasources:
        declared = each.component
        stored = TypedSnapshots(snapshots.store, declared.types)
        newest = {model: stored.newest(model) for model in declared.models}
        # A model that was never materialized has no columns to compare yet.
        if not all(newest.values()):
            continue
        try:
            checked_models(declared, newest)
        except RefusedError as error:
            for refusal in error.refusals:
                named = [refusal.table] if refusal.table else []
                yield (
                    f"{each.at('tables', *named)}: {refusal.text.removesuffix('.')}. That was when "
                    "the model last ran: if it has changed since, run it before the refresh"
                )


def specs_of(definitions: dg.Definitions) -> Iterator[dg.AssetSpec]:
    """Yield the specs of all assets, those of other locations among them."""
    return chain.from_iterable(map(_specs_in, definitions.assets or ()))


def _specs_in(asset: object) -> Iterable[dg.AssetSpec]:
    if isinstance(asset, dg.AssetsDefinition):
        return asset.specs
    return [asset] if isinstance(asset, dg.AssetSpec) else []


def _other_assets(definitions: dg.Definitions) -> list[str]:
    """The keys of assets but those of data sources themselves; tables of lakes are among them."""
    specs = [*specs_of(definitions)]
    makers = {id(maker): maker for maker in map(component_of, specs)}.values()
    declared = [each for each in makers if isinstance(each, PublishedDatasource)]
    own = {key for each in declared for key in asset_keys(each.key)}
    return sorted({each.key.to_user_string() for each in specs if each.key not in own})


def _declared(spec: dg.AssetSpec) -> tuple[Path, int]:
    """Return where the declaration of a data source begins, from Dagster's code references."""
    if isinstance(component_of(spec), PublishedDatasource):
        for each in _references(spec):
            if isinstance(each, dg.LocalFileCodeReference):
                return Path(each.file_path), each.line_number or 1
    return Path("Python"), 0


def _written(asset: object) -> str:
    """Return where the function of an asset begins."""
    function = function_of(asset)
    code = getattr(unwrap(function), "__code__", None) if function else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "another module"


def _snapshots(definitions: dg.Definitions) -> SnapshotIOManager | None:
    found = (definitions.resources or {}).get("snapshots")
    return found if isinstance(found, SnapshotIOManager) else None


def _pickled(definitions: dg.Definitions) -> Iterator[str]:
    """Yield assets that return a DataFrame to Dagster's own IO manager, which cannot store it."""
    default = "io_manager"
    for key, asset, io_manager in _frames(definitions):
        if io_manager == default and default not in _given(definitions, asset):
            yield key


def _given(definitions: dg.Definitions, asset: dg.AssetsDefinition) -> Mapping[str, object]:
    """The resources that an asset may name."""
    return {**(definitions.resources or {}), **asset.resource_defs}


def _frames(definitions: dg.Definitions) -> Iterator[tuple[str, dg.AssetsDefinition, str]]:
    """Yield the keys of assets that return a DataFrame, who makes them, and their IO manager.

    An asset without this type may store its snapshots itself.
    """
    for asset in definitions.assets or ():
        if not (isinstance(asset, dg.AssetsDefinition) and asset.is_materializable):
            continue
        for key in asset.keys:
            output = output_of(asset, key)
            type_ = output.dagster_type.typing_type
            if DataFrame in (type_, *get_args(type_)):
                yield key.to_user_string(), asset, output.io_manager_key


_YAML = MappingProxyType(
    {
        "cannot start any token": "YAML allows neither a tab nor a value that begins like this: "
        "indent with spaces, and put the value in quotes",
        "mapping values are not allowed here": "a second colon, or a wrong indent: put a value "
        "that contains a colon in quotes, and indent keys like their neighbours",
        "expected <block end>": "a wrong indent: indent keys like their neighbours",
    }
)


def load_definitions(folder: Path) -> dg.Definitions:
    """Load what `dg.load_from_defs_folder` finds in `defs/`, and check it as a whole.

    `dg check defs` also warns of columns that the newest snapshots of the models do not have.

    Args:
        folder: the folder of `definitions.py`.

    Raises:
        DeclarationError: one line for each mistake: file, line, key, and what is allowed there.
    """
    with _in_lines(folder):
        definitions = dg.load_from_defs_folder(path_within_project=folder)
    datasources = datasources_of(definitions)
    _refuse(definitions, datasources, *_REPEATED, _models, _schedules)
    doubts = _passed_over(definitions, folder)
    # It reads each model's newest snapshot, which is too slow for every run. A change of a model
    # and of what publishes it comes before the run of the model, so it is no mistake.
    if os.environ.get(IS_VALIDATION):
        doubts = chain(doubts, _column_problems(definitions, datasources))
    for doubt in doubts:
        _LOG.warning("%s", doubt)
    models = {model for each in datasources for model in each.component.models}
    assets = [
        # A stub of a model tells nothing of how it is made.
        _for_the_lineage(asset, models)
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable
        else asset
        for asset in definitions.assets or ()
    ]
    return replace(definitions, assets=assets)


def _for_the_lineage(asset: dg.AssetsDefinition, models: Container[str]) -> dg.AssetsDefinition:
    """Return an asset that shows what it is made with and, unless a component has, where."""
    in_python = any(isinstance(component_of(spec), dg.DefsFolderComponent) for spec in asset.specs)

    def shown(spec: dg.AssetSpec) -> dg.AssetSpec:
        if not spec.kinds and spec.key.to_user_string() in models:
            spec = spec.merge_attributes(kinds={"pyspark", "parquet"})
        # Dagster names the YAML of the folder, whatever that declares.
        own = [each for each in _references(spec) if not _is_yaml(each)]
        rest = {name: value for name, value in spec.metadata.items() if name != _REFERENCES}
        noted = {_REFERENCES: dg.CodeReferencesMetadataValue(code_references=own)} if own else {}
        return spec.replace_attributes(metadata=rest | noted) if in_python else spec

    asset = asset.map_asset_specs(shown)
    if not in_python or any(map(_references, asset.specs)):
        return asset
    with warnings.catch_warnings():
        # Pinned by our range of versions; nobody who reads a log can do anything about it.
        warnings.simplefilter("ignore", dg.BetaWarning)
        (referring,) = dg.with_source_code_references([asset])
    return cast("dg.AssetsDefinition", referring)


_REFERENCES = "dagster/code_references"
_Reference = dg.LocalFileCodeReference | dg.UrlCodeReference


def _references(spec: dg.AssetSpec) -> Sequence[_Reference]:
    noted = spec.metadata.get(_REFERENCES)
    return noted.code_references if isinstance(noted, dg.CodeReferencesMetadataValue) else ()


def _is_yaml(reference: _Reference) -> bool:
    return isinstance(reference, dg.LocalFileCodeReference) and reference.file_path.endswith(
        (".yaml", ".yml")
    )


def evaluated(definitions: dg.Definitions | LazyDefinitions, folder: Path) -> dg.Definitions:
    """Evaluate definitions, also those of a module that does not use `load_definitions`.

    Args:
        folder: of that module.

    Raises:
        DeclarationError: one line for each mistake in YAML, or for data sources that would replace
            each other.
    """
    with _in_lines(folder):
        found = definitions() if isinstance(definitions, LazyDefinitions) else definitions
    # Who loads without `load_definitions` may leave models to other locations, unsaid.
    _refuse(found, datasources_of(found), *_REPEATED)
    return found


_Look = Callable[[dg.Definitions, Sequence[Datasource]], Iterator[str]]
# A key of its own would not help where two have one place, so that comes first.
_REPEATED: tuple[_Look, ...] = (_repeated_places, _repeated_keys)


def _refuse(definitions: dg.Definitions, datasources: Sequence[Datasource], *looks: _Look) -> None:
    for look in looks:
        if problems := list(look(definitions, datasources)):
            raise DeclarationError("\n".join(problems))


@contextmanager
def _in_lines(folder: Path) -> Generator[None]:
    try:
        yield
    except DagsterUnresolvableSymbolError as error:
        raise DeclarationError(_of_type(str(error), folder)) from None
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem)
        place = f"{mark.name}:{mark.line + 1}: " if mark else ""
        words = next((words for known, words in _YAML.items() if known in problem), problem)
        raise DeclarationError(f"{place}this is not YAML: {words}") from None
    except ComponentTreeException as error:
        # A mistake in the YAML, or in a variable of the environment.
        if refusal := _refusal(error):
            raise refusal from None
        # All else keeps its traceback, which its author needs.
        raise


def _refusal(error: BaseException | None) -> RefusedError | None:
    """The refusal that has led to an error; None if there is none."""
    while error:
        if isinstance(error, RefusedError):
            return error
        error = error.__cause__
    return None


def _of_type(problem: str, folder: Path) -> str:
    """Return the place of a component that there is not, if a file below the folder names it."""
    found = re.search(r"Module `(.+)` has no attribute `(.+)`", problem)
    module, name = found.groups() if found else ("", "")
    meant = guess(name, vars(sys.modules[module])) if module in sys.modules else ""
    for file in sorted(folder.rglob("*.y*ml")) if found else ():
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if f"{module}.{name}" in line:
                return f'{file}:{number}: type: {module} has no "{name}": {meant}'.rstrip(": ")
    return problem
