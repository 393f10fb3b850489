"""All assets of a code location, whichever of them a run has.

A run knows its own assets and those that they read. What dbt says of columns may stand further up.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

_in_process: ContextVar[AssetGraph | None] = ContextVar("_in_process", default=None)


@contextmanager
def in_location(definitions: dg.Definitions) -> Generator[None]:
    """Tell the steps of a job that is executed in process to which location it belongs."""
    token = _in_process.set(definitions.resolve_asset_graph())
    try:
        yield
    finally:
        _in_process.reset(token)


def location_graph(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> AssetGraph:
    """Return the assets of the location of a step; if there is none, those of its run."""
    location = context.get_step_execution_context().job.get_repository_definition()
    if location is not None:
        return location.asset_graph
    given = _in_process.get()
    return context.job_def.asset_layer.asset_graph if given is None else given
