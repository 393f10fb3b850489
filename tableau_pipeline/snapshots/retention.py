"""Remove the versions that are no longer needed, with their files."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import quote
from uuid import uuid4

from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.outcome import Code
from tableau_pipeline.snapshots.store import (
    UNFINISHED,
    Entry,
    SnapshotStore,
    Storage,
    model_key,
    parse_key,
)

_DAY = 86_400
# No model has an @ in its folder.
_RUNS = "@runs/"


def is_first(store: SnapshotStore, run_id: str) -> bool:
    """Return whether nothing has asked this of the store on behalf of the run, in its last day.

    Of the steps of a run, on whatever hosts, only one creates the key. Neither a lock nor a table
    that they share is needed, and a killed step leaves nothing to clear up but a key.
    """
    return store.storage.put(f"{_RUNS}{quote(run_id, safe='')}", b"")


@dataclass(frozen=True, slots=True)
class _Model:
    """What a listing shows of a model.

    Attributes:
        versions: the time of each commit by number.
        writes: the files and folders of each write, by its folder.
    """

    versions: dict[int, float] = field(default_factory=dict)
    writes: dict[str, list[Entry]] = field(default_factory=dict)

    def replaced(self, before: float) -> list[int]:
        """Return the versions that were replaced before a time."""
        following = pairwise(sorted(self.versions.items()))
        return [number for (number, _), (_, followed) in following if followed <= before]

    def unchanged(self, since: float) -> list[str]:
        """Return the keys of writes that contain no recent file; of a folder if there is none."""
        keys = []
        for entries in self.writes.values():
            files = [entry.modified for entry in entries if not entry.is_folder]
            if max(files or [entry.modified for entry in entries]) <= since:
                keys += [entry.key for entry in entries]
        return keys


def collect(
    store: SnapshotStore,
    *,
    keep_days: float,
    referenced: Collection[tuple[str, int]],
) -> list[tuple[str, int]]:
    """Remove versions that were replaced more than `keep_days` ago, and files of killed writes.

    The age counts from the commit of the next version: until then, and for as long as a run may
    take, a run may be reading the old one. A manifest is removed before its files. So the
    remaining versions are complete even after an interruption, and the next collection continues. A
    writer that commits meanwhile shares files only with the newest version or a referenced one, or
    has just written them; all of those stay.

    Args:
        keep_days: must be longer than any run takes.
        referenced: the versions, by model and number, that a refresh may have to build on or
            compare with. They stay whatever their age.

    Returns:
        The removed versions, by model and number.

    Raises:
        DamagedSnapshotError: manifests cannot be read. Of their models, everything stays; what is
            to go of the others is gone.
    """
    now, entries = _listing(store.storage)
    before = now - keep_days * _DAY
    models = _models(entries)
    old = {name: model.replaced(before) for name, model in models.items()}
    gone: list[tuple[str, int]] = []
    problems = []
    for name, model in models.items():
        expired = [number for number in old[name] if (name, number) not in referenced]
        try:
            gone += _remove(store, name, model, expired, before)
        except DamagedSnapshotError as error:
            problems.append(f'Nothing was removed of the model "{name}". {error}')
    for entry in entries:
        # What a killed `put` has left; and the keys of runs, after a day.
        is_run = (
            entry.key.startswith(_RUNS) and not entry.is_folder and entry.modified <= now - _DAY
        )
        if is_run or (UNFINISHED.fullmatch(entry.key) and entry.modified <= before):
            store.storage.delete(entry.key)
    if problems:
        raise DamagedSnapshotError("\n".join(problems), code=Code.SNAPSHOT)
    return gone


def _models(entries: Iterable[Entry]) -> dict[str, _Model]:
    models: dict[str, _Model] = {}
    for entry in entries:
        if found := parse_key(entry.key):
            name, number, write = found
            model = models.setdefault(name, _Model())
            if number:
                model.versions[number] = entry.modified
            else:
                model.writes.setdefault(write, []).append(entry)
    return models


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


def _remove(
    store: SnapshotStore, name: str, model: _Model, expired: Sequence[int], before: float
) -> list[tuple[str, int]]:
    """Remove versions of a model, and old files that no other version names."""
    # A version that is committed after the listing names files of the newest one, or recent ones.
    numbers, old = sorted(model.versions), model.unchanged(before)
    if not expired and old and numbers:
        old = _unnamed(store, name, old, [numbers.pop()])
    if not expired and not old:
        return []
    # All are read before anything goes: a damaged one might name any file.
    store.files(name, expired)
    unnamed = _unnamed(store, name, old, [each for each in numbers if each not in expired])
    gone = [
        (name, number) for number in expired if store.storage.delete(store.manifest(name, number))
    ]
    # In this order, what is in a folder comes before the folder.
    for key in sorted(unnamed, reverse=True):
        store.storage.delete(key)
    return gone


def _unnamed(
    store: SnapshotStore, model: str, keys: Iterable[str], numbers: Sequence[int]
) -> list[str]:
    """Return the keys that lie in no folder with files of these versions."""
    folders = {name.rpartition("/")[0] for name in store.files(model, numbers)}
    named = {f"{model_key(model)}/{folder}" for folder in folders}
    return [key for key in keys if key.rpartition("/")[0] not in named]
