"""The records of a data source as numbered files, on a disk or in an object store.

The numbers order the records. Two processes cannot create the same number. So a refresh with a
recorded claim excludes all other refreshes until a later record ends the claim.
"""

import os
import platform
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.deployment import NO_ID, JournalPlace, folder_of, record_number
from tableau_pipeline.core.identity import key_below, root_of
from tableau_pipeline.core.journal import (
    FORMAT,
    Claim,
    ClaimRelease,
    History,
    Owner,
    Record,
    StoredRecord,
    read_record,
)
from tableau_pipeline.errors import RefusedError, SettingError
from tableau_pipeline.objects.storage import LocalStorage, Storage
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.outcome import Code

# The interval of heartbeats. A refresh that Dagster does not know counts as ended if there was no
# heartbeat for the time SILENCE.
BEAT = timedelta(minutes=1)
SILENCE = timedelta(minutes=10)
_BEAT_KEY = "heartbeat"
_CLOCK_KEY = "clock-"
_REPAIR = (
    "Restore the folder from a backup. Or move its records away: then the data source is found by "
    "its tags, and published again"
)


def owner_here(run_id: str, *, step: str = "", attempt: int = 0, label: str = "") -> Owner:
    """Describe this process as the owner of claims."""
    return Owner(
        run_id=run_id,
        step=step,
        attempt=attempt,
        label=label,
        boot=_boot(),
        namespace=_namespace(),
        pid=os.getpid(),
    )


