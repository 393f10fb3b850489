"""The data sources that an earlier revision in git declares, read without running its code."""

import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
from dagster.components.core.context import ComponentDeclLoadContext
from dagster.components.core.decl import YamlDecl, YamlFileDecl, build_component_decl_from_yaml_file
from dagster.components.core.defs_module import ComponentPath

from tableau_pipeline.components.loading import datasources_of
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.errors import RefusedError

_LOG = logging.getLogger(__name__)
_FILES = ("defs.yaml", "defs.yml", "component.yaml")


@dataclass(frozen=True, slots=True)
class Revision:
    """What a revision declares.

    Attributes:
        datasources: by asset key.
        files: where each of them is declared, below the folder `defs`.
        unread: why some files cannot be read by today's code, in sentences.
    """

    datasources: Mapping[str, PublishedDatasource]
    files: Mapping[str, str]
    unread: Sequence[str]


def revision(name: str, definitions: dg.Definitions) -> Revision:
    """Read the YAML of a revision with today's components.

    Args:
        name: as git knows it: a branch, a tag, or a commit.
        definitions: today's; the revision is read from the same folder.

    Raises:
        RefusedError: git does not know it, or the location has no folder of YAML files.
    """
    tree = definitions.component_tree
    if tree is None:
        raise RefusedError(
            "This code location has no folder `defs` that Dagster loads, so nothing in it is "
            "declared in YAML: plan without --base"
        )
    folder = tree.defs_module_path.resolve()
    commit = _commit(name, folder)
    there = _listed(folder, "ls-tree", "-r", "--name-only", "-z", commit)
    differ = _listed(folder, "diff", "--name-only", "--relative", "--no-renames", "-z", commit)
    # What is as it was declares what it declared, and need not be read again.
    same = there - differ
    files = {key: file for key, file in files_of(definitions).items() if file in same}
    every = {each.component.key: each.component for each in datasources_of(definitions)}
    found, unread = {key: every[key] for key in files}, []
    with TemporaryDirectory() as temporary:
        past = Path(temporary).resolve()
        context = replace(tree.decl_load_context, defs_module_path=past)
        wanted = sorted(each for each in there & differ if Path(each).name in _FILES)
        for file in wanted:
            (past / file).parent.mkdir(parents=True, exist_ok=True)
            (past / file).write_text(_git(folder, "show", f"{commit}:./{file}"), "utf-8")
        for file in wanted:
            try:
                for each in _declared(context, past / file):
                    found[each.key], files[each.key] = each, file
            except Exception as error:  # noqa: BLE001 - the other files can be read all the same
                # Its component may be gone from today's code, say.
                _LOG.debug("%s of %s cannot be read", file, name, exc_info=error)
                reason = (str(error) or repr(error)).replace(f"{past}/", "").partition("\n")[0]
                unread.append(f"{file} of {name} cannot be read by today's code: {reason}")
    return Revision(found, files, unread)


def files_of(definitions: dg.Definitions) -> dict[str, str]:
    """Where each data source is declared that is declared in YAML, by asset key."""
    tree = definitions.component_tree
    folder = tree.defs_module_path.resolve() if tree else Path()
    return {
        each.component.key: str(each.file.resolve().relative_to(folder))
        for each in datasources_of(definitions)
        if each.file.name in _FILES
    }


def _declared(context: ComponentDeclLoadContext, file: Path) -> Iterator[PublishedDatasource]:
    """Read a file as Dagster does."""
    here = context.for_component_loc(ComponentPath.from_path(file.parent))
    found = build_component_decl_from_yaml_file(here, file)
    for each in found.decls if isinstance(found, YamlFileDecl) else ():
        if isinstance(each, YamlDecl) and issubclass(each.component_type, PublishedDatasource):
            # Only its keys are read: the assets of the revision are not made.
            yield each._load_component()  # ty: ignore[invalid-yield]


def _commit(name: str, folder: Path) -> str:
    try:
        _git(folder, "rev-parse", "--is-inside-work-tree")
    except RefusedError as error:
        raise RefusedError(
            f"{folder} has no revisions to compare with: {error}. Plan in a clone, or without "
            "--base"
        ) from error
    try:
        return _git(
            folder, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}"
        ).strip()
    except RefusedError as error:
        raise RefusedError(
            f'git knows no revision "{name}": correct the name, or fetch it first, as in '
            "git fetch origin main; in a workflow, set fetch-depth: 0 of actions/checkout"
        ) from error


def _listed(folder: Path, *args: str) -> set[str]:
    return {each for each in _git(folder, *args).split("\0") if each}


def _git(folder: Path, *args: str) -> str:
    """Ask git, which is to change nothing, not even its index.

    Raises:
        RefusedError: git is missing, or fails.
    """
    # Files that it then takes for changed, because they were touched, are read once more.
    command = ["git", "-c", "diff.autoRefreshIndex=false", "-C", str(folder), *args]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError as error:
        raise RefusedError("there is no git on this host: install it") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise RefusedError(said.partition("\n")[0]) from error
    return done.stdout.decode()
