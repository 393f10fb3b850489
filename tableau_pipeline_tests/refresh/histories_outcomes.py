"""How a refresh ended, in words; and whether it may have ended well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tableau_pipeline.core.declaration import Declaration, Guard, Table
from tableau_pipeline.core.policies import Append, Diff
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.plan import NoChange, Publish
from tableau_pipeline.refresh.step import Report
from tableau_pipeline_tests.refresh.crashes import KilledError
from tableau_pipeline_tests.refresh.histories_oracle import Published
from tableau_pipeline_tests.refresh.histories_tables import Content

Outcome = Report | RefreshError | KilledError


@dataclass
class Attempt:
    """What a refresh wanted to publish: the rows, and the contents that they come from."""

    rows: Published
    contents: Mapping[str, Content]


def told(outcome: Outcome) -> str:
    """In words."""
    match outcome:
        case Report(plan=None):
            return "built only"
        case Report(plan=plan):
            return f"{plan.decision}: {plan.reason}"
        case KilledError():
            return f"killed after {outcome}"
        case _:
            return f"{type(outcome).__name__}: {outcome}"


def kind(outcome: Outcome) -> str:
    """In a few words, to count by."""
    if not isinstance(outcome, Report):
        return type(outcome).__name__
    shipped = {"whole" if each.whole else "touched rows" for each in outcome.tables.values()}
    decision = outcome.plan.decision if outcome.plan else "build"
    return f"{decision} {' and '.join(sorted(shipped))}".strip()


def check_success(
    declaration: Declaration,
    report: Report,
    attempt: Attempt,
    before: Sequence[Attempt | None],
    *,
    guarded: bool,
) -> None:
    """What was published ought not to have been refused.

    Args:
        before: what may have been published.
        guarded: the guards hold: what was published was known, and nobody lets them down.
    """
    for table in declaration.tables:
        content = attempt.contents[table.name]
        old = [each.contents.get(table.name) for each in before if each]
        if isinstance(report.plan, Publish) or (
            not isinstance(report.plan, NoChange) and content not in old
        ):
            problem = _unfit(table, content, declaration)
            assert not problem, f"{table.name} was published although {problem}"
        if guarded:
            _check_guard(table.guard, content, old[0] if old else None)


def _check_guard(guard: Guard, content: Content, old: Content | None) -> None:
    rows, before = len(content.rows), len(old.rows) if old else 0
    assert rows >= guard.min_rows, f"{rows} rows were published in spite of {guard}"
    most = before * Fraction(str(guard.max_shrink))
    assert before - rows <= most, f"{before} rows became {rows} in spite of {guard}"


def _unfit(table: Table, content: Content, declaration: Declaration) -> str | None:
    keys = [edge.key for edge in declaration.relationships if edge.one == table.name]
    columns = [column for key in keys for column in key]
    match table.policy:
        case Diff(key):
            keys.append(key)
            columns += key
        case Append(cursor):
            columns.append(cursor)
        case _:
            pass
    if any(None in content.column(column) for column in columns):
        return "a key or cursor is NULL"
    if any(len({*content.tuples(key)}) < len(content.rows) for key in keys):
        return "a key is repeated"
    return None
