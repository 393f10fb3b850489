"""The rows that the checks expect to be published, computed row by row in Python.

The module also finds tables that may not be published, for example because a key is repeated.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any

from tableau_pipeline.core.declaration import Declaration, Guard, Retain, Table
from tableau_pipeline.core.policies import Append, Diff
from tableau_pipeline_tests.refresh.stateful.models.tables import Content
from tableau_pipeline_tests.refresh.stateful.server.contents import Rows, sorted_rows

NUMBERS = ("int", "bigint", "double", "decimal(10,2)", "decimal(22,4)")
# The content of each model, by the name of the model.
Contents = Mapping[str, Content]


def expected_rows(declaration: Declaration, contents: Contents, day: date) -> Rows:
    """The rows that must be published, by published table.

    Args:
        day: the day of the refresh, for rolling windows.
    """
    return {
        declaration.published_name(table.name): _rows(
            within_window(contents[table.model], table.retain, day)
        )
        for table in declaration.tables
    }


def within_window(content: Content, retain: Retain | None, day: date) -> Content:
    """The rows of a model that a rolling window keeps."""
    if retain is None:
        return content
    values = content.column(retain.column)
    latest = max((value for value in values if value is not None), default=None)
    if retain.as_of == "run":
        start: Any = day - timedelta(days=retain.days)
        if content.schema[retain.column] != "date":
            zone = UTC if content.schema[retain.column] == "timestamp" else None
            start = datetime.combine(start, time(), zone)
    elif latest is None:
        return content
    else:
        start = latest - timedelta(days=retain.days)
    return content.where(value is None or value >= start for value in values)


def unpublishable(declaration: Declaration, contents: Contents, day: date) -> dict[str, str]:
    """For each table that may not be published, the reason."""
    problems = {}
    for table in declaration.tables:
        content = contents[table.model]
        if content.stale:
            problems[table.name] = "a partition has other columns"
        elif problem := _problem(declaration, table, within_window(content, table.retain, day)):
            problems[table.name] = problem
    return problems


def breaks_guard(guard: Guard, count: int, before: int | None) -> bool:
    """Whether a table breaks its guard.

    Args:
        before: the number of published rows; None if nothing is published.
    """
    if count < guard.min_rows:
        return True
    return lost_too_many(guard, count, before or 0)


def lost_too_many(guard: Guard, now: int, before: int) -> bool:
    """Whether more rows are gone than `max_shrink` allows."""
    is_allowed = before - now < before * Fraction(str(guard.max_shrink))
    return now < before and guard.max_shrink < 1 and not is_allowed


def schema(declaration: Declaration, contents: Contents) -> dict[tuple[str, str], str]:
    """Types by table and column. A table itself has an entry, with the column ""."""
    types = {(table.name, ""): "table" for table in declaration.tables}
    for table in declaration.tables:
        for column, type_ in contents[table.model].schema.items():
            types[table.name, column] = type_
    return types


def schema_refused(
    policy: str, new: Mapping[tuple[str, str], str], old: Mapping[tuple[str, str], str]
) -> bool:
    """Whether `on_schema_change` refuses a change of columns or tables."""
    if new == old or policy == "publish":
        return False
    return policy == "refuse" or not old.items() <= new.items()


def _problem(declaration: Declaration, table: Table, content: Content) -> str | None:
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


def _rows(content: Content) -> list[tuple[str, ...]]:
    return list(
        sorted_rows({column.name: content.column(column.name) for column in content.columns})
    )


def changed_shares(before: Rows, after: Rows) -> Mapping[str, Fraction]:
    """The share of new, removed or changed rows, for each table whose columns stay the same."""
    return {
        name: Fraction(max(_only_in(rows, after[name]), _only_in(after[name], rows)), len(rows) - 1)
        for name, rows in before.items()
        if len(rows) > 1 and name in after and rows[0] == after[name][0]
    }


def _only_in(rows: Sequence[tuple[str, ...]], others: Sequence[tuple[str, ...]]) -> int:
    return (Counter(rows) - Counter(others)).total()
