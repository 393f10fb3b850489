"""Send a hand-written action batch to a data source that the pipeline publishes."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tableauhyperapi import TableName

from tableau_pipeline.actions.batch import Batch, batch_problems
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import tags_of
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import RemoteDatasource, Timeouts
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import claimed
from tableau_pipeline.refresh.deliver import Sender
from tableau_pipeline.refresh.jobs import Jobs
from tableau_pipeline.refresh.observe import Recovery


def send_custom_batch(
    key: str,
    batch: Batch,
    *,
    payload: Path | None,
    journal: Journal,
    server: Callable[[], AbstractContextManager[TableauSite]],
    hyper: Callable[[], Hyperd],
    log: logging.Logger,
    timeouts: Timeouts,
) -> str | None:
    """Recover, then carry out a batch; return the id of the server's job.

    The journal records it like a refresh, so that neither disturbs the other. The next refresh
    publishes the data source in full, which makes it equal to its models again.

    Args:
        key: the asset key of the data source. The other arguments are those of a refresh.

    Raises:
        RefusedError: the server would refuse the batch, or nothing has been published yet.
        RefreshError: the batch could not be carried out.
    """
    alone = claimed(journal, what=key, timeout=timeouts.claim, sleep=time.sleep, log=log)
    with alone as claim, server() as site:
        jobs = Jobs(site, timeouts, time.sleep, log)
        record = Recovery(jobs, claim).recover(claim.history).record
        remote = _published(site, key, record)
        source = table_columns(hyper(), payload) if payload else {}
        target = _published_columns(record) if record else {}
        if problems := batch_problems(batch, target=target, source=source):
            raise RefusedError(f"{key}: " + "\n".join(problems))
        sender = Sender(claim, jobs, tags_of(key, journal.instance))
        partial = "an update that was written by hand changed it"
        # There is no target: afterwards the rows are those of no model, so no delta may follow.
        return sender.update(batch.json(), payload, None, to=remote, partial=partial).job_id


def _published(site: TableauSite, key: str, record: Checkpoint | None) -> RemoteDatasource:
    if record is None or record.luid is None:
        raise RefusedError(
            f"{key}: no record shows what is published. Refresh it, then send the batch."
        )
    if remote := site.find_by_luid(record.luid):
        return remote
    raise RefusedError(
        f'{key}: "{record.name}" ({record.luid}) no longer exists on the server. Refresh '
        "it, then send the batch."
    )


def _published_columns(record: Checkpoint) -> dict[TableName, dict[str, str]]:
    return {
        record.target(name): {
            column.name: hyper_type(column, table=name) for column in table.columns
        }
        for name, table in record.tables.items()
    }
