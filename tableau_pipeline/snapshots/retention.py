"""Remove the versions that are no longer needed, with their files."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from uuid import uuid4

from tableau_pipeline.snapshots.storage import UNFINISHED, Entry, Storage
from tableau_pipeline.snapshots.store import SnapshotStore, model_key, place

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
    now, entries = _listing(store.storage)
    before = now - keep_days * _DAY
    models: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        if found := place(entry.key):
            model, write = found
            models.setdefault(model, {}).setdefault(write, []).append(entry)
    old = [(model, number) for model in models for number in _replaced(store, model, before)]
    needed = set(referenced()) if old else set()
    gone = [
        each for each in old if each not in needed and store.storage.delete(store.manifest(*each))
    ]
    for model, writes in models.items():
        _remove_files(store, model, writes, before)
    for entry in entries:
        if UNFINISHED.fullmatch(entry.key) and entry.modified <= before:
            store.storage.delete(entry.key)
    return gone


def _listing(storage: Storage) -> tuple[float, Sequence[Entry]]:
    """Return the time and all keys; the time by the clock of the keys, which may differ from ours.

    Files that are written later are not in the listing, and so are not removed.
    """
    probe = f".{uuid4().hex}"
    storage.put(probe, b"")
    try:
        entries = [*storage.list("")]
    finally:
        storage.delete(probe)
    return next(entry.modified for entry in entries if entry.key == probe), entries


def _replaced(store: SnapshotStore, model: str, before: float) -> Iterator[int]:
    for (number, _), (_, followed) in pairwise(store.committed(model).items()):
        if followed <= before:
            yield number


def _remove_files(
    store: SnapshotStore, model: str, writes: Mapping[str, Sequence[Entry]], before: float
) -> None:
    """Remove files that no version names; keep writes that contain a recent file."""
    old = [
        entry.key
        for write, entries in writes.items()
        if write and _last_change(entries) <= before
        for entry in entries
    ]
    if not old:
        return
    # Read only now: a version that was committed before is included, and later ones have recent
    # files.
    folders = {name.rpartition("/")[0] for name in store.files(model)}
    named = {f"{model_key(model)}/{folder}" for folder in folders}
    # In this order, what is in a folder comes before the folder.
    for key in sorted(old, reverse=True):
        if key.rpartition("/")[0] not in named:
            store.storage.delete(key)


def _last_change(entries: Sequence[Entry]) -> float:
    """Return the last change of any file of a write; of a folder if there is no file."""
    files = [entry.modified for entry in entries if not entry.is_folder]
    return max(files or [entry.modified for entry in entries])
