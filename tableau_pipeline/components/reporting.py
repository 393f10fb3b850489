"""The checks of a refresh, shown as Dagster's asset checks of the published asset.

They are part of the refresh itself: it stops at a failed check whether the check is selected or
not.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from tableau_pipeline.components.freshness import DATA_AGE
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.types import PRODUCTS, hyper_type
from tableau_pipeline.metadata.merge import conflict_phrases
from tableau_pipeline.metadata.merge import rows as field_rows
from tableau_pipeline.outcome import Check, Refusal, by_check
from tableau_pipeline.refresh.plan import Publish, Refuse, UpdateTables
from tableau_pipeline.refresh.reconcile import ReconciliationError
from tableau_pipeline.refresh.report import Report, compared, comparison

_NOT_REACHED = "Not checked, as the refresh was refused before."
# The metadata of such a check: what it said when it was reached.
_SAID_BEFORE = "said before"
_ONLY_BUILT = "Not checked: only the file was built, and not compared with what is published"
RECONCILIATION, METADATA = "reconciliation", "metadata"
_TO_SETTLE = (
    "To settle it, declare what is on the server, or run once with accept: [metadata], which "
    "leaves it and reports it no more"
)
_COUNTED = {"server": "server", "download": "downloaded file"}
_BEFORE = {
    Check.GUARD: "No table is empty or suddenly small (`guard`); otherwise nothing is published.",
    Check.KEYS: "Keys that a relationship or a policy needs are unique and not NULL; otherwise "
    "nothing is published.",
    Check.SCHEMA: "The columns can be published, and fit `contract` and `on_schema_change`; "
    "otherwise nothing is published.",
}


def check_specs(declaration: Declaration, *, has_deadline: bool = False) -> list[dg.AssetCheckSpec]:
    """Return the checks that a data source always has, and that of a deadline."""
    described = {check.value: text for check, text in _BEFORE.items()}
    if declaration.reconcile:
        described[RECONCILIATION] = "The published data, counted or read back, equals the models."
    # What models say of their columns is known only once they have run.
    described[METADATA] = "The server says what is declared; what people changed is listed."
    if has_deadline:
        text = "The published version of every model meets `freshness`, and not only the refresh."
        described[DATA_AGE] = text
    published, stopping = dg.AssetKey.from_user_string(declaration.key), {*map(str, Check)}
    return [
        dg.AssetCheckSpec(name, asset=published, description=text, blocking=name in stopping)
        for name, text in described.items()
    ]


def check_results(
    instance: dg.DagsterInstance, declaration: Declaration, report: Report
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results of a refresh that was not stopped, and of a dry run."""
    if isinstance(report.plan, Refuse):
        # A dry run reports a refusal but does not fail.
        severity = dg.AssetCheckSeverity.WARN
        yield from _refused(instance, declaration, report.plan.refusals, severity)
        return
    for check in Check:
        problem = _ONLY_BUILT if report.plan is None and check is not Check.KEYS else None
        rows = None if problem or check is not Check.GUARD else _rows(declaration, report)
        yield _result(declaration, check.value, problem, metadata=rows)
    if declaration.reconcile:
        yield _reconciliation(declaration, report)
    conflicts = conflict_phrases(report.merged) if report.merged else []
    conflicts += [_TO_SETTLE] if conflicts else []
    problem = "\n".join(dict.fromkeys([*report.problems, *conflicts]))
    yield _result(declaration, METADATA, problem or None, metadata=_field_table(report))


def failed_checks(
    instance: dg.DagsterInstance, declaration: Declaration, error: RefreshError
) -> Iterator[dg.AssetCheckResult]:
    """Yield the failed checks that stopped a refresh."""
    severity = dg.AssetCheckSeverity.ERROR
    if isinstance(error, RefusedError):
        yield from _refused(instance, declaration, error.refusals, severity)
    if isinstance(error, ReconciliationError):
        rows = _metadata("rows found", error.found.rows)
        yield _result(declaration, RECONCILIATION, str(error), severity=severity, metadata=rows)


def _refused(
    instance: dg.DagsterInstance,
    declaration: Declaration,
    refusals: Sequence[Refusal],
    severity: dg.AssetCheckSeverity,
) -> Iterator[dg.AssetCheckResult]:
    """Yield the failed checks of a refusal, and all others as they were.

    It leaves what is published as it was, and for Dagster, a check without a result has failed.
    """
    found: Mapping[str, str] = {
        check.value: problem for check, problem in by_check(refusals).items()
    }
    evaluated = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
    for spec in check_specs(declaration):
        if problem := found.get(spec.name):
            yield _result(declaration, spec.name, problem, severity=severity)
            continue
        last = instance.event_log_storage.get_asset_check_execution_history(
            spec.key, limit=1, status=evaluated
        )
        before = evaluation(last[0]) if last else None
        said = _last_words(before)
        note = f"{_NOT_REACHED} {said}".strip()
        # A warning, unless it passed.
        fails = before is None or not before.passed
        kept = {_SAID_BEFORE: said}
        yield _result(declaration, spec.name, note if fails else None, note=note, metadata=kept)


