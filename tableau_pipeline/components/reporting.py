"""Report refreshes in Dagster by asset checks, materializations, observations and run tags.

The refresh itself carries out the blocking checks and the reconciliation. If one of them finds an
error, the refresh fails, even if the run does not select this check.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from tableau_pipeline.components.freshness import DATA_AGE
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.dagster_internals import AssetCheckExecutionRecord, check_history
from tableau_pipeline.errors import HeldError, RefreshError, RefusedError
from tableau_pipeline.hyper.types import PRODUCTS, hyper_type
from tableau_pipeline.metadata.merge import Values, conflict_phrases
from tableau_pipeline.metadata.merge import metadata_rows as field_rows
from tableau_pipeline.outcome import Check, Refusal, by_check
from tableau_pipeline.refresh.decide import Publish, Refuse, UpdateTables
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.reconcile import ReconciliationError
from tableau_pipeline.refresh.report import Built, Done, Refreshed, compared, comparison

_NOT_REACHED = "Not checked, because the refresh stopped earlier."
_ONLY_BUILT = "Not checked: only the file was built, and not compared with what is published"
RECONCILIATION, METADATA = "reconciliation", "metadata"
_TO_SETTLE = (
    "To settle the conflict, declare the value that the server has. Or run once with accept: "
    "[metadata]: then the server keeps its value, and the conflict is no longer reported"
)
_COUNTED = {"server": "server", "download": "downloaded file"}
_DESCRIPTIONS = {
    Check.GUARD: "No table is empty or suddenly small (`guard`); otherwise nothing is published.",
    Check.KEYS: "Keys that a relationship or a policy needs are unique and not NULL; otherwise "
    "nothing is published.",
    Check.SCHEMA: "The columns can be published, and fit `contract` and `on_schema_change`; "
    "otherwise nothing is published.",
}


def check_specs(declaration: Declaration, *, has_deadline: bool = False) -> list[dg.AssetCheckSpec]:
    """Return the specs of the checks. `has_deadline` adds the check of the data's age."""
    descriptions = {check.value: text for check, text in _DESCRIPTIONS.items()}
    if declaration.reconcile:
        descriptions[RECONCILIATION] = (
            "The published data, counted or read back, equals the models."
        )
    # Add this check even if no metadata is declared, because a later run of a model may add column
    # comments, which refreshes publish, too.
    descriptions[METADATA] = "The server has the declared metadata. Changes by people are listed."
    if has_deadline:
        text = "The published version of every model that `freshness` covers is fresh enough."
        descriptions[DATA_AGE] = text
    asset_key, blocking = dg.AssetKey.from_user_string(declaration.key), {*map(str, Check)}
    return [
        dg.AssetCheckSpec(name, asset=asset_key, description=text, blocking=name in blocking)
        for name, text in descriptions.items()
    ]


def check_results(
    instance: dg.DagsterInstance, declaration: Declaration, done: Done
) -> Iterator[dg.AssetCheckResult]:
    """Yield the check results of a successful refresh, a dry run, or a build."""
    if isinstance(done, Planned) and isinstance(done.plan, Refuse):
        # A dry run reports a refusal, but does not fail.
        severity = dg.AssetCheckSeverity.WARN
        yield from _refused_checks(instance, declaration, done.plan.refusals, severity)
        return
    for check in Check:
        is_skipped = isinstance(done, Built) and check is not Check.KEYS
        has_rows = isinstance(done, Refreshed) and check is Check.GUARD
        rows = _guard_metadata(declaration, done) if has_rows else None
        problem = _ONLY_BUILT if is_skipped else None
        yield _result(declaration, check.value, problem, metadata=rows)
    if declaration.reconcile:
        yield (
            _reconciliation(declaration, done)
            if isinstance(done, Refreshed)
            else _result(declaration, RECONCILIATION, "Not checked: nothing was published")
        )
    yield _metadata_check(declaration, done)


def _metadata_check(declaration: Declaration, done: Done) -> dg.AssetCheckResult:
    if isinstance(done, Built):
        return _result(declaration, METADATA)
    conflicts = conflict_phrases(done.merged) if done.merged else []
    conflicts += [_TO_SETTLE] if conflicts else []
    problems = done.problems if isinstance(done, Refreshed) else ()
    problem = "\n".join(dict.fromkeys([*problems, *conflicts]))
    return _result(declaration, METADATA, problem or None, metadata=_field_table(done))


