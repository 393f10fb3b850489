"""The checks of a refresh, shown as Dagster's asset checks of the published asset.

They are part of the refresh itself: it stops at a failed check whether the check is selected or
not.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import Check, RefreshError, RefusedError
from tableau_pipeline.extracts.compare import ReconciliationError
from tableau_pipeline.refresh.plan.decide import Refuse
from tableau_pipeline.refresh.report import Report

_REFUSED = "the refresh would be refused anyway"
_ONLY_BUILT = "only the file was built, and not compared with what is published"
RELATIONSHIPS, RECONCILIATION = "relationships", "reconciliation"
_WARN = dg.AssetCheckSeverity.WARN
_COUNTED = {
    "download": "downloaded file",
    "table": "server: COUNT of the table",
    "key": "server: COUNT of a key column",
    "cells": "server: COUNT of all cells of a column",
}
_BEFORE = {
    Check.GUARD: "No table is empty or suddenly small (`guard`); otherwise nothing is sent.",
    Check.KEYS: "Keys that a relationship or a policy needs are unique and not NULL; otherwise "
    "nothing is sent.",
    Check.SCHEMA: "The columns can be published, and fit `columns` and `on_schema_change`; "
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
        if refused and check in refused.failed:
            # A dry run reports a refusal but does not fail.
            yield _failed(published, check.value, refused.failed[check], severity=_WARN)
        elif refused and check is Check.KEYS:
            yield _not_looked_at(published, check.value, _REFUSED)
        elif check is not Check.KEYS and report.plan is None:
            yield _not_looked_at(published, check.value, _ONLY_BUILT)
        else:
            yield _passed(published, check.value, _numbers(check, report))
    if declaration.relationships and refused:
        yield _not_looked_at(published, RELATIONSHIPS, _REFUSED)
    elif declaration.relationships:
        yield _relationships(published, report)
    if declaration.reconcile:
        yield _reconciliation(published, report)


def failed_checks(published: dg.AssetKey, error: RefreshError) -> Iterator[dg.AssetCheckResult]:
    """Yield the failed checks that stopped a refresh; later checks did not run."""
    if isinstance(error, RefusedError):
        for check, found in error.failed.items():
            yield _failed(published, check.value, found)
    if isinstance(error, ReconciliationError):
        rows = _metadata("rows found", error.found.rows)
        yield _failed(published, RECONCILIATION, str(error), rows)


def _relationships(published: dg.AssetKey, report: Report) -> dg.AssetCheckResult:
    if not report.orphans:
        return _passed(published, RELATIONSHIPS)
    found = "; ".join(
        f"{edge}: {count:,} rows without a partner" for edge, count in report.orphans.items()
    )
    rows = _metadata("rows without a partner", report.orphans)
    return _failed(published, RELATIONSHIPS, found, rows, severity=_WARN)


def _reconciliation(published: dg.AssetKey, report: Report) -> dg.AssetCheckResult:
    found = report.reconciliation
    if found is None or found.skipped:
        known = report.checkpoint.unreconciled if report.checkpoint else "nothing was published"
        why = found.skipped if found else known
        if why:
            return _not_looked_at(published, RECONCILIATION, why)
        return _passed(published, RECONCILIATION, why="Nothing was sent since it was reconciled.")
    # A difference never comes this far: it raises an error, which fails the check.
    metadata = {
        **_metadata("rows found", found.rows),
        **{f"counted by/{name}": _COUNTED[way] for name, way in found.by.items()},
        "seconds": report.seconds.get("reconcile", 0.0),
        **{f"checksum/{name}": f"{value:x}" for name, value in found.checksums.items()},
    }
    return _passed(published, RECONCILIATION, metadata)


def _passed(
    published: dg.AssetKey,
    name: str,
    metadata: Mapping[str, Any] | None = None,
    *,
    why: str | None = None,
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=published, check_name=name, passed=True, metadata=metadata, description=why
    )


def _failed(
    published: dg.AssetKey,
    name: str,
    found: str,
    metadata: Mapping[str, Any] | None = None,
    *,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=published,
        check_name=name,
        passed=False,
        description=found,
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


def _not_looked_at(published: dg.AssetKey, name: str, why: str) -> dg.AssetCheckResult:
    """Return a result that is not passed, with severity WARN, for a check that did not run."""
    return _failed(published, name, f"Not checked: {why}", severity=_WARN)


def _metadata(what: str, counts: Mapping[str, float]) -> dict[str, float]:
    return {f"{what}/{name}": count for name, count in counts.items()}
