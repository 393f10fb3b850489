"""Compare today's declarations with a git revision's, without running the revision's code."""

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
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.fields import Members
from tableau_pipeline.core.policies import Append, Diff, Partitions, ReplaceAll
from tableau_pipeline.dagster_internals import declared_in, folder_of
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.outcome import Code, Status
from tableau_pipeline.refresh.preview import Note, Preview, preview_declared

# Maps keys to the topics of their changes. The topic of any other key is the key itself.
_TOPICS = MappingProxyType(
    {"name": "renamed", "project": "moved", "refresh": "policy", "retain": "window"}
)


_POLICIES = MappingProxyType(
    {ReplaceAll: "replace", Diff: "diff", Append: "append", Partitions: "partitions"}
)


def declaration_differences(before: Declaration, now: Declaration) -> Iterator[tuple[str, str]]:
    """Yield the topic and the description of each difference."""
    for path, old, new in _differences(before, now):
        table, keys = (f"{path[1]}: ", path[2:]) if path[0] == "tables" else ("", path)
        topic = _TOPICS.get(keys[0], keys[0]) if keys else "tables"
        inner_keys = f"{'.'.join(keys[1:])}: " if keys[1:] else ""
        yield topic, f"{table}{inner_keys}{_text(old)} -> {_text(new)}"


