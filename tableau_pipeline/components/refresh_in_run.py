"""A refresh within a run of Dagster: what the run and the resources are to it."""

import dagster as dg

from tableau_pipeline.components.dagster_journal import DagsterJournal
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.refresh.refresh import Refresh
from tableau_pipeline.resources import HyperResource, TableauServerResource, kept_location, work_dir


def refresh_in_run(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    declaration: Declaration,
    *,
    snapshots: Snapshots,
    hyper: HyperResource,
    tableau: TableauServerResource,
    keep_files: bool = False,
) -> Refresh:
    """The refresh of a data source, recorded with the asset of its key.

    Args:
        keep_files: let the files that it builds outlive the run.
    """
    return Refresh(
        declaration=declaration,
        snapshots=snapshots,
        journal=DagsterJournal(context, dg.AssetKey.from_user_string(declaration.key)),
        # Opened only when needed: a refresh that ends early costs no sign-in and no process.
        server=lambda: tableau.session(context.log, counts=declaration.needs_counts),
        hyper=lambda: hyper.process,
        folder=work_dir(keep=keep_files),
        kept=kept_location(),
        log=context.log,
        timeouts=tableau.timeouts,
        takeover=tableau.takeover,
    )