def failed_checks(
    instance: dg.DagsterInstance, declaration: Declaration, error: RefreshError
) -> Iterator[dg.AssetCheckResult]:
    """Yield check results for a refresh that was refused or held, or failed the reconciliation."""
    severity = dg.AssetCheckSeverity.ERROR
    if isinstance(error, HeldError):
        # A hold prevents all checks, but the step succeeds. So Dagster needs a result of each
        # check.
        yield from _refused_checks(instance, declaration, (), dg.AssetCheckSeverity.WARN)
    if isinstance(error, RefusedError):
        yield from _refused_checks(instance, declaration, error.refusals, severity)
    if isinstance(error, ReconciliationError):
        rows = _metadata("rows found", error.found.rows)
        yield _result(declaration, RECONCILIATION, str(error), severity=severity, metadata=rows)


def _refused_checks(
    instance: dg.DagsterInstance,
    declaration: Declaration,
    refusals: Sequence[Refusal],
    severity: dg.AssetCheckSeverity,
) -> Iterator[dg.AssetCheckResult]:
    """Yield the result of each failed check. For each other check, yield its last result again.

    Dagster would show a missing result as a failure.
    """
    problems: Mapping[str, str] = {check.value: text for check, text in by_check(refusals).items()}
    for spec in check_specs(declaration):
        if problem := problems.get(spec.name):
            yield _result(declaration, spec.name, problem, severity=severity)
            continue
        last = check_history(instance, spec.key, limit=1)
        previous = evaluation(last[0]) if last else None
        words = _last_words(previous)
        note = f"{_NOT_REACHED} {words}".strip()
        # If the check passed last time, report a pass again. Otherwise, report a warning.
        fails = previous is None or not previous.passed
        yield _result(declaration, spec.name, note if fails else None, note=note)


def _last_words(before: dg.AssetCheckEvaluation | None) -> str:
    """Return the description by the last refresh that reached the check; "" if there is none."""
    text = before.description if before else None
    return (text or "").removeprefix(_NOT_REACHED).strip()


def evaluation(record: AssetCheckExecutionRecord | None) -> dg.AssetCheckEvaluation | None:
    """Return the evaluation in a check's record; None if the check has not ended."""
    event = record.event.dagster_event if record and record.event else None
    is_ended = event and event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION
    return event.asset_check_evaluation_data if event and is_ended else None