def _last_words(before: dg.AssetCheckEvaluation | None) -> str:
    """Return what a check said when it was last reached."""
    if before is None:
        return ""
    kept = before.metadata.get(_SAID_BEFORE)
    return str(kept.value) if kept else before.description or ""


def evaluation(record: AssetCheckExecutionRecord | None) -> dg.AssetCheckEvaluation | None:
    """Return what a check found, if it has come to an end."""
    event = record.event.dagster_event if record and record.event else None
    is_ended = event and event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION
    return event.asset_check_evaluation_data if event and is_ended else None


def _reconciliation(declaration: Declaration, report: Report) -> dg.AssetCheckResult:
    found = report.reconciliation
    if found is None or found.skipped:
        known = report.checkpoint.unreconciled if report.checkpoint else "nothing was published"
        why = found.skipped if found else known
        problem = f"Not checked: {why}" if why else None
        return _result(declaration, RECONCILIATION, problem, note=comparison(report))
    # A difference never comes this far: it raises an error, which fails the check.
    metadata = {
        **_metadata("rows found", found.rows),
        **{f"counted by/{name}": _COUNTED[way] for name, way in found.by.items()},
        "seconds": report.seconds.get("compare", 0.0),
    }
    return _result(declaration, RECONCILIATION, metadata=metadata)


def _result(
    declaration: Declaration,
    name: str,
    problem: str | None = None,
    *,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    metadata: Mapping[str, Any] | None = None,
    note: str | None = None,
) -> dg.AssetCheckResult:
    """Return the result of a check that passed unless there is a problem."""
    return dg.AssetCheckResult(
        asset_key=dg.AssetKey.from_user_string(declaration.key),
        check_name=name,
        passed=problem is None,
        description=problem or note,
        metadata=metadata,
        severity=severity,
    )


def _rows(declaration: Declaration, report: Report) -> dict[str, str]:
    """Return what the guard looks at: the rows, and their change beside its limit."""
    found, rows = {}, report.checkpoint.rows if report.checkpoint else {}
    for table in declaration.tables if rows else ():
        now, before = rows[table.name], report.before.get(table.name)
        limit = f"(limit: {-table.guard.max_shrink:.0%})"
        found[table.name] = f"{now:,}" + (f", {now / before - 1:+.1%} {limit}" if before else "")
    return _metadata("rows", found)


def _metadata(what: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{what}/{name}": each for name, each in found.items()}


def _column_metadata(
    declaration: Declaration, checkpoint: Checkpoint, report: Report
) -> dict[str, Any]:
    """Return schema and lineage; with several tables, columns are named "table.column"."""
    schema, lineage = [], {}
    for table in declaration.tables:
        model = dg.AssetKey.from_user_string(table.model)
        prefix = f"{table.name}." if len(declaration.tables) > 1 else ""
        for column in checkpoint.tables[table.name].columns:
            path = ("field", declaration.published_name(table.name), column.name, "description")
            description = report.wanted.get(path)
            name = f"{prefix}{column.name}"
            schema.append(dg.TableColumn(name, hyper_type(column, table=""), description))
            lineage[name] = [dg.TableColumnDep(model, column.name)]
    return {
        "dagster/column_schema": dg.TableSchema(columns=schema),
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
    }


def _field_table(report: Report) -> dict[str, Any]:
    """Return the declared metadata beside what the server held before, if there is any."""
    merged, is_sent = report.merged, report.checkpoint is not None
    if merged is None or not (found := field_rows(report.wanted, merged)):
        return {}
    rows = [
        [*map(escaped, (*cells, fate.replace("to be ", "") if is_sent else fate))]
        for *cells, fate in found
    ]
    return {"fields": markdown_table(("", "declared", "on the server before", ""), rows)}


def _plan(declaration: Declaration, report: Report) -> dict[str, Any]:
    """Return the decision, its reason, and a row for each table; nothing without a decision."""
    if report.plan is None:
        return {}
    head = f"**{report.decision}**: {escaped(report.reason)}"
    if isinstance(report.plan, Refuse):
        return {"plan": dg.MetadataValue.md(head)}
    rows = []
    for table in declaration.tables:
        known = report.checkpoint.tables.get(table.name) if report.checkpoint else None
        shipped = report.tables.get(table.name)
        changes = (f"{shipped.deleted:,}", f"{shipped.inserted:,}") if shipped else ("", "")
        count = f"{known.content.rows:,}" if known else ""
        rows.append((escaped(table.name), count, *changes, _sent(table.name, report)))
    heads = ("table", ">rows", ">deleted", ">inserted", "published")
    return {"plan": markdown_table(heads, rows, before=f"{head}\n\n")}


def _sent(table: str, report: Report) -> str:
    match report.plan:
        case Publish():
            return "all rows"
        case UpdateTables(tables) if table in tables:
            shipped = report.tables.get(table)
            whole = shipped.whole if shipped else None
            return f"all rows: {escaped(whole)}" if whole else "changed rows"
        case _:
            return "nothing"


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, before: str = ""
) -> dg.MarkdownMetadataValue:
    """Return a Markdown table; a heading that begins with ">" aligns its column to the right."""
    ruler = ["---:" if head.startswith(">") else "---" for head in heads]
    cells = ([head.lstrip(">") for head in heads], ruler, *rows)
    return dg.MetadataValue.md(before + "\n".join(f"| {' | '.join(each)} |" for each in cells))


