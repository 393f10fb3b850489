"""The demo: a year of flights, from Spark to a published data source, in three refreshes."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.demo.compare import differences
from tableau_pipeline.demo.progress import progress_logger
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    resources_from_env,
)

DATASOURCE = "nyc_flights"


@dataclass(frozen=True, slots=True)
class Chapter:
    """One refresh, and the data as they stood on a day."""

    title: str
    as_of: str


CHAPTERS = (
    Chapter("30 November", "2013-11-30"),
    Chapter("31 December", "2013-12-31"),
    Chapter("nothing new", "2013-12-31"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """What a chapter came to; `differences` is empty when the data source equals its models."""

    chapter: Chapter
    decision: str
    reason: str
    rows: int
    bytes_sent: int
    seconds: float
    differences: list[str]


def tell(chapter: Chapter, definitions: dg.Definitions, instance: dg.DagsterInstance) -> Line:
    """Materialize everything through Dagster, then compare what Tableau holds with the models.

    Raises:
        RuntimeError: the run failed; says why.
    """
    with_progress = dg.Definitions.merge(
        definitions, dg.Definitions(loggers={"progress": progress_logger})
    )
    started = time.monotonic()
    result = with_progress.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={
            "ops": {"raw_flights": {"config": {"as_of": chapter.as_of}}},
            "loggers": {"progress": {"config": {}}},
        },
    )
    seconds = time.monotonic() - started
    if not result.success:
        raise RuntimeError(_failure(result))
    metadata = _published_metadata(result)
    return Line(
        chapter=chapter,
        decision=metadata["decision"],
        reason=metadata["reason"],
        rows=metadata["dagster/row_count"],
        bytes_sent=metadata["bytes sent"],
        seconds=seconds,
        differences=_differences(metadata["luid"]),
    )


def _published_metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (materialization,) = (
        event.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey(DATASOURCE)
    )
    return {name: value.value for name, value in materialization.metadata.items()}


def _failure(result: dg.ExecuteInProcessResult) -> str:
    causes = [
        f"{event.step_key}: {event.step_failure_data.error_display_string}"
        for event in result.get_step_failure_events()
    ]
    return "\n".join(causes) or f"Run {result.run_id} failed: see Dagster's log"


def _differences(luid: str) -> list[str]:
    declaration = datasource().declaration
    with dg.build_resources(resources_from_env()) as resources, TemporaryDirectory() as folder:
        tableau: TableauServerResource = resources.tableau
        snapshots: SnapshotIOManager = resources.snapshots
        hyper: HyperResource = resources.hyper
        with tableau.session() as site:
            tdsx = site.download(luid, Path(folder))
        newest = {model: snapshots.snapshots(model) for model in declaration.models}
        return differences(hyper.process, tdsx, declaration, newest)


def datasource() -> PublishedDatasource:
    """The declaration in `defs/flights/defs.yaml`."""
    tree = dg.ComponentTree.for_project(Path(__file__))
    return next(
        found
        for found in tree.get_all_components(of_type=PublishedDatasource)
        if found.asset_key == DATASOURCE
    )
