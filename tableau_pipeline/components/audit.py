"""The audit: compare published data with models and records of refreshes; change nothing."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import dagster as dg
from pydantic import Field

from tableau_pipeline.components.freshness import data_age
from tableau_pipeline.components.instigators import default_status
from tableau_pipeline.components.journal import journal_of, setup_of
from tableau_pipeline.components.location import location_graph
from tableau_pipeline.components.published_datasource import POOL, snapshots_of
from tableau_pipeline.components.published_files import published_files
from tableau_pipeline.components.reporting import escaped, markdown_metadata
from tableau_pipeline.components.triggers import Cron
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import (
    INSTANCE_TAG_PREFIX,
    TAG_PREFIX,
    key_below,
    root_of,
    tags_of,
)
from tableau_pipeline.dagster_internals import evaluation_of
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.outcome import Status
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import live_claim, name_of
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.reconcile import Reconciliation
from tableau_pipeline.refresh.refresh import audit as compare_datasource
from tableau_pipeline.refresh.report import Audited as Comparison
from tableau_pipeline.refresh.row_security import filters_gone
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    tableau_project_root,
)
from tableau_pipeline.resources.services import as_failure
from tableau_pipeline.yaml_keys import Zone, keyed

# Comparisons log to this logger, so that the run's log gets one line for each data source.
_LOG = logging.getLogger(__name__)


_WRONG = (Status.DIFFERS, Status.DRIFTED, Status.GONE, Status.UNKNOWN)
_REMEDIES: Mapping[Status, str] = {
    Status.DIFFERS: "Run its refresh with full: true",
    Status.DRIFTED: "Run its refresh",
    Status.GONE: "Run its refresh",
    Status.NEVER: "Run its refresh",
    Status.FOREIGN: "Remove it from one of the deployments, or run its refresh with "
    "accept: [takeover]",
    Status.RUNNING: "Run the audit again later",
}


@dataclass(frozen=True, slots=True)
class AuditedDatasource:
    """The result of an audit for one data source.

    Attributes:
        key: the asset key of the data source; its name if this location does not declare it.
        notes: the reasons for the status.
        warnings: what else needs attention, such as another user's edits or the age of the data.
        compared: how the rows were compared; "" if the rows were not compared.
        rows: for each table, the number of rows after the last refresh, and on the server.
        link: the URL of the data source's page; None if there is no page.
    """

    key: str
    name: str
    status: Status
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    compared: str = ""
    rows: str = ""
    link: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether readers may see rows that differ from the rows of the last refresh."""
        return self.status in _WRONG

    @property
    def is_fine(self) -> bool:
        """Whether nothing needs attention."""
        return self.status is Status.EQUAL and not self.warnings

    @property
    def note(self) -> str:
        """The reasons for the status, the warnings and the remedy, as sentences."""
        parts = (*self.notes, *self.warnings, _REMEDIES.get(self.status))
        return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def audit(setup: Setup, server: TableauSite) -> AuditedDatasource:
    """Compare a data source with its models and with its last checkpoint (the record of a refresh).

    The audit changes neither the server nor the journal. It takes no claim (the lock of a refresh),
    so a refresh may start at the same time. If the audit fails, the status is UNKNOWN.
    """
    try:
        return _audited(replace(setup, log=_LOG, server=lambda: nullcontext(server)))
    except Exception as error:  # noqa: BLE001 - the other data sources are still audited
        _LOG.debug("%s could not be audited", setup.declaration.key, exc_info=error)
        return _result(setup, Status.UNKNOWN, str(error) or repr(error))


def _result(setup: Setup, status: Status, *notes: str | None) -> AuditedDatasource:
    given = tuple(filter(None, notes))
    return AuditedDatasource(setup.declaration.key, setup.declaration.name, status, given)


def _audited(setup: Setup) -> AuditedDatasource:
    journal = setup.journal
    before = journal.history()
    if claim := live_claim(before, journal):
        return _result(setup, Status.RUNNING, f"{name_of(claim)} is refreshing it")
    comparison, after = compare_datasource(setup), journal.latest(before)
    # Before a refresh sends anything, it records a claim with the number of the refresh. So a new
    # number shows that a refresh began during the audit.
    if after.refresh != before.refresh:
        by = name_of(after.claim) if after.claim else "a refresh that has just ended"
        return _result(setup, Status.RUNNING, f"{by} has changed it during the audit")
    return _result_of(setup, comparison)


