"""The checks of a refresh, shown as Dagster's asset checks of the published asset.

They are part of the refresh itself: it stops at a failed check whether the check is selected or
not.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import Check, RefreshError, RefusedError
from tableau_pipeline.extracts.compare import ReconciliationError
from tableau_pipeline.hyper.types import PRODUCTS, Column, UnsupportedTypeError, hyper_type
from tableau_pipeline.refresh.plan import NoChange, Publish, Refuse, UpdateTables
from tableau_pipeline.refresh.report import Report, comparison

_REFUSED = "Not checked: the refresh would be refused anyway"
_ONLY_BUILT = "Not checked: only the file was built, and not compared with what is published"
RELATIONSHIPS, RECONCILIATION = "relationships", "reconciliation"
_COUNTED = {"server": "server", "download": "downloaded file"}
# By model and column.
Descriptions = Mapping[tuple[str, str], str]
_BEFORE = {
    Check.GUARD: "No table is empty or suddenly small (`guard`); otherwise nothing is sent.",
    Check.KEYS: "Keys that a relationship or a policy needs are unique and not NULL; otherwise "
    "nothing is sent.",
    Check.SCHEMA: "The columns can be published, and fit `contract` and `on_schema_change`; "
    "otherwise nothing is sent.",
}


def check_specs(declaration: Declaration, published: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the checks that a data source always has."""
    described = {check.value: text for check, text in _BEFORE.items()}
    if declaration.relationships:
        described[RELATIONSHIPS] = "Every row of the many side has a partner on the one side."
    if declaration.reconcile:
        described[RECONCILIATION] = "The published data, counted or read back, equals the models."
    stopping = {check.value for check in Check}
    return [
        dg.AssetCheckSpec(name, asset=published, description=text, blocking=name in stopping)
        for name, text in described.items()
    ]


