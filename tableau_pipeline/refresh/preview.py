"""Preview the next refresh of a data source, by the same code that a refresh uses to decide."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from tableau_pipeline.core.checkpoint import PublishMode, columns_of
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.drift import NoJob
from tableau_pipeline.errors import RefreshError, RefusedError, describe_error
from tableau_pipeline.extracts.checks import spark_name
from tableau_pipeline.extracts.schema import schema_changes, schema_problems
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.metadata.merge import (
    Merge,
    Values,
    change_phrases,
    conflict_phrases,
    is_property,
    merge,
)
from tableau_pipeline.outcome import Code, Refusal, Status, accepts_of, in_words
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.approval import MetadataChange, metadata_changes
from tableau_pipeline.refresh.decide import NoChange, Options, Publish, Refuse, UpdateTables
from tableau_pipeline.refresh.limits import kind_of, saved_plan
from tableau_pipeline.refresh.observe import moves
from tableau_pipeline.refresh.planning import Planned, decision_of, reason_of
from tableau_pipeline.refresh.refresh import plan
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline.refresh.setup import Setup

_DEFAULT_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, and its topic in one word."""

    topic: str
    text: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What the next refresh of a data source would do.

    Attributes:
        rows: the number of rows that the fact table would have; `inserted` and `deleted` count the
            rows of all tables.
        size: the number of bytes that the refresh would send. For a full publish, it is the size of
            the last full publish. None if the size is not known.
        limit: the largest allowed payload in bytes; None if no update is planned.
        notes: further facts for the reader.
        refusals: why the refresh would be refused; empty if it would not be refused.
        is_new: whether the data source would be created.
        columns: the columns that each table would have; None if they are not known.
        metadata: the values of metadata that would be set.
        saved: the plan, in the form that a later refresh can carry out; None if it cannot be saved.
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
    is_new: bool = False
    moves: tuple[str, ...] = ()
    columns: Mapping[str, Sequence[Column]] | None = None
    metadata: tuple[MetadataChange, ...] = ()
    saved: SavedPlan | None = None

    @property
    def accepts(self) -> Sequence[str]:
        """What a user must accept so that the refresh is not refused."""
        return accepts_of(self.refusals)


def preview(setup: Setup, site: TableauSite | None, options: Options = _DEFAULT_OPTIONS) -> Preview:
    """Plan the next refresh of a data source, and return a preview; errors appear in the preview.

    Args:
        site: the session on the site; None to plan from our records alone.
    """
    declaration, waits = setup.declaration, ()
    nothing = Preview(declaration.key, declaration.name, Status.REFUSED, Status.REFUSED)
    try:
        waits = tuple(_open_requests(setup, site))
        planned = plan(setup, options, offline=site is None)
    except RefusedError as error:
        # If the snapshots cannot be reached, ignore the error, and report the refusal.
        with suppress(RefreshError):
            lacking = [model for model in declaration.models if not setup.snapshots.newest(model)]
            if site is None and lacking:
                reason = f"there is no snapshot of {', '.join(lacking)} here"
                nothing = replace(nothing, kind=Status.UNKNOWN, decision=Status.UNKNOWN)
                lacks = (Refusal(reason, Code.NO_SNAPSHOT),)
                return replace(nothing, reason=reason, notes=waits, refusals=lacks)
        return replace(nothing, reason=str(error), notes=waits, refusals=error.refusals)
    except Exception as error:
        setup.log.debug("%s could not be planned", declaration.key, exc_info=error)
        failed = replace(nothing, kind=Status.FAILED, decision=Status.FAILED)
        return replace(failed, reason=describe_error(error), notes=waits)
    result = preview_of(declaration, planned)
    possible = (site.payload_limit if site else None, declaration.payload_limit)
    limit = min(filter(None, possible), default=None) if result.kind is Status.UPDATE else None
    saved = None
    if site and not waits and result.kind is not Status.REFUSED:
        digest, at = setup.declaration_digest, setup.now()
        saved = saved_plan(planned, options, key=declaration.key, digest=digest, at=at)
    return replace(result, limit=limit, notes=(*waits, *result.notes), saved=saved)


