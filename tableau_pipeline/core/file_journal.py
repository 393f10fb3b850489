"""A JSON file as the journal of a refresh, for scripts."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import ValidationError

from tableau_pipeline.core.checkpoint import Intent, State
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefusedError


class _Content(Frozen):
    """Without defaults: what lacks a field is the file of somebody else."""

    format: Literal[1]
    state: State | None
    intents: tuple[Intent, ...]


class FileJournal:
    """Implements `refresh.journal.Journal` for one data source.

    Every change replaces the whole file at once and is on disk when the call returns, so that a
    crash leaves either the old content or the new one. A lock beside the file keeps processes
    from overwriting each other's records.

    Whatever reads it may raise RefusedError: the file is damaged, or not a journal.
    """

    def __init__(self, path: Path) -> None:
        """A journal at `path`, where nothing has to be yet."""
        self.path = path.resolve()
        self._lock = FileLock(f"{self.path}.lock")

    def state(self) -> State | None:
        """The last state kept."""
        return self._read().state

    def why_no_state(self) -> str:
        """Why `state` is None."""
        if self.path.exists():
            return "the journal records no successful refresh"
        return "the journal is empty"

    def intents(self) -> Sequence[Intent]:
        """The newest record of each intent since the last state, in the order of their first."""
        return self._read().intents

    def record(self, intent: Intent) -> None:
        """Keep an intent, in the place of an earlier record of it."""
        with self._locked():
            content = self._read()
            known = {each.request_id: each for each in content.intents}
            known[intent.request_id] = intent
            self._write(content.model_copy(update={"intents": tuple(known.values())}))

    def keep(self, state: State) -> None:
        """Keep what a refresh left; the intents before it have served."""
        with self._locked():
            self._write(_Content(format=1, state=state, intents=()))

    @contextmanager
    def _locked(self) -> Generator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            yield

    def _read(self) -> _Content:
        try:
            return _Content.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return _Content(format=1, state=None, intents=())
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "all of it"
            raise RefusedError(
                f"{self.path} is damaged, or not a journal of this version ({where}: "
                f"{first['msg']}). Put a backup in its place, or move it away: the next refresh "
                "then finds the data source by its tag, and publishes it in full."
            ) from error

    def _write(self, content: _Content) -> None:
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(content.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path)
        _sync(self.path.parent)


def _sync(folder: Path) -> None:
    """Until then, a loss of power may undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