@dataclass
class StoredJournal:
    """The records of one data source. A new record gets the next number, or else is not stored.

    Attributes:
        key: the asset key in its environment, see `core.identity.key_below`.
        ask: returns whether an owner has ended, according to Dagster; None if Dagster does not know
            the owner.
    """

    place: JournalPlace
    key: str
    owner: Owner
    ask: Callable[[Owner], bool | None] = lambda owner: None

    @property
    def instance(self) -> str:
        """The deployment's id, with the root of this environment, as in tags of data sources."""
        deployment = self.place.deployment()
        return key_below(deployment.id if deployment else NO_ID, root_of(self.key))

    def history(self) -> History:
        """Return the history up to the newest record. Raises errors like `newest_record`."""
        newest = self.newest_record()
        return newest.history if newest else History()

    def newest_record(self) -> StoredRecord | None:
        """Return the newest record, by one listing and one read; None without records.

        Raises:
            RefusedError: this release cannot read the newest record, or a record is missing.
        """
        # Try twice, because a refresh may remove old records between the listing and the read.
        for is_last in (False, True):
            numbers = self._numbers()
            if not numbers:
                break
            if stored := self._read(numbers[-1]):
                self._check_gaps(stored.history, numbers)
                return stored
            if is_last:
                raise self._missing(numbers[-1])
        return None

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Yield the checkpoints of completed refreshes, the newest first.

        The function reads one record after the other. Checkpoints in removed records are missing.
        """
        # The listing may lack new records, so also look for records after the newest listed record.
        history = self.latest(self.history())
        for number in range(history.number, history.floor - 1, -1):
            stored = self._read(number)
            record = stored.record if stored else None
            if isinstance(record, ClaimRelease) and record.checkpoint:
                yield record.checkpoint

    def latest(self, since: History) -> History:
        """Return the newest history, by reading the records after a known history.

        The call takes a listing only if the known history is empty, or if its newest record was
        removed.
        """
        newest = since
        while stored := self._read(newest.number + 1):
            newest = stored.history
        if not since.number:
            # The first records may have been removed, so also list the records. But the listing may
            # lack new records, so take the later of the two histories.
            return max(newest, self.history(), key=lambda history: history.number)
        # If the newest known record is still there, no later record was removed.
        return newest if self._has(since) else self.history()

    def create(self, record: Record, *, after: History) -> History | None:
        """Store a record under the number that follows the last number of a history.

        Returns:
            The history with the durable record; None if another process was faster.
        """
        self.place.established()
        history = after.after(record)
        stored = StoredRecord(format=FORMAT, record=record, history=history)
        content = stored.model_dump_json().encode()
        if not self._storage.put(self._file(history.number), content):
            return None
        # Number 1 needs no check, because it is never removed.
        if after.number and not self._has(after):
            # While this process slept, other processes removed the record at the end of `after`. So
            # the number was used before, and is free only because its record was removed, too.
            self._storage.delete(self._file(history.number))
            return None
        if history.floor > after.floor:
            self._collect(history, content, is_first=after.floor == 1)
        return history

    def append(self, make: Callable[[History], Record | None], *, after: History) -> History:
        """Store a record under the next number. If another process is faster, try the next number.

        Args:
            make: returns the record that follows a history; None to store nothing.

        Returns:
            The history with the record, or the newest history if nothing was stored.
        """
        while record := make(after):
            if created := self.create(record, after=after):
                return created
            after = self.latest(after)
        return after

    def has_ended(self, claim: Claim) -> bool:
        """Whether the refresh with this claim has certainly stopped running.

        There are three proofs: the owner's process was on this host and is gone; Dagster has
        recorded the end; or Dagster does not know the owner, and the heartbeat has stopped.
        """
        owner = claim.owner
        if _is_gone(owner):
            return True
        ended = self.ask(owner)
        return self._is_silent() if ended is None else ended

    @contextmanager
    def heartbeat(self) -> Generator[None]:
        """Write a file every minute while the block runs, so that the refresh counts as running."""
        is_over = Event()

        def beat() -> None:
            while not is_over.wait(BEAT.total_seconds()):
                # If the store cannot be reached, other refreshes may assume that this refresh has
                # ended, and claim the data source. Then this refresh stops before its next request.
                with suppress(StoreError, OSError):
                    self._storage.replace(f"{self._folder}/{_BEAT_KEY}", b"")

        thread = Thread(target=beat, name=f"heartbeat of {self.key}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    @property
    def _storage(self) -> Storage:
        return self.place.storage

    @property
    def _folder(self) -> str | None:
        deployment = self.place.deployment()
        return folder_of(deployment, self.key) if deployment else None

    def _file(self, number: int) -> str:
        return f"{self._folder}/{number:09}.json"

    def _numbers(self) -> Sequence[int]:
        """Return the numbers of all listed records, in order."""
        if self._folder is None:
            return []
        entries = self._storage.list(f"{self._folder}/")
        names = (entry.key.rpartition("/")[2] for entry in entries)
        return sorted(number for name in names if (number := record_number(name)) is not None)

    def _read(self, number: int) -> StoredRecord | None:
        return _stored_at(self.place, self._file(number)) if self._folder else None

    def _has(self, history: History) -> bool:
        stored = self._read(history.number)
        return stored is not None and stored.history == history

    def _check_gaps(self, history: History, numbers: Sequence[int]) -> None:
        """Raise an error if a record is missing that was not removed on purpose.

        The floor of a history is the lowest number of a record that is not yet removed.
        """
        floor = history.floor
        for number in sorted({*range(floor, history.number)}.difference(numbers)):
            # Read the record, because the listing may lack new records.
            if number < floor or self._storage.read(self._file(number)) is not None:
                continue
            # Check the floor again, because another refresh may have removed records since the
            # listing.
            newest = self._read(history.number)
            floor = self.latest(newest.history).floor if newest else history.number
            if number >= floor:
                raise self._missing(number)

    def _missing(self, number: int) -> RefusedError:
        return RefusedError(
            f"{self.place.where}/{self._file(number)} is missing, although later records are "
            f"there: what is published is not known for certain. {_REPAIR}",
            code=Code.RECORD,
        )

    def _collect(self, history: History, content: bytes, *, is_first: bool) -> None:
        """Remove the records below the floor. If this fails, the next call tries again.

        Number 1 stays, but gets the content of the newest record at the first removal. A process
        may have slept since it found no record, or only number 1. Then the new content of number 1
        shows this process that later records exist, even if listings lack the later records.
        """
        with suppress(StoreError, OSError):
            below = [number for number in self._numbers() if 1 < number < history.floor]
            # If number 2 is still there, the last attempt may have failed before this write.
            if is_first or 2 in below:
                self._storage.replace(self._file(1), content)
            for number in below:
                self._storage.delete(self._file(number))

    def _is_silent(self) -> bool:
        """Whether no refresh has written here for the time SILENCE, by the clock of the store."""
        key = f"{self._folder}/{_CLOCK_KEY}{uuid4().hex}"
        written = False
        with suppress(StoreError, OSError):
            # If this user may not write, the clock of this host counts.
            self._storage.replace(key, b"")
            written = True
        try:
            entries = [*self._storage.list(f"{self._folder}/")]
        finally:
            if written:
                self._storage.delete(key)
        now = next((entry.modified for entry in entries if entry.key == key), None)
        if now is None and written:
            # The listing lacks the new file, so the listing may also lack a recent heartbeat.
            return False
        now = time.time() if now is None else now
        last = max(
            (
                entry.modified
                for entry in entries
                if not entry.is_folder and not _is_clock(entry.key)
            ),
            default=0.0,
        )
        return now - last >= SILENCE.total_seconds()


def script_journal(folder: Path, key: str) -> StoredJournal:
    """Return the journal of a data source for a process outside Dagster.

    Args:
        folder: the folder with the records of all data sources.

    Raises:
        RefusedError: `folder` is a file.
    """
    if folder.is_file():
        raise SettingError(
            f"The journal {folder} is a file, in which earlier releases kept the records of one "
            "data source. This release does not read it: pass a folder for the records of all "
            "data sources. Then a data source of an earlier release is refused until you run once "
            "with accept: [takeover]"
        )
    label = f"process {os.getpid()} on {platform.node()}"
    place = JournalPlace(LocalStorage(folder.resolve()))
    return StoredJournal(place, key, owner_here(f"script {uuid4()}", label=label))


def all_histories(place: JournalPlace) -> list[History]:
    """Return the history of each data source of all deployments in a store.

    Raises:
        RefusedError: this release cannot read a record, or the record was removed meanwhile.
    """
    histories = []
    for folder, number in place.newest_numbers().items():
        key = f"{folder}/{number:09}.json"
        if (stored := _stored_at(place, key)) is None:
            raise RefusedError(f"{place.where}/{key} was removed meanwhile", code=Code.RECORD)
        histories.append(stored.history)
    return histories


def _stored_at(place: JournalPlace, key: str) -> StoredRecord | None:
    if (text := place.storage.read(key)) is None:
        return None
    try:
        return read_record(text, repair=_REPAIR)
    except RefusedError as error:
        name = f"{place.where}/{key}"
        raise RefusedError(f"{name} cannot be read: {error}", code=Code.RECORD) from error


def _is_clock(key: str) -> bool:
    return key.rpartition("/")[2].startswith((_CLOCK_KEY, "."))


def _is_gone(owner: Owner) -> bool:
    """Whether the process of an owner ran on this host, and has ended."""
    if (owner.boot, owner.namespace) != (_boot(), _namespace()):
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # This error means that the process exists, but belongs to another user.
        pass
    return False


def _boot() -> str:
    """Return an id of this boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _namespace() -> str:
    """Return the id of the process namespace, within which process ids are comparable."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Without namespaces, all processes of the host have comparable ids.
        return ""