def _differences(old: Any, new: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the path of each innermost key that differs, with the old and the new value."""
    if old == new:
        return
    before, after = _parts(old), _parts(new)
    # Compare policies of different kinds as a whole, because they have different keys.
    if before is None or after is None or (is_dataclass(old) and type(old) is not type(new)):
        yield path, old, new
        return
    for key in dict.fromkeys([*before, *after]):
        yield from _differences(before.get(key), after.get(key), *path, key)


def _parts(value: Any) -> Mapping[str, Any] | None:
    """Map the YAML keys of a dataclass to its fields, or the names of a tuple's items to the items.

    Return None for other values.
    """
    if is_dataclass(value):
        pydantic_fields: Any = getattr(value, "__pydantic_fields__", {})
        aliases = {name: info.validation_alias for name, info in pydantic_fields.items()}
        parts = {
            str(aliases.get(field.name) or field.name): getattr(value, field.name)
            for field in fields(value)
        }
        # Do not divide a column, hierarchy or folder: `_text` shows its type or its fields.
        return None if list(parts) in (["name", "type"], ["name", "fields"]) else parts
    if isinstance(value, tuple) and all(hasattr(item, "name") for item in value):
        return {item.name: item for item in value}
    return None


def _text(value: Any) -> str:
    """Return a value of a declaration as text; "none" for an empty value."""
    if value in (None, (), ""):
        return "none"
    if isinstance(value, Column):
        return str(value.type)
    if isinstance(value, Members):
        return _text(value.fields)
    if is_dataclass(value):
        parts = {key: part for key, part in (_parts(value) or {}).items() if key != "name"}
        given = {key: part for key, part in parts.items() if part not in (None, (), "")}
        shown = {key: part for key, part in given.items() if part is not False}
        listed = ", ".join(f"{key}: {_text(part)}" for key, part in shown.items())
        kind = _POLICIES.get(type(value), "")
        return f"{kind} {{{listed}}}".strip() if listed else kind or "as by default"
    if isinstance(value, tuple) and all(isinstance(item, tuple) for item in value):
        return ", ".join(f"{{{left}: {right}}}" for left, right in value)
    if isinstance(value, tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)


_LOG = logging.getLogger(__name__)
_FILES = ("defs.yaml", "defs.yml", "component.yaml")
_STAYS = "nothing declares it any more: it stays on the server as it is, and no refresh updates it"
_FORMER = (
    "the key was {old}, and another key means another data source: to go on with the former one, "
    "set key: {old}"
)


# A function that returns a preview of a data source's refresh.
PreviewOf = Callable[[PublishedDatasource], Preview]


@dataclass(frozen=True, slots=True)
class Revision:
    """The declarations in a git revision.

    Attributes:
        datasources: maps an asset key to a file, relative to the folder `defs`, and to the data
            source that the file declares.
        now: maps the asset key of each data source that YAML declares today to the YAML file.
        unread: maps each file of the revision that today's code cannot read to the reason.
    """

    datasources: Mapping[str, tuple[str, PublishedDatasource]]
    now: Mapping[str, str]
    unread: Mapping[str, str]

    def left_out(self, declared: Mapping[str, PublishedDatasource]) -> list[str]:
        """Return a line for each declaration that cannot be compared."""
        python = [datasource.name for key, datasource in declared.items() if key not in self.now]
        return [
            *(f"{file} as it was: {reason}" for file, reason in self.unread.items()),
            *(f"{name} is declared in Python" for name in python),
        ]


def revision(name: str, definitions: dg.Definitions) -> Revision:
    """Read the YAML of a revision with today's components.

    Args:
        name: the name of a branch, a tag, or a commit.
        definitions: today's definitions, which name the folder to read in the revision.

    Raises:
        RefusedError: git does not know the name, or the location has no folder of YAML files.
    """
    folder = folder_of(definitions)
    if folder is None:
        raise RefusedError(
            "This code location has no folder `defs` that Dagster loads, so nothing in it is "
            "declared in YAML: plan without --base",
            code=Code.PROJECT,
        )
    commit = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").strip()
    files = {*_git(folder, "ls-tree", "-r", "--name-only", "-z", commit).split("\0")}
    differ = _git(folder, "diff", "--name-only", "--relative", "--no-renames", "-z", commit)
    changed = {file for file in differ.split("\0") if file in files and Path(file).name in _FILES}
    now, datasources, unread = {}, {}, {}
    for located in datasources_of(definitions):
        if located.file.name in _FILES and located.file.resolve().is_relative_to(folder):
            now[located.component.key] = file = str(located.file.resolve().relative_to(folder))
            # An unchanged file still has the same declarations, so do not read it again.
            if file in files and file not in changed:
                datasources[located.component.key] = file, located.component
    with TemporaryDirectory() as temporary:
        past_folder = Path(temporary).resolve()
        for file in sorted(changed):
            (past_folder / file).parent.mkdir(parents=True, exist_ok=True)
            text = _git(folder, "show", f"{commit}:./{file}")
            (past_folder / file).write_text(text, "utf-8")
        for file in sorted(changed):
            try:
                datasources |= _datasources_in(file, past_folder, definitions)
            except Exception as error:  # noqa: BLE001 - the other files can still be read
                # For example, today's code may no longer have the component.
                _LOG.debug("%s of %s cannot be read", file, name, exc_info=error)
                reason = (str(error) or repr(error)).replace(f"{past_folder}/", "")
                reason = reason.partition("\n")[0]
                unread[file] = f"today's code cannot read it: {reason}"
    return Revision(datasources, now, unread)


def _datasources_in(
    file: str, folder: Path, definitions: dg.Definitions
) -> Mapping[str, tuple[str, PublishedDatasource]]:
    """Return the data sources of a file by key; raise an error if one of them cannot be read."""
    # Read only the YAML keys, and make no assets.
    components = declared_in(
        folder / file, PublishedDatasource, definitions=definitions, folder=folder
    )
    return {component.key: (file, component) for component in components}


def previews_of_changes(
    past: Revision, declared: Mapping[str, PublishedDatasource], look: PreviewOf, *, every: bool
) -> Iterator[Preview]:
    """Yield a preview of each data source whose declaration differs from the revision's.

    Args:
        declared: today's data sources, or some of them.
        every: whether `declared` is complete, so that a missing data source was removed.
    """
    today = {*past.now, *declared}
    gone = {key: entry for key, entry in past.datasources.items() if key not in today}
    for key, datasource in declared.items():
        (_, before), file = past.datasources.get(key, ("", None)), past.now.get(key)
        if file is None or before == datasource:
            continue
        if before is None and file in past.unread:
            preview = look(datasource)
            note = Note("unknown", f"how {file} declared it: {past.unread[file]}")
            yield replace(preview, notes=(note, *preview.notes))
            continue
        if before:
            yield _preview_changed(before, datasource, look)
            continue
        place = datasource.name, datasource.project
        former_keys = [
            Note("key", _FORMER.format(old=old_key))
            for old_key, (old_file, former) in gone.items()
            if old_file == file or (former.name, former.project) == place
        ]
        preview = look(datasource)
        is_new = preview.is_new or preview.kind is Status.UNKNOWN
        notes = (Note("added", file), *former_keys, *preview.notes)
        yield replace(preview, is_new=is_new, notes=notes)
    for key, (file, removed) in gone.items() if every else ():
        notes = (Note("removed", file),)
        yield Preview(key, removed.name, Status.REMOVED, Status.REMOVED, _STAYS, notes=notes)


def _preview_changed(
    before: PublishedDatasource, now: PublishedDatasource, look: PreviewOf
) -> Preview:
    """Preview a changed declaration; note the changes, and what the former declaration would do."""
    notes = [Note(topic, text) for topic, text in declaration_differences(before, now)]
    preview, former = look(now), look(before)
    if preview.kind is Status.UNKNOWN:
        # Without the models' rows, preview only the changes that the declaration shows.
        unknown = Note("unknown", f"what else its models bring: {preview.reason}")
        preview = replace(preview_declared(before, now), notes=(*preview.notes, unknown))
    elif (former.decision, former.reason) != (preview.decision, preview.reason):
        reason = "; ".join(former.reason.split("\n"))
        notes.append(Note("base", f"{former.decision}: {reason}"))
    return replace(preview, notes=(*notes, *preview.notes))


def _git(folder: Path, *args: str) -> str:
    """Return the output of a git command that changes neither files nor git's index.

    Raises:
        RefusedError: git is missing, or does not know the revision.
    """
    # Do not let git write its index. With an outdated index, git may report unchanged files as
    # changed, but reading these files again does no harm.
    command = ["git", "-c", "diff.autoRefreshIndex=false", "-C", str(folder), *args]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except FileNotFoundError as error:
        raise RefusedError(
            "there is no git on this host: install it", code=Code.NOT_INSTALLED
        ) from error
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise RefusedError(
            f'git knows no revision "{args[-1].partition("^")[0]}" of {folder} ({words}): correct '
            "the name, or fetch it first, as in git fetch origin main; in a workflow, set "
            "fetch-depth: 0 of actions/checkout. Without a clone, plan without --base",
            code=Code.PROJECT,
        ) from error
