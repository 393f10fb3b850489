"""An action batch that somebody wrote by hand, for a data source that the pipeline keeps."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tableauhyperapi import HyperProcess, TableName

from tableau_pipeline.actions.batch import Batch
from tableau_pipeline.actions.validate import batch_problems
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, tag_of
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import Server
from tableau_pipeline.core.timeouts import Timeouts
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.read import table_columns
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.refresh.claim import Claimed, claimed
from tableau_pipeline.refresh.jobs import Jobs
from tableau_pipeline.refresh.recover import Recovery
from tableau_pipeline.refresh.send import Sender


@dataclass(frozen=True, slots=True)
class CustomBatch:
    """What a batch for the data source with this asset key works with.

    The attributes are those of a refresh.
    """

    key: str
    journal: Journal
    server: Callable[[], AbstractContextManager[Server]]
    hyper: Callable[[], HyperProcess]
    run_id: str
    log: logging.Logger
    timeouts: Timeouts = field(default_factory=Timeouts)
    sleep: Callable[[float], None] = time.sleep

    def send(self, batch: Batch, payload: Path | None) -> str | None:
        """Find out what is open, then carry out the batch: the id of the server's job.

        It is recorded as a refresh records what it sends, so that neither disturbs the other.
        The next refresh makes the data source equal to its models again, in full.

        Raises:
            RefusedError: the server would refuse the batch, or nothing was published yet.
            RefreshError: it could not be carried out.
        """
        with (
            claimed(
                self.journal,
                what=self.key,
                timeout=self.timeouts.claim,
                sleep=self.sleep,
                log=self.log,
            ) as claim,
            self.server() as server,
        ):
            jobs = Jobs(server, self.timeouts, self.sleep, self.log)
            recovery = Recovery(self.journal, server, jobs, self.log)
            record = recovery.recover(claim.history).record
            if record is None or record.luid is None:
                raise RefusedError(
                    f"{self.key}: no record tells what is published. Refresh it, then send "
                    "the batch."
                )
            self._check(batch, payload, record)
            return self._send(batch, payload, server, record, claim, jobs)

    def _check(self, batch: Batch, payload: Path | None, record: Checkpoint) -> None:
        target = {}
        for name, table in record.tables.items():
            published = TableName(
                EXTRACT_SCHEMA, EXTRACT_SCHEMA if len(record.tables) == 1 else name
            )
            target[published] = {
                column.name: hyper_type(column, table=name) for column in table.columns
            }
        source = table_columns(self.hyper(), payload) if payload else {}
        if problems := batch_problems(batch, target=target, source=source):
            raise RefusedError(f"{self.key}: " + "\n".join(problems))

    def _send(
        self,
        batch: Batch,
        payload: Path | None,
        server: Server,
        record: Checkpoint,
        claim: Claimed,
        jobs: Jobs,
    ) -> str | None:
        remote = server.find_by_luid(str(record.luid))
        if remote is None:
            raise RefusedError(
                f'{self.key}: "{record.name}" ({record.luid}) is gone from the server. Refresh it, '
                "then send the batch."
            )
        sender = Sender(
            server=server,
            journal=self.journal,
            claim=claim,
            jobs=jobs,
            run_id=self.run_id,
            tags=frozenset({tag_of(self.key), f"{INSTANCE_TAG_PREFIX}{self.journal.instance}"}),
            sleep=self.sleep,
            log=self.log,
        )
        sent = sender.update(
            batch.json(),
            payload,
            None,
            to=remote,
            partial="an update that was written by hand changed it",
        )
        return sent.job_id
