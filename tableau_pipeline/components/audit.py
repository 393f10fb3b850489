"""The audit: it compares what is published with checkpoints and models, and changes nothing."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import dagster as dg
from pydantic import Field

from tableau_pipeline.components.freshness import data_age
from tableau_pipeline.components.instigators import default_status
from tableau_pipeline.components.journal import DagsterJournal, setup_of
from tableau_pipeline.components.location import location_graph
from tableau_pipeline.components.publish_file import published_files
from tableau_pipeline.components.published_datasource import POOL, snapshots_of
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
from tableau_pipeline.core.journal import Claim, read_history
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.outcome import Status
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import live_claims
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.reconcile import Reconciliation
from tableau_pipeline.refresh.refresh import audit as look
from tableau_pipeline.refresh.report import Audited as Looked
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    tableau_project_root,
)
from tableau_pipeline.resources.services import as_failure
from tableau_pipeline.yaml_keys import Zone, keyed

# Not the log of the run, which has one line for each data source.
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
    """What an audit found of one data source.

    Attributes:
        key: its asset key; its name if it is not declared here.
        notes: what explains the status.
        warnings: what other users have changed that is no difference of rows.
        compared: in which way the rows were compared; "" if they were not.
        rows: by table, those that the last refresh left, and those on the server.
        link: the URL of its page; None if there is none.
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
        """Whether readers may see other rows than those of the last refresh."""
        return self.status in _WRONG

    @property
    def is_fine(self) -> bool:
        """Whether no person has to look at it."""
        return self.status is Status.EQUAL and not self.warnings

    @property
    def note(self) -> str:
        """All that explains the status, and the remedy, in sentences."""
        parts = (*self.notes, *self.warnings, _REMEDIES.get(self.status))
        return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def audit(setup: Setup, server: TableauSite) -> AuditedDatasource:
    """Compare a data source with its last checkpoint and its models.

    It changes neither the server nor the journal, and takes no claim. What cannot be looked at is
    UNKNOWN.
    """
    try:
        return _audited(replace(setup, log=_LOG, server=lambda: nullcontext(server)))
    except Exception as error:  # noqa: BLE001 - all other data sources are looked at, too
        _LOG.debug("%s could not be audited", setup.declaration.key, exc_info=error)
        return _of(setup, Status.UNKNOWN, str(error) or repr(error))


def _of(setup: Setup, status: Status, *notes: str | None) -> AuditedDatasource:
    said = tuple(filter(None, notes))
    return AuditedDatasource(setup.declaration.key, setup.declaration.name, status, said)


def _audited(setup: Setup) -> AuditedDatasource:
    journal = setup.journal
    before = read_history(journal.records())
    refreshing: Sequence[Claim] = live_claims(before.open_claims, journal)
    if not refreshing:
        looked, known = look(setup), {each.id for each in before.claims}
        # A refresh records its claim before it sends anything, so one that ran meanwhile shows.
        after = read_history(journal.records()).claims
        refreshing = [claim for claim in after if claim.id not in known]
        if not refreshing:
            return _found(setup, looked)
    run_id = refreshing[-1].owner.run_id
    return _of(setup, Status.RUNNING, f"run {run_id} is refreshing it")


def _found(setup: Setup, looked: Looked) -> AuditedDatasource:
    """What a look has found, in the words of an audit."""
    base, luid = looked.base, looked.checkpoint.luid if looked.checkpoint else None
    compared, checkpoint, remote = looked.reconciliation, base.checkpoint, base.remote
    status, why = _judged(base, compared, is_known=luid is not None)
    found = replace(_of(setup, status, why), link=remote.link if remote else None)
    if remote is None or status in (Status.FOREIGN, Status.NEVER, Status.GONE):
        return found
    warnings = [*base.moved] if remote.luid == luid else []
    if remote.luid == luid:
        # Without any digest of ours, it is not known whether it was edited.
        edited = "Another user edited calculated fields, captions or folders"
        warnings += [edited] if base.left and base.is_edited else []
        ours = tags_of(setup.declaration.key, setup.journal.instance)
        warnings += [f"Another user removed the tag {tag}" for tag in sorted(ours - remote.tags)]
    if checkpoint is None:
        return replace(found, warnings=tuple(warnings))
    counted = compared if compared and not compared.skipped else None
    return replace(
        found,
        warnings=(*warnings, *base.warnings),
        compared=counted.way if counted else "",
        rows=_rows(checkpoint.rows, counted.rows if counted else {}),
    )


def _rows(expected: Mapping[str, int], counted: Mapping[str, int]) -> str:
    """Return "flights 8 / 7, airlines 2 / 2"; "8 / 7" for a single table."""
    found = {name: f"{counted[name]:,}" if name in counted else "?" for name in expected}
    names = {name: f"{name} " if len(expected) > 1 else "" for name in expected}
    return ", ".join(f"{names[name]}{n:,} / {found[name]}" for name, n in expected.items())


def _judged(
    base: Base, compared: Reconciliation | None, *, is_known: bool
) -> tuple[Status, str | None]:
    absent = Status.GONE if is_known else Status.NEVER
    whose = base.ownership
    if whose is None or whose.candidates:
        luids = ", ".join(each.luid for each in whose.candidates) if whose else ""
        return absent, f"its tag is on {luids}" if luids else None
    if whose.other_instance:
        return Status.FOREIGN, f"its tag is {whose.other_instance}"
    if whose.other_key:
        return Status.FOREIGN, f'its key is "{whose.other_key}"'
    if not whose.is_ours:
        other = "this pipeline did not publish the data source that has its name"
        return absent, str(base.distrust) if is_known else other
    if compared is None:
        return Status.DRIFTED, str(base.distrust)
    if compared.skipped:
        return Status.UNCHANGED, f"its rows were not compared: {compared.skipped}"
    status = Status.DIFFERS if compared.problem else Status.EQUAL
    return status, compared.problem or compared.note