def preview_declared(before: Declaration, now: Declaration) -> Preview:
    """Preview the refresh after a change of a declaration, from the two declarations alone.

    The rows of the models and the state of the server are not known. The columns of a table are
    known only if the table has a contract.
    """
    old, new = _contract_columns(before, now), _contract_columns(now, before)
    moved, merged = moves(now, before, name=before.name), None
    with suppress(RefusedError):
        before_values = _declared_values(before)
        merged = merge(_declared_values(now), [before_values], before_values, on_conflict="keep")
    refusals = tuple(schema_problems(new, old, now.on_schema_change))
    result = Preview(
        now.key,
        now.name,
        Status.REFUSED,
        Status.REFUSED,
        reason=in_words(refusals),
        tables=len(now.tables),
        notes=tuple(
            Note("metadata", phrase) for phrase in (change_phrases(merged) if merged else ())
        ),
        refusals=refusals,
        moves=tuple(moved),
        columns=_known_columns(now),
        metadata=metadata_changes(merged),
    )
    if refusals:
        return result
    kind, plan = _plan_by_declarations(before, now, [*schema_changes(new, old)], merged)
    is_still = isinstance(plan, NoChange)
    return replace(
        result,
        kind=Status.MOVE if is_still and moved else kind,
        decision=decision_of(plan, moved),
        reason=reason_of(plan, moved),
        size=0 if is_still else None,
    )


def _known_columns(declaration: Declaration) -> Mapping[str, Sequence[Column]] | None:
    """Return the columns of each table by its contract; None if any table has no contract."""
    if not all(table.contract for table in declaration.tables):
        return None
    return {
        table.name: [
            declaration.types.apply(replace(column, type=spark_name(column.type)))
            for column in table.contract
        ]
        for table in declaration.tables
    }


def _plan_by_declarations(
    before: Declaration, now: Declaration, columns: Sequence[str], merged: Merge | None
) -> tuple[Status, NoChange | UpdateTables | Publish]:
    """Return the kind of the refresh, and a plan; `columns` says how the contracts changed."""
    is_redeclared = before.digest() != now.digest()
    edits = [merged.phrase] if merged and merged.phrase else []
    for reason in (*columns, *(["the declaration changed"] if is_redeclared else ()), *edits):
        return Status.PUBLISH, Publish(PublishMode.OVERWRITE, f"full publish: {reason}")
    for table in _reordered_tables(before, now):
        reason = f"full publish: the order of columns changed in {table}"
        return Status.PUBLISH, Publish(PublishMode.REPLACE, reason)
    rows_before = {table.name: _row_settings(table) for table in before.tables}
    if tables := [
        table.name for table in now.tables if _row_settings(table) != rows_before.get(table.name)
    ]:
        return Status.UPDATE, UpdateTables({}, f"new content in {', '.join(tables)}")
    changes_properties = merged and any(map(is_property, merged.changes))
    kind = Status.METADATA if changes_properties else Status.UNCHANGED
    return kind, NoChange("the changed declaration by itself changes no rows")


def _reordered_tables(before: Declaration, now: Declaration) -> Iterator[str]:
    """Yield the tables whose contracts list the same columns in a new order."""
    columns_before = _contract_columns(before, now)
    for table, columns in _contract_columns(now, before).items():
        if columns and table in columns_before and columns != columns_before[table]:
            yield table


def _declared_values(declaration: Declaration) -> Values:
    """Return the declared metadata. If a table has no contract, use only its declared fields."""
    return declaration.declared_values(
        {
            table.name: [column.name for column in table.contract or table.fields]
            for table in declaration.tables
        }
    )


def _row_settings(table: Table) -> object:
    """Return the declared settings that decide which rows a table has."""
    return table.model, table.source, table.retain


def _contract_columns(
    declaration: Declaration, other: Declaration
) -> Mapping[str, Sequence[Column]]:
    """Return the columns of each table by its contract.

    If both declarations have a table, but only one has a contract for it, the columns cannot be
    compared, and are ().

    Args:
        other: the other declaration of the same data source.
    """
    other_contracts = {table.name: table.contract for table in other.tables}
    return {
        table.name: tuple(map(declaration.types.apply, table.contract))
        if other_contracts.get(table.name) or table.name not in other_contracts
        else ()
        for table in declaration.tables
    }


