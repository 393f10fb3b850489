"""Load the definitions of a code location, and check all of them together."""

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
from tableau_pipeline.components.automation import runs_models, scheduled_assets
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline.core.policies import Diff
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
from tableau_pipeline.ingest.publication import KEY_PREFIX
from tableau_pipeline.resources import SnapshotIOManager
from tableau_pipeline.resources.snapshots import unsupported
from tableau_pipeline.yaml_keys import guess

# A message lists at most this many assets.
_MAX_LISTED = 10
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Datasource:
    """A data source of the location.

    Attributes:
        line: the line of `file` where the declaration begins; 0 for a declaration in Python.
    """

    component: PublishedDatasource
    file: Path
    line: int

    def at(self, *keys: str) -> str:
        """Return "file:line: key" for the innermost existing key of the nested `keys`.

        For a declaration in Python, return "Python".
        """
        if not self.line:
            return str(self.file)
        text, path = self.file.read_text("utf-8"), []
        trees = [
            document.source_position_tree for document in parse_yamls_with_source_position(text)
        ]
        tree = next(root for root in trees if root.position.start.line == self.line)
        for key in ("attributes", *keys):
            if child := tree.children.get(key):
                tree = child
                path.append(key)
        return f"{self.file}:{tree.position.start.line}: {'.'.join(path)}"

    @property
    def place(self) -> tuple[str, ...]:
        """The casefolded name and project path, which only one data source may have."""
        project = self.component.project
        names = project.split("/") if isinstance(project, str) else project
        return tuple(name.strip().casefold() for name in (self.component.name, *names))

    @property
    def models(self) -> Iterator[tuple[Sequence[str], str]]:
        """Yield pairs: the nested keys under which the declaration names a model, and the model."""
        for table in self.component.tables:
            yield ("tables", table.name, "model"), table.model
            if isinstance(table.policy, Diff) and table.policy.feed:
                keys = ("refresh", "diff", "changes", "feed")
                yield ("tables", table.name, *keys), table.policy.feed.model


def datasources_of(definitions: dg.Definitions) -> list[Datasource]:
    """Return the data sources that the definitions declare."""
    datasources = {}
    for spec in specs_of(definitions):
        if isinstance(component := component_of(spec), PublishedDatasource):
            # The two assets of a data source share their component.
            datasources[id(component)] = Datasource(component, *_declaration_place(spec))
    return list(datasources.values())


def _repeated_keys(definitions: dg.Definitions, datasources: Sequence[Datasource]) -> Iterator[str]:
    """Report data sources with an asset key that another asset already has."""
    places = defaultdict[dg.AssetKey, list[tuple[object, str]]](list)
    for asset in definitions.assets or ():
        for spec in _specs_in(asset):
            file, line = _declaration_place(spec)
            place = f"{file}:{line}" if line else _function_place(asset)
            places[spec.key].append((component_of(spec), place))
    for datasource in datasources:
        for key in reversed(asset_keys(datasource.component.key)):
            others = [
                other_place
                for maker, other_place in places[key]
                if maker is not datasource.component
            ]
            if others:
                yield (
                    f'{datasource.at("name")}: "{datasource.component.name}" makes an asset '
                    f'with the key "{key.to_user_string()}", which the asset of {others[0]} has '
                    "too: give the data source a `key` of its own, or another name"
                )
                # Report only one key: the second key comes from the same name, and would repeat the
                # report.
                break


def _reserved_keys(_: dg.Definitions, datasources: Sequence[Datasource]) -> Iterator[str]:
    """Report keys that would make a data source pass for one that was published from files."""
    for datasource in datasources:
        if (key := datasource.component.key).startswith(KEY_PREFIX):
            yield (
                f'{datasource.at("key")}: "{key}" begins with "{KEY_PREFIX}", as do the keys of '
                "data sources that are published from files: choose another key"
            )


def _repeated_places(_: dg.Definitions, datasources: Sequence[Datasource]) -> Iterator[str]:
    """Report data sources with equal names and projects, because they would replace each other."""
    first: dict[tuple[str, ...], Datasource] = {}
    for datasource in sorted(datasources, key=lambda candidate: candidate.line > 0):
        component, other = datasource.component, first.setdefault(datasource.place, datasource)
        if other is not datasource:
            yield (
                f'{datasource.at("name")}: "{component.name}" in the project '
                f'"{component.project_path}", with the key "{component.key}", is declared in '
                f'{other.at("name").split(": ")[0]}, too, with the key "{other.component.key}": '
                "each would replace the rows of the other. Give one of them another name or project"
            )


