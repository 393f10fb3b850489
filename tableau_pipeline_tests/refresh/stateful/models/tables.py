"""The tables of a history: what columns they can have, and what becomes of their rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tableau_pipeline_tests.refresh.stateful.models import values
from tableau_pipeline_tests.refresh.stateful.models.windows import Partitioning

MOST_ROWS = 12


@dataclass(frozen=True)
class Col:
    """A column.

    Attributes:
        role: what fills it: "key" and "cursor" grow with the slot of a row, "part" tells its
            partition, "moment" lies within some days, "value" is anything, NULL too.
        step: how many slots in a row share a value of a growing column.
        cycle: after how many values it begins again; 0 for never.
    """

    name: str
    type: str
    role: str = "value"
    step: int = 1
    cycle: int = 0

    def value(self, slot: int, number: int, partitioning: Partitioning | None) -> Any:
        """What a row has in it."""
        match self.role:
            case "key" | "cursor":
                number = slot // self.step
                return values.growing(self.type, number % self.cycle if self.cycle else number)
            case "reference":
                return values.growing(self.type, number - 1) if number else None
            case "moment":
                return values.days_around(self.type, number)
            case "part" if partitioning:
                return partitioning.value(number)
            case _:
                return values.any_value(self.type, number)


@dataclass(frozen=True)
class Row:
    """A row, and the slot that its key stands for."""

    slot: int
    values: tuple


@dataclass(frozen=True)
class Content:
    """All rows of a model at one time.

    Attributes:
        stale: the partition that was written before the columns became what they are.
        gone: partitions that were never written, or removed.
    """

    columns: tuple[Col, ...]
    rows: tuple[Row, ...] = ()
    stale: str | None = None
    gone: frozenset[str] = frozenset()

    def index(self, column: str) -> int:
        """The position of a column."""
        return [each.name for each in self.columns].index(column)

    def column(self, column: str) -> list[Any]:
        """The values of a column."""
        at = self.index(column)
        return [row.values[at] for row in self.rows]

    def tuples(self, columns: Sequence[str]) -> list[tuple]:
        """The values of some columns, row by row."""
        return list(zip(*(self.column(name) for name in columns), strict=True))

    def where(self, keep: Iterable[bool]) -> "Content":
        """Some of the rows."""
        kept = tuple(row for row, good in zip(self.rows, keep, strict=True) if good)
        return replace(self, rows=kept)

    @property
    def schema(self) -> dict[str, str]:
        """Types by column."""
        return {column.name: column.type for column in self.columns}


@dataclass
class Model:
    """A table's model over time.

    Attributes:
        past: all it was, the present last.
        changed_keys: keys of the rows that changed at some time, and lately.
    """

    name: str
    content: Content
    partitioning: Partitioning | None
    keys: tuple[str, ...]
    past: list[Content] = field(default_factory=list)
    changed_keys: set[tuple] = field(default_factory=set)
    lately: set[tuple] = field(default_factory=set)

    def become(self, content: Content) -> None:
        """Take new content; a partition that has rows again is there again."""
        if self.partitioning:
            filled = {self.partitioning.key(value) for value in content.column("part")}
            gone = content.gone - filled
            left = set(self.partitioning.keys) - gone
            # A partition can differ from others only.
            stale = content.stale if content.stale in left and len(left) > 1 else None
            content = replace(content, gone=gone, stale=stale)
        self.past.append(self.content)
        old = _by_key(self.content, self.keys)
        new = _by_key(content, self.keys)
        self.lately = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        self.changed_keys |= self.lately
        self.content = content

    def parts(self) -> Mapping[str | None, Content]:
        """The content by partition; one without a name if the model has no partitions."""
        if self.partitioning is None:
            return {None: self.content}
        column = self.content.column("part")
        return {
            key: self.content.where([self.partitioning.key(value) == key for value in column])
            for key in self.partitioning.keys
            if key not in self.content.gone
        }


def _by_key(content: Content, keys: Sequence[str]) -> dict[tuple, list[str]]:
    found: dict[tuple, list[str]] = {}
    for row, key in zip(content.rows, content.tuples(keys), strict=True):
        found.setdefault(key, []).append(repr(row.values))
    return {key: sorted(rows) for key, rows in found.items()}
