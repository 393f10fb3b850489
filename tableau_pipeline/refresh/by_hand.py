"""A hand-written action batch for a data source that the pipeline keeps."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tableauhyperapi import HyperProcess, TableName

from tableau_pipeline.actions.batch import Batch
from tableau_pipeline.actions.validate import batch_problems
from tableau_pipeline.core.checkpoint import Intent, State
from tableau_pipeline.core.declaration import lock_file, tag_of
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import Server
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.read import table_columns
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.refresh.alone import alone
from tableau_pipeline.refresh.limits import Limits
from tableau_pipeline.refresh.send import DataUpdate, Sender
from tableau_pipeline.refresh.settle import Settling


@dataclass(frozen=True, slots=True)
class ByHand:
    """What a hand-written batch for the data source with this asset key works with.

    The attributes are those of a refresh.
    """

    key: str
    journal: Journal
    server: Callable[[], AbstractContextManager[Server]]
    hyper: Callable[[], HyperProcess]
    folder: Path
    run_id: str
    log: logging.Logger
    limits: Limits = field(default_factory=Limits)

    def send(self, batch: Batch, payload: Path | None) -> Intent:
        """Settle what is open, then carry out the batch: how it was sent.

        It is recorded as a refresh records what it sends, so that neither disturbs the other.
        The next refresh makes the data source equal to its models again, in full.

        Raises:
            RefusedError: the server would refuse the batch, or nothing was published yet.
            RefreshError: it could not be carried out.
        """
        path = lock_file(self.folder, self.key)
        with alone(path, what=self.key, timeout=self.limits.lock, log=self.log):
            state = self.journal.state()
            if state is None or state.luid is None:
                raise RefusedError(
                    f"{self.key}: {self.journal.why_no_state()}. Refresh it, then send the batch."
                )
            self._check(batch, payload, state)
            with self.server() as server:
                return self._send(batch, payload, server, state)

    def _check(self, batch: Batch, payload: Path | None, state: State) -> None:
        target = {}
        for name, table in state.tables.items():
            published = TableName(
                EXTRACT_SCHEMA, EXTRACT_SCHEMA if len(state.tables) == 1 else name
            )
            target[published] = {
                column.name: hyper_type(column, table=name) for column in table.columns
            }
        source = table_columns(self.hyper(), payload) if payload else {}
        if problems := batch_problems(batch, target=target, source=source):
            raise RefusedError(f"{self.key}: " + "\n".join(problems))

    def _send(self, batch: Batch, payload: Path | None, server: Server, state: State) -> Intent:
        Settling(
            name=state.name,
            project=state.project,
            journal=self.journal,
            server=server,
            timeout=self.limits.job,
            log=self.log,
        ).settle(state)
        remote = server.find_by_luid(str(state.luid))
        if remote is None:
            raise RefusedError(
                f'{self.key}: "{state.name}" ({state.luid}) is gone from the server. Refresh it, '
                "then send the batch."
            )
        sender = Sender(
            server=server,
            journal=self.journal,
            run_id=self.run_id,
            job_timeout=self.limits.job,
            stamp_timeout=self.limits.stamp,
            log=self.log,
        )
        _, _, intent = sender.update(
            DataUpdate(
                batch=batch.json(), payload=payload, target=None, to=remote, tag=tag_of(self.key)
            )
        )
        return intent
