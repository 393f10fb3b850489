"""The component Audit: a job and a schedule that compare what is published with the models."""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from pydantic import Field

from tableau_pipeline.audit import Audited, audit
from tableau_pipeline.components.journal import DagsterJournal, setup_in_run
from tableau_pipeline.components.published_datasource import (
    POOL,
    PublishedDatasource,
    partitions_of,
    snapshots_of,
)
from tableau_pipeline.components.reporting import escaped
from tableau_pipeline.components.triggers import Cron, schedule_status
from tableau_pipeline.components.yaml_component import YamlComponent
from tableau_pipeline.core.checkpoint import ClaimRelease
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, TAG_PREFIX, Declaration
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.keys import Zone, keyed
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.resources import HyperResource, SnapshotIOManager, TableauServerResource
from tableau_pipeline.resources.failures import as_failure


@dataclass(frozen=True, slots=True)
class Undeclared:
    """A data source without a declaration here; `note` says who may publish it."""

    datasource: RemoteDatasource
    note: str


def undeclared(
    context: dg.OpExecutionContext, server: TableauSite, declared: Collection[str]
) -> list[Undeclared]:
    """Return the data sources of the site with the tags of other keys than the declared ones.

    Raises:
        RefreshError: the server did not answer.
    """
    found = []
    for datasource in server.tagged(TAG_PREFIX):
        tags = sorted(tag for tag in datasource.tags if tag.startswith(TAG_PREFIX))
        keys = [tag.removeprefix(TAG_PREFIX) for tag in tags]
        if not set(keys) & set(declared):
            notes = (_publisher(context, datasource, key) for key in keys)
            found.append(Undeclared(datasource, " ".join(notes)))
    return sorted(found, key=lambda each: (each.datasource.name, each.datasource.luid))


def _publisher(context: dg.OpExecutionContext, datasource: RemoteDatasource, key: str) -> str:
    """Return who publishes it, as far as its tags and the records of this instance show it."""
    journal = DagsterJournal(context, dg.AssetKey.from_user_string(key))
    instances = sorted(tag for tag in datasource.tags if tag.startswith(INSTANCE_TAG_PREFIX))
    is_ours = f"{INSTANCE_TAG_PREFIX}{journal.instance}" in instances
    tag = "the tag of this instance" if is_ours else ", ".join(instances) or "no instance's tag"
    records = journal.records()
    record = read_history(records).checkpoint
    # A data source of another deployment may have the same key.
    if record is None or record.luid != datasource.luid:
        return f'Its key is "{key}", with {tag}. Nothing in this instance has refreshed it.'
    ends = [each for each in records if isinstance(each, ClaimRelease) and each.checkpoint]
    if not ends:
        return f'Its key is "{key}", with {tag}. This instance has refreshed it.'
    last = max(ends, key=lambda each: each.refresh)
    when = f"{last.closed_at:%Y-%m-%d %H:%M} UTC"
    by = _location(context, last.run_id)
    return f'Its key is "{key}", with {tag}. This instance last refreshed it at {when}{by}.'


def _location(context: dg.OpExecutionContext, run_id: str) -> str:
    """Return which code location the run was of; "" if that is not known any more."""
    run = context.instance.get_run_by_id(run_id)
    if run is None or run.remote_job_origin is None:
        return ""
    return f', from the code location "{run.remote_job_origin.location_name}"'


_UNDECLARED = "not declared here"


def log_line(found: Audited) -> str:
    """Return what was found of a data source, in one line."""
    parts = [str(found.finding), found.compared or "", _rows(found)]
    return _described(found, ", ".join(filter(None, parts)))


def summary(found: Sequence[Audited], others: Sequence[Undeclared]) -> str:
    """Return how many data sources have each finding: "2 equal, 1 drifted"."""
    counts = Counter(str(each.finding) for each in found)
    counts.update({_UNDECLARED: len(others)} if others else {})
    return ", ".join(f"{count} {finding}" for finding, count in counts.items()) or "none declared"


def problems(found: Sequence[Audited]) -> str:
    """Return what is wrong and what to do, one line for each data source; "" if nothing is."""
    wrong = [each for each in found if each.is_wrong]
    if not wrong:
        return ""
    lines = [_described(each, str(each.finding)) for each in wrong]
    head = (
        f"{len(wrong)} of {len(found)} data sources are not what their last refresh left, "
        "or could not be looked at:"
    )
    return "\n".join([head, *lines])


def report(found: Sequence[Audited], others: Sequence[Undeclared]) -> str:
    """Return a table with a row for each data source, those without a declaration last."""
    lines = [
        "| data source | finding | compared by | rows: model / server | note |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(cells)} |" for cells in _cells(found, others)),
    ]
    return "\n".join(lines)


def _cells(found: Sequence[Audited], others: Sequence[Undeclared]) -> Iterator[list[str]]:
    for each in found:
        name = _linked(each.declaration.name, each.link)
        finding = f"**{each.finding}**" if each.is_wrong else str(each.finding)
        yield [name, finding, each.compared or "", escaped(_rows(each)), escaped(each.note)]
    for other in others:
        name = _linked(other.datasource.name, other.datasource.link)
        yield [name, _UNDECLARED, "", "", escaped(other.note)]


def _described(found: Audited, head: str) -> str:
    """Return the finding and all that explains it."""
    if not found.note:
        return f"{found.declaration.key}: {head}"
    return f"{found.declaration.key}: {head}{':' if found.why else '.'} {found.note}"


def _linked(name: str, link: str | None) -> str:
    return f"[{escaped(name)}]({link})" if link else escaped(name)


def _rows(found: Audited) -> str:
    """Return "flights 8 / 7, airlines 2 / 2"; "8 / 7" for a single table."""
    pairs = {
        table: f"{rows:,} / {_count(found.rows.get(table))}"
        for table, rows in found.expected.items()
    }
    if len(pairs) == 1:
        return next(iter(pairs.values()))
    return ", ".join(f"{table} {pair}" for table, pair in pairs.items())


def _count(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"


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
                setup = setup_in_run(
                    context, declaration, snapshots=models, hyper=hyper, tableau=tableau
                )
                found.append(audit(setup, server))
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
    context: dg.OpExecutionContext, server: TableauSite, declarations: Sequence[Declaration]
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


@keyed
class Audit(YamlComponent):
    """Compare every data source of this code location with its models, without refreshing it."""

    job: str = Field(
        default="audit",
        pattern=r"^\w+$",
        description="Name of the job; its schedule is <job>_schedule.",
    )
    cron: Cron = Field(
        default="0 4 * * *", description='When it runs: a cron expression, as in "0 4 * * SUN".'
    )
    timezone: Zone = Field(
        default="UTC", description='Time zone of the cron expression: "Europe/Paris".'
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the job and its schedule, for the data sources that this location declares."""
        found = context.component_tree.get_all_components(of_type=PublishedDatasource)
        job = audit_job(self.job, found)
        schedule = dg.ScheduleDefinition(
            name=f"{self.job}_schedule",
            job=job,
            cron_schedule=self.cron,
            execution_timezone=self.timezone,
            default_status=schedule_status(),
            description="Compares the published data sources with their models.",
        )
        return dg.Definitions(jobs=[job], schedules=[schedule])
