"""Changes of a model's rows and columns between refreshes. Each function returns new content.

The slot of a row is the number from which its keys and cursors are made.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from tableau_pipeline_tests.refresh.stateful.models.tables import (
    MOST_ROWS,
    ByTime,
    Col,
    Content,
    Model,
    Row,
    as_text,
)


def write(model: Model, slot: int, numbers: Sequence[int]) -> Content:
    """Add a row with this slot, or replace the row that has it."""
    rows = [row for row in model.content.rows if row.slot != slot]
    return _with(model.content, [*rows, _row(model, slot, numbers)])


def append(model: Model, count: int, numbers: Sequence[int]) -> Content:
    """Add rows of the next slots, so that keys and cursors grow."""
    rows = model.content.rows
    slot = max((row.slot for row in rows), default=-1) + 1
    new = [_row(model, slot + n, (*numbers[n:], *numbers[:n])) for n in range(count)]
    return _with(model.content, [*rows, *new])


def touch(model: Model, row: int, column: int, number: int) -> Content:
    """Change one value of a row in a column that is neither key nor cursor."""
    return _set(model, row, column, number, bound=False)


def one_value(model: Model, number: int) -> Content:
    """Change one value, if possible in the row with the greatest cursor; otherwise add a row.

    Keys, cursors and partitions stay.
    """
    content = model.content
    cursors = [*enumerate(content.column("cursor"))]
    free = [n for n, column in enumerate(content.columns) if column.role == "value"]
    for at, _ in sorted(cursors, key=lambda cursor: _order(cursor[1]), reverse=True):
        for column in free:
            for value in range(number, number + 4):
                changed = _set_at(model, at, column, value)
                if as_text(changed.rows[at].values[column]) != as_text(
                    content.rows[at].values[column]
                ):
                    return changed
    return append(model, 1, (number + 1,))


def null(model: Model, row: int, column: int) -> Content:
    """Make a key or a cursor NULL."""
    return _set(model, row, column, None, bound=True)


def delete(model: Model, row: int) -> Content:
    """Delete a row."""
    content = model.content
    at = row % max(len(content.rows), 1)
    return content.where(n != at for n in range(len(content.rows)))


def swap(model: Model, one: int, other: int) -> Content:
    """Exchange the keys of two rows. The number of rows and the values of each column stay."""
    content = model.content
    if len(content.rows) < 2:
        return content
    one, other = (n % len(content.rows) for n in (one, other))
    rows, keys = list(content.rows), {content.index(name) for name in model.keys}

    def exchanged(row: Row, by: Row) -> Row:
        pairs = enumerate(zip(row.values, by.values, strict=True))
        return Row(row.slot, tuple(mine if n in keys else its for n, (mine, its) in pairs))

    rows[one], rows[other] = exchanged(rows[one], rows[other]), exchanged(rows[other], rows[one])
    return _with(content, rows)


def twin(model: Model, row: int) -> Content:
    """Repeat a row, and so its key."""
    rows = model.content.rows
    return _with(model.content, [*rows, *rows[row % len(rows) :][:1]] if rows else [])


def clear(model: Model) -> Content:
    """Delete all rows."""
    return replace(model.content, rows=())


def rewind(model: Model, steps: int) -> Content:
    """Go back to an earlier content."""
    return model.past[-steps] if steps <= len(model.past) else model.content


def reverse(model: Model) -> Content:
    """Reverse the order of the rows."""
    return replace(model.content, rows=model.content.rows[::-1])


def drop_partition(model: Model, partition: int) -> Content:
    """Remove a partition, or bring it back without rows."""
    if model.partitioning is None:
        return model.content
    keys = model.partitioning.keys
    key = keys[partition % len(keys)]
    gone = model.content.gone ^ {key}
    if len(gone) == len(keys):
        return model.content
    others = [model.partitioning.key(value) != key for value in model.content.column("part")]
    return replace(model.content.where(others), gone=gone)


def repartition(model: Model, days: int) -> Content:
    """Make all partitions windows of so many days."""
    if isinstance(model.partitioning, ByTime) and model.partitioning.hours == 24:
        model.partitioning = replace(model.partitioning, days=days)
        return replace(model.content, gone=frozenset(), stale=None)
    return model.content


def leave_behind(model: Model, partition: int) -> Content:
    """Leave one partition with an extra column until all partitions are written again."""
    if model.partitioning is None:
        return model.content
    keys = [key for key in model.partitioning.keys if key not in model.content.gone]
    stale = None if model.content.stale else keys[partition % len(keys)]
    return replace(model.content, stale=stale)


def add_column(model: Model, type_: str, number: int) -> Content:
    """Add the column "extra", unless the model has this column."""
    if "extra" in model.content.schema:
        return model.content
    return _columns(model, [*model.content.columns, Col("extra", type_)], filled=number)


def drop_column(model: Model) -> Content:
    """Remove the last column that nothing depends on."""
    columns = model.content.columns
    free = [column for column in columns if column.role == "value"]
    return _columns(model, [column for column in columns if column not in free[-1:]])


def retype(model: Model, type_: str, number: int) -> Content:
    """Change the type of the last column that nothing depends on."""
    columns = model.content.columns
    free = [column for column in columns if column.role == "value"][-1:]
    new = [replace(column, type=type_) if column in free else column for column in columns]
    return _columns(model, new, filled=number)


def reorder(model: Model) -> Content:
    """Reverse the order of the columns."""
    return _columns(model, model.content.columns[::-1])


def relabel(model: Model) -> Content:
    """Exchange only the names of two columns of the same type."""
    columns = list(model.content.columns)
    free = [n for n, column in enumerate(columns) if column.role in ("value", "reference")]
    for one, other in combinations(free, 2):
        if columns[one].type == columns[other].type:
            names = columns[one].name, columns[other].name
            columns[other] = replace(columns[other], name=names[0])
            columns[one] = replace(columns[one], name=names[1])
            break
    return replace(model.content, columns=tuple(columns))


def repaired(model: Model) -> Content:
    """The content with valid keys and cursors, and without a stale partition."""
    content = model.content
    rows = []
    for slot, row in {row.slot: row for row in content.rows}.items():
        values = tuple(
            column.value(slot, 0, model.partitioning) if column.role in ("key", "cursor") else value
            for column, value in zip(content.columns, row.values, strict=True)
        )
        rows.append(Row(slot, values))
    return replace(content, rows=tuple(rows), stale=None)


def _row(model: Model, slot: int, numbers: Sequence[int]) -> Row:
    values = (
        column.value(slot, numbers[n % len(numbers)], model.partitioning)
        for n, column in enumerate(model.content.columns)
    )
    return Row(slot, tuple(values))


def _set(model: Model, row: int, column: int, number: int | None, *, bound: bool) -> Content:
    """Change a value of a row: of a key or cursor if `bound`, otherwise of another column."""
    content = model.content
    columns = [
        n for n, col in enumerate(content.columns) if (col.role in ("key", "cursor")) is bound
    ]
    if not content.rows or not columns:
        return content
    return _set_at(model, row % len(content.rows), columns[column % len(columns)], number)


def _set_at(model: Model, row: int, at: int, number: int | None) -> Content:
    content = model.content
    old, col = content.rows[row], content.columns[at]
    value = None if number is None else col.value(old.slot, number, model.partitioning)
    new = Row(old.slot, (*old.values[:at], value, *old.values[at + 1 :]))
    return _with(content, [*content.rows[:row], new, *content.rows[row + 1 :]])


def _order(value: Any) -> tuple[bool, Any]:
    """A key for sorting in which NULL comes first."""
    return (value is not None, value)


def _with(content: Content, rows: Sequence[Row]) -> Content:
    return replace(content, rows=tuple(rows[-MOST_ROWS:]))


def _columns(model: Model, columns: Iterable[Col], *, filled: int = 0) -> Content:
    """The same rows with other columns."""
    content, columns = model.content, tuple(columns)
    old = {column: n for n, column in enumerate(content.columns)}

    def values(number: int, row: Row) -> tuple:
        return tuple(
            row.values[old[column]]
            if column in old
            else column.value(row.slot, filled + number, model.partitioning)
            for column in columns
        )

    rows = tuple(Row(row.slot, values(n, row)) for n, row in enumerate(content.rows))
    return replace(content, columns=columns, rows=rows)