def escaped(text: str) -> str:
    """Return a text as it is shown in a cell of a Markdown table."""
    # The backslash comes first, or it would escape the escapes of the others.
    for character in "\\|*_`<[":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


def extract_result(declaration: Declaration, report: Report) -> dg.MaterializeResult:
    """Return the result for the built file: the whole data source, or an update's payload."""
    extract = report.extract
    if extract is None:
        raise ValueError("no extract was built")
    # A payload has only the tables that changed.
    rows = extract.rows.get(declaration.published_name(declaration.fact_table), 0)
    return dg.MaterializeResult(
        asset_key=dg.AssetKey.from_user_string(f"{declaration.key}_extract"),
        metadata={
            "content": "the changes of an update" if report.tables else "the full data source",
            "dagster/row_count": rows,
            "MB": _in_megabytes(extract.size),
            "seconds": report.seconds["build"],
            "opens in": PRODUCTS[extract.version],
            # A file that was published does not outlive the run.
            **({"dagster/uri": extract.path.as_uri()} if report.plan is None else {}),
        },
    )


def published_result(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    declaration: Declaration,
    report: Report,
) -> dg.MaterializeResult:
    """Return the result for the refreshed data source; the journal records its state.

    Dagster plots each number, so there are only those that a person wants to see as a line, and
    every refresh has all of them. `details` has what programs read.
    """
    checkpoint, remote = report.checkpoint, report.remote
    if checkpoint is None or remote is None:
        raise ValueError("no data source was refreshed")
    limit = (checkpoint.size or 0) * declaration.republish.growth
    grown = round(100 * checkpoint.grown / limit, 1) if limit else 0.0
    times = {"content last changed": checkpoint.changed_at, "last compared": checkpoint.compared_at}
    # The UI keeps this order: what most readers look for comes first, what explains it last.
    metadata: dict[str, Any] = {
        "summary": report.summary,
        **_plan(declaration, report),
        "where the time went": _times(context, report),
        "dagster/row_count": checkpoint.rows[declaration.fact_table],
        "rows sent": _rows_sent(report),
        "MB sent": _in_megabytes(report.sent),
        "seconds": report.seconds["total"],
        "growth of the file, % of its limit": grown,
        **({"data source": dg.MetadataValue.url(remote.link)} if remote.link else {}),
        **{name: dg.MetadataValue.timestamp(time) for name, time in times.items() if time},
        "comparison": comparison(report),
        **({"warnings": "\n".join(report.warnings)} if report.warnings else {}),
        **_field_table(report),
        **_column_metadata(declaration, checkpoint, report),
        **_decision(report),
        "details": {
            "full": isinstance(report.plan, Publish),
            "compared": compared(report)[0],
            "rows": dict(checkpoint.rows),
            "deleted": {name: each.deleted for name, each in report.tables.items()},
            "inserted": {name: each.inserted for name, each in report.tables.items()},
            "seconds": report.seconds,
            "bytes sent": report.sent,
            "bytes of a full publish": checkpoint.size,
            "updates since the last full publish": checkpoint.updates,
            "updated at": remote.updated_at.isoformat(),
            "job": report.job_id,
            "luid": remote.luid,
        },
    }
    key, version = dg.AssetKey.from_user_string(declaration.key), _data_version(checkpoint)
    return dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=version)


