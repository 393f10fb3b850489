"""The chapters of the demo: four refreshes of the flights, a rollback, and a refresh after it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import tableauserverclient as TSC

from tableau_pipeline.command_line.output import LogLines, Output
from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.asset_names import asset_keys, step_name
from tableau_pipeline.components.journal import journal_of, setup_of
from tableau_pipeline.components.published_datasource import snapshots_of
from tableau_pipeline.components.status import PastRefresh, statuses
from tableau_pipeline.core.hold import end_hold
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.refresh.row_differences import diff
from tableau_pipeline.resources import resources_from_env

# The columns of the table that the demo prints at the end, and their widths.
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
    """One part of the demo, such as a refresh of all assets.

    Attributes:
        as_of: the last day whose flights are read; "" for the rollback and the refresh after it.
        corrected: the day whose records get invented corrections; None for no corrections.
    """

    title: str
    as_of: str = ""
    corrected: str | None = None

    @property
    def run_config(self) -> dict[str, Any]:
        """The run config for the run of this chapter."""
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
        differences: the differences between the data source and its models; empty if both are
            equal.
    """

    chapter: Chapter
    datasource: str
    ended: PastRefresh
    differences: Sequence[str]


def delete_published() -> None:
    """Delete the data sources of an earlier demo, so that the demo starts with full publishes."""
    with dg.build_resources(resources_from_env()) as resources, resources.tableau.session() as site:
        names = {datasource.name for datasource in datasources()}
        for published in [*TSC.Pager(site.tsc.datasources)]:
            if published.name in names:
                site.tsc.datasources.delete(str(published.id))


def refresh(
    chapter: Chapter, definitions: dg.Definitions, instance: dg.DagsterInstance
) -> list[Line]:
    """Materialize everything through Dagster, then compare the data on Tableau with the models.

    Raises:
        RuntimeError: the run failed; the message states why.
    """
    _run(definitions, instance, chapter.run_config)
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    # Leave out data sources that a user has declared since the definitions were loaded.
    return lines(
        chapter,
        [datasource for datasource in datasources() if dg.AssetKey(datasource.key) in keys],
        instance,
    )


def roll_back_and_release(
    definitions: dg.Definitions, instance: dg.DagsterInstance
) -> Iterator[Line]:
    """Roll back the first of `datasources()` to earlier rows; then release and refresh it.

    A rollback puts the data source on hold. The release ends the hold, so that refreshes may change
    the data source again.

    Raises:
        RuntimeError: a run failed; the message states why.
    """
    datasource, *_ = datasources()
    journal = journal_of(instance, datasource.key)
    newest, *earlier = journal.checkpoints()
    # Choose an earlier version with other rows, because a chapter may run the models without
    # changing any row.
    before = next(version for version in earlier if version.rows != newest.rows)
    selection, step = asset_keys(datasource.key), step_name(datasource.key)
    config = {"rollback": before.refresh, "why": "the demo shows it", "by": "make demo"}
    _run(definitions, instance, {"ops": {step: {"config": config}}}, selection)
    rolled_back = Chapter("rolled back")
    yield from lines(rolled_back, [datasource], instance, versions=dict(before.versions))
    end_hold(journal.place, journal.key)
    _run(definitions, instance, {}, selection)
    yield from lines(Chapter("released"), [datasource], instance)


def _run(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    run_config: Mapping[str, Any],
    selection: Sequence[dg.AssetKey] | None = None,
) -> None:
    """Materialize all assets or a selection, and print the log messages.

    Raises:
        RuntimeError: the run failed; the message states why.
    """
    log_lines = LogLines(Output(as_json=False), lambda _: True)
    loggers = {"progress": dg.LoggerDefinition(lambda _: log_lines)}
    with_progress = dg.Definitions.merge(definitions, dg.Definitions(loggers=loggers))
    result = with_progress.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=selection,
        raise_on_error=False,
        run_config={**run_config, "loggers": {"progress": {"config": {}}}},
    )
    if not result.success:
        causes = [
            f"{event.step_key}: {event.step_failure_data.error_display_string}"
            for event in result.get_step_failure_events()
        ]
        raise RuntimeError("\n".join(causes) or f"Run {result.run_id} failed: see Dagster's log")


@dataclass(frozen=True, slots=True)
class _AsOf:
    """Snapshots that return the version in `versions`, if any, as the newest version of a model."""

    snapshots: Snapshots
    versions: Mapping[str, int]

    def newest(self, asset_key: str) -> Snapshot | None:
        number = self.versions.get(asset_key)
        return self.version(asset_key, number) if number else self.snapshots.newest(asset_key)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        return self.snapshots.version(asset_key, number)


def lines(
    chapter: Chapter,
    published: Sequence[PublishedDatasource],
    instance: dg.DagsterInstance,
    *,
    versions: Mapping[str, int] = MappingProxyType({}),
) -> list[Line]:
    """Compare the data on Tableau with the models, after a run that refreshed all `published`.

    Args:
        versions: for some models, the version to compare with; for all other models, the newest
            version is compared.
    """
    status_of = statuses(instance, published)
    return [
        Line(chapter, datasource.name, ended, _differences(datasource, instance, versions))
        for datasource in published
        if (ended := status_of[datasource.key].last)
    ]


def _differences(
    datasource: PublishedDatasource, instance: dg.DagsterInstance, versions: Mapping[str, int]
) -> list[str]:
    with dg.build_resources(resources_from_env()) as resources:
        setup = setup_of(
            datasource,
            journal_of(instance, datasource.key),
            snapshots=_AsOf(snapshots_of(datasource, resources.snapshots, None), versions),
            hyper=resources.hyper,
            tableau=resources.tableau,
        )
        with resources.tableau.session() as site:
            layout, tables = diff(setup, site, samples=0, tell=lambda *_: None)
    rows = {
        table: (
            differences.only_published,
            differences.only_model,
            differences.both - differences.equal,
        )
        for table, differences in tables.items()
    }
    sentence = "{}: {:,} rows only published, {:,} only in the model, {:,} with other values"
    return [
        *layout,
        *(sentence.format(table, *counts) for table, counts in rows.items() if any(counts)),
    ]


def datasources() -> list[PublishedDatasource]:
    """Return the data sources that the project declares, sorted by name in descending order."""
    tree = dg.ComponentTree.for_project(Path(__file__))
    components = tree.get_all_components(of_type=PublishedDatasource)
    return sorted(components, key=lambda datasource: datasource.name, reverse=True)


def table(lines: Sequence[Line]) -> str:
    """Return a table with one row per chapter and data source, followed by the differences."""
    text = ["", _row(_COLUMNS), _row(["-" * width for width in _COLUMNS.values()])]
    for line in lines:
        ended = line.ended
        cells = (
            *(line.chapter.title, line.datasource, ended.decision, f"{ended.rows:,}"),
            *(f"{ended.deleted:,}", f"{ended.inserted:,}", f"{(ended.bytes_sent or 0) / 1e6:.2f}"),
            f"{ended.seconds['total']:.1f}",
            ended.compared.removeprefix("equal ").partition(",")[0],
            "DIFFERS" if line.differences else "equal",
        )
        text += [_row(cells), f"    why: {ended.reason}"]
    for line in lines:
        where = f"DIFFERS: {line.datasource}, {line.chapter.title}"
        text += [f"{where}: {difference}" for difference in line.differences]
    return "\n".join(text)


def _row(cells: Iterable[str]) -> str:
    widths = _COLUMNS.values()
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
