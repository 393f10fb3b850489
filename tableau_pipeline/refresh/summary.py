"""The closing line of a refresh."""

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.units import megabytes
from tableau_pipeline.refresh.plan.decide import NoChange, Options, Publish, Refuse, Update
from tableau_pipeline.refresh.report import Report


def summary(report: Report, declaration: Declaration, options: Options) -> str:
    """Such as "NYC Flights: update, -433 +419 rows, 0.13 MB in 2.1 s, equal by count, http://..."."""
    if isinstance(report.plan, Refuse):
        return f"{declaration.name}: the refresh would be refused: {report.plan.reason}"
    done = f"{_work(report)} in {report.seconds['total']:.1f} s"
    if options.dry_run:
        return f"{declaration.name}: dry run, nothing sent; a refresh would be: {done}"
    if report.plan is None:
        file = report.extract.path.as_uri() if report.extract else ""
        return f"{declaration.name}: {done}, {file}"
    link = report.remote.link if report.remote else None
    return ", ".join(filter(None, [f"{declaration.name}: {done}", _comparison(report), link]))


def _work(report: Report) -> str:
    rows = sum(report.extract.rows.values()) if report.extract else 0
    size = megabytes(report.extract.size) if report.extract else ""
    match report.plan:
        case NoChange():
            return "no change, nothing sent"
        case Update():
            deleted = sum(each.deleted for each in report.tables.values())
            inserted = sum(each.inserted for each in report.tables.values())
            return f"update, -{deleted:,} +{inserted:,} rows, {size}"
        case Publish() as plan if report.extract is None:
            # A dry run does not build the whole file.
            return plan.decision
        case Publish() as plan:
            return f"{plan.decision}, {rows:,} rows, {size}"
        case _:
            return f"built only, {rows:,} rows, {size}"


def _comparison(report: Report) -> str:
    """How the published data was compared with the models."""
    checkpoint, found = report.checkpoint, report.reconciliation
    if checkpoint is None:
        return ""
    if checkpoint.suspect:
        return f"to be compared by the next refresh: {checkpoint.suspect}"
    if checkpoint.unreconciled:
        return f"not compared: {checkpoint.unreconciled}"
    if found is None:
        return "equal when it was last compared"
    return "equal by checksums" if found.checksums else "equal by count"