def _result_of(setup: Setup, looked: Comparison) -> AuditedDatasource:
    """Derive the result of an audit from the comparison of the data source."""
    base, luid = looked.base, looked.checkpoint.luid if looked.checkpoint else None
    compared, checkpoint, remote = looked.reconciliation, base.checkpoint, base.remote
    status, reason = _status(base, compared, is_known=luid is not None)
    result = replace(_result(setup, status, reason), link=remote.link if remote else None)
    if remote is None or status in (Status.FOREIGN, Status.NEVER, Status.GONE):
        return result
    warnings = [*base.moved] if remote.luid == luid else []
    if remote.luid == luid:
        # If no refresh recorded a digest of the metadata (`left`), nothing shows whether users have
        # edited the metadata, so give no warning.
        edited = "Another user edited calculated fields, captions or folders"
        warnings += [edited] if base.left and base.is_edited else []
        ours = tags_of(setup.declaration.key, setup.journal.instance)
        warnings += [f"Another user removed the tag {tag}" for tag in sorted(ours - remote.tags)]
    if checkpoint is None:
        return replace(result, warnings=tuple(warnings))
    counted = compared if compared and not compared.skipped else None
    return replace(
        result,
        warnings=(*warnings, *base.warnings),
        compared=counted.way if counted else "",
        rows=_rows(checkpoint.rows, counted.rows if counted else {}),
    )


def _rows(expected: Mapping[str, int], counted: Mapping[str, int]) -> str:
    """Return the row counts after the last refresh and on the server: "flights 8 / 7, days 3 / 3".

    If there is only one table, leave out the table's name.
    """
    on_server = {table: f"{counted[table]:,}" if table in counted else "?" for table in expected}
    labels = {table: f"{table} " if len(expected) > 1 else "" for table in expected}
    return ", ".join(
        f"{labels[table]}{count:,} / {on_server[table]}" for table, count in expected.items()
    )


def _status(
    base: Base, compared: Reconciliation | None, *, is_known: bool
) -> tuple[Status, str | None]:
    """Return the status of a data source, and the reason.

    Args:
        is_known: whether the last refresh recorded a LUID.
    """
    absent = Status.GONE if is_known else Status.NEVER
    ownership = base.ownership
    if ownership is None or ownership.candidates:
        luids = ", ".join(remote.luid for remote in ownership.candidates) if ownership else ""
        return absent, f"its tag is on {luids}" if luids else None
    if ownership.other_instance:
        return Status.FOREIGN, f"its tag is {ownership.other_instance}"
    if ownership.other_key:
        return Status.FOREIGN, f'its key is "{ownership.other_key}"'
    if not ownership.is_ours:
        other = "this pipeline did not publish the data source that has its name"
        return absent, str(base.distrust) if is_known else other
    if gone := filters_gone(base):
        return Status.DRIFTED, f"{' and '.join(gone)} is gone: people may see too many rows"
    if compared is None:
        return Status.DRIFTED, str(base.distrust)
    if compared.skipped:
        return Status.UNCHANGED, f"its rows were not compared: {compared.skipped}"
    status = Status.DIFFERS if compared.problem else Status.EQUAL
    return status, compared.problem or compared.note


# The name of the job. Only projects that declare `audit` have this job.
AUDIT = "audit"


def undeclared(
    instance: dg.DagsterInstance, tagged: Iterable[RemoteDatasource], declared: Collection[str]
) -> list[AuditedDatasource]:
    """Return the tagged data sources of this environment whose keys are not declared."""
    results, root = [], tableau_project_root()
    declared_keys = {key_below(key, root) for key in declared}
    mine = journal_of(instance, "").instance
    for remote in sorted(tagged, key=lambda item: (item.name, item.luid)):
        name, keys = remote.name, sorted(key for key in remote.keys if root_of(key) == root)
        if keys and not declared_keys.intersection(keys):
            tags = ", ".join(f"{INSTANCE_TAG_PREFIX}{tag}" for tag in sorted(remote.instances))
            owner = "the tag of this deployment" if mine in remote.instances else tags
            note = f'Its key is "{", ".join(keys)}", with {owner or "no tag of a deployment"}'
            results.append(
                AuditedDatasource(name, name, Status.UNDECLARED, (note,), link=remote.link)
            )
    return results


def _line(found: AuditedDatasource, *parts: str) -> str:
    """Return a line with the key, the status, `parts` and the note."""
    head = f"{found.key}: {', '.join(filter(None, (found.status, *parts)))}"
    return f"{head}{':' if found.notes else '.'} {found.note}" if found.note else head