def preview_of(declaration: Declaration, planned: Planned) -> Preview:
    """Return the preview of a plan."""
    before, extract = planned.base.checkpoint, planned.extract
    fact = planned.desired.get(declaration.fact_table)
    # Take the size of the last full publish, because a preview of a publish builds no file.
    kind, size = Status.PUBLISH, before.size if before else None
    match planned.plan:
        case NoChange():
            kind, size = Status.MOVE if planned.moves else kind_of(planned), 0
        case UpdateTables():
            kind, size = Status.UPDATE, extract.size if extract else None
        case Refuse():
            kind, size = Status.REFUSED, None
    return Preview(
        key=declaration.key,
        name=declaration.name,
        kind=kind,
        decision=planned.decision,
        reason=planned.reason,
        is_new=isinstance(planned.plan, Publish) and planned.plan.mode is PublishMode.CREATE,
        inserted=sum(counts.inserted for counts in planned.tables.values()),
        deleted=sum(counts.deleted for counts in planned.tables.values()),
        rows=fact.content.rows if fact else 0,
        tables=len(declaration.tables),
        size=size,
        notes=tuple(_notes(planned)),
        refusals=planned.plan.refusals if isinstance(planned.plan, Refuse) else (),
        moves=tuple(planned.moves),
        columns=columns_of(planned.desired),
        metadata=metadata_changes(planned.merged),
    )


_NO_JOB = MappingProxyType(
    {
        NoJob.GONE: "which the server no longer has",
        NoJob.HIDDEN: "which this user may not ask for",
    }
)


def _open_requests(setup: Setup, site: TableauSite | None) -> Iterator[Note]:
    """Yield a note for each request with an unknown outcome, on which the next refresh depends."""
    for intent in setup.journal.history().intents:
        if intent.outcome:
            continue
        sent = f"its {intent.action} of {intent.recorded_at:%Y-%m-%d %H:%M} UTC"
        if not intent.job_id:
            text = f"{sent} was cut off before its job was known: a refresh first looks for the job"
            yield Note("waits", text)
        elif site is None:
            text = f"{sent} became job {intent.job_id}, and how that ended is not known here"
            yield Note("waits", text)
        elif isinstance(job := site.job(intent.job_id), NoJob):
            text = f"{sent} became job {intent.job_id}, {_NO_JOB[job]}"
            yield Note("waits", text)
        elif job.outcome is None:
            text = f"its {intent.action} still runs as job {intent.job_id}: plan again after that"
            yield Note("waits", text)


def _notes(planned: Planned) -> Iterator[Note]:
    base, merged, plan = planned.base, planned.merged, planned.plan
    is_refused = isinstance(plan, Refuse)
    if base.checkpoint:
        before = columns_of(base.checkpoint.tables)
        for change in schema_changes(columns_of(planned.desired), before):
            yield Note("schema", change)
    if merged and not is_refused:
        yield from (Note("metadata", change) for change in change_phrases(merged))
        yield from (Note("conflict", conflict) for conflict in conflict_phrases(merged))
    for table, counts in planned.tables.items():
        if len(planned.tables) > 1 or counts.whole:
            reason = f" (all rows: {counts.whole})" if counts.whole else ""
            yield Note("table", f"{table}: +{counts.inserted:,} -{counts.deleted:,} rows{reason}")
    for warning in (*base.moved, *planned.warnings):
        yield Note("warning", warning)
    overwrites = isinstance(plan, Publish) and plan.mode is PublishMode.OVERWRITE
    overwrites = overwrites and not plan.merged
    if base.left and base.is_edited and base.metadata and not is_refused:
        work = "; ".join(f"{kind} {', '.join(names)}" for kind, names in base.metadata.work.items())
        text = work or "what others changed in its metadata"
        yield Note("dropped" if overwrites else "kept", text)