def _unusable_models(
    definitions: dg.Definitions, datasources: Sequence[Datasource]
) -> Iterator[str]:
    """Report models without an asset, and models that cannot be stored as snapshots."""
    models = _other_assets(definitions)
    listed = (
        ", ".join(models[:_MAX_LISTED]) + (", ..." if len(models) > _MAX_LISTED else "") or "none"
    )
    snapshots, unstored = _snapshots(definitions), {*_unstored_models(definitions)}
    problems = {
        key: unsupported(asset.partitions_def)
        for key, asset, io_manager in _dataframe_assets(definitions)
        if isinstance(_resources(definitions, asset).get(io_manager), SnapshotIOManager)
    }
    for datasource in datasources:
        for keys, model in datasource.models:
            # If the model has a stored snapshot, another code location makes the model.
            if model not in models and not (snapshots and snapshots.store.newest(model)):
                yield (
                    f'{datasource.at(*keys)}: there is no asset "{model}": {guess(model, models)}'
                    f"The assets of this location are {listed}. For a model of another location "
                    f'that is not materialized yet, declare dg.AssetSpec("{model}")'
                )
            elif model in unstored:
                yield (
                    f'{datasource.at(*keys)}: "{datasource.component.name}" publishes the model '
                    f'"{model}". '
                    "Its asset has Dagster's own IO manager, which stores no snapshots: set "
                    'io_manager_key="snapshots" in its @dg.asset'
                )
            elif problem := problems.get(model):
                subject = f'"{datasource.component.name}" publishes the model "{model}"'
                yield f"{datasource.at(*keys)}: {subject}; {problem}"


def _upstream_problems(
    definitions: dg.Definitions, datasources: Sequence[Datasource]
) -> Iterator[str]:
    """Report models that a trigger with `upstream` cannot run."""
    for datasource in datasources:
        try:
            if runs_models(datasource.component):
                scheduled_assets(datasource.component, definitions.resolve_asset_graph())
        except DeclarationError as error:
            yield f"{datasource.at('trigger', 'upstream')}: {error}"


def _skipped_assets(definitions: dg.Definitions, folder: Path) -> Iterator[str]:
    """Report assets that Dagster skips, because their file has a function `@dg.definitions`.

    From such a file, Dagster takes only the definitions that the function returns.
    """
    loaded = [item for item in definitions.assets or () if isinstance(item, dg.AssetsDefinition)]
    keys = {key for asset in loaded for key in asset.keys}
    # Compare steps as well as keys, because the function may have given an asset another key.
    steps = {id(step_of(asset)) for asset in loaded if asset.is_executable}
    for module in list(sys.modules.values()):
        file, values = getattr(module, "__file__", None) or "", vars(module).values()
        if not file.startswith(f"{folder}{os.sep}") or not any(
            isinstance(value, dg.Definitions | LazyDefinitions) for value in values
        ):
            continue
        for asset in values:
            is_asset = isinstance(asset, dg.AssetsDefinition) and asset.is_executable
            if is_asset and not keys & set(asset.keys) and id(step_of(asset)) not in steps:
                name = step_of(asset).name
                yield (
                    f"{file}: Dagster skips `{name}`: from a file with @dg.definitions, it "
                    f"takes only what that function returns. Return `{name}` there, too, or move "
                    "one of them to another file"
                )


def misspelled_models(definitions: dg.Definitions, declared: PublishedDatasource) -> Iterator[str]:
    """Report models without an asset if the name of an asset is similar."""
    assets = _other_assets(definitions)
    for model in declared.models:
        if model not in assets and (suggestion := guess(model, assets)):
            yield f'there is no asset "{model}": {suggestion.strip()}'


def _column_problems(
    definitions: dg.Definitions, datasources: Sequence[Datasource]
) -> Iterator[str]:
    """Report columns, keys and types that do not fit the newest snapshots of the models."""
    if not (snapshots := _snapshots(definitions)):
        return
    for datasource in datasources:
        component = datasource.component
        stored = TypedSnapshots(snapshots.store, component.types)
        newest = {model: stored.newest(model) for model in component.models}
        # Skip data sources with a model that was never materialized, and thus has no columns yet.
        if not all(newest.values()):
            continue
        try:
            checked_models(component, newest)
        except RefusedError as error:
            for refusal in error.refusals:
                keys = [refusal.table] if refusal.table else []
                yield (
                    f"{datasource.at('tables', *keys)}: {refusal.text.removesuffix('.')}. "
                    "This describes the model's last run: if the model has changed since, run it "
                    "before the refresh"
                )


def specs_of(definitions: dg.Definitions) -> Iterator[dg.AssetSpec]:
    """Yield the specs of all assets, including external assets."""
    return chain.from_iterable(map(_specs_in, definitions.assets or ()))