def audit_job(declarations: Sequence[Declaration]) -> dg.JobDefinition:
    """Return the job of the audit.

    Its only step audits these data sources, and all data sources that are published from files. The
    step fails if a data source is wrong.
    """

    @dg.op(pool=POOL, out=dg.Out(dg.Nothing))
    def audit_datasources(
        context: dg.OpExecutionContext,
        snapshots: dg.ResourceParam[SnapshotIOManager],
        hyper: HyperResource,
        tableau: TableauServerResource,
    ) -> None:
        graph = location_graph(context)
        results: list[AuditedDatasource] = []
        counts = any(declared.needs_counts for declared in declarations)
        with as_failure(context.log), tableau.session(context.log, counts=counts) as server:
            files = [file.declaration for file in published_files(context.instance).values()]
            for declaration in (*declarations, *files):
                models = snapshots_of(declaration, snapshots, graph)
                journal = journal_of(context.instance, declaration.key, context)
                setup = setup_of(
                    declaration,
                    journal,
                    snapshots=models,
                    hyper=hyper,
                    tableau=tableau,
                    log=context.log,
                )
                warnings = _age_warnings(context.instance, declaration, setup)
                result = audit(setup, server)
                results.append(replace(result, warnings=(*result.warnings, *warnings)))
                snapshots.copies.release()
                _log(context, results[-1])
            others = _undeclared_here(context, server, [*declarations, *files])
        _conclude(context, results, others)

    @dg.job(
        name=AUDIT,
        description="Compares each published data source of this code location with its models. "
        "It changes nothing.",
    )
    def audit_all() -> None:
        audit_datasources()

    return audit_all


def _age_warnings(
    instance: dg.DagsterInstance, declaration: Declaration, setup: Setup
) -> Iterator[str]:
    """Evaluate the check of the models' age; yield a warning if the check fails.

    Refreshes evaluate this check, too. But the models become older even if no refresh runs.
    """
    freshness = getattr(declaration, "freshness", None)
    # Ignore an error from an unreadable lake, because the audit itself reports the error.
    with suppress(RefreshError):
        if check := freshness and data_age(declaration, freshness, setup.snapshots, setup.journal):
            instance.report_runless_asset_event(evaluation_of(check))
            yield from filter(None, [check.description])


def _log(context: dg.OpExecutionContext, found: AuditedDatasource) -> None:
    level = logging.INFO if found.is_fine else logging.WARNING
    text = _line(found, found.compared, found.rows)
    context.log.log(logging.ERROR if found.is_wrong else level, "%s", text)


def _undeclared_here(
    context: dg.OpExecutionContext, server: TableauSite, declarations: Sequence[Declaration]
) -> list[AuditedDatasource]:
    """Return and log the data sources of the site that are not declared here.

    If the server cannot list data sources, log the error, and return [].
    """
    try:
        tagged = server.tagged(TAG_PREFIX)
        keys = {declaration.key for declaration in declarations}
        results = undeclared(context.instance, tagged, keys)
    except RefreshError as error:
        context.log.warning("Data sources without a declaration could not be listed: %s", error)
        return []
    for result in results:
        _log(context, result)
    return results


def _conclude(
    context: dg.OpExecutionContext,
    found: Sequence[AuditedDatasource],
    others: Sequence[AuditedDatasource],
) -> None:
    """Attach the report; fail the step if a data source is wrong or could not be audited."""
    counts = Counter(result.status for result in (*found, *others))
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    rows = [
        (
            f"[{escaped(result.name)}]({result.link})" if result.link else escaped(result.name),
            f"**{result.status}**" if result.is_wrong else result.status,
            result.compared,
            escaped(result.rows),
            escaped(result.note),
        )
        for result in (*found, *others)
    ]
    heads = ("data source", "status", "compared by", "rows: model / server", "note")
    report = markdown_metadata(heads, rows)
    metadata = {"summary": summary or "none declared", "report": report}
    if wrong := [_line(result) for result in found if result.is_wrong]:
        head = (
            f"{len(wrong)} of {len(found)} data sources are not what their last refresh left, "
            "or could not be looked at:"
        )
        # A retry would find the same differences.
        raise dg.Failure("\n".join([head, *wrong]), metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@keyed
class AuditTime:
    """When an audit compares the data sources with their models, without a refresh."""

    cron: Cron = Field(default="0 4 * * *", description='A cron expression, as in "0 4 * * SUN".')
    timezone: Zone = Field(
        default="UTC", description='Time zone of the cron expression: "Europe/Paris".'
    )

    def definitions(self, declarations: Sequence[Declaration]) -> dg.Definitions:
        """Return the job `audit` of these data sources, and its schedule."""
        schedule = dg.ScheduleDefinition(
            name=f"{AUDIT}_schedule",
            job=audit_job(declarations),
            cron_schedule=self.cron,
            execution_timezone=self.timezone,
            default_status=default_status(dg.DefaultScheduleStatus),
            description="Compares the published data sources with their models.",
        )
        return dg.Definitions(jobs=[schedule.job], schedules=[schedule])
