"""What belongs to a code location: the graph of all its assets, and its runs.

A run knows only its own assets and the assets that they read. dbt may describe columns of assets
further upstream.
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

# How many of the newest runs are read to find one that no code location has launched.
_MOST_RUNS = 10

_in_process: ContextVar[AssetGraph | None] = ContextVar("_in_process", default=None)


@contextmanager
def in_location(definitions: dg.Definitions) -> Generator[None]:
    """Make `location_graph` return the graph of these definitions in jobs executed in process."""
    token = _in_process.set(definitions.resolve_asset_graph())
    try:
        yield
    finally:
        _in_process.reset(token)


def location_graph(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> AssetGraph:
    """Return the asset graph of a step's location; without a location, the graph of its run."""
    location = location_of(context)
    if location is not None:
        return location.asset_graph
    graph = _in_process.get()
    return run_graph(context) if graph is None else graph


def newest_run_here(
    context: dg.SensorEvaluationContext, job: str, statuses: Sequence[dg.DagsterRunStatus] = ()
) -> dg.RunRecord | None:
    """Return the newest run of a job of the sensor's location; None if there is none.

    Another location of the instance may have a job of the same name. A run that was executed in
    the process of a command belongs to no location, and counts as one of this location.

    Args:
        statuses: the statuses that count; by default all.
    """
    instance, origin = context.instance, context.code_location_origin
    here = f"{context.repository_name}@{origin.location_name}" if origin else None
    newest = dg.RunsFilter(job_name=job, statuses=statuses)
    for record in instance.get_run_records(newest, limit=_MOST_RUNS):
        if here is None or record.dagster_run.tags.get(REPOSITORY_TAG, here) == here:
            return record
    if here is None:
        return None
    # The newest runs may all be runs of other locations.
    ours = dg.RunsFilter(job_name=job, statuses=statuses, tags={REPOSITORY_TAG: here})
    return next(iter(instance.get_run_records(ours, limit=1)), None)
