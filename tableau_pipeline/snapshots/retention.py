"""Remove the versions that are no longer needed, with their files."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile

from tableau_pipeline.snapshots import former
from tableau_pipeline.snapshots.store import DATA, VERSIONS, SnapshotStore

_DAY = 86_400


def collect(
    store: SnapshotStore,
    *,
    keep_days: float,
    referenced: Callable[[], Collection[tuple[str, int]]],
) -> list[tuple[str, int]]:
    """Remove versions that were replaced more than `keep_days` ago, and files of killed writes.

    The age counts from the commit of the next version: until then, and for as long as a run may
    take, somebody may be reading the old one. A manifest is removed before its files. So the
    remaining versions are complete even after an interruption, and the next collection continues. A
    writer that commits meanwhile shares files only with the newest version or a referenced one, or
    has just written them; all of those stay.

    Args:
        keep_days: must be longer than any run takes.
        referenced: returns the versions, by model and number, that a refresh may have to build
            on or compare with. They stay whatever their age. Called only if there is something
            to remove.

    Returns:
        The removed versions, by model and number.
    """
    before = _now(store.root) - keep_days * _DAY
    models = [*store.models()]
    for model in models:
        # Only manifests of the store keep files from being removed; older releases wrote none.
        store.adopt(model)
    old = [(model, number) for model in models for number in _replaced(store, model, before)]
    needed = set(referenced()) if old else set()
    gone = [each for each in old if each not in needed and _remove(store.manifest(*each))]
    for model in models:
        _remove_files(store, model, before)
    return gone


def _now(root: Path) -> float:
    """Return the time by the clock that stamps files; the clock of a worker may differ."""
    root.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(prefix=".", dir=root) as probe:
        return Path(probe.name).stat().st_mtime


def _replaced(store: SnapshotStore, model: str, before: float) -> Iterator[int]:
    for number, following in pairwise(store.numbers(model)):
        try:
            if store.manifest(model, following).stat().st_mtime <= before:
                yield number
        except FileNotFoundError:  # Another collection removed it.
            continue


def _remove_files(store: SnapshotStore, model: str, before: float) -> None:
    """Remove files that no version names; keep folders that contain a recent file."""
    folder = store.folder(model)
    old = [write for write in _writes(folder) if _last_change(write) <= before]
    if not old:
        return
    # Read only now: a version that was committed before is included, and later ones have recent
    # files.
    named = {folder / Path(name).parent for name in store.files(model)}
    for write in old:
        # The inner folders come first, so that the outer ones are empty at their turn.
        for place, _, files in os.walk(write, topdown=False):
            if Path(place) not in named:
                for file in files:
                    _remove(Path(place) / file)
                # It may still contain files, or no longer exist.
                with suppress(OSError):
                    Path(place).rmdir()
    for unfinished in (folder / VERSIONS).glob(".*"):
        if _last_change(unfinished) <= before:
            _remove(unfinished)


def _writes(folder: Path) -> list[Path]:
    """Return the folders of all writes of a model, committed or not."""
    return [
        *(path for path in (folder / DATA).glob("*") if path.is_dir()),
        *(path for path in folder.glob("v-*") if former.is_write(path.name)),
    ]


def _last_change(path: Path) -> float:
    """Return the last change of any file in a folder; of the folder itself if it is empty."""
    changes: list[float] = []
    folders: list[float] = []
    for place, _, files in os.walk(path):
        with suppress(FileNotFoundError):
            folders.append(Path(place).stat().st_mtime)
            changes += [(Path(place) / file).stat().st_mtime for file in files]
    if not folders:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return 0
    return max(changes or folders)


def _remove(file: Path) -> bool:
    """Remove a file; return False if another run has removed it meanwhile."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True