@dataclass(frozen=True, slots=True)
class Ended:
    """A refresh that has ended, as Dagster recorded it.

    Attributes:
        decision: one of `outcome.STOPPED` if nothing was refreshed.
        rows: of the fact table; None if nothing was refreshed, like the bytes.
        deleted: rows of all tables that an update has deleted; `inserted` likewise.
        bytes_saved: those that were not sent, compared with a full publish.
        compared: how its rows were compared with the models, without why they were not.
        is_full: it was a full publish.
        seconds: by phase.
        accepts: what a run may accept instead of refusing it.
        models_first: it did not begin, as a step before it failed.
    """

    at: datetime
    run_id: str
    decision: str
    reason: str
    rows: int | None = None
    deleted: int = 0
    inserted: int = 0
    bytes_sent: int | None = None
    bytes_saved: int | None = None
    compared: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    accepts: Sequence[str] = ()
    models_first: bool = False
    is_full: bool = False


def ended(event: dg.EventLogEntry | None) -> Ended | None:
    """Read what `published_result` wrote of a refresh."""
    materialization = event.asset_materialization if event else None
    if event is None or materialization is None:
        return None
    metadata: dict[str, Any] = {name: each.value for name, each in materialization.metadata.items()}
    details = metadata.get("details", {})
    sent, full = details.get("bytes sent"), details.get("bytes of a full publish")
    return Ended(
        at=datetime.fromtimestamp(event.timestamp, UTC),
        run_id=event.run_id,
        # It was materialized by hand, or by other code.
        decision=metadata.get("decision", "unknown"),
        reason=metadata.get("reason", ""),
        rows=metadata.get("dagster/row_count"),
        deleted=sum(details.get("deleted", {}).values()),
        inserted=sum(details.get("inserted", {}).values()),
        bytes_sent=sent,
        bytes_saved=max(full - (sent or 0), 0) if full else None,
        compared=details.get("compared", ""),
        is_full=details.get("full", False),
        seconds=details.get("seconds", {}),
    )


def _rows_sent(report: Report) -> int:
    """Return how many rows a refresh inserted or deleted; a full publish sends them all.

    How many of those a full publish has changed, nobody counts.
    """
    if isinstance(report.plan, Publish) and report.extract:
        return sum(report.extract.rows.values())
    return sum(max(each.deleted, each.inserted) for each in report.tables.values())


_WIDTH = 30


def _times(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, report: Report
) -> dg.MarkdownMetadataValue:
    """Show where the seconds went, from the request of the run to the end of the refresh."""
    seconds, record = report.seconds, context.instance.get_run_record_by_id(context.run.run_id)
    began = time.time() - seconds["total"]
    started = record.start_time or began if record else began
    requested = record.create_timestamp.timestamp() if record else started
    upload, job, compare = (seconds.get(each, 0.0) for each in ("upload", "job", "compare"))
    spent = {
        "queue of Dagster": max(started - requested, 0.0),
        "models, start": max(began - started, 0.0),
        "plan, build": seconds["total"] - upload - job - compare,
        "upload": upload,
        "job of the server": job,
        "comparison": compare,
    }
    total = sum(spent.values()) or 1.0
    rows = [(n, f"{s:.1f} s", "█" * round(_WIDTH * s / total)) for n, s in spent.items()]
    return markdown_table(("", ">", ""), rows)


def tag_run(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    declaration: Declaration,
    decision: str,
    *,
    dry_run: bool = False,
) -> None:
    """Note the decision on a data source as a tag of the run, to find its runs by."""
    tags = {run_tag(declaration.key): f"dry run: {decision}" if dry_run else str(decision)}
    context.instance.add_run_tags(context.run.run_id, tags)


def dry_run_observation(declaration: Declaration, report: Report) -> dg.AssetObservation:
    """Return the observation that reports what a refresh would do."""
    metadata = {"summary": report.summary, **_plan(declaration, report), **_decision(report)}
    key = dg.AssetKey.from_user_string(declaration.key)
    return dg.AssetObservation(key, description="Dry run", metadata=metadata)


_LONGEST_TAG = 63


def run_tag(key: str) -> str:
    """Return the run tag that has the decision on a data source, to find its runs by."""
    # Dagster allows one slash and 63 characters in a tag key. A digest tells keys apart that are
    # longer, or equal but for a slash.
    text = key.replace("/", ".")
    if len(text) > _LONGEST_TAG or "." in key:
        text = f"{text[: _LONGEST_TAG - 9]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return f"tableau/{text}"


def _decision(report: Report) -> dict[str, str]:
    return {"decision": report.decision, "reason": report.reason} if report.plan else {}


def _in_megabytes(size: int) -> float:
    """Convert bytes to megabytes of 10^6 bytes, to be plotted."""
    return round(size / 1e6, 3)


def _data_version(checkpoint: Checkpoint) -> dg.DataVersion:
    """Return 16 hex digits that are equal for equal published contents."""
    tables = sorted(checkpoint.tables.items())
    content = [f"{name} {each.columns} {each.content} {each.cutoff}" for name, each in tables]
    text = "\n".join([checkpoint.declaration, *content])
    return dg.DataVersion(hashlib.sha256(text.encode()).hexdigest()[:16])
