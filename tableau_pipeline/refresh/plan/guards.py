"""Guards: an empty or suddenly small table is more often an upstream fault than correct."""

from collections.abc import Mapping
from fractions import Fraction

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Declaration, Table

# Each sentence names the key of its guard. `publish_file` has none that could be changed.
_REMEDY = "If that is right, run again with accept: [shrink]"


def guard_problems(
    declaration: Declaration,
    desired: Mapping[str, TableContent],
    published: Mapping[str, int] | None,
) -> list[str]:
    """Return a sentence for each guard that the tables violate.

    Args:
        published: rows by table; a table that is missing here is new. None if they are not
            known.
    """
    return [
        f'Table "{table.name}": model "{table.model}" has {problem}'
        for table in declaration.tables
        if (problem := _problem(table, desired[table.name].content.rows, published))
    ]


def _problem(table: Table, rows: int, published: Mapping[str, int] | None) -> str | None:
    guard = table.guard
    if rows < guard.min_rows:
        return f"{rows:,} rows, fewer than guard.min_rows ({guard.min_rows:,}). {_REMEDY}"
    # Such a table passes before its rows are asked for, as counting them may take a download.
    if guard.max_shrink >= 1:
        return None
    if published is None:
        return (
            f"{rows:,} rows, and how many are published is not known: no record of them is left, "
            "the file is too large to count them (reconcile: max_mb) or may not be read, and the "
            "server does not count them. "
            f"guard.max_shrink cannot be checked. {_REMEDY}"
        )
    before = published.get(table.name, 0)
    # As floats, 1 - 0.41 is not 0.59.
    if before - rows > before * Fraction(str(guard.max_shrink)):
        return (
            f"{rows:,} rows where {before:,} are published: a loss of {1 - rows / before:.0%}, "
            f"more than guard.max_shrink ({guard.max_shrink:.0%}). {_REMEDY}"
        )
    return None
