"""What the next refresh of a data source would do: it decides itself, and does nothing."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

from tableau_pipeline.core.checkpoint import Checkpoint, PublishMode, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import NoJob
from tableau_pipeline.core.journal import Recovered, read_history
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefreshError, RefusedError, told
from tableau_pipeline.extracts.schema import schema_changes
from tableau_pipeline.metadata.merge import (
    Values,
    change_phrases,
    conflict_phrases,
    is_about,
    merge,
)
from tableau_pipeline.outcome import Code, Refusal, Status, accepts_of
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.observe import recorded
from tableau_pipeline.refresh.plan import (
    Changed,
    Facts,
    NoChange,
    Options,
    Publish,
    Refuse,
    UpdateTables,
    decide,
)
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.report import Report
from tableau_pipeline.refresh.setup import Setup


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, and what it is about in a word."""

    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the next refresh of a data source would do.

    Attributes:
        rows: that its fact table would hold then; `inserted` and `deleted` are of all tables.
        size: bytes that would be sent; for a full publish, those of the last one. None if that is
            not known.
        limit: bytes that a payload may have; None if no update is planned.
        notes: all that a reader should know beside.
        refusals: why it would be refused; empty if it would not be.
    """

    key: str
    name: str
    kind: Status
    decision: str
    reason: str = ""
    inserted: int = 0
    deleted: int = 0
    rows: int = 0
    tables: int = 1
    size: int | None = None
    limit: int | None = None
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def accepts(self) -> Sequence[str]:
        """What a run may accept to go on all the same."""
        return accepts_of(each.as_json() for each in self.refusals)


def foresee(setup: Setup, site: TableauSite | None) -> Foreseen:
    """Let the refresh of a data source tell what it would do.

    Args:
        site: None to ask no server: what is there is then taken from our records.
    """
    declaration, waits = setup.declaration, ()
    nothing = Foreseen(declaration.key, declaration.name, Status.REFUSED, Status.REFUSED)
    try:
        waits = tuple(_waits(setup, site))
        report = refresh(setup, Options(dry_run=True, offline=site is None))
    except RefusedError as error:
        # As far as they can be looked for.
        with suppress(RefreshError):
            lacking = [each for each in declaration.models if not setup.snapshots.newest(each)]
            if site is None and lacking:
                reason = f"there is no snapshot of {', '.join(lacking)} here"
                nothing = replace(nothing, kind=Status.UNKNOWN, decision=Status.UNKNOWN)
                lacks = (Refusal(reason, Code.NO_SNAPSHOT),)
                return replace(nothing, reason=reason, notes=waits, refusals=lacks)
        return replace(nothing, reason=str(error), notes=waits, refusals=error.refusals)
    except Exception as error:
        setup.log.debug("%s could not be planned", declaration.key, exc_info=error)
        failed = replace(nothing, kind=Status.FAILED, decision=Status.FAILED)
        return replace(failed, reason=told(error), notes=waits)
    found = foreseen(declaration, report)
    possible = (site.payload_limit if site else None, declaration.payload_limit)
    limit = min(filter(None, possible), default=None) if found.kind is Status.UPDATE else None
    return replace(found, limit=limit, notes=(*waits, *found.notes))


def foresee_declared(before: Declaration, now: Declaration) -> Foreseen:
    """What follows from a changed declaration alone, if its models stayed as they are.

    They are taken to have the columns of their contracts, and the data source to be as `before`
    declares it.
    """
    checkpoint = Checkpoint(
        refresh=0,
        server="",
        site="",
        project=before.project_path,
        name=before.name,
        luid="as declared before",
        updated_at=datetime.now(UTC),
        declaration=before.digest(),
        tables=_assumed(before, now),
        metadata="as it was left",
    )
    base = recorded(now, Recovered.at(checkpoint))
    desired = _assumed(now, before)
    merged = None
    with suppress(RefusedError):
        was = _wanted(before)
        merged = merge(_wanted(now), [was], was, on_conflict="keep")
    plan = decide(Facts(now, desired, base, metadata=merged), Options())
    if isinstance(plan, NoChange):
        plan = NoChange("what is declared otherwise changes no rows by itself")
    if isinstance(plan, Changed):
        plan = UpdateTables({}, f"new content in {', '.join(plan.tables)}")
    moves = base.move.phrases if base.move else {}
    report = Report(plan, base=base, moves=moves, desired=desired)
    changes = change_phrases(merged) if merged else ()
    notes = tuple(Note("metadata", each) for each in changes)
    return replace(foreseen(now, report), rows=0, notes=notes)


def _wanted(declaration: Declaration) -> Values:
    """Its metadata; of a table without a contract, only the declared fields are known."""
    return declaration.wanted(
        {
            table.name: [each.name for each in table.contract or table.fields]
            for table in declaration.tables
        }
    )


def _assumed(declaration: Declaration, other: Declaration) -> dict[str, TableContent]:
    """What its tables hold; nothing tells the columns that only one of the two has a contract of.

    Args:
        other: what it is compared with.
    """
    theirs = {table.name: table.contract for table in other.tables}
    found = {}
    for table in declaration.tables:
        rows = repr((table.model, table.source, table.retain))
        content = Fingerprint(
            # The same number everywhere, for which no guard refuses anything.
            rows=max(each.guard.min_rows for each in (*declaration.tables, *other.tables)),
            hash_sum=int(hashlib.sha256(rows.encode()).hexdigest()[:16], 16),
        )
        columns = table.contract if theirs.get(table.name) or table.name not in theirs else ()
        found[table.name] = TableContent(
            model=table.model,
            version=0,
            columns=tuple(map(declaration.types.apply, columns)),
            all_rows=content,
            content=content,
        )
    return found


def foreseen(declaration: Declaration, report: Report) -> Foreseen:
    """What a dry run tells in its report."""
    before = report.base.checkpoint if report.base else None
    fact = report.desired.get(declaration.fact_table)
    # The file of a full publish is not built to measure it.
    kind, size = Status.PUBLISH, before.size if before else None
    match report.plan:
        case NoChange():
            changes = report.merged.changes if report.merged else ()
            others = Status.METADATA if any(map(is_about, changes)) else Status.UNCHANGED
            kind, size = Status.MOVE if report.moves else others, 0
        case UpdateTables():
            kind, size = Status.UPDATE, report.extract.size if report.extract else None
        case Refuse():
            kind, size = Status.REFUSED, None
    return Foreseen(
        key=declaration.key,
        name=declaration.name,
        kind=kind,
        decision=report.decision,
        reason=report.reason,
        inserted=sum(each.inserted for each in report.tables.values()),
        deleted=sum(each.deleted for each in report.tables.values()),
        rows=fact.content.rows if fact else 0,
        tables=len(declaration.tables),
        size=size,
        notes=tuple(_notes(report)),
        refusals=report.plan.refusals if isinstance(report.plan, Refuse) else (),
    )


_NO_JOB = MappingProxyType(
    {
        NoJob.GONE: "which the server no longer has",
        NoJob.HIDDEN: "which this user may not ask for",
    }
)


def _waits(setup: Setup, site: TableauSite | None) -> Iterator[Note]:
    """On which jobs of the server the answer depends."""
    for intent in read_history(setup.journal.records()).intents:
        if intent.outcome:
            continue
        sent = f"its {intent.action} of {intent.recorded_at:%Y-%m-%d %H:%M} UTC"
        if not intent.job_id:
            text = f"{sent} was cut off before its job was known: a refresh first looks for it"
            yield Note("waits", text)
        elif site is None:
            text = f"{sent} became job {intent.job_id}, and how that ended is not known here"
            yield Note("waits", text)
        elif isinstance(job := site.job(intent.job_id), NoJob):
            text = f"{sent} became job {intent.job_id}, {_NO_JOB[job]}"
            yield Note("waits", text)
        elif job.outcome is None:
            text = f"its {intent.action} still runs as job {intent.job_id}: plan again then"
            yield Note("waits", text)


def _notes(report: Report) -> Iterator[Note]:
    base = report.base
    if base is None:
        return
    if base.checkpoint:
        for change in schema_changes(report.desired, base.checkpoint.tables):
            yield Note("schema", change)
    merged = report.merged
    if merged and not isinstance(report.plan, Refuse):
        yield from (Note("metadata", change) for change in change_phrases(merged))
        yield from (Note("conflict", conflict) for conflict in conflict_phrases(merged))
    for table, counts in report.tables.items():
        if len(report.tables) > 1 or counts.whole:
            why = f" (all rows: {counts.whole})" if counts.whole else ""
            yield Note("table", f"{table}: +{counts.inserted:,} -{counts.deleted:,} rows{why}")
    for each in (*base.moved, *report.warnings):
        yield Note("warning", each)
    plan = report.plan
    overwrites = isinstance(plan, Publish) and plan.mode is PublishMode.OVERWRITE
    overwrites = overwrites and not plan.merged
    if base.left and base.is_edited and base.metadata and not isinstance(report.plan, Refuse):
        work = "; ".join(f"{kind} {', '.join(names)}" for kind, names in base.metadata.work.items())
        text = work or "what others changed in its metadata"
        yield Note("dropped" if overwrites else "kept", text)
