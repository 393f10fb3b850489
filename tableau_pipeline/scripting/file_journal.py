"""A JSON file as the journal of a refresh, for scripts."""

import os
import platform
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from filelock import FileLock, Timeout
from pydantic import ValidationError

from tableau_pipeline.core.checkpoint import Closing, Former, Owner, Record
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefreshError, RefusedError


class _Content(Frozen):
    """Without a default for `format`: what lacks it is the file of somebody else."""

    format: Literal[2]
    instance: str
    records: tuple[Record, ...] = ()


class FileJournal:
    """Implements `core.journal.Journal` for one data source.

    Every change replaces the whole file at once and is on disk when the call returns, so that a
    crash leaves either the old content or the new one. A lock beside it is held by the process
    that refreshes, so that only one does, and its claims end with it.

    Whatever reads it may raise RefusedError: the file is damaged, or not a journal.
    """

    def __init__(self, path: Path) -> None:
        """A journal at `path`, where nothing has to be yet."""
        self.path = path.resolve()
        self._writing = FileLock(f"{self.path}.lock")
        self._refreshing = FileLock(f"{self.path}.refresh.lock")
        self.owner = Owner(run_id=f"{platform.node()}:{os.getpid()}", pid=os.getpid())
        self._new_instance = str(uuid4())

    @property
    def instance(self) -> str:
        """The name that the file got with its first record, or will get."""
        return self._read().instance

    def records(self) -> Sequence[Record]:
        """All records that may still matter."""
        return self._read().records

    def append(self, record: Record) -> None:
        """Keep a record; those that came before a new checkpoint have served."""
        with self._locked():
            content = self._read()
            records = (*content.records, record)
            if isinstance(record, Closing) and record.checkpoint:
                records = tuple(each for each in records if each.refresh >= record.refresh)
            self._write(content.model_copy(update={"records": records}))

    def has_ended(self, owner: Owner) -> bool:
        """Whoever holds the lock is alone: others that claimed the data source were killed."""
        return self._refreshing.is_locked

    @contextmanager
    def lock(self, timeout: float) -> Generator[None]:
        """Keep other processes from refreshing.

        Raises:
            RefreshError: another one has held the lock for longer.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._refreshing.acquire(timeout=timeout)
        except Timeout:
            raise RefreshError(
                f"Another refresh has held {self._refreshing.lock_file} for more than "
                f"{timeout:.0f} s. Look for a process that hangs, and end it."
            ) from None
        try:
            yield
        finally:
            self._refreshing.release()

    @contextmanager
    def _locked(self) -> Generator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing:
            yield

    def _read(self) -> _Content:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return _Content(format=2, instance=self._new_instance)
        try:
            return _Content.model_validate_json(text)
        except ValidationError as error:
            if (former := _former(text)) is not None:
                return _Content(format=2, instance=self._new_instance, records=former)
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "all of it"
            raise RefusedError(
                f"{self.path} is damaged, or not a journal of this version ({where}: "
                f"{first['msg']}). Replace it by a backup, or move it away and refresh once with "
                "accept: [takeover], which finds the data source by its tag, and publishes it in "
                "full."
            ) from error

    def _write(self, content: _Content) -> None:
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(content.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path)
        _sync(self.path.parent)


class _FormerContent(Frozen):
    """The file as the version before wrote it, as far as it is still of use."""

    format: Literal[1]
    state: dict[str, Any] | None
    intents: tuple[Any, ...]


def _former(text: bytes) -> tuple[Former, ...] | None:
    """What a file of the version before tells; None if it is not one."""
    try:
        content = _FormerContent.model_validate_json(text)
    except ValidationError:
        return None
    former = Former.of(content.state) if content.state else None
    return (former,) if former else ()


def _sync(folder: Path) -> None:
    """Until then, a loss of power may undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
