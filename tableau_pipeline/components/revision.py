"""What is declared otherwise than in an earlier revision in git, of which no code is run."""

import logging
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
from dagster.components.core.context import ComponentDeclLoadContext
from dagster.components.core.decl import YamlDecl, YamlFileDecl, build_component_decl_from_yaml_file
from dagster.components.core.defs_module import ComponentPath

from tableau_pipeline.components.loading import datasources_of
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.core.differences import differences
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.foresee import Foreseen, Note, foresee_declared
from tableau_pipeline.outcome import Code, Status

_LOG = logging.getLogger(__name__)
_FILES = ("defs.yaml", "defs.yml", "component.yaml")
_STAYS = "nothing declares it any more: it stays on the server as it is, and no refresh updates it"
_FORMER = (
    "it was {old}, and with another key it is another data source: to go on with the former one, "
    "set key: {old}"
)


# Lets the refresh of a data source tell what it would do.
Look = Callable[[PublishedDatasource], Foreseen]


@dataclass(frozen=True, slots=True)
class Revision:
    """What a revision declares.

    Attributes:
        datasources: the file below the folder `defs`, and the data source, by asset key.
        now: where today's data sources are declared, of those in YAML.
        unread: why today's code cannot read a file of the revision, by file.
    """

    datasources: Mapping[str, tuple[str, PublishedDatasource]]
    now: Mapping[str, str]
    unread: Mapping[str, str]

    def left_out(self, declared: Mapping[str, PublishedDatasource]) -> list[str]:
        """What cannot be compared, in sentences."""
        python = [each.name for key, each in declared.items() if key not in self.now]
        return [
            *(f"{file} as it was: {why}" for file, why in self.unread.items()),
            *(f"{name} is declared in Python" for name in python),
        ]


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
            "declared in YAML: plan without --base",
            code=Code.PROJECT,
        )
    folder = tree.defs_module_path.resolve()
    commit = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").strip()
    there = {*_git(folder, "ls-tree", "-r", "--name-only", "-z", commit).split("\0")}
    differ = _git(folder, "diff", "--name-only", "--relative", "--no-renames", "-z", commit)
    changed = {file for file in differ.split("\0") if file in there and Path(file).name in _FILES}
    now, found, unread = {}, {}, {}
    for each in datasources_of(definitions):
        if each.file.name in _FILES and each.file.resolve().is_relative_to(folder):
            now[each.component.key] = file = str(each.file.resolve().relative_to(folder))
            # What is as it was declares what it declared, and need not be read again.
            if file in there and file not in changed:
                found[each.component.key] = file, each.component
    with TemporaryDirectory() as temporary:
        past = Path(temporary).resolve()
        context = replace(tree.decl_load_context, defs_module_path=past)
        for file in sorted(changed):
            (past / file).parent.mkdir(parents=True, exist_ok=True)
            (past / file).write_text(_git(folder, "show", f"{commit}:./{file}"), "utf-8")
        for file in sorted(changed):
            try:
                found |= {each.key: (file, each) for each in _declared(context, past / file)}
            except Exception as error:  # noqa: BLE001 - the other files can be read all the same
                # Its component may be gone from today's code, say.
                _LOG.debug("%s of %s cannot be read", file, name, exc_info=error)
                reason = (str(error) or repr(error)).replace(f"{past}/", "").partition("\n")[0]
                unread[file] = f"today's code cannot read it: {reason}"
    return Revision(found, now, unread)


def declared_otherwise(
    past: Revision, declared: Mapping[str, PublishedDatasource], look: Look, *, every: bool
) -> Iterator[Foreseen]:
    """Yield what is declared otherwise than in a revision, and what comes of that.

    Args:
        declared: today's data sources, or some of them.
        every: they are all, so that what is missing is removed.
    """
    today = {*past.now, *declared}
    gone = {key: each for key, each in past.datasources.items() if key not in today}
    for key, each in declared.items():
        (_, before), file = past.datasources.get(key, ("", None)), past.now.get(key)
        if file is None or before == each:
            continue
        if before is None and file in past.unread:
            found = look(each)
            note = Note("unknown", f"how {file} declared it: {past.unread[file]}")
            yield replace(found, notes=(note, *found.notes))
            continue
        if before:
            yield _changed(before, each, look)
            continue
        formerly = [
            Note("key", _FORMER.format(old=old))
            for old, (there, former) in gone.items()
            if there == file or (former.name, former.project) == (each.name, each.project)
        ]
        found = look(each)
        yield replace(found, notes=(Note("added", file), *formerly, *found.notes))
    for key, (file, each) in gone.items() if every else ():
        notes = (Note("removed", file),)
        yield Foreseen(key, each.name, Status.REMOVED, Status.REMOVED, _STAYS, notes=notes)


def _changed(before: PublishedDatasource, now: PublishedDatasource, look: Look) -> Foreseen:
    notes = [Note(about, text) for about, text in differences(before, now)]
    found, otherwise = look(now), look(before)
    if found.kind is Status.UNKNOWN:
        # Without its models, its declaration alone tells something.
        why = f"what else its models bring: {found.reason}"
        found = replace(foresee_declared(before, now), notes=(*found.notes, Note("unknown", why)))
    elif (otherwise.decision, otherwise.reason) != (found.decision, found.reason):
        why = "; ".join(otherwise.reason.split("\n"))
        notes.append(Note("otherwise", f"{otherwise.decision}: {why}"))
    return replace(found, notes=(*notes, *found.notes))


def _declared(context: ComponentDeclLoadContext, file: Path) -> Iterator[PublishedDatasource]:
    """Read a file as Dagster does."""
    here = context.for_component_loc(ComponentPath.from_path(file.parent))
    found = build_component_decl_from_yaml_file(here, file)
    for each in found.decls if isinstance(found, YamlFileDecl) else ():
        if isinstance(each, YamlDecl) and issubclass(each.component_type, PublishedDatasource):
            # Only its keys are read: the assets of the revision are not made.
            yield each._load_component()  # ty: ignore[invalid-yield]


def _git(folder: Path, *args: str) -> str:
    """Ask git, which is to change nothing, not even its index.

    Raises:
        RefusedError: git is missing, or does not know the revision.
    """
    # Files that it then takes for changed, because they were touched, are read once more.
    command = ["git", "-c", "diff.autoRefreshIndex=false", "-C", str(folder), *args]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except FileNotFoundError as error:
        raise RefusedError(
            "there is no git on this host: install it", code=Code.NOT_INSTALLED
        ) from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise RefusedError(
            f'git knows no revision "{args[-1].partition("^")[0]}" of {folder} ({said}): correct '
            "the name, or fetch it first, as in git fetch origin main; in a workflow, set "
            "fetch-depth: 0 of actions/checkout. Without a clone, plan without --base",
            code=Code.PROJECT,
        ) from error