# The job, if the component adds it.
AUDIT = "audit"


def undeclared(
    instance: dg.DagsterInstance, tagged: Iterable[RemoteDatasource], declared: Collection[str]
) -> list[AuditedDatasource]:
    """Return those of the tagged data sources whose keys are not among the declared ones.

    What other environments publish is not looked at.
    """
    found, root = [], tableau_project_root()
    known = {key_below(key, root) for key in declared}
    mine = DagsterJournal(instance, "").instance
    for each in sorted(tagged, key=lambda each: (each.name, each.luid)):
        here = sorted(key for key in each.keys if root_of(key) == root)
        if here and not known.intersection(here):
            others = ", ".join(f"{INSTANCE_TAG_PREFIX}{name}" for name in sorted(each.instances))
            whose = "the tag of this instance" if mine in each.instances else others
            why = f'Its key is "{", ".join(here)}", with {whose or "no tag of an instance"}'
            found.append(
                AuditedDatasource(each.name, each.name, Status.UNDECLARED, (why,), link=each.link)
            )
    return found


def _described(found: AuditedDatasource, *parts: str) -> str:
    """Return the status, these parts and all that explains it, in one line."""
    head = f"{found.key}: {', '.join(filter(None, (found.status, *parts)))}"
    return f"{head}{':' if found.notes else '.'} {found.note}" if found.note else head


def audit_job(declarations: Sequence[Declaration]) -> dg.JobDefinition:
    """Return a job of one step that audits these data sources; it fails if one is wrong."""

    @dg.op(pool=POOL, out=dg.Out(dg.Nothing))
    def audit_datasources(
        context: dg.OpExecutionContext,
        snapshots: dg.ResourceParam[SnapshotIOManager],
        hyper: HyperResource,
        tableau: TableauServerResource,
    ) -> None:
        graph = location_graph(context)
        found: list[AuditedDatasource] = []
        counts = any(each.needs_counts for each in declarations)
        with as_failure(context.log), tableau.session(context.log, counts=counts) as server:
            files = [each for each, _ in published_files(context.instance).values()]
            for declaration in (*declarations, *files):
                models = snapshots_of(declaration, snapshots, graph)
                journal = DagsterJournal(context.instance, declaration.key, context)
                setup = setup_of(
                    declaration, journal, snapshots=models, hyper=hyper, tableau=tableau
                )
                aged, seen = _data_age(context.instance, declaration, setup), audit(setup, server)
                found.append(replace(seen, warnings=(*seen.warnings, *aged)))
                snapshots.copies.release()
                _log(context, found[-1])
            others = _others(context, server, [*declarations, *files])
        _conclude(context, found, others)

    @dg.job(
        name=AUDIT,
        description="Compares each published data source of this code location with its models. "
        "It changes nothing.",
    )
    def audit_all() -> None:
        audit_datasources()

    return audit_all


def _data_age(
    instance: dg.DagsterInstance, declaration: Declaration, setup: Setup
) -> Iterator[str]:
    """Evaluate the check of how old the models are, which no refresh does while none runs."""
    freshness = getattr(declaration, "freshness", None)
    # A lake that cannot be read is a finding of the audit itself.
    with suppress(RefreshError):
        if found := freshness and data_age(declaration, freshness, setup.snapshots, setup.journal):
            instance.report_runless_asset_event(dg.AssetCheckEvaluation(**found._asdict()))
            yield from filter(None, [found.description])


def _log(context: dg.OpExecutionContext, found: AuditedDatasource) -> None:
    level = logging.INFO if found.is_fine else logging.WARNING
    text = _described(found, found.compared, found.rows)
    context.log.log(logging.ERROR if found.is_wrong else level, "%s", text)


def _others(
    context: dg.OpExecutionContext, server: TableauSite, declarations: Sequence[Declaration]
) -> list[AuditedDatasource]:
    """Look for data sources that are not declared here; an error is only logged."""
    try:
        tagged = server.tagged(TAG_PREFIX)
        found = undeclared(context.instance, tagged, {each.key for each in declarations})
    except RefreshError as error:
        context.log.warning("Data sources without a declaration could not be listed: %s", error)
        return []
    for each in found:
        _log(context, each)
    return found


def _conclude(
    context: dg.OpExecutionContext,
    found: Sequence[AuditedDatasource],
    others: Sequence[AuditedDatasource],
) -> None:
    """Attach the report, and fail the step if a data source is not what its refresh left."""
    counts = Counter(each.status for each in (*found, *others))
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    rows = [
        (
            f"[{escaped(each.name)}]({each.link})" if each.link else escaped(each.name),
            f"**{each.status}**" if each.is_wrong else each.status,
            each.compared,
            escaped(each.rows),
            escaped(each.note),
        )
        for each in (*found, *others)
    ]
    heads = ("data source", "status", "compared by", "rows: model / server", "note")
    report = markdown_metadata(heads, rows)
    metadata = {"summary": summary or "none declared", "report": report}
    if wrong := [_described(each) for each in found if each.is_wrong]:
        head = (
            f"{len(wrong)} of {len(found)} data sources are not what their last refresh left, "
            "or could not be looked at:"
        )
        # Another try would find the same.
        raise dg.Failure("\n".join([head, *wrong]), metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@keyed
class AuditTime:
    """When the data sources are compared with their models, without being refreshed."""

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
