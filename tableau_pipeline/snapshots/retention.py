"""Remove versions of models that are no longer needed, with their files."""

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
# The prefix of the keys of runs, see `is_first`. No model can have this prefix, because the quoted
# key of a model never contains an @.
_RUN_KEYS = "@runs/"


def is_first(store: SnapshotStore, run_id: str) -> bool:
    """Return whether this call is the first call for the run within a day.

    Only one step of a run, on any host, can create the key of the run in the store. So the steps
    need no lock and no shared table. A killed step leaves only a key behind.
    """
    # Write a different content in each call. If the contents were equal, the store would take a
    # second call for a repetition of the first call after a lost answer, and return True again.
    return store.storage.put(f"{_RUN_KEYS}{quote(run_id, safe='')}", uuid4().bytes)


@dataclass(frozen=True, slots=True)
class _Model:
    """The versions and writes of a model, as found in a listing.

    Attributes:
        versions: the number of each version, and the time of its commit.
        writes: for the folder of each write (see `version_store`), the files and folders in it.
    """

    versions: dict[int, float] = field(default_factory=dict)
    writes: dict[str, list[Entry]] = field(default_factory=dict)

    def replaced(self, before: float) -> list[int]:
        """Return the versions whose replacement was committed before a time."""
        following = pairwise(sorted(self.versions.items()))
        return [number for (number, _), (_, replaced_at) in following if replaced_at <= before]

    def unchanged(self, since: float) -> list[str]:
        """Return the keys of writes whose files are all older than a time.

        If a write has no file, the times of its folders count.
        """
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

    The days count from the commit of the next version. Until this commit, a run may start to read
    the old version, and it may read until the run ends. The manifest of a version, which names its
    files, is removed before the files. So the remaining versions are complete even after an
    interruption, and the next collection continues. A writer may commit at the same time. It uses
    only files that it has just written, or files of the newest version or of a referenced version.
    None of these files is removed.

    Args:
        keep_days: the number of days; it must be longer than any run takes.
        referenced: the versions that a refresh may still need, as pairs of model and number. These
            versions are kept at any age.

    Returns:
        the removed versions, as pairs of model and number.

    Raises:
        DamagedSnapshotError: some manifests cannot be read. Nothing was removed from the models of
            these manifests. The expired versions of all other models were removed.
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
        # Remove the keys of runs after a day. Remove unfinished files of a killed `put` after
        # `keep_days`.
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
    """Return the time by the clock of the storage, which may differ from our clock, and all keys.

    Files that are written later are not in the listing, so they are not removed.
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
    # Do not read versions that were committed after the listing: they name only recent files, or
    # files of versions that are kept.
    numbers, keys = sorted(model.versions), model.unchanged(before)
    if not expired and keys and numbers:
        keys = _unreferenced(store, name, keys, [numbers.pop()])
    if not expired and not keys:
        return []
    # Read all manifests before removing anything, because a damaged manifest might name any file.
    store.files(name, expired)
    unreferenced = _unreferenced(
        store, name, keys, [number for number in numbers if number not in expired]
    )
    removed = [
        (name, number) for number in expired if store.storage.delete(store.manifest(name, number))
    ]
    # Delete in reverse order, so that the content of a folder is deleted before the folder.
    for key in sorted(unreferenced, reverse=True):
        store.storage.delete(key)
    return removed


def _unreferenced(
    store: SnapshotStore, model: str, keys: Iterable[str], numbers: Sequence[int]
) -> list[str]:
    """Return the keys that are not in a folder with files of these versions."""
    folders = {name.rpartition("/")[0] for name in store.files(model, numbers)}
    referenced = {f"{model_key(model)}/{folder}" for folder in folders}
    return [key for key in keys if key.rpartition("/")[0] not in referenced]
