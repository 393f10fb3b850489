"""Refuse rows that match more than once: Hyper would silently use any one of them."""

from collections.abc import Sequence

from tableau_sandbox.batch.conditions import Comparison, Side, column_pairs
from tableau_sandbox.batch.errors import BatchError, Code
from tableau_sandbox.batch.sql import aliased, column_sql
from tableau_sandbox.batch.step import Step


def check_one_match(step: Step) -> None:
    """Refuse an update in which several source rows match one target row.

    Raises:
        BatchError: there are such rows; the message names one.
    """
    key = sorted({pair.target for pair in column_pairs(step.condition)})
    columns = [column_sql(Side.TARGET, name) for name in key]
    # Hyper's name for the position of a row: target rows may be equal to each other.
    group = ", ".join(["t.ctid", *columns])
    repeated = step.first(
        f"SELECT {group} FROM {aliased(step.target)} JOIN {aliased(step.rows)} ON {step.match}"  # noqa: S608
        f" GROUP BY {group} HAVING COUNT(*) > 1"
    )
    if repeated:
        raise _repeated(step, key, repeated[1:])


def check_unique_source(step: Step) -> None:
    """Refuse an upsert that has several rows for one key.

    To 'eq', NULL is not a key, as no two NULLs are equal; to 'is', it is one.

    Raises:
        BatchError: there are such rows; the message names one.
    """
    pairs = column_pairs(step.condition)
    key = sorted({pair.source for pair in pairs})
    columns = ", ".join(column_sql(Side.SOURCE, name) for name in key)
    known = [
        f"{column_sql(Side.SOURCE, pair.source)} IS NOT NULL"
        for pair in pairs
        if pair.comparison is Comparison.EQ
    ]
    repeated = step.first(
        f"SELECT {columns} FROM {aliased(step.rows)} WHERE {' AND '.join(known) or 'TRUE'}"  # noqa: S608
        f" GROUP BY {columns} HAVING COUNT(*) > 1"
    )
    if repeated:
        raise _repeated(step, key, repeated)


def _repeated(step: Step, key: Sequence[str], values: Sequence[object]) -> BatchError:
    described = ", ".join(
        f'"{name}" = {value!s:.100}' for name, value in zip(key, values, strict=True)
    )
    where = f" with {described}" if described else ""
    return BatchError(
        Code.REPEATED_KEY,
        f"Several rows of the {step.rows.title} match one row{where} of the {step.target.title}.",
        step.position,
    )
