"""What goes into a `.hyper` file, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

EXTRACT_SCHEMA = "Extract"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a model.

    Attributes:
        type: Spark's own name of the type, "decimal(10,2)" or "bigint"; or what a data source
            declares to make of it, "timestamp at Europe/Paris" (see `TypePolicy`).
    """

    name: str
    type: str


def json_text(column: str) -> str:
    """The column of a snapshot's files with the JSON text of a nested column."""
    return f"_json_of_{column}"


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table to be, and the Parquet files whose rows it takes.

    Attributes:
        name: the table's name in the extract, in the schema "Extract".
        columns: in the order of the extract; other columns of the files are left out.
        files: absolute paths; none means an empty table.
        where: SQL over the columns, which leaves out the rows for which it is not true.
        comments: of columns that have one.
    """

    name: str
    columns: tuple[Column, ...]
    files: tuple[str, ...]
    where: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Relationship:
    """Many rows of `many` point at one row of `one`: an assumed foreign key.

    Attributes:
        on: pairs (column of `many`, column of `one`).
    """

    many: str
    one: str
    on: tuple[tuple[str, str], ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of `one`."""
        return tuple(column for _, column in self.on)

    def __str__(self) -> str:
        return f"{self.many} -> {self.one}"
