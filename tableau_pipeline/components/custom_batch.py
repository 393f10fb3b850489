"""Send an action batch of your own, from an asset or op."""

from pathlib import Path

import dagster as dg

from tableau_pipeline.actions.batch import Batch
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.refresh.custom_batch import send_custom_batch
from tableau_pipeline.resources import HyperResource, TableauServerResource
from tableau_pipeline.resources.failures import as_failure


def send_batch(
    context: dg.AssetExecutionContext,
    datasource: str,
    *,
    batch: Batch,
    payload: Path | None = None,
    tableau: TableauServerResource,
    hyper: HyperResource,
) -> None:
    """Change the data of a declared data source with a batch of your own.

    The batch is recorded in the journal as a refresh is. The next refresh makes the data source
    equal to its models again, so use this for changes that cannot wait for the models. For data
    sources that are not declared, `TableauServerResource.session().update` also sends batches.

    Args:
        context: the context of the asset or op that sends it.
        datasource: the asset key of the declared data source, "a/b" for two parts.
        batch: the actions; they are checked against the published tables before they are sent.
        payload: a `.hyper` file with the tables that the actions name as their sources. It must
            exist until this function returns.
        tableau: the resource `tableau`.
        hyper: the resource `hyper`.

    Raises:
        dagster.Failure: the batch was refused or failed; the message states why.
    """
    with as_failure(context.log):
        job_id = send_custom_batch(
            datasource,
            batch,
            payload=payload,
            journal=DagsterJournal(context, dg.AssetKey.from_user_string(datasource)),
            server=lambda: tableau.session(context.log),
            hyper=lambda: hyper.process,
            log=context.log,
            timeouts=tableau.timeouts,
        )
    context.log.info("Job %s of the server changed the data of %s", job_id, datasource)
