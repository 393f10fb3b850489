"""Remove the versions that are no longer needed, with their files."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import quote
from uuid import uuid4

from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.outcome import Code
from tableau_pipeline.snapshots.version_store import (
    UNFINISHED,
    Entry,
    SnapshotStore,
    Storage,
    model_key,
    parse_key,
)

_DAY = 86_400
# The quoted key of a model never contains an @.
_RUN_KEYS = "@runs/"


def is_first(store: SnapshotStore, run_id: str) -> bool:
    """Return whether this is the first call for the run within a day.

    Of the steps of a run, on any hosts, only one creates the key. So they need neither a lock nor a
    shared table, and a killed step leaves nothing behind but a key.
    """
    return store.storage.put(f"{_RUN_KEYS}{quote(run_id, safe='')}", b"")


@dataclass(frozen=True, slots=True)
class _Model:
    """The versions and writes of a model that are in a listing.

    Attributes:
        versions: the time of each commit by number.
        writes: the files and folders of each write, by its folder.
    """

    versions: dict[int, float] = field(default_factory=dict)
    writes: dict[str, list[Entry]] = field(default_factory=dict)

    def replaced(self, before: float) -> list[int]:
        """Return the versions that were replaced before a time."""
        following = pairwise(sorted(self.versions.items()))
        return [number for (number, _), (_, replaced_at) in following if replaced_at <= before]

    def unchanged(self, since: float) -> list[str]:
        """Return the keys of writes whose files are not recent; without files, folders count."""
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

    The age counts from the commit of the next version: until then a run may start to read the old
    one, and may continue for as long as a run takes. A manifest is removed before its files. So the
    remaining versions are complete even after an interruption, and the next collection continues. A
    writer that commits meanwhile has just written its files, or shares them with the newest version
    or a referenced one; all of those stay.

    Args:
        keep_days: must be longer than any run takes.
        referenced: the versions, by model and number, that a refresh may have to build on or
            compare with. They stay at any age.

    Returns:
        The removed versions, by model and number.

    Raises:
        DamagedSnapshotError: manifests cannot be read. Their models keep everything; the expired
            versions of the others are removed.
    """
    now, entries = _listing(store.storage)
    before = now - keep_days * _DAY
    models = _models(entries)
    replaced = {name: model.replaced(before) for name, model in models.items()}
    removed: list[tuple[str, int]] = []
    problems = []
    for name, model in models.items():
        expired = [number for number in replaced[name] if (name, number) not in referenced]
        try:
            removed += _remove(store, name, model, expired, before)
        except DamagedSnapshotError as error:
            problems.append(f'Nothing was removed of the model "{name}". {error}')
    for entry in entries:
        # Keys of runs go after a day; unfinished files of a killed `put` go like old versions.
        is_run = (
            entry.key.startswith(_RUN_KEYS) and not entry.is_folder and entry.modified <= now - _DAY
        )
        if is_run or (UNFINISHED.fullmatch(entry.key) and entry.modified <= before):
            store.storage.delete(entry.key)
    if problems:
        raise DamagedSnapshotError("\n".join(problems), code=Code.SNAPSHOT)
    return removed


def _models(entries: Iterable[Entry]) -> dict[str, _Model]:
    models: dict[str, _Model] = {}
    for entry in entries:
        if parsed := parse_key(entry.key):
            name, number, write = parsed
            model = models.setdefault(name, _Model())
            if number:
                model.versions[number] = entry.modified
            else:
                model.writes.setdefault(write, []).append(entry)
    return models


def _listing(storage: Storage) -> tuple[float, Sequence[Entry]]:
    """Return the time and all keys; the time by the clock of the keys, which may not be ours.

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
    """Remove expired versions of a model, and old files that no remaining version names."""
    # A version that is committed after the listing names only recent files, or files of the newest
    # version.
    numbers, keys = sorted(model.versions), model.unchanged(before)
    if not expired and keys and numbers:
        keys = _unreferenced(store, name, keys, [numbers.pop()])
    if not expired and not keys:
        return []
    # Read all manifests before anything is removed: a damaged one might name any file.
    store.files(name, expired)
    unreferenced = _unreferenced(
        store, name, keys, [number for number in numbers if number not in expired]
    )
    removed = [
        (name, number) for number in expired if store.storage.delete(store.manifest(name, number))
    ]
    # In this order, the content of a folder comes before the folder.
    for key in sorted(unreferenced, reverse=True):
        store.storage.delete(key)
    return removed


def _unreferenced(
    store: SnapshotStore, model: str, keys: Iterable[str], numbers: Sequence[int]
) -> list[str]:
    """Return the keys that lie in no folder with files of these versions."""
    folders = {name.rpartition("/")[0] for name in store.files(model, numbers)}
    referenced = {f"{model_key(model)}/{folder}" for folder in folders}
    return [key for key in keys if key.rpartition("/")[0] not in referenced]
