"""Removing the versions that nothing needs any more, and their files."""

import os
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from tableau_pipeline.snapshots import former
from tableau_pipeline.snapshots.store import DATA, VERSIONS, SnapshotStore

_DAY = 86_400


def collect(
    store: SnapshotStore,
    *,
    keep_days: float,
    referenced: Callable[[], Collection[tuple[str, int]]],
) -> list[tuple[str, int]]:
    """Remove what was replaced more than `keep_days` ago and what writes left that were killed.

    The age counts from the version that came next: until then, and for as long as a run may take,
    somebody may be reading it. A manifest goes before the files that it names: cut off at any
    moment, every version that is left is whole, and the next collection goes on. A writer that
    commits meanwhile shares files with the newest version, or with one that is referred to, or
    has just written them: all of those stay.

    Args:
        keep_days: longer than any run takes.
        referenced: tells the versions, by model and number, that a refresh may have to build on or
            compare with, which stay however old they are; asked only if there is something to
            remove.

    Returns:
        The versions that are gone, by model and number.
    """
    before = _now(store.root) - keep_days * _DAY
    models = [*store.models()]
    for model in models:
        store.adopt(model)
    old = [(model, number) for model in models for number in _replaced(store, model, before)]
    needed = set(referenced()) if old else set()
    gone = [each for each in old if each not in needed and _remove(store.manifest(*each))]
    for model in models:
        _remove_files(store, model, before)
    return gone


def _now(root: Path) -> float:
    """By the clock that gives files their times; a worker's own may be another."""
    root.mkdir(parents=True, exist_ok=True)
    probe = root / f".{uuid4().hex}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _replaced(store: SnapshotStore, model: str, before: float) -> Iterator[int]:
    for number, following in pairwise(store.numbers(model)):
        try:
            if store.manifest(model, following).stat().st_mtime <= before:
                yield number
        except FileNotFoundError:  # Another collection was here.
            continue


def _remove_files(store: SnapshotStore, model: str, before: float) -> None:
    """Remove what no version names; of a folder in which something is young, nothing."""
    folder = store.folder(model)
    old = [write for write in _writes(folder) if _last_change(write) <= before]
    if not old:
        return
    # Only now: what was committed until here is among them, and all else has young files.
    named = {folder / Path(name).parent for name in store.files(model)}
    for write in old:
        for place, _, files in os.walk(write, topdown=False):
            if Path(place) not in named:
                for file in files:
                    _remove(Path(place) / file)
                _remove_empty(Path(place))
    for unfinished in (folder / VERSIONS).glob(".*"):
        if _last_change(unfinished) <= before:
            _remove(unfinished)


def _writes(folder: Path) -> list[Path]:
    """The folders of all writes of a model, committed or not."""
    return [
        *(path for path in (folder / DATA).glob("*") if path.is_dir()),
        *(path for path in folder.glob("v-*") if former.is_write(path.name)),
    ]


def _last_change(path: Path) -> float:
    """Of its files; of an empty folder, or what is in it, its own."""
    changes: list[float] = []
    folders: list[float] = []
    for place, _, files in os.walk(path):
        try:
            folders.append(Path(place).stat().st_mtime)
            changes += [(Path(place) / file).stat().st_mtime for file in files]
        except FileNotFoundError:
            continue
    if not folders:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return 0
    return max(changes or folders)


def _remove(file: Path) -> bool:
    """Remove a file; False if another run does so at the same time."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # It holds what is named, or is gone.
        return
