"""What is declared otherwise than in an earlier revision in git, of which no code is run."""

import logging
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import dagster as dg

from tableau_pipeline.components.loading import datasources_of
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.core.declaration import Append, Declaration, Diff, Partitions, ReplaceAll
from tableau_pipeline.core.fields import Members
from tableau_pipeline.dagster_internals import (
    ComponentDeclLoadContext,
    declared_in,
)
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.outcome import Code, Status
from tableau_pipeline.refresh.preview import Note, Preview, preview_declared

# What people call the keys; every other key is called by its name.
_WORDS = MappingProxyType(
    {"name": "renamed", "project": "moved", "refresh": "policy", "retain": "window"}
)


_POLICIES = MappingProxyType(
    {ReplaceAll: "replace", Diff: "diff", Append: "append", Partitions: "partitions"}
)


def declaration_differences(before: Declaration, now: Declaration) -> Iterator[tuple[str, str]]:
    """Yield each difference: what it is about in a word, and a sentence."""
    for path, old, new in _differences(before, now):
        table, keys = (f"{path[1]}: ", path[2:]) if path[0] == "tables" else ("", path)
        about = _WORDS.get(keys[0], keys[0]) if keys else "tables"
        where = f"{'.'.join(keys[1:])}: " if keys[1:] else ""
        yield about, f"{table}{where}{_text(old)} -> {_text(new)}"


def _differences(old: Any, new: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the innermost keys that differ, with both of their values."""
    if old == new:
        return
    before, after = _parts(old), _parts(new)
    # A policy of another kind has other keys.
    if before is None or after is None or (is_dataclass(old) and type(old) is not type(new)):
        yield path, old, new
        return
    for key in dict.fromkeys([*before, *after]):
        yield from _differences(before.get(key), after.get(key), *path, key)


def _parts(value: Any) -> Mapping[str, Any] | None:
    """The parts of a value by their keys in YAML, or by their names; None if it has none."""
    if is_dataclass(value):
        known: Any = getattr(value, "__pydantic_fields__", {})
        alias = {name: field.validation_alias for name, field in known.items()}
        named = {
            str(alias.get(each.name) or each.name): getattr(value, each.name)
            for each in fields(value)
        }
        # A column is its type, by its name, and a hierarchy or folder the fields in it.
        return None if list(named) in (["name", "type"], ["name", "fields"]) else named
    if isinstance(value, tuple) and all(hasattr(each, "name") for each in value):
        return {each.name: each for each in value}
    return None


def _text(value: Any) -> str:
    if value in (None, (), ""):
        return "none"
    if isinstance(value, Column):
        return str(value.type)
    if isinstance(value, Members):
        return _text(value.fields)
    if is_dataclass(value):
        parts = {key: each for key, each in (_parts(value) or {}).items() if key != "name"}
        known = {key: each for key, each in parts.items() if each not in (None, (), "")}
        given = {key: each for key, each in known.items() if each is not False}
        listed = ", ".join(f"{key}: {_text(each)}" for key, each in given.items())
        kind = _POLICIES.get(type(value), "")
        return f"{kind} {{{listed}}}".strip() if listed else kind or "as by default"
    if isinstance(value, tuple) and all(isinstance(each, tuple) for each in value):
        return ", ".join(f"{{{left}: {right}}}" for left, right in value)
    if isinstance(value, tuple):
        return ", ".join(_text(each) for each in value)
    return str(value)


_LOG = logging.getLogger(__name__)
_FILES = ("defs.yaml", "defs.yml", "component.yaml")
_STAYS = "nothing declares it any more: it stays on the server as it is, and no refresh updates it"
_FORMER = (
    "it was {old}, and with another key it is another data source: to go on with the former one, "
    "set key: {old}"
)


# Lets the refresh of a data source tell what it would do.
Look = Callable[[PublishedDatasource], Preview]


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
) -> Iterator[Preview]:
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
        yield Preview(key, each.name, Status.REMOVED, Status.REMOVED, _STAYS, notes=notes)


def _changed(before: PublishedDatasource, now: PublishedDatasource, look: Look) -> Preview:
    notes = [Note(about, text) for about, text in declaration_differences(before, now)]
    found, otherwise = look(now), look(before)
    if found.kind is Status.UNKNOWN:
        # Without its models, its declaration alone tells something.
        why = f"what else its models bring: {found.reason}"
        found = replace(preview_declared(before, now), notes=(*found.notes, Note("unknown", why)))
    elif (otherwise.decision, otherwise.reason) != (found.decision, found.reason):
        why = "; ".join(otherwise.reason.split("\n"))
        notes.append(Note("otherwise", f"{otherwise.decision}: {why}"))
    return replace(found, notes=(*notes, *found.notes))


def _declared(context: ComponentDeclLoadContext, file: Path) -> Iterator[PublishedDatasource]:
    """Read a file as Dagster does."""
    # Only its keys are read: the assets of the revision are not made.
    return declared_in(context, file, PublishedDatasource)


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
