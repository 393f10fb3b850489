"""The job that audits the data sources of a code location."""

import logging
from collections.abc import Sequence

import dagster as dg

from tableau_pipeline.audit import Audited, audit
from tableau_pipeline.components.audit.audit_report import log_line, problems, report, summary
from tableau_pipeline.components.audit.undeclared import Undeclared, undeclared
from tableau_pipeline.components.published_datasource.assets import POOL
from tableau_pipeline.components.published_datasource.model_snapshots import (
    partitions_of,
    snapshots_of,
)
from tableau_pipeline.components.refresh_in_run import refresh_in_run
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.server import Server
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.resources import HyperResource, SnapshotIOManager, TableauServerResource
from tableau_pipeline.resources.failures import as_failure


def audit_job(name: str, declarations: Sequence[Declaration]) -> dg.JobDefinition:
    """Return a job of one step that audits these data sources; it fails if one is wrong."""

    @dg.op(name=f"{name}_datasources", pool=POOL, out=dg.Out(dg.Nothing))
    def audit_datasources(
        context: dg.OpExecutionContext,
        snapshots: dg.ResourceParam[SnapshotIOManager],
        hyper: HyperResource,
        tableau: TableauServerResource,
    ) -> None:
        found: list[Audited] = []
        counts = any(each.needs_counts for each in declarations)
        with as_failure(context.log), tableau.session(context.log, counts=counts) as server:
            for declaration in declarations:
                definitions = _partitions(context, declaration)
                models = snapshots_of(declaration, snapshots, definitions)
                refresh = refresh_in_run(
                    context, declaration, snapshots=models, hyper=hyper, tableau=tableau
                )
                found.append(audit(refresh, server))
                snapshots.copies.release()
                context.log.log(_level(found[-1]), "%s", log_line(found[-1]))
            others = _others(context, server, declarations)
        _conclude(context, found, others)

    @dg.job(
        name=name,
        description="Compares each published data source of this code location with its models. "
        "It changes nothing.",
    )
    def audit_all() -> None:
        audit_datasources()

    return audit_all


def _partitions(
    context: dg.OpExecutionContext, declaration: Declaration
) -> dict[str, dg.PartitionsDefinition | None]:
    # Of a job without assets, only the location knows the models; a job that is executed in
    # process has no location.
    location = context.get_step_execution_context().job.get_repository_definition()
    return partitions_of(location.asset_graph, declaration.models) if location else {}


def _others(
    context: dg.OpExecutionContext, server: Server, declarations: Sequence[Declaration]
) -> list[Undeclared]:
    """Look for data sources that nobody here declares; an error is only logged."""
    try:
        found = undeclared(context, server, {each.key for each in declarations})
    except RefreshError as error:
        context.log.warning("Data sources without a declaration could not be listed: %s", error)
        return []
    for each in found:
        context.log.warning("%s: not declared here. %s", each.datasource.name, each.note)
    return found


def _level(found: Audited) -> int:
    if found.is_fine:
        return logging.INFO
    return logging.ERROR if found.is_wrong else logging.WARNING


def _conclude(
    context: dg.OpExecutionContext, found: Sequence[Audited], others: Sequence[Undeclared]
) -> None:
    """Attach the report, and fail the step if a data source is wrong.

    Raises:
        dagster.Failure: a data source is not what its last refresh left.
    """
    metadata = {
        "summary": summary(found, others),
        "report": dg.MetadataValue.md(report(found, others)),
    }
    if wrong := problems(found):
        # Another try would find the same.
        raise dg.Failure(wrong, metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)
