"""Removing the snapshots that nothing needs any more."""

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tableau_pipeline.core.checkpoint import Outcome, State
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.snapshot import MANIFEST
from tableau_pipeline.snapshots.store import began, is_committed, partition_folders, versions

MAY_HAVE_LANDED = (None, Outcome.DONE)


@dataclass(frozen=True, slots=True)
class Stored:
    """A committed snapshot on disk.

    Attributes:
        whole: of the whole model, not of a partition of it.
        replaced: when the write began that took its place; None for current content.
    """

    folder: Path
    whole: bool
    replaced: datetime | None


def collect(
    root: Path,
    asset_keys: Collection[str],
    *,
    keep_days: float,
    named: Callable[[], Collection[Path]],
) -> list[Path]:
    """Remove what was replaced more than `keep_days` ago and what writes left that were killed.

    The age counts from the write that took a snapshot's place: until then, and for as long as a
    run may take, somebody may be reading it. Cut off at any moment, this leaves the current
    content of every model what it was, and the next collection goes on.

    Args:
        named: tells the snapshots that a refresh may have to compare with, which stay however old
            they are; asked only if there is something to remove.

    Returns:
        The folders that are gone.
    """
    before = datetime.now(UTC) - timedelta(days=keep_days)
    models = [stored_snapshots(versions(root, asset_key)) for asset_key in asset_keys]
    old = any(each.replaced and each.replaced <= before for stored in models for each in stored)
    needed = named() if old else ()
    for stored in models:
        for folder in removable(stored, before=before, named=needed):
            # Without it the snapshot is not committed: nobody begins to read what is half gone.
            (folder / MANIFEST).unlink(missing_ok=True)
    removed = []
    for asset_key in asset_keys:
        for version in versions(root, asset_key):
            if began(version) <= before:
                removed += filter(_remove, _unfinished(version))
    return removed


def needed_by(journal: Journal) -> set[Path]:
    """The snapshots of everything that the published data source may hold."""
    maybe = (intent.target for intent in journal.intents() if intent.outcome in MAY_HAVE_LANDED)
    return {folder for state in (journal.state(), *maybe) if state for folder in folders_of(state)}


def folders_of(state: State) -> Iterator[Path]:
    """The snapshots of a published data source."""
    for table in state.tables.values():
        yield from table.folders


def stored_snapshots(folders: Sequence[Path]) -> list[Stored]:
    """The committed snapshots in the folders of a model's writes; in both, the oldest first."""
    found = []
    # When the place of the whole model, of a partition, and of any other partition was taken.
    model: datetime | None = None
    partitions: dict[str, datetime | None] = {}
    others: datetime | None = None
    for version in reversed(folders):
        begun = began(version)
        if is_committed(version):
            found.append(Stored(version, whole=True, replaced=model))
            model, partitions, others = begun, {}, begun
            continue
        for folder in filter(is_committed, partition_folders(version)):
            replaced = partitions.get(folder.name, others)
            found.append(Stored(folder, whole=False, replaced=replaced))
            model = partitions[folder.name] = begun
    return found[::-1]


def removable(
    stored: Sequence[Stored], *, before: datetime, named: Collection[Path]
) -> Iterator[Path]:
    """What may go of a model's snapshots, in the order in which it must."""
    # A data directory may have moved since it was named; the name of a write is like no other.
    kept = {folder.parts[-2:] for folder in named}
    partition_stays = False
    for each in stored:
        replaced = each.replaced is not None and each.replaced <= before
        # Without the whole write that hides it, an older partition would be current again.
        hides = each.whole and partition_stays
        if replaced and not hides and each.folder.parts[-2:] not in kept:
            yield each.folder
        elif not each.whole:
            partition_stays = True


def _unfinished(version: Path) -> list[Path]:
    """Whatever of a write is not committed: some of its partitions, or all of it."""
    if is_committed(version):
        return []
    folders = partition_folders(version)
    unfinished = [folder for folder in folders if not is_committed(folder)]
    return unfinished if len(unfinished) < len(folders) else [version]


def _remove(folder: Path) -> bool:
    """Remove a folder; False if another run does so at the same time."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return False
    return True
