"""What happens to a model between two refreshes: each change is a value that describes itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tableau_pipeline_tests.refresh.stateful.models.tables import MOST_ROWS, Content, Model, Row
from tableau_pipeline_tests.refresh.stateful.models.windows import ByTime


@dataclass(frozen=True)
class Write:
    """A row of this slot comes, or takes the place of the one that had its key."""

    slot: int
    numbers: tuple[int, ...]

    def __call__(self, model: Model) -> Content:
        content = model.content
        rows = [row for row in content.rows if row.slot != self.slot]
        return _with(content, [*rows, _row(model, self.slot, self.numbers)])


@dataclass(frozen=True)
class Append:
    """Rows of the next slots come, so that keys and cursors grow."""

    count: int
    numbers: tuple[int, ...]

    def __call__(self, model: Model) -> Content:
        content = model.content
        slot = max((row.slot for row in content.rows), default=-1) + 1
        new = [
            _row(model, slot + n, (*self.numbers[n:], *self.numbers[:n])) for n in range(self.count)
        ]
        return _with(content, [*content.rows, *new])


@dataclass(frozen=True)
class Touch:
    """One value of a row becomes another one; those that tell its slot stay."""

    row: int
    column: int
    number: int

    def __call__(self, model: Model) -> Content:
        content = model.content
        free = [n for n, col in enumerate(content.columns) if col.role not in ("key", "cursor")]
        if not content.rows or not free:
            return content
        at, row = free[self.column % len(free)], self.row % len(content.rows)
        return _set(model, row=row, column=at, number=self.number)


@dataclass(frozen=True)
class Delete:
    """A row goes."""

    row: int

    def __call__(self, model: Model) -> Content:
        content = model.content
        at = self.row % max(len(content.rows), 1)
        return content.where(n != at for n in range(len(content.rows)))


@dataclass(frozen=True)
class Swap:
    """Two rows exchange their keys: the same numbers of rows, the same values in each column."""

    one: int
    other: int

    def __call__(self, model: Model) -> Content:
        content = model.content
        if len(content.rows) < 2:
            return content
        one, other = (n % len(content.rows) for n in (self.one, self.other))
        rows = list(content.rows)
        keys = {content.index(name) for name in model.keys}
        rows[one], rows[other] = (
            _exchanged(content.rows[one], content.rows[other], keys),
            _exchanged(content.rows[other], content.rows[one], keys),
        )
        return _with(content, rows)


@dataclass(frozen=True)
class Twin:
    """A row comes twice: its key is repeated."""

    row: int

    def __call__(self, model: Model) -> Content:
        rows = model.content.rows
        return _with(model.content, [*rows, *rows[self.row % len(rows) :][:1]] if rows else [])


@dataclass(frozen=True)
class Null:
    """A key or a cursor is lost."""

    row: int
    column: int

    def __call__(self, model: Model) -> Content:
        content = model.content
        bound = [n for n, col in enumerate(content.columns) if col.role in ("key", "cursor")]
        if not content.rows:
            return content
        at = bound[self.column % len(bound)]
        row = self.row % len(content.rows)
        return _set(model, row=row, column=at, number=None)


@dataclass(frozen=True)
class Clear:
    """All rows go."""

    def __call__(self, model: Model) -> Content:
        return replace(model.content, rows=())


@dataclass(frozen=True)
class Rewind:
    """It becomes again what it was."""

    steps: int

    def __call__(self, model: Model) -> Content:
        return model.past[-self.steps] if self.steps <= len(model.past) else model.content


@dataclass(frozen=True)
class Reverse:
    """The same rows are stored in another order."""

    def __call__(self, model: Model) -> Content:
        return replace(model.content, rows=model.content.rows[::-1])


@dataclass(frozen=True)
class DropPartition:
    """A partition is gone, or comes back without rows."""

    partition: int

    def __call__(self, model: Model) -> Content:
        if model.partitioning is None:
            return model.content
        keys = model.partitioning.keys
        key = keys[self.partition % len(keys)]
        gone = model.content.gone ^ {key}
        if len(gone) == len(keys):
            return model.content
        kept = [model.partitioning.key(value) != key for value in model.content.column("part")]
        return replace(model.content.where(kept), gone=gone)


def _row(model: Model, slot: int, numbers: Sequence[int]) -> Row:
    return Row(
        slot,
        tuple(
            column.value(slot, numbers[n % len(numbers)], model.partitioning)
            for n, column in enumerate(model.content.columns)
        ),
    )


def _set(model: Model, *, row: int, column: int, number: int | None) -> Content:
    content = model.content
    old, col = content.rows[row], content.columns[column]
    value = None if number is None else col.value(old.slot, number, model.partitioning)
    values = (*old.values[:column], value, *old.values[column + 1 :])
    new = Row(old.slot, values)
    return _with(content, [*content.rows[:row], new, *content.rows[row + 1 :]])


def _exchanged(row: Row, by: Row, keys: set[int]) -> Row:
    values = zip(row.values, by.values, strict=True)
    mixed = tuple(mine if n in keys else its for n, (mine, its) in enumerate(values))
    return Row(row.slot, mixed)


def _with(content: Content, rows: Sequence[Row]) -> Content:
    return replace(content, rows=tuple(rows[-MOST_ROWS:]))


def repaired(model: Model) -> Content:
    """Keys and cursors as they should be, and no partition left behind."""
    content = model.content
    slots = {row.slot: row for row in content.rows}
    rows = []
    for slot, row in slots.items():
        values = tuple(
            column.value(slot, 0, model.partitioning) if column.role in ("key", "cursor") else value
            for column, value in zip(content.columns, row.values, strict=True)
        )
        rows.append(Row(slot, values))
    return replace(content, rows=tuple(rows), stale=None)


@dataclass(frozen=True)
class Repartition:
    """The partitions are cut again: windows of so many days."""

    days: int

    def __call__(self, model: Model) -> Content:
        if isinstance(model.partitioning, ByTime) and model.partitioning.hours == 24:
            model.partitioning = replace(model.partitioning, days=self.days)
            return replace(model.content, gone=frozenset(), stale=None)
        return model.content


Change = Callable[[Model], Content]
