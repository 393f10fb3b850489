"""A sensor and a job that let data sources warn of themselves whose refresh did not come."""

import json
from collections.abc import Mapping, Sequence

import dagster as dg

from tableau_pipeline.components.published_datasource import POOL, PublishedDatasource
from tableau_pipeline.components.standing import State, known, standing
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.project_root import below
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.about import warn_of_failure
from tableau_pipeline.resources import TableauServerResource, tableau_project_root
from tableau_pipeline.resources.services import as_failure

_JOB = "quality_warnings"
# A refused or failed refresh has warned by itself, but not one that a failed model has kept away.
_OVERDUE = {
    State.LATE: "These data are late",
    State.FAILED: "The last refresh was refused or has failed",
}


def overdue_definitions(datasources: Sequence[PublishedDatasource]) -> dg.Definitions:
    """Return the job and its sensor for those of these data sources that declare the warning."""
    watched = [each for each in datasources if each.quality_warning]
    if not watched:
        return dg.Definitions()

    @dg.op(name="warn_of_overdue", pool=POOL, out=dg.Out(dg.Nothing))
    def warn(context: dg.OpExecutionContext, tableau: TableauServerResource) -> None:
        problems = []
        with as_failure(context.log), tableau.session(context.log) as site:
            for each in watched:
                # A refresh may have come since the sensor looked.
                for why, record in _overdue(context.instance, [each]).values():
                    try:
                        warn_of_failure(below(each, tableau_project_root()), record, site, why)
                    except RefreshError as error:
                        problems.append(f"{each.name}: {error}")
            if problems:
                raise RefreshError("\n".join(problems))

    @dg.job(name=_JOB, description="Warns of data sources whose refresh did not come.")
    def job() -> None:
        warn()

    @dg.sensor(
        name=_JOB,
        job=job,
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the job once for each data source whose refresh does not come.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = _overdue(context.instance, watched)
        now = {key: record.refresh for key, (_, record) in found.items()}
        before = json.loads(context.cursor or "{}")
        is_new = any(before.get(key) != number for key, number in now.items())
        requests = [dg.RunRequest()] if is_new else []
        return dg.SensorResult(requests, cursor=json.dumps(now))

    return dg.Definitions(jobs=[job], sensors=[sensor])


def _overdue(
    instance: dg.DagsterInstance, datasources: Sequence[PublishedDatasource]
) -> Mapping[str, tuple[str, Checkpoint]]:
    """Why data sources are overdue, and what they hold, by key."""
    found, overdue = known(instance, [each.key for each in datasources]), {}
    for each in datasources:
        state = standing(each, found[each.key]).state
        if (why := _OVERDUE.get(state)) and (record := found[each.key].checkpoint):
            overdue[each.key] = (why, record)
    return overdue
