"""The metadata of a refresh, which the web UI shows, plots and links."""

import hashlib
from typing import Any

import dagster as dg

from tableau_pipeline.components.published_datasource.column_schema import (
    NO_DESCRIPTIONS,
    Descriptions,
    column_metadata,
)
from tableau_pipeline.components.published_datasource.plan_table import plan_table
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.hyper.types.versions import PRODUCTS
from tableau_pipeline.refresh.report import Report, comparison


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
    key: dg.AssetKey,
    declaration: Declaration,
    report: Report,
    descriptions: Descriptions = NO_DESCRIPTIONS,
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
        **column_metadata(declaration, checkpoint, descriptions),
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


def run_tags(declaration: Declaration, decision: str, *, dry_run: bool = False) -> dict[str, str]:
    """Return run tags with the data source and the decision, to find its runs by."""
    # Dagster allows one slash and 63 characters in a tag key.
    name = declaration.key.replace("/", ".")[:63]
    return {f"tableau/{name}": f"dry run: {decision}" if dry_run else decision}


def _plan(declaration: Declaration, report: Report) -> dict[str, Any]:
    table = plan_table(declaration, report)
    return {"plan": dg.MetadataValue.md(table)} if table else {}


def _decision(report: Report) -> dict[str, str]:
    if report.plan is None:
        return {}
    return {"decision": report.decision, "reason": report.reason}


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
