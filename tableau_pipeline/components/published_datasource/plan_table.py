"""What a refresh did, or would do, as a Markdown table."""

from collections.abc import Iterator

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.refresh.plan.decide import NoChange, Publish, Refuse, Update
from tableau_pipeline.refresh.report import Report


def plan_table(declaration: Declaration, report: Report) -> str:
    """Return the decision, its reason, and a row for each table; "" without a decision."""
    if report.plan is None:
        return ""
    head = f"**{report.decision}**: {escaped(report.reason)}"
    if isinstance(report.plan, Refuse):
        return head
    lines = [
        "| table | rows | deleted | inserted | sent |",
        "| --- | ---: | ---: | ---: | --- |",
        *(f"| {' | '.join(cells)} |" for cells in _rows(declaration, report)),
    ]
    return "\n".join([head, "", *lines])


def _rows(declaration: Declaration, report: Report) -> Iterator[list[str]]:
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
        case Update(tables):
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
