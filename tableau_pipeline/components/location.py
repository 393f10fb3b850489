"""The graph of all assets of a code location, for a step of any run.

A run knows only its own assets and the assets that they read. dbt may describe columns of assets
further upstream.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import dagster as dg

from tableau_pipeline.dagster_internals import AssetGraph, location_of, run_graph

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
