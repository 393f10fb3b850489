"""Send an action batch of your own, from an asset or op."""

import time
from dataclasses import replace
from pathlib import Path

import dagster as dg

from tableau_pipeline.actions.batch import Batch
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.hold import check_not_held
from tableau_pipeline.core.identity import tags_of
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Code, Distrust, Doubt
from tableau_pipeline.publishing.jobs import Jobs
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import claimed
from tableau_pipeline.refresh.effects import Effects
from tableau_pipeline.refresh.ownership import Ownership
from tableau_pipeline.refresh.recover import recover
from tableau_pipeline.refresh.send import Sender
from tableau_pipeline.refresh.updates import record_of
from tableau_pipeline.resources import TableauServerResource, shared_place
from tableau_pipeline.resources.services import as_failure


def send_batch(
    context: dg.AssetExecutionContext,
    datasource: str,
    *,
    batch: Batch,
    payload: Path | None = None,
    tableau: TableauServerResource,
) -> None:
    """Change the data of a declared data source with a batch of your own.

    The journal, which records refreshes, also records the batch. Use a batch for changes that
    cannot wait for the models: the next refresh makes the data source equal to its models again.
    For a data source that is not declared, use `TableauServerResource.session().update`.

    Args:
        context: the context of the asset or op that sends the batch.
        datasource: the asset key of the data source; "a/b" if the key has two parts.
        batch: the actions. The server applies all or none of them.
        payload: a `.hyper` file with the tables that the actions name as their sources. The file
            must exist until this function returns.
        tableau: the resource `tableau`.

    Raises:
        dagster.Failure: the batch was refused or failed; the message states why.
    """
    log, timeouts = context.log, tableau.timeouts
    journal = journal_of(context.instance, datasource, context)
    ours = tags_of(journal.key, journal.instance)
    alone = claimed(journal, what=datasource, timeout=timeouts.claim, sleep=time.sleep, log=log)
    with as_failure(log), alone as claim, tableau.session(log) as site:
        check_not_held(journal)
        jobs = Jobs(site, timeouts, time.sleep, log)
        sender = Sender(
            claim,
            jobs,
            ours,
            record_of(site, shared_place("sites")),
            # Compare no rows, because this function has no snapshots. The time stamp shows whether
            # an earlier request has taken effect.
            Effects(site, lambda checkpoint, remote: None),
            seconds={},
        )
        record = recover(claim.history, sender, sender.effects).record
        remote = _remote(site, record, datasource=journal.key, ours=ours)
        distrust = Distrust(Doubt.BY_HAND, "an update that was written by hand changed it")
        # Pass no checkpoint. Later updates rely on a checkpoint to know the published rows, but
        # after the batch, the rows match no model.
        sent = sender.update(batch.json(), payload, None, to=remote, distrust=distrust)
    job_id = sent.intent.job_id if sent.intent else None
    log.info("Job %s of the server changed the data of %s", job_id, datasource)


def _remote(
    site: TableauSite, record: Checkpoint | None, *, datasource: str, ours: frozenset[str]
) -> RemoteDatasource:
    """Return the data source that a batch may change.

    Args:
        ours: the tags by which this deployment marks the data source.

    Raises:
        RefusedError: the data source does not exist, or another pipeline publishes it.
    """
    remote = site.find_by_luid(record.luid) if record and record.luid else None
    if remote is None:
        reason = f'"{record.name}" no longer exists on the server' if record else ""
        reason = reason or "no record shows what is published"
        raise RefusedError(
            f"{datasource}: {reason}. Refresh it, then send the batch.", code=Code.NOT_PUBLISHED
        )
    ownership = Ownership.of(remote, ours, is_ours=True)
    # Refuse a data source with the tag of another key, even if our tag is gone. In this case, a
    # refresh would replace the other tag, but a batch must not.
    other_key = ownership.other_key or min(remote.keys - {datasource}, default=None)
    if refusal := replace(ownership, other_key=other_key).of_others(datasource):
        # Suggest no `accept`, because only a refresh can take the data source over.
        raise RefusedError(
            replace(
                refusal,
                problem=f"{datasource}: {refusal.problem}",
                accept=None,
                remedy=f"{refusal.remedy}. Nothing was sent: once that is done, send the batch",
            )
        )
    return remote
