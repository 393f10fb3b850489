"""The demo: a year of flights, from Spark to a published data source, in four refreshes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.demo.differences import differences
from tableau_pipeline.demo.progress import progress_logger
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    resources_from_env,
)

# The columns of the table at the end, and their widths.
_COLUMNS = {
    "data": 17,
    "data source": 15,
    "decision": 17,
    "rows": 8,
    "deleted": 8,
    "inserted": 9,
    "MB sent": 9,
    "seconds": 8,
    "equal, says the refresh": 25,
    "result": 7,
}


@dataclass(frozen=True, slots=True)
class Chapter:
    """One refresh of everything, with the data as of one day.

    Attributes:
        corrected: the day whose records were corrected in between.
    """

    title: str
    as_of: str
    corrected: str | None = None

    @property
    def run_config(self) -> dict[str, Any]:
        """The run config of its run."""
        config = {"as_of": self.as_of, "corrected": self.corrected}
        return {"ops": {"raw_flights": {"config": config}}}


CHAPTERS = (
    Chapter("30 November", "2013-11-30"),
    Chapter("31 December", "2013-12-31"),
    Chapter("late corrections", "2013-12-31", corrected="2013-12-30"),
    Chapter("nothing new", "2013-12-31", corrected="2013-12-30"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """The result of a chapter for one data source.

    Attributes:
        deleted: deleted rows, over all tables; `inserted` likewise.
        compared: how the refresh itself compared the data source with its models.
        differences: between the data source and its models; empty if they are equal.
    """

    chapter: Chapter
    datasource: str
    decision: str
    reason: str
    rows: int
    deleted: int
    inserted: int
    bytes_sent: int
    seconds: float
    compared: str
    differences: list[str]


def from_the_start() -> None:
    """Remove what an earlier run of the demo published: the first publish would be an update."""
    with dg.build_resources(resources_from_env()) as resources:
        tableau: TableauServerResource = resources.tableau
        with tableau.session() as site:
            for each in datasources():
                for found in site.tsc.datasources.filter(name=each.name):
                    site.tsc.datasources.delete(str(found.id))


def refresh(
    chapter: Chapter, definitions: dg.Definitions, instance: dg.DagsterInstance
) -> list[Line]:
    """Materialize everything through Dagster, then compare the data on Tableau with the models.

    Raises:
        RuntimeError: the run failed; the message states why.
    """
    with_progress = dg.Definitions.merge(
        definitions, dg.Definitions(loggers={"progress": progress_logger})
    )
    result = with_progress.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={**chapter.run_config, "loggers": {"progress": {"config": {}}}},
    )
    if not result.success:
        causes = [
            f"{event.step_key}: {event.step_failure_data.error_display_string}"
            for event in result.get_step_failure_events()
        ]
        raise RuntimeError("\n".join(causes) or f"Run {result.run_id} failed: see Dagster's log")
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    # A user may declare a data source while the demo runs, which does not know it.
    known = [each for each in datasources() if dg.AssetKey(each.key) in keys]
    return lines(chapter, known, result.run_id, instance)


def lines(
    chapter: Chapter,
    published: Iterable[PublishedDatasource],
    run_id: str,
    instance: dg.DagsterInstance,
) -> list[Line]:
    """Compare the data on Tableau with the models, after a run that has published all of these."""
    found = {
        event.asset_key: event.step_materialization_data.materialization.metadata
        for record in instance.all_logs(run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
        if (event := record.dagster_event)
    }
    return [_line(chapter, each, found[dg.AssetKey(each.key)], instance) for each in published]


def _line(
    chapter: Chapter,
    datasource: PublishedDatasource,
    entries: Mapping[str, dg.MetadataValue],
    instance: dg.DagsterInstance,
) -> Line:
    metadata: dict[str, Any] = {name: entry.value for name, entry in entries.items()}
    details = metadata["details"]
    return Line(
        chapter=chapter,
        datasource=datasource.name,
        decision=metadata["decision"],
        reason=metadata["reason"],
        rows=metadata["dagster/row_count"],
        deleted=sum(details["deleted"].values()),
        inserted=sum(details["inserted"].values()),
        bytes_sent=details["bytes sent"],
        seconds=metadata["seconds"],
        compared=metadata["comparison"],
        differences=_differences(datasource, details["luid"], instance),
    )


def _differences(
    datasource: PublishedDatasource, luid: str, instance: dg.DagsterInstance
) -> list[str]:
    checkpoint = read_history(DagsterJournal(instance, datasource.key).records()).checkpoint
    if checkpoint is None:
        raise RuntimeError(f"{datasource.key} was refreshed, but no checkpoint was recorded")
    cutoffs = {name: each.cutoff for name, each in checkpoint.tables.items() if each.cutoff}
    with dg.build_resources(resources_from_env()) as resources, TemporaryDirectory() as folder:
        tableau: TableauServerResource = resources.tableau
        snapshots: SnapshotIOManager = resources.snapshots
        hyper: HyperResource = resources.hyper
        with tableau.session() as site:
            tdsx = site.download(luid, Path(folder))
        newest = {
            model: found for model in datasource.models if (found := snapshots.snapshot(model))
        }
        return differences(hyper.process, tdsx, datasource, newest, cutoffs=cutoffs)


def datasources() -> list[PublishedDatasource]:
    """Return the declarations in `defs/flights/defs.yaml`, sorted by name in descending order."""
    tree = dg.ComponentTree.for_project(Path(__file__))
    found = tree.get_all_components(of_type=PublishedDatasource)
    return sorted(found, key=lambda each: each.name, reverse=True)


def table(told: Sequence[Line]) -> str:
    """Return a row for each chapter and data source, and then what differs."""
    text = ["", _row(_COLUMNS), _row(["-" * width for width in _COLUMNS.values()])]
    for line in told:
        cells = (
            *(line.chapter.title, line.datasource, line.decision, f"{line.rows:,}"),
            *(f"{line.deleted:,}", f"{line.inserted:,}", f"{line.bytes_sent / 1e6:.2f}"),
            *(f"{line.seconds:.1f}", line.compared.removeprefix("equal ").partition(",")[0]),
            "DIFFERS" if line.differences else "equal",
        )
        text += [_row(cells), f"    why: {line.reason}"]
    for line in told:
        where = f"DIFFERS: {line.datasource}, {line.chapter.title}"
        text += [f"{where}: {each}" for each in line.differences]
    return "\n".join(text)


def _row(cells: Iterable[str]) -> str:
    widths = _COLUMNS.values()
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
