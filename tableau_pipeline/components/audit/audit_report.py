"""The report of an audit: lines for the log, a Markdown table for the web UI."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tableau_pipeline.audit import Audited
from tableau_pipeline.components.audit.undeclared import Undeclared
from tableau_pipeline.components.published_datasource.plan_table import escaped

_UNDECLARED = "not declared here"


def log_line(found: Audited) -> str:
    """Return what was found of a data source, in one line."""
    parts = [str(found.finding), found.compared or "", _rows(found)]
    return _described(found, ", ".join(filter(None, parts)))


def summary(found: Sequence[Audited], others: Sequence[Undeclared]) -> str:
    """Return how many data sources have each finding: "2 equal, 1 drifted"."""
    counts = Counter(str(each.finding) for each in found)
    counts.update({_UNDECLARED: len(others)} if others else {})
    return ", ".join(f"{count} {finding}" for finding, count in counts.items()) or "none declared"


def problems(found: Sequence[Audited]) -> str:
    """Return what is wrong and what to do, one line for each data source; "" if nothing is."""
    wrong = [each for each in found if each.is_wrong]
    if not wrong:
        return ""
    lines = [_described(each, str(each.finding)) for each in wrong]
    head = (
        f"{len(wrong)} of {len(found)} data sources are not what their last refresh left, "
        "or could not be looked at:"
    )
    return "\n".join([head, *lines])


def report(found: Sequence[Audited], others: Sequence[Undeclared]) -> str:
    """Return a table with a row for each data source, those without a declaration last."""
    lines = [
        "| data source | finding | compared by | rows: model / server | note |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(cells)} |" for cells in _cells(found, others)),
    ]
    return "\n".join(lines)


def _cells(found: Sequence[Audited], others: Sequence[Undeclared]) -> Iterator[list[str]]:
    for each in found:
        name = _linked(each.declaration.name, each.link)
        finding = f"**{each.finding}**" if each.is_wrong else str(each.finding)
        yield [name, finding, each.compared or "", escaped(_rows(each)), escaped(each.note)]
    for other in others:
        name = _linked(other.datasource.name, other.datasource.link)
        yield [name, _UNDECLARED, "", "", escaped(other.note)]


def _described(found: Audited, head: str) -> str:
    """Return the finding and all that explains it."""
    if not found.note:
        return f"{found.declaration.key}: {head}"
    return f"{found.declaration.key}: {head}{':' if found.why else '.'} {found.note}"


def _linked(name: str, link: str | None) -> str:
    return f"[{escaped(name)}]({link})" if link else escaped(name)


def _rows(found: Audited) -> str:
    """Return "flights 8 / 7, airlines 2 / 2"; "8 / 7" for a single table."""
    pairs = {
        table: f"{rows:,} / {_count(found.rows.get(table))}"
        for table, rows in found.expected.items()
    }
    if len(pairs) == 1:
        return next(iter(pairs.values()))
    return ", ".join(f"{table} {pair}" for table, pair in pairs.items())


def _count(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"
