"""Guards: an empty or suddenly small table is more often a fault upstream than the truth."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tableau_pipeline.core.checkpoint import State, TableState
from tableau_pipeline.core.declaration import Declaration, Guard


def guard_problems(
    declaration: Declaration,
    desired: Mapping[str, TableState],
    bases: Sequence[State],
    *,
    accept_shrink: bool,
) -> list[str]:
    """A sentence for each guard that the tables break, compared with what is published.

    After a crash that may be any of `bases`: the largest counts.
    """
    problems = []
    for table in declaration.tables:
        rows = desired[table.name].content.rows
        published = [base.tables[table.name] for base in bases if table.name in base.tables]
        before = max((each.content.rows for each in published), default=0)
        problem = _problem(table.guard, rows, before)
        if problem and not accept_shrink:
            problems.append(
                f'Table "{table.name}": model "{table.model}" has {problem}. If that is right, run '
                "again with accept: [shrink], or change its guard"
            )
    return problems


def _problem(guard: Guard, rows: int, before: int) -> str | None:
    if rows < guard.min_rows:
        return f"{rows:,} rows, fewer than guard.min_rows ({guard.min_rows:,})"
    # In floats, 1 - 0.41 is not 0.59.
    if before - rows > before * Fraction(str(guard.max_shrink)):
        return (
            f"{rows:,} rows where {before:,} are published: a loss of {1 - rows / before:.0%}, "
            f"more than guard.max_shrink ({guard.max_shrink:.0%})"
        )
    return None
