"""The journal of a refresh in a JSON file, for scripts."""

import os
import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal
from uuid import uuid4

from filelock import FileLock
from pydantic import ValidationError

from tableau_pipeline.core.journal import (
    FORMAT,
    RELEASE,
    Owner,
    Record,
    holding_lock,
    relevant_records,
    unreadable_reason,
)
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Code

_REPAIR = (
    "Restore a backup, or move it away and refresh once with accept: [takeover], which finds the "
    "data source by its tag, and publishes it again"
)


class _Content(Frozen):
    """The content of the file. `format` has no default, so that other JSON files are refused."""

    format: Literal[4]
    release: str = RELEASE
    instance: str
    records: tuple[Record, ...] = ()


class FileJournal:
    """Implements `core.journal.Journal` for one data source.

    Every change replaces the whole file at once and is on disk when the call returns. So after a
    crash the file has either the old or the new content. The refreshing process holds a lock on a
    file next to it: only one process refreshes at a time, and its claims end with the process.

    Every method that reads the file raises RefusedError if the file is damaged or no journal.
    """

    def __init__(self, path: Path) -> None:
        """Use the journal at `path`; the file need not exist yet."""
        self.path = path.resolve()
        # A separate lock for writing, because a record may be stored without the lock of a refresh.
        # Without any lock, two processes that read the file at once would lose one record.
        self._writing = FileLock(f"{self.path}.lock")
        self._refreshing = FileLock(f"{self.path}.refresh.lock")
        self.owner = Owner(run_id=f"{platform.node()}:{os.getpid()}", pid=os.getpid())
        self._new_instance = str(uuid4())

    @property
    def instance(self) -> str:
        """The id of this journal, which is stored with the first record."""
        return self._read().instance

    def records(self) -> Sequence[Record]:
        """Return all records that may still matter."""
        return self._read().records

    def append(self, record: Record) -> None:
        """Store a record, and drop records that no longer matter."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing:
            content = self._read()
            records = tuple(relevant_records([*content.records, record]))
            self._write(content.model_copy(update={"records": records, "release": RELEASE}))

    def has_ended(self, owner: Owner) -> bool:
        """Whether all other owners have ended: they have if this process holds the refresh lock."""
        return self._refreshing.is_locked

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Prevent other processes from refreshing; wait up to `timeout` seconds for the lock."""
        return holding_lock(self._refreshing, by="Another refresh", timeout=timeout)

    def _read(self) -> _Content:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return _Content(format=FORMAT, instance=self._new_instance)
        try:
            return _Content.model_validate_json(text)
        except ValidationError as error:
            reason = unreadable_reason(text, error, repair=_REPAIR)
            raise RefusedError(f"{self.path} cannot be read: {reason}", code=Code.RECORD) from error

    def _write(self, content: _Content) -> None:
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(content.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path)
        # Flush the folder, so that the new name of the file survives a power failure.
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
