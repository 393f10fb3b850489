"""The journal of a refresh in a JSON file, for scripts."""

import os
import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from filelock import FileLock
from pydantic import ValidationError

from tableau_pipeline.core.checkpoint import Closing, Former, Owner, Record
from tableau_pipeline.core.journal import held
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefusedError


class _Content(Frozen):
    """The content of the file. `format` has no default, so that other JSON files are refused."""

    format: Literal[2]
    instance: str
    records: tuple[Record, ...] = ()


class FileJournal:
    """Implements `core.journal.Journal` for one data source.

    Every change replaces the whole file at once and is on disk when the call returns. So after a
    crash the file has either the old or the new content. The refreshing process holds a lock beside
    the file: it is the only one, and its claims end with the process.

    Every method that reads the file may raise RefusedError: it is damaged, or not a journal.
    """

    def __init__(self, path: Path) -> None:
        """Use the journal at `path`; the file need not exist yet."""
        self.path = path.resolve()
        # Of its own, because a record may be stored without the lock of a refresh, and two that
        # read the file at once would lose one of their records.
        self._writing = FileLock(f"{self.path}.lock")
        self._refreshing = FileLock(f"{self.path}.refresh.lock")
        self.owner = Owner(run_id=f"{platform.node()}:{os.getpid()}", pid=os.getpid())
        self._new_instance = str(uuid4())

    @property
    def instance(self) -> str:
        """The id that was stored with the first record, or will be."""
        return self._read().instance

    def records(self) -> Sequence[Record]:
        """Return all records that may still matter."""
        return self._read().records

    def append(self, record: Record) -> None:
        """Store a record; a new checkpoint removes all earlier records."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing:
            content = self._read()
            records = (*content.records, record)
            if isinstance(record, Closing) and record.checkpoint:
                records = tuple(each for each in records if each.refresh >= record.refresh)
            self._write(content.model_copy(update={"records": records}))

    def has_ended(self, owner: Owner) -> bool:
        """Whether this process holds the lock: then all other owners have ended."""
        return self._refreshing.is_locked

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Prevent other processes from refreshing."""
        return held(self._refreshing, by="Another refresh", timeout=timeout)

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
                f"{first['msg']}). Restore a backup, or move it away and refresh once with "
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
    """The content of the file in the previous format, as far as it is still used."""

    format: Literal[1]
    state: dict[str, Any] | None
    intents: tuple[Any, ...]


def _former(text: bytes) -> tuple[Former, ...] | None:
    """Read a file in the previous format; None if it is not one."""
    try:
        content = _FormerContent.model_validate_json(text)
    except ValidationError:
        return None
    former = Former.of(content.state) if content.state else None
    return (former,) if former else ()


def _sync(folder: Path) -> None:
    """Make a rename in this folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
