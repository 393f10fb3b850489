"""Check the guards of tables: the least number of rows, and limits for lost and changed rows."""

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Declaration, Guard, Table
from tableau_pipeline.outcome import Accept, Check, Code, Refusal


def size_problems(
    declaration: Declaration,
    desired: Mapping[str, TableContent],
    published: Mapping[str, int] | None,
    *,
    accept: Collection[Accept],
) -> list[Refusal]:
    """Return a refusal for each table that has too few rows, or may lose too many rows.

    Args:
        published: the number of published rows of each table, except new tables; None if the
            numbers are not known.
    """
    if Accept.SHRINK in accept:
        return []
    problems = []
    for table in declaration.tables:
        guard, rows = declaration.guard_of(table), desired[table.name].content.rows
        problem = None
        code = Code.TOO_FEW_ROWS
        before = published.get(table.name, 0) if published else 0
        if rows < guard.min_rows:
            problem = f"{rows:,} rows, fewer than guard.min_rows ({guard.min_rows:,})"
        elif published is None and guard.max_shrink < 1:
            code = Code.ROWS_NOT_KNOWN
            problem = (
                f"{rows:,} rows, and how many are published is not known: no record of them is "
                "left, the file is too large to count them (reconcile: max_mb) or may not be read, "
                "and the server does not count them. guard.max_shrink cannot be checked"
            )
        elif _lost_too_many(guard, rows, before):
            code = Code.ROWS_LOST
            problem = (
                f"{rows:,} rows where {before:,} are published: a loss of {1 - rows / before:.0%}, "
                f"and guard.max_shrink is {guard.max_shrink:.0%}"
            )
        if problem:
            refusal = Refusal(
                f'Table "{table.name}": model "{table.model}" has {problem}',
                code,
                Accept.SHRINK,
                Check.GUARD,
                table.name,
                remedy="If that is right, run again with accept: [shrink]",
                details={"rows": rows, "published": before if published else None},
            )
            problems.append(refusal)
    return problems


def _lost_too_many(guard: Guard, now: int, before: int) -> bool:
    # Compare exact fractions: as floats, 1 - 0.41 is not 0.59.
    share = Fraction(before - now, max(before, 1))
    return now < before and guard.max_shrink < 1 and share >= Fraction(str(guard.max_shrink))


def change_problem(
    table: Table, published: int | None, changed: Callable[[], int | None]
) -> Refusal | None:
    """Return a refusal if more rows of a table may change than its guard allows.

    Args:
        published: the number of published rows; None if it is not known; 0 for a new table.
        changed: a function that counts the rows that would come, go or change; it returns None if
            the number is not known.
    """
    limit = table.guard.max_change
    if limit is None or not (problem := too_many(published, changed, Fraction(str(limit)))):
        return None
    return Refusal(
        f'Table "{table.name}": {problem}, and guard.max_change is {limit:.0%}',
        Code.ROWS_CHANGED,
        Accept.CHANGE,
        Check.GUARD,
        table.name,
        remedy="If that is right, run again with accept: [change]",
        details={"max_change": limit, "published": published},
    )


def too_many(
    published: int | None, changed: Callable[[], int | None], share: Fraction
) -> str | None:
    """Return a phrase if more than this share of the published rows may change; otherwise None."""
    if published == 0:
        return None
    changes = changed() if published else None
    if published is None or changes is None:
        return "how many of its rows would change is not known"
    if changes <= share * published:
        return None
    return f"{changes:,} of {published:,} rows would come, go or change, {changes / published:.1%}"
