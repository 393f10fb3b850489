"""Remove the versions that are no longer needed, with their files."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import quote
from uuid import uuid4

from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.objects.storage import UNFINISHED, Entry, Storage
from tableau_pipeline.outcome import Code
from tableau_pipeline.snapshots.version_store import SnapshotStore, model_key, parse_key

_DAY = 86_400
# No model can have this prefix, because the quoted key of a model never contains an @.
_RUN_KEYS = "@runs/"


def is_first(store: SnapshotStore, run_id: str) -> bool:
    """Return whether this is the first call for the run within a day.

    Only one of the steps of a run, on any host, can create the key of the run. So the steps
    need neither a lock nor a shared table, and a killed step leaves nothing behind but a key.
    """
    # Each call has a content of its own: an object store takes equal content for a repetition of
    # the same call, whose answer was lost.
    return store.storage.put(f"{_RUN_KEYS}{quote(run_id, safe='')}", uuid4().bytes)


@dataclass(frozen=True, slots=True)
class _Model:
    """The versions and writes of a model that are in a listing.

    Attributes:
        versions: the number of each version, and the time of its commit.
        writes: the folder of each write, and the files and folders in it.
    """

    versions: dict[int, float] = field(default_factory=dict)
    writes: dict[str, list[Entry]] = field(default_factory=dict)

    def replaced(self, before: float) -> list[int]:
        """Return the versions whose next version was committed before a time."""
        following = pairwise(sorted(self.versions.items()))
        return [number for (number, _), (_, replaced_at) in following if replaced_at <= before]

    def unchanged(self, since: float) -> list[str]:
        """Return the keys of writes with no recent file; folders count if there is no file."""
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

    The days count from the commit of the next version: until then a run may start to read the old
    version, and may continue to do so until it ends. A manifest is removed before its files. So the
    remaining versions are complete even after an interruption, and the next collection continues. A
    writer that commits meanwhile uses files that it has just written, or files of the newest or of
    a referenced version. None of these files is removed.

    Args:
        keep_days: the number of days; it must be longer than any run takes.
        referenced: the versions, as pairs of model and number, that a refresh may have to build on
            or compare with. They stay at any age.

    Returns:
        the removed versions, as pairs of model and number.

    Raises:
        DamagedSnapshotError: some manifests cannot be read. The models of these manifests keep
            everything; of all other models, the expired versions were removed.
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
        # Remove keys of runs after a day, and unfinished files of a killed `put` after `keep_days`.
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
    """Return the time and all keys. The time is by the storage's clock, which may differ from ours.

    Files that are written after the listing are not in it, and so are not removed.
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
    # Versions that are committed after the listing need not be read: they name only recent files,
    # or files of the newest version.
    numbers, keys = sorted(model.versions), model.unchanged(before)
    if not expired and keys and numbers:
        keys = _unreferenced(store, name, keys, [numbers.pop()])
    if not expired and not keys:
        return []
    # Read all manifests before removing anything: a damaged manifest might name any of the files.
    store.files(name, expired)
    unreferenced = _unreferenced(
        store, name, keys, [number for number in numbers if number not in expired]
    )
    removed = [
        (name, number) for number in expired if store.storage.delete(store.manifest(name, number))
    ]
    # Reverse order deletes the content of a folder before the folder.
    for key in sorted(unreferenced, reverse=True):
        store.storage.delete(key)
    return removed


def _unreferenced(
    store: SnapshotStore, model: str, keys: Iterable[str], numbers: Sequence[int]
) -> list[str]:
    """Return the keys outside of the folders whose files these versions use."""
    folders = {name.rpartition("/")[0] for name in store.files(model, numbers)}
    referenced = {f"{model_key(model)}/{folder}" for folder in folders}
    return [key for key in keys if key.rpartition("/")[0] not in referenced]