def check_results(
    declaration: Declaration, published: dg.AssetKey, report: Report
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results of a refresh that was not stopped, and of a dry run."""
    refused = report.plan if isinstance(report.plan, Refuse) else None
    for check in Check:
        # A dry run reports a refusal but does not fail.
        problem = refused.failed.get(check) if refused else None
        if refused and not problem and check is Check.KEYS:
            problem = _REFUSED
        elif check is not Check.KEYS and report.plan is None:
            problem = _ONLY_BUILT
        numbers = None if problem else _numbers(check, report)
        yield _result(published, check.value, problem, metadata=numbers)
    if declaration.relationships:
        yield _relationships(published, report, _REFUSED if refused else None)
    if declaration.reconcile:
        yield _reconciliation(published, report)


def failed_checks(published: dg.AssetKey, error: RefreshError) -> Iterator[dg.AssetCheckResult]:
    """Yield the failed checks that stopped a refresh; later checks did not run."""
    severity = dg.AssetCheckSeverity.ERROR
    if isinstance(error, RefusedError):
        for check, found in error.failed.items():
            yield _result(published, check.value, found, severity=severity)
    if isinstance(error, ReconciliationError):
        rows = _metadata("rows found", error.found.rows)
        yield _result(published, RECONCILIATION, str(error), severity=severity, metadata=rows)


def _relationships(
    published: dg.AssetKey, report: Report, problem: str | None
) -> dg.AssetCheckResult:
    found = "; ".join(
        f"{edge}: {count:,} rows without a partner" for edge, count in report.orphans.items()
    )
    rows = _metadata("rows without a partner", report.orphans)
    return _result(published, RELATIONSHIPS, problem or found or None, metadata=rows)


def _reconciliation(published: dg.AssetKey, report: Report) -> dg.AssetCheckResult:
    found = report.reconciliation
    if found is None or found.skipped:
        known = report.checkpoint.unreconciled if report.checkpoint else "nothing was published"
        if why := found.skipped if found else known:
            return _result(published, RECONCILIATION, f"Not checked: {why}")
        return _result(published, RECONCILIATION, note="Nothing was sent since it was reconciled.")
    # A difference never comes this far: it raises an error, which fails the check.
    metadata = {
        **_metadata("rows found", found.rows),
        **{f"counted by/{name}": _COUNTED[way] for name, way in found.by.items()},
        "seconds": report.seconds.get("reconcile", 0.0),
    }
    return _result(published, RECONCILIATION, metadata=metadata)


def _result(
    published: dg.AssetKey,
    name: str,
    problem: str | None = None,
    *,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    metadata: Mapping[str, Any] | None = None,
    note: str | None = None,
) -> dg.AssetCheckResult:
    """Return the result of a check that passed unless there is a problem."""
    return dg.AssetCheckResult(
        asset_key=published,
        check_name=name,
        passed=problem is None,
        description=problem or note,
        metadata=metadata,
        severity=severity,
    )


def _numbers(check: Check, report: Report) -> dict[str, float]:
    """Return the numbers behind a check, to be plotted."""
    tables = report.checkpoint.tables if report.checkpoint else {}
    rows = {name: table.content.rows for name, table in tables.items()}
    match check:
        case Check.GUARD:
            lost = {
                name: round(100 * (1 - rows[name] / before), 3)
                for name, before in report.before.items()
                if before and name in rows
            }
            return {**_metadata("rows", rows), **_metadata("rows lost in %", lost)}
        case Check.KEYS:
            keys = {name: rows[name] for name, table in tables.items() if table.key}
            return dict(_metadata("rows with a key of their own", keys))
        case _:
            return dict(_metadata("columns", {n: len(t.columns) for n, t in tables.items()}))


def _metadata(what: str, counts: Mapping[str, float]) -> dict[str, float]:
    return {f"{what}/{name}": count for name, count in counts.items()}


def _column_metadata(
    declaration: Declaration, checkpoint: Checkpoint, descriptions: Descriptions
) -> dict[str, Any]:
    """Return schema and lineage; with several tables, columns are named "table.column"."""
    schema, lineage = [], {}
    for table in declaration.tables:
        model = dg.AssetKey.from_user_string(table.model)
        prefix = f"{table.name}." if len(declaration.tables) > 1 else ""
        for column in checkpoint.tables[table.name].columns:
            description = descriptions.get((table.model, column.name))
            name = f"{prefix}{column.name}"
            schema.append(dg.TableColumn(name, _type(column), description))
            lineage[name] = [dg.TableColumnDep(model, column.name)]
    return {
        "dagster/column_schema": dg.TableSchema(columns=schema),
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
    }


def descriptions_of(context: dg.AssetExecutionContext, declaration: Declaration) -> Descriptions:
    """Return the column descriptions in `dagster/column_schema` of the models' assets."""
    graph, found = context.job_def.asset_layer.asset_graph, {}
    for model in declaration.models:
        key = dg.AssetKey.from_user_string(model)
        metadata = graph.get(key).metadata if graph.has(key) else {}
        schema = metadata.get("dagster/column_schema")
        if isinstance(schema, dg.TableSchemaMetadataValue):
            schema = schema.schema
        for column in schema.columns if isinstance(schema, dg.TableSchema) else ():
            if column.description:
                found[model, column.name] = column.description
    return found


def _type(column: Column) -> str:
    try:
        return hyper_type(column, table="")
    except UnsupportedTypeError:
        # A Parquet file that is sent unread may have types that only the server converts.
        return column.type


def _plan_table(declaration: Declaration, report: Report) -> str:
    """Return the decision, its reason, and a row for each table; "" without a decision."""
    if report.plan is None:
        return ""
    head = f"**{report.decision}**: {escaped(report.reason)}"
    if isinstance(report.plan, Refuse):
        return head
    lines = [
        "| table | rows | deleted | inserted | sent |",
        "| --- | ---: | ---: | ---: | --- |",
        *(f"| {' | '.join(cells)} |" for cells in _plan_rows(declaration, report)),
    ]
    return "\n".join([head, "", *lines])


def _plan_rows(declaration: Declaration, report: Report) -> Iterator[list[str]]:
    for table in declaration.tables:
        known = report.checkpoint.tables.get(table.name) if report.checkpoint else None
        rows = f"{known.content.rows:,}" if known else ""
        shipped = report.tables.get(table.name)
        changes = [f"{shipped.deleted:,}", f"{shipped.inserted:,}"] if shipped else ["", ""]
        yield [escaped(table.name), rows, *changes, _sent(table.name, report)]


def _sent(table: str, report: Report) -> str:
    match report.plan:
        case NoChange():
            return "nothing"
        case Publish():
            return "the whole file"
        case UpdateTables(tables):
            if table not in tables:
                return "nothing"
            shipped = report.tables.get(table)
            whole = shipped.whole if shipped else None
            return f"the whole table: {escaped(whole)}" if whole else "what changed"
        case _:
            return ""


def escaped(text: str) -> str:
    """Return a text as it is shown in a cell of a Markdown table."""
    # The backslash comes first, or it would escape the escapes of the others.
    for character in "\\|*_`<[":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


def extract_result(
    key: dg.AssetKey, declaration: Declaration, report: Report
) -> dg.MaterializeResult:
    """Return the result for the built file: the whole data source, or an update's payload."""
    extract = report.extract
    if extract is None:
        raise ValueError("no extract was built")
    names = {declaration.published_name(table.name): table.name for table in declaration.tables}
    # A payload has only the tables that changed; the others count as no rows, not as unknown.
    rows = dict.fromkeys(names.values(), 0)
    for name, count in extract.rows.items():
        rows[names.get(name, name)] = count
    return dg.MaterializeResult(
        asset_key=key,
        metadata={
            **_rows(declaration, rows),
            "content": "payload of an update" if report.tables else "whole data source",
            "MB": _in_megabytes(extract.size),
            "seconds/build": report.seconds["build"],
            "opens in": PRODUCTS[extract.version],
            # A file that was sent does not outlive the run.
            **({"dagster/uri": extract.path.as_uri()} if report.plan is None else {}),
            "bytes": extract.size,
            "file version": extract.version,
        },
    )


def published_result(
    key: dg.AssetKey, declaration: Declaration, report: Report, descriptions: Descriptions
) -> dg.MaterializeResult:
    """Return the result for the refreshed data source; the journal records its state."""
    checkpoint, remote = report.checkpoint, report.remote
    if checkpoint is None or remote is None:
        raise ValueError("no data source was refreshed")
    rows = {name: table.content.rows for name, table in checkpoint.tables.items()}
    # The UI keeps this order: what most readers look for comes first, what explains it last.
    metadata: dict[str, Any] = {
        "summary": report.summary,
        **_plan(declaration, report),
        **_rows(declaration, rows),
        **_shipped(report),
        **({"data source": dg.MetadataValue.url(remote.link)} if remote.link else {}),
        "seconds/total": report.seconds["total"],
        "MB sent": _in_megabytes(report.sent),
        "comparison": comparison(report),
        **({"warnings": "\n".join(report.warnings)} if report.warnings else {}),
        **{f"rows without a partner/{edge}": count for edge, count in checkpoint.orphans.items()},
        **_column_metadata(declaration, checkpoint, descriptions),
        **_decision(report),
        **{f"seconds/{phase}": seconds for phase, seconds in report.seconds.items()},
        "bytes sent": report.sent,
        **({"bytes in full": checkpoint.size} if checkpoint.size else {}),
        "updates since published whole": checkpoint.updates,
        "updated at": dg.MetadataValue.timestamp(remote.updated_at),
        **({"job": report.job_id} if report.job_id else {}),
        "luid": remote.luid,
    }
    return dg.MaterializeResult(
        asset_key=key, metadata=metadata, data_version=dg.DataVersion(_content_version(checkpoint))
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """A refresh that has ended, as Dagster recorded it.

    Attributes:
        decision: "refuse" or "failed" if nothing was refreshed.
        rows: of the fact table; None if nothing was refreshed, like the bytes.
        bytes_saved: those that were not sent, compared with a publish of the whole file.
        seconds: by phase.
    """

    at: datetime
    run_id: str
    decision: str
    reason: str
    rows: int | None = None
    bytes_sent: int | None = None
    bytes_saved: int | None = None
    compared: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


def ended(event: dg.EventLogEntry | None) -> Ended | None:
    """Read what `published_result` wrote of a refresh."""
    materialization = event.asset_materialization if event else None
    if event is None or materialization is None:
        return None
    metadata: dict[str, Any] = {name: each.value for name, each in materialization.metadata.items()}
    sent, whole, phases = metadata.get("bytes sent"), metadata.get("bytes in full"), "seconds/"
    return Ended(
        at=datetime.fromtimestamp(event.timestamp, UTC),
        run_id=event.run_id,
        # It was materialized by hand, or by other code.
        decision=metadata.get("decision", "unknown"),
        reason=metadata.get("reason", ""),
        rows=metadata.get("dagster/row_count"),
        bytes_sent=sent,
        bytes_saved=max(whole - (sent or 0), 0) if whole else None,
        compared=metadata.get("comparison", ""),
        seconds={n.removeprefix(phases): v for n, v in metadata.items() if n.startswith(phases)},
    )


def dry_run_observation(
    key: dg.AssetKey, declaration: Declaration, report: Report
) -> dg.AssetObservation:
    """Return the observation that reports what a refresh would do."""
    sizes = {"bytes to send": report.extract.size} if report.extract else {}
    metadata = {
        "summary": report.summary,
        **_plan(declaration, report),
        **_shipped(report),
        **sizes,
        **_decision(report),
    }
    return dg.AssetObservation(key, description="Dry run", metadata=metadata)


def run_tag(key: str) -> str:
    """Return the run tag that has the decision on a data source, to find its runs by."""
    # Dagster allows one slash and 63 characters in a tag key.
    return f"tableau/{key.replace('/', '.')[:63]}"


def run_tags(declaration: Declaration, decision: str, *, dry_run: bool = False) -> dict[str, str]:
    """Return the run tag of a data source with its decision."""
    return {run_tag(declaration.key): f"dry run: {decision}" if dry_run else decision}


def _plan(declaration: Declaration, report: Report) -> dict[str, Any]:
    table = _plan_table(declaration, report)
    return {"plan": dg.MetadataValue.md(table)} if table else {}


def _decision(report: Report) -> dict[str, str]:
    return {"decision": report.decision, "reason": report.reason} if report.plan else {}


def _in_megabytes(size: int) -> float:
    """Convert bytes to megabytes of 10^6 bytes, to be plotted."""
    return round(size / 1e6, 3)


def _shipped(report: Report) -> dict[str, int]:
    """Return the numbers of deleted and inserted rows of an update, by table."""
    return {
        **{f"rows deleted/{name}": each.deleted for name, each in report.tables.items()},
        **{f"rows inserted/{name}": each.inserted for name, each in report.tables.items()},
    }


def _rows(declaration: Declaration, rows: dict[str, int]) -> dict[str, int]:
    """Return the rows by table; those of the fact table are the row count of the data source."""
    return {
        "dagster/row_count": rows[declaration.fact_table],
        **{f"rows/{table}": count for table, count in rows.items()},
    }


def _content_version(checkpoint: Checkpoint) -> str:
    """Return 16 hex digits that are equal for equal published contents."""
    content = [checkpoint.declaration] + [
        f"{name} {table.columns} {table.content} {table.cutoff}"
        for name, table in sorted(checkpoint.tables.items())
    ]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]
