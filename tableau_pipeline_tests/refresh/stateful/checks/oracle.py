"""What ought to be published, and what ought not, computed row by row in Python."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any

from tableau_pipeline.core.declaration import Append, Declaration, Diff, Guard, Retain, Table
from tableau_pipeline_tests.refresh.stateful.models.tables import Content
from tableau_pipeline_tests.refresh.stateful.server.contents import Published, rows

NUMBERS = ("int", "bigint", "double", "decimal(10,2)", "decimal(22,4)")
# What each model holds, by its name.
Contents = Mapping[str, Content]


def wanted(declaration: Declaration, contents: Contents, day: date) -> Published:
    return {
        declaration.published_name(table.name): _rows(
            kept(contents[table.model], table.retain, day)
        )
        for table in declaration.tables
    }


def kept(content: Content, retain: Retain | None, day: date) -> Content:
    """The rows of a model that a rolling window leaves."""
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


def unfit(declaration: Declaration, contents: Contents, day: date) -> dict[str, str]:
    """Why no row of these models may be published, by table."""
    found = {}
    for table in declaration.tables:
        content = contents[table.model]
        if content.stale:
            found[table.name] = "a partition has other columns"
        elif problem := _unfit(declaration, table, kept(content, table.retain, day)):
            found[table.name] = problem
    return found


def shrunk(guard: Guard, count: int, before: int | None) -> bool:
    """Whether a guard is broken; `before` is None where nothing is published yet."""
    if count < guard.min_rows:
        return True
    return lost_too_many(guard, count, before or 0)


def lost_too_many(guard: Guard, now: int, before: int) -> bool:
    """Whether so many rows are gone that a guard stops the refresh."""
    is_allowed = before - now < before * Fraction(str(guard.max_shrink))
    return now < before and guard.max_shrink < 1 and not is_allowed


def schema(declaration: Declaration, contents: Contents) -> dict[tuple[str, str], str]:
    """Types by table and column; a table itself counts as one."""
    types = {(table.name, ""): "table" for table in declaration.tables}
    for table in declaration.tables:
        for column, type_ in contents[table.model].schema.items():
            types[table.name, column] = type_
    return types


def schema_refused(
    policy: str, new: Mapping[tuple[str, str], str], old: Mapping[tuple[str, str], str]
) -> bool:
    """Whether a change of columns or tables needs a decision."""
    if new == old or policy == "publish":
        return False
    return policy == "refuse" or not old.items() <= new.items()


def _unfit(declaration: Declaration, table: Table, content: Content) -> str | None:
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
    return list(rows({column.name: content.column(column.name) for column in content.columns}))