def _specs_in(asset: object) -> Iterable[dg.AssetSpec]:
    if isinstance(asset, dg.AssetsDefinition):
        return asset.specs
    return [asset] if isinstance(asset, dg.AssetSpec) else []


def _other_assets(definitions: dg.Definitions) -> list[str]:
    """Return the keys of assets that belong to no data source, such as models and lake tables."""
    specs = [*specs_of(definitions)]
    components = {id(component): component for component in map(component_of, specs)}.values()
    datasources = [
        component for component in components if isinstance(component, PublishedDatasource)
    ]
    own_keys = {key for datasource in datasources for key in asset_keys(datasource.key)}
    return sorted({spec.key.to_user_string() for spec in specs if spec.key not in own_keys})


def _declaration_place(spec: dg.AssetSpec) -> tuple[Path, int]:
    """Return the file and line of a declaration in YAML; ("Python", 0) for all other specs."""
    if isinstance(component_of(spec), PublishedDatasource):
        for reference in _references(spec):
            if isinstance(reference, dg.LocalFileCodeReference):
                return Path(reference.file_path), reference.line_number or 1
    return Path("Python"), 0


def _function_place(asset: object) -> str:
    """Return the file and line of the function of an asset."""
    function = function_of(asset)
    code = getattr(unwrap(function), "__code__", None) if function else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "another module"


def _snapshots(definitions: dg.Definitions) -> SnapshotIOManager | None:
    resource = (definitions.resources or {}).get("snapshots")
    return resource if isinstance(resource, SnapshotIOManager) else None


def _unstored_models(definitions: dg.Definitions) -> Iterator[str]:
    """Yield assets that give DataFrames to Dagster's own IO manager, which cannot store them."""
    default = "io_manager"
    for key, asset, io_manager in _dataframe_assets(definitions):
        if io_manager == default and default not in _resources(definitions, asset):
            yield key


def _resources(definitions: dg.Definitions, asset: dg.AssetsDefinition) -> Mapping[str, object]:
    """Return the resources that an asset may require."""
    return {**(definitions.resources or {}), **asset.resource_defs}


def _dataframe_assets(
    definitions: dg.Definitions,
) -> Iterator[tuple[str, dg.AssetsDefinition, str]]:
    """Yield the key, the definition and the IO manager of each asset that returns a DataFrame.

    Leave out all other assets, because they may store snapshots themselves.
    """
    for asset in definitions.assets or ():
        if not (isinstance(asset, dg.AssetsDefinition) and asset.is_materializable):
            continue
        for key in asset.keys:
            output = output_of(asset, key)
            type_ = output.dagster_type.typing_type
            if DataFrame in (type_, *get_args(type_)):
                yield key.to_user_string(), asset, output.io_manager_key


# Maps a part of the YAML parser's message to an explanation of the mistake.
_YAML_MISTAKES = MappingProxyType(
    {
        "cannot start any token": "YAML allows neither a tab nor a value that begins like this: "
        "indent with spaces, and put the value in quotes",
        "mapping values are not allowed here": "a second colon, or a wrong indent: put a value "
        "that contains a colon in quotes, and indent keys like their neighbours",
        "expected <block end>": "a wrong indent: indent keys like their neighbours",
    }
)


def load_definitions(folder: Path) -> dg.Definitions:
    """Load the definitions that `dg.load_from_defs_folder` finds, and check all of them together.

    `dg check defs` also warns of columns, keys and types that do not fit the newest snapshots.

    Args:
        folder: the folder of `definitions.py`.

    Raises:
        DeclarationError: there are mistakes. For each mistake, the message has a line with the
            file, the line number, the key, and the allowed values.
    """
    with _as_declaration_errors(folder):
        definitions = dg.load_from_defs_folder(path_within_project=folder)
    datasources = datasources_of(definitions)
    _raise_problems(definitions, datasources, *_OF_NAMES, _unusable_models, _upstream_problems)
    problems = _skipped_assets(definitions, folder)
    # Check columns only in `dg check defs`, because reading each model's newest snapshot is too
    # slow for every run. Only warn, because users change a model and its declaration together, and
    # run the model afterwards.
    if os.environ.get(IS_VALIDATION):
        problems = chain(problems, _column_problems(definitions, datasources))
    for problem in problems:
        _LOG.warning("%s", problem)
    models = {model for datasource in datasources for model in datasource.component.models}
    assets = [
        # Do not change an AssetSpec. It stands for a model of another location, and does not show
        # how that location makes the model.
        _with_kinds_and_code(asset, models)
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable
        else asset
        for asset in definitions.assets or ()
    ]
    return replace(definitions, assets=assets)


