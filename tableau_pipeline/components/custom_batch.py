"""Hand-written action batches, from an asset or op of yours."""

from pathlib import Path

import dagster as dg

from tableau_pipeline.actions.batch import Batch
from tableau_pipeline.components.dagster_journal import DagsterJournal
from tableau_pipeline.components.failures import as_failure
from tableau_pipeline.refresh.custom_batch import send_custom_batch
from tableau_pipeline.resources import HyperResource, TableauServerResource


def send_batch(
    context: dg.AssetExecutionContext,
    datasource: str,
    *,
    batch: Batch,
    payload: Path | None = None,
    tableau: TableauServerResource,
    hyper: HyperResource,
) -> None:
    """Change the data of a declared data source in a way of your own.

    It goes through the same records as a refresh. The next refresh makes the data source equal to
    its models again: this is for what cannot wait for them. For data sources that are not
    declared, `TableauServerResource.session().update` sends batches as well.

    Args:
        context: of the asset that sends it.
        datasource: the asset key of the declared data source, "a/b" for two parts.
        batch: what to do; checked against the published tables before it is sent.
        payload: a `.hyper` file with the tables that the actions name as their sources. It
            has to stay until this returns.
        tableau: the resource of this name.
        hyper: the resource of this name.

    Raises:
        dagster.Failure: says what is wrong.
    """
    with as_failure(context.log):
        job_id = send_custom_batch(
            datasource,
            batch,
            payload=payload,
            journal=DagsterJournal(context, dg.AssetKey.from_user_string(datasource)),
            server=lambda: tableau.session(context.log),
            hyper=lambda: hyper.process,
            run_id=context.run.run_id,
            log=context.log,
            timeouts=tableau.timeouts,
        )
    context.log.info("Job %s of the server changed the data of %s", job_id, datasource)
