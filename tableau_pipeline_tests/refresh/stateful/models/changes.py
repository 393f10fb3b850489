"""What happens to the rows and the columns of a model between two refreshes."""

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
    published,
)


def write(model: Model, slot: int, numbers: Sequence[int]) -> Content:
    """A row of this slot comes, or takes the place of the one that had its key."""
    rows = [row for row in model.content.rows if row.slot != slot]
    return _with(model.content, [*rows, _row(model, slot, numbers)])


def append(model: Model, count: int, numbers: Sequence[int]) -> Content:
    """Rows of the next slots come, so that keys and cursors grow."""
    rows = model.content.rows
    slot = max((row.slot for row in rows), default=-1) + 1
    new = [_row(model, slot + n, (*numbers[n:], *numbers[:n])) for n in range(count)]
    return _with(model.content, [*rows, *new])


def touch(model: Model, row: int, column: int, number: int) -> Content:
    """One value of a row becomes another one; those that tell its slot stay."""
    return _set(model, row, column, number, bound=False)


def one_value(model: Model, number: int) -> Content:
    """A value of the row with the greatest cursor becomes another one, or such a row comes.

    What tells keys, cursors and partitions stays.
    """
    content = model.content
    cursors = [*enumerate(content.column("cursor"))]
    free = [n for n, column in enumerate(content.columns) if column.role == "value"]
    for at, _ in sorted(cursors, key=lambda each: _order(each[1]), reverse=True):
        for column in free:
            for value in range(number, number + 4):
                changed = _set_at(model, at, column, value)
                if published(changed.rows[at].values[column]) != published(
                    content.rows[at].values[column]
                ):
                    return changed
    return append(model, 1, (number + 1,))


def null(model: Model, row: int, column: int) -> Content:
    """A key or a cursor is lost."""
    return _set(model, row, column, None, bound=True)


def delete(model: Model, row: int) -> Content:
    content = model.content
    at = row % max(len(content.rows), 1)
    return content.where(n != at for n in range(len(content.rows)))


def swap(model: Model, one: int, other: int) -> Content:
    """Two rows exchange their keys: the same numbers of rows, the same values in each column."""
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
    """A row comes twice: its key is repeated."""
    rows = model.content.rows
    return _with(model.content, [*rows, *rows[row % len(rows) :][:1]] if rows else [])


def clear(model: Model) -> Content:
    return replace(model.content, rows=())


def rewind(model: Model, steps: int) -> Content:
    """It becomes again what it was."""
    return model.past[-steps] if steps <= len(model.past) else model.content


def reverse(model: Model) -> Content:
    """The same rows are stored in another order."""
    return replace(model.content, rows=model.content.rows[::-1])


def drop_partition(model: Model, partition: int) -> Content:
    """A partition is gone, or comes back without rows."""
    if model.partitioning is None:
        return model.content
    keys = model.partitioning.keys
    key = keys[partition % len(keys)]
    gone = model.content.gone ^ {key}
    if len(gone) == len(keys):
        return model.content
    kept = [model.partitioning.key(value) != key for value in model.content.column("part")]
    return replace(model.content.where(kept), gone=gone)


def repartition(model: Model, days: int) -> Content:
    """The partitions are cut again: windows of so many days."""
    if isinstance(model.partitioning, ByTime) and model.partitioning.hours == 24:
        model.partitioning = replace(model.partitioning, days=days)
        return replace(model.content, gone=frozenset(), stale=None)
    return model.content


def leave_behind(model: Model, partition: int) -> Content:
    """One partition is left with an extra column, until all are written again."""
    if model.partitioning is None:
        return model.content
    keys = [key for key in model.partitioning.keys if key not in model.content.gone]
    stale = None if model.content.stale else keys[partition % len(keys)]
    return replace(model.content, stale=stale)


def add_column(model: Model, type_: str, number: int) -> Content:
    """A column comes, if there is none of its name."""
    if "extra" in model.content.schema:
        return model.content
    return _columns(model, [*model.content.columns, Col("extra", type_)], filled=number)


def drop_column(model: Model) -> Content:
    """The last column that nothing depends on goes."""
    columns = model.content.columns
    free = [column for column in columns if column.role == "value"]
    return _columns(model, [each for each in columns if each not in free[-1:]])


def retype(model: Model, type_: str, number: int) -> Content:
    """A column that nothing depends on becomes one of another type."""
    columns = model.content.columns
    free = [column for column in columns if column.role == "value"][-1:]
    new = [replace(each, type=type_) if each in free else each for each in columns]
    return _columns(model, new, filled=number)


def reorder(model: Model) -> Content:
    return _columns(model, model.content.columns[::-1])


def relabel(model: Model) -> Content:
    """Two columns of a type exchange their names, and nothing else."""
    columns = list(model.content.columns)
    free = [n for n, each in enumerate(columns) if each.role in ("value", "reference")]
    for one, other in combinations(free, 2):
        if columns[one].type == columns[other].type:
            names = columns[one].name, columns[other].name
            columns[other] = replace(columns[other], name=names[0])
            columns[one] = replace(columns[one], name=names[1])
            break
    return replace(model.content, columns=tuple(columns))


def repaired(model: Model) -> Content:
    """Keys and cursors as they should be, and no partition left behind."""
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
    """Another value in one of the columns that are bound to the slot of a row, or of the others."""
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
    """NULL comes first."""
    return (value is not None, value)


def _with(content: Content, rows: Sequence[Row]) -> Content:
    return replace(content, rows=tuple(rows[-MOST_ROWS:]))


def _columns(model: Model, columns: Iterable[Col], *, filled: int = 0) -> Content:
    """The same rows in other columns."""
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
