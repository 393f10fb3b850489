"""Find the asset graph and the runs of a code location.

The graph of a run has only the run's assets and their parents. Column descriptions may come from
dbt assets further upstream, so finding them needs the graph of the whole location.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import dagster as dg

from tableau_pipeline.dagster_internals import (
    REPOSITORY_TAG,
    AssetGraph,
    location_of,
    run_graph,
)

# Runs without a code location have no tag to filter by, so search for them among this many of the
# newest runs.
_MOST_RUNS = 10

_in_process: ContextVar[AssetGraph | None] = ContextVar("_in_process", default=None)


@contextmanager
def in_location(definitions: dg.Definitions) -> Generator[None]:
    """In jobs executed in process, let `location_graph` return the graph of these definitions."""
    token = _in_process.set(definitions.resolve_asset_graph())
    try:
        yield
    finally:
        _in_process.reset(token)


def location_graph(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> AssetGraph:
    """Return the asset graph of a step's code location.

    Without a location, return the graph that `in_location` has set. If it has set none,
    return the graph of the run.
    """
    location = location_of(context)
    if location is not None:
        return location.asset_graph
    graph = _in_process.get()
    return run_graph(context) if graph is None else graph


def newest_run_here(
    context: dg.SensorEvaluationContext, job: str, statuses: Sequence[dg.DagsterRunStatus] = ()
) -> dg.RunRecord | None:
    """Return the newest run of a job in the sensor's code location; None without such a run.

    Another location of the instance may have a job of the same name. A run that a command of this
    package executes in its own process has no tag of a location. It counts as a run of this
    location.

    Args:
        statuses: the statuses of runs that count; by default, all statuses.
    """
    instance, origin = context.instance, context.code_location_origin
    here = f"{context.repository_name}@{origin.location_name}" if origin else None
    newest = dg.RunsFilter(job_name=job, statuses=statuses)
    for record in instance.get_run_records(newest, limit=_MOST_RUNS):
        if here is None or record.dagster_run.tags.get(REPOSITORY_TAG, here) == here:
            return record
    if here is None:
        return None
    # All of the newest runs may belong to other locations, so ask for runs of this location.
    ours = dg.RunsFilter(job_name=job, statuses=statuses, tags={REPOSITORY_TAG: here})
    return next(iter(instance.get_run_records(ours, limit=1)), None)