def _reconciliation(declaration: Declaration, done: Refreshed) -> dg.AssetCheckResult:
    reconciliation = done.reconciliation
    if reconciliation is None or reconciliation.skipped:
        reason = reconciliation.skipped if reconciliation else done.checkpoint.unreconciled
        problem = f"Not checked: {reason}" if reason else None
        return _result(declaration, RECONCILIATION, problem, note=comparison(done))
    # The rows are equal, because a difference would have raised an error, which fails the check.
    metadata = {
        **_metadata("rows found", reconciliation.rows),
        **{f"counted by/{name}": _COUNTED[way] for name, way in reconciliation.by.items()},
        "seconds": done.seconds.get("compare", 0.0),
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
    """Return the result of a check. The check has failed if there is a problem."""
    return dg.AssetCheckResult(
        asset_key=dg.AssetKey.from_user_string(declaration.key),
        check_name=name,
        passed=problem is None,
        description=problem or note,
        metadata=metadata,
        severity=severity,
    )


def _guard_metadata(declaration: Declaration, done: Refreshed) -> dict[str, str]:
    """Return the number of rows of each table.

    If rows of the table were published before, add the change in percent and the limit of `guard`.
    """
    counts, rows = {}, done.checkpoint.rows
    for table in declaration.tables:
        now, before = rows[table.name], done.before.get(table.name)
        limit = f"(limit: {-declaration.guard_of(table).max_shrink:.0%})"
        counts[table.name] = f"{now:,}" + (f", {now / before - 1:+.1%} {limit}" if before else "")
    return _metadata("rows", counts)


def _metadata(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _column_metadata(
    declaration: Declaration, checkpoint: Checkpoint, values: Values
) -> dict[str, Any]:
    """Return the column schema and lineage. With several tables, names are "table.column".

    Args:
        values: the declared metadata.
    """
    schema, lineage = [], {}
    for table in declaration.tables:
        model = dg.AssetKey.from_user_string(table.model)
        prefix = f"{table.name}." if len(declaration.tables) > 1 else ""
        for column in checkpoint.tables[table.name].columns:
            path = ("field", declaration.published_name(table.name), column.name, "description")
            description = values.get(path)
            name = f"{prefix}{column.name}"
            schema.append(dg.TableColumn(name, hyper_type(column, table=""), description))
            lineage[name] = [dg.TableColumnDep(model, column.name)]
    return {
        "dagster/column_schema": dg.TableSchema(columns=schema),
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
    }


def _field_table(done: Refreshed | Planned) -> dict[str, Any]:
    """Return a table of the declared metadata and the server's old values; {} without metadata."""
    merged, is_sent = done.merged, isinstance(done, Refreshed)
    if merged is None or not (fields := field_rows(done.declared_values, merged)):
        return {}
    rows = [
        [*map(escaped, (*cells, fate.replace("to be ", "") if is_sent else fate))]
        for *cells, fate in fields
    ]
    return {"fields": markdown_metadata(("", "declared", "on the server before", ""), rows)}


def _plan_table(declaration: Declaration, done: Refreshed | Planned) -> dict[str, Any]:
    """Return the decision and its reason; unless it is a refusal, also a row for each table."""
    head, tables = f"**{done.decision}**: {escaped(done.reason)}", done.tables
    if isinstance(done.plan, Refuse):
        return {"plan": dg.MetadataValue.md(head)}
    rows, published = [], done.checkpoint.tables if isinstance(done, Refreshed) else {}
    for table in declaration.tables:
        current, shipped = published.get(table.name), tables.get(table.name)
        changes = (f"{shipped.deleted:,}", f"{shipped.inserted:,}") if shipped else ("", "")
        count = f"{current.content.rows:,}" if current else ""
        rows.append((escaped(table.name), count, *changes, _sent_rows(table.name, done)))
    heads = ("table", ">rows", ">deleted", ">inserted", "published")
    return {"plan": markdown_metadata(heads, rows, before=f"{head}\n\n")}


def _sent_rows(table: str, done: Refreshed | Planned) -> str:
    match done.plan:
        case Publish():
            return "all rows"
        case UpdateTables(tables) if table in tables:
            shipped = done.tables.get(table)
            whole = shipped.whole if shipped else None
            return f"all rows: {escaped(whole)}" if whole else "changed rows"
        case _:
            return "nothing"


def markdown_metadata(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, before: str = ""
) -> dg.MarkdownMetadataValue:
    """Return a Markdown table. A heading that begins with ">" aligns its column to the right."""
    ruler = ["---:" if head.startswith(">") else "---" for head in heads]
    lines = ([head.lstrip(">") for head in heads], ruler, *rows)
    return dg.MetadataValue.md(before + "\n".join(f"| {' | '.join(line)} |" for line in lines))


def escaped(text: str) -> str:
    """Return a text escaped for a cell of a Markdown table."""
    # Escape the backslash first. Otherwise the backslashes of all other escapes would be escaped.
    for character in "\\|*_`<[":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


def extract_result(declaration: Declaration, done: Refreshed | Built) -> dg.MaterializeResult:
    """Return the result for the extract, which is the full file or an update's payload."""
    extract, is_sent = done.extract, isinstance(done, Refreshed)
    if extract is None:
        raise ValueError("no extract was built")
    # A payload has only changed tables, so it may lack the fact table.
    rows = extract.rows.get(declaration.published_name(declaration.fact_table), 0)
    return dg.MaterializeResult(
        asset_key=dg.AssetKey.from_user_string(f"{declaration.key}_extract"),
        metadata={
            "content": "the changes of an update"
            if isinstance(done, Refreshed) and done.tables
            else "the full data source",
            "dagster/row_count": rows,
            "MB": _in_megabytes(extract.size),
            "seconds": done.seconds["build"],
            "opens in": PRODUCTS[extract.version],
            # Link to the file only if it was not published, because a published file is deleted
            # after the run.
            **({} if is_sent else {"dagster/uri": extract.path.as_uri()}),
        },
    )


def published_result(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    declaration: Declaration,
    done: Refreshed,
) -> dg.MaterializeResult:
    """Return what Dagster shows of a refresh. Later refreshes read the journal, not this result.

    Dagster plots each number over time. So the metadata has only numbers that are worth a plot, and
    every refresh reports all these numbers. `details` has values for programs, without plots.
    """
    checkpoint, remote = done.checkpoint, done.remote
    limit = (checkpoint.size or 0) * declaration.republish.growth
    grown = round(100 * checkpoint.grown / limit, 1) if limit else 0.0
    # The web UI keeps this order, so begin with results and end with explanations.
    metadata: dict[str, Any] = {
        "summary": done.summary,
        **({"accepted": str(checkpoint.accepted)} if checkpoint.accepted else {}),
        **_plan_table(declaration, done),
        "where the time went": _time_chart(context, done),
        "dagster/row_count": checkpoint.rows[declaration.fact_table],
        "rows sent": _rows_sent(done),
        "MB sent": _in_megabytes(done.sent),
        "seconds": done.seconds["total"],
        "growth of the file, % of its limit": grown,
        **({"data source": dg.MetadataValue.url(remote.link)} if remote.link else {}),
        **_times(checkpoint),
        "comparison": comparison(done),
        **({"warnings": "\n".join(done.warnings)} if done.warnings else {}),
        **_field_table(done),
        **_column_metadata(declaration, checkpoint, done.declared_values),
        **_decision(done),
        "details": _details(done),
    }
    key, version = dg.AssetKey.from_user_string(declaration.key), _data_version(checkpoint)
    return dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=version)


def published_by_command(
    declaration: Declaration, checkpoint: Checkpoint, decision: str
) -> dg.AssetMaterialization:
    """Return the event of a publish by the command `publish`, as the checkpoint records it."""
    rows, taken_at = checkpoint.rows[declaration.fact_table], checkpoint.taken_at
    compared = "equal" if checkpoint.is_equal else ""
    metadata: dict[str, Any] = {
        "summary": f"{declaration.name}: {decision}, {rows:,} rows, by the command publish",
        **({"accepted": str(checkpoint.accepted)} if checkpoint.accepted else {}),
        "dagster/row_count": rows,
        **_times(checkpoint),
        "comparison": compared or str(checkpoint.distrust or checkpoint.unreconciled),
        **_column_metadata(declaration, checkpoint, {}),
        "decision": decision,
        "reason": "by the command publish",
        "details": {
            "compared": compared,
            "rows": dict(checkpoint.rows),
            "rows taken at": taken_at.isoformat() if taken_at else None,
            "luid": checkpoint.luid,
        },
    }
    return dg.AssetMaterialization(dg.AssetKey.from_user_string(declaration.key), metadata=metadata)


def _times(checkpoint: Checkpoint) -> dict[str, dg.TimestampMetadataValue]:
    times = {"content last changed": checkpoint.changed_at, "last compared": checkpoint.compared_at}
    return {name: dg.MetadataValue.timestamp(moment) for name, moment in times.items() if moment}


class Details(BaseModel):
    """The part of an event's metadata that programs read. Events of older releases lack fields."""

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", " "))

    full: bool = False
    compared: str = ""
    deleted: Mapping[str, int] = {}
    inserted: Mapping[str, int] = {}
    seconds: Mapping[str, float] = {}
    requests: int | None = None
    bytes_sent: int | None = None
    bytes_of_a_full_publish: int | None = None
    rows_taken_at: AwareDatetime | None = None
    luid: str | None = None


def details_in(metadata: Mapping[str, Any]) -> Details:
    """Return the details in an event's metadata; only defaults if no refresh recorded the event."""
    try:
        return Details.model_validate(metadata.get("details"))
    except ValidationError:
        # A user or other code may use the name `details` for other metadata.
        return Details()


def _details(done: Refreshed) -> Mapping[str, Any]:
    """Return the details of a refresh, for programs such as the command `status`."""
    checkpoint, remote = done.checkpoint, done.remote
    return {
        "full": isinstance(done.plan, Publish),
        "compared": compared(done)[0],
        "rows": dict(checkpoint.rows),
        "deleted": {name: counts.deleted for name, counts in done.tables.items()},
        "inserted": {name: counts.inserted for name, counts in done.tables.items()},
        "seconds": dict(done.seconds),
        "requests": done.requests,
        "bytes sent": done.sent,
        "bytes of a full publish": checkpoint.size,
        "updates since the last full publish": checkpoint.updates,
        "updated at": remote.updated_at.isoformat(),
        "rows taken at": checkpoint.taken_at.isoformat() if checkpoint.taken_at else None,
        "job": done.job_id,
        "luid": remote.luid,
    }


def _rows_sent(done: Refreshed) -> int:
    """Return how many rows a refresh sent.

    For each table of an update, count the inserted rows or the deleted rows, whichever number is
    larger. For a full publish, count all rows, because the changed rows are unknown.
    """
    if isinstance(done.plan, Publish) and done.extract:
        return sum(done.extract.rows.values())
    return sum(max(counts.deleted, counts.inserted) for counts in done.tables.values())


# The length of the longest possible bar, in characters.
_BAR_WIDTH = 30


def _time_chart(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, done: Refreshed
) -> dg.MarkdownMetadataValue:
    """Chart the seconds of each phase, from the request of the run to the end of the refresh."""
    seconds, record = done.seconds, context.instance.get_run_record_by_id(context.run.run_id)
    began = time.time() - seconds["total"]
    started = record.start_time or began if record else began
    requested = record.create_timestamp.timestamp() if record else started
    upload, job, compare = (seconds.get(phase, 0.0) for phase in ("upload", "job", "compare"))
    parts = {
        "queue of Dagster": max(started - requested, 0.0),
        "models, start": max(began - started, 0.0),
        "plan, build": seconds["total"] - upload - job - compare,
        "upload": upload,
        "job of the server": job,
        "comparison": compare,
    }
    total = sum(parts.values()) or 1.0
    rows = [
        (name, f"{part:.1f} s", "█" * round(_BAR_WIDTH * part / total))
        for name, part in parts.items()
    ]
    return markdown_metadata(("", ">", ""), rows)


def tag_run(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    declaration: Declaration,
    outcome: Done | RefreshError,
) -> None:
    """Tag the run with the decision, so that users can find all runs of a data source."""
    is_dry = isinstance(outcome, Planned)
    tags = {run_tag(declaration.key): "dry run: " * is_dry + str(outcome.decision)}
    context.instance.add_run_tags(context.run.run_id, tags)


def dry_run_observation(declaration: Declaration, planned: Planned) -> dg.AssetObservation:
    """Return the observation that reports the plan of a dry run."""
    metadata = {
        "summary": planned.summary,
        **_plan_table(declaration, planned),
        **_decision(planned),
    }
    key = dg.AssetKey.from_user_string(declaration.key)
    return dg.AssetObservation(key, description="Dry run", metadata=metadata)


def held_observation(declaration: Declaration, error: HeldError) -> dg.AssetObservation:
    """Return the observation that reports a refresh that did nothing because of a hold."""
    key = dg.AssetKey.from_user_string(declaration.key)
    metadata = {"summary": str(error), "decision": str(error.decision), "reason": error.reason}
    return dg.AssetObservation(key, description="Held", metadata=metadata)


_LONGEST_TAG = 63


def run_tag(key: str) -> str:
    """Return the key of the run tag that records what a refresh of the asset `key` decided."""
    # Dagster allows one slash and 63 characters in a tag key, so slashes become dots. A key that is
    # too long gets a digest. A key with a dot gets a digest, too. Without the digest, "a.b" and
    # "a/b" would get the same tag.
    text = key.replace("/", ".")
    if len(text) > _LONGEST_TAG or "." in key:
        text = f"{text[: _LONGEST_TAG - 9]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return f"tableau/{text}"


def _decision(done: Refreshed | Planned) -> dict[str, str]:
    return {"decision": done.decision, "reason": done.reason}


def _in_megabytes(size: int) -> float:
    """Convert bytes to megabytes of 10^6 bytes for a plot."""
    return round(size / 1e6, 3)


def _data_version(checkpoint: Checkpoint) -> dg.DataVersion:
    """Return a version of 16 hex digits, which is equal for equal published contents."""
    tables = sorted(checkpoint.tables.items())
    content = [f"{name} {table.columns} {table.content} {table.cutoff}" for name, table in tables]
    text = "\n".join([checkpoint.declaration, *content])
    return dg.DataVersion(hashlib.sha256(text.encode()).hexdigest()[:16])
