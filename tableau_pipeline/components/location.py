"""All assets of a code location, whichever of them a run has.

A run knows its own assets and those that they read. What dbt says of columns may stand further up.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import dagster as dg

from tableau_pipeline.dagster_internals import AssetGraph, location_of, run_graph

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
    location = location_of(context)
    if location is not None:
        return location.asset_graph
    given = _in_process.get()
    return run_graph(context) if given is None else given