def _with_kinds_and_code(asset: dg.AssetsDefinition, models: Container[str]) -> dg.AssetsDefinition:
    """Return an asset with a link to its code and, if the asset is a model, with kinds.

    Change only assets that Dagster loads from Python files in the folder `defs`.
    """
    in_python = any(isinstance(component_of(spec), dg.DefsFolderComponent) for spec in asset.specs)

    def annotated(spec: dg.AssetSpec) -> dg.AssetSpec:
        if not spec.kinds and spec.key.to_user_string() in models:
            spec = spec.merge_attributes(kinds={"pyspark", "parquet"})
        # Drop references to YAML, because Dagster adds the folder's YAML even if it declares no
        # asset.
        code = [reference for reference in _references(spec) if not _is_yaml(reference)]
        rest = {name: value for name, value in spec.metadata.items() if name != _REFERENCES}
        references = (
            {_REFERENCES: dg.CodeReferencesMetadataValue(code_references=code)} if code else {}
        )
        return spec.replace_attributes(metadata=rest | references) if in_python else spec

    asset = asset.map_asset_specs(annotated)
    if not in_python or any(map(_references, asset.specs)):
        return asset
    with warnings.catch_warnings():
        # Hide the warning about a beta function, because the function works alike in all Dagster
        # versions that this package allows.
        warnings.simplefilter("ignore", dg.BetaWarning)
        (referring,) = dg.with_source_code_references([asset])
    return cast("dg.AssetsDefinition", referring)


_REFERENCES = "dagster/code_references"
_Reference = dg.LocalFileCodeReference | dg.UrlCodeReference


def _references(spec: dg.AssetSpec) -> Sequence[_Reference]:
    references = spec.metadata.get(_REFERENCES)
    return (
        references.code_references if isinstance(references, dg.CodeReferencesMetadataValue) else ()
    )


def _is_yaml(reference: _Reference) -> bool:
    return isinstance(reference, dg.LocalFileCodeReference) and reference.file_path.endswith(
        (".yaml", ".yml")
    )


def evaluate_definitions(
    definitions: dg.Definitions | LazyDefinitions, folder: Path
) -> dg.Definitions:
    """Evaluate the definitions of a module, which need not call `load_definitions`.

    Args:
        folder: the folder of the module.

    Raises:
        DeclarationError: there are mistakes in YAML, or data sources that would replace each other,
            or data sources with the asset key of another asset. The message has a line for each
            problem.
    """
    with _as_declaration_errors(folder):
        resolved = definitions() if isinstance(definitions, LazyDefinitions) else definitions
    # Do not check models here: a project that does not call `load_definitions` may use models of
    # other locations without a stub.
    _raise_problems(resolved, datasources_of(resolved), *_OF_NAMES)
    return resolved


_Check = Callable[[dg.Definitions, Sequence[Datasource]], Iterator[str]]
# Check names and projects first. If two data sources have the same name and project, the advice to
# change a key would not help.
_OF_NAMES: tuple[_Check, ...] = (_repeated_places, _repeated_keys, _reserved_keys)


def _raise_problems(
    definitions: dg.Definitions, datasources: Sequence[Datasource], *checks: _Check
) -> None:
    for check in checks:
        if problems := list(check(definitions, datasources)):
            raise DeclarationError("\n".join(problems))


@contextmanager
def _as_declaration_errors(folder: Path) -> Generator[None]:
    try:
        yield
    except DagsterUnresolvableSymbolError as error:
        raise DeclarationError(_unknown_type(str(error), folder)) from None
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem)
        place = f"{mark.name}:{mark.line + 1}: " if mark else ""
        explanation = next(
            (words for message, words in _YAML_MISTAKES.items() if message in problem), problem
        )
        raise DeclarationError(f"{place}this is not YAML: {explanation}") from None
    except ComponentTreeException as error:
        # A refusal explains a mistake in the YAML or in an environment variable.
        if refusal := _refusal(error):
            raise refusal from None
        # Keep the traceback of any other error for the author of the definitions.
        raise


def _refusal(error: BaseException | None) -> RefusedError | None:
    """Return the refusal that caused an error; None if no refusal caused it."""
    while error:
        if isinstance(error, RefusedError):
            return error
        error = error.__cause__
    return None


def _unknown_type(problem: str, folder: Path) -> str:
    """Describe an unknown component type, with its place in the YAML if known."""
    match = re.search(r"Module `(.+)` has no attribute `(.+)`", problem)
    module, name = match.groups() if match else ("", "")
    suggestion = guess(name, vars(sys.modules[module])) if module in sys.modules else ""
    for file in sorted(folder.rglob("*.y*ml")) if match else ():
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if f"{module}.{name}" in line:
                return f'{file}:{number}: type: {module} has no "{name}": {suggestion}'.rstrip(": ")
    return problem
