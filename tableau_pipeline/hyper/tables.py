"""The content of a `.hyper` file, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

from pydantic import Field

from tableau_pipeline.keys import keyed, written_as


def string_literal(text: str) -> str:
    """Return a text as a string literal of SQL.

    `tableauhyperapi.escape_string_literal` writes a control character as up to three octal digits;
    a digit that follows it becomes a part of it.
    """
    quoted = text.replace("'", "''")
    if "\0" not in text:
        return f"'{quoted}'"
    # hyperd reads U+0000 only as an escape.
    escaped = quoted.replace("\\", "\\\\").replace("\0", "\\000")
    return f"E'{escaped}'"


@runtime_checkable
class Folder(Protocol):
    """The files of a model, each named by its path below the folder."""

    def uri(self, name: str) -> str:
        """Return the URI of a file or of a folder in this one."""

    def full_name(self, name: str) -> str:
        """Return where a file is, for people: its path or URL."""

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of files; those that are not on this machine are fetched."""

    def sources(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return SQL by which hyperd finds files. It may hold credentials: never log it."""

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return those of these files that do not exist, by their full names."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of a disk; `path` is absolute. A file elsewhere is named by its absolute path."""

    path: Path

    def uri(self, name: str) -> str:
        """Return the URI of a file or of a folder in this one."""
        return (self.path / name).as_uri()

    def full_name(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.path / name)

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of files."""
        folder = str(self.path)
        return tuple(name if name.startswith("/") else f"{folder}/{name}" for name in names)

    def sources(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of files as SQL."""
        return tuple(map(string_literal, self.paths(names)))

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the paths at which there is no file."""
        return [path for path in self.paths(names) if not Path(path).exists()]


EXTRACT_SCHEMA = "Extract"
# The name of the column with the hash of each row, which is not published.
ROW_HASH = "_row_hash"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a model.

    Attributes:
        type: Spark's name of the type, "decimal(10,2)" or "bigint"; or the type that a data
            source declares for it, such as "timestamp at Europe/Paris" (see `TypePolicy`).
    """

    name: str
    type: str


def json_text(column: str) -> str:
    """Return the name of the column in a snapshot with the JSON text of a nested column."""
    return f"_json_of_{column}"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """How Parquet files hold a column, where that is not by its own name and type.

    Attributes:
        column: the column of the table.
        name: its name in the files; None if the files do not hold it.
        value: if the files do not hold it, the text of the value of all their rows; None for NULL.
    """

    column: Column
    name: str | None
    value: str | None = None


# How a file holds all columns of its table, in their order.
Layout = tuple[StoredColumn, ...]


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table to build, and the Parquet files with its rows.

    Attributes:
        name: the table's name in the extract, in the schema "Extract".
        columns: in the order of the extract; other columns of the files are left out.
        files: names below `folder`, or absolute paths; () for an empty table.
        layouts: the files by how they hold the columns; {} if all of them hold each column by its
            own name and type. The hash of a row is then not stored, but computed.
        where: an SQL condition over the columns; other rows are left out.
        comments: the comments of columns, by name.
        folder: where the files are; hyperd's paths of them are asked for when the rows are read.
    """

    name: str
    columns: tuple[Column, ...]
    files: tuple[str, ...]
    layouts: Mapping[Layout, tuple[str, ...]] = field(default_factory=dict)
    where: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    folder: Folder = field(default_factory=partial(LocalFolder, Path("/")))


@keyed
class Relationship:
    """A many-to-one relationship: many rows of `from` refer to one row of `to`.

    The file stores it as an assumed foreign key of `many`.
    """

    many: Annotated[str, Field(validation_alias="from", description="Table of the many side.")]
    one: Annotated[str, Field(validation_alias="to", description="Table of the one side.")]
    on: Annotated[
        tuple[tuple[str, str], ...],
        written_as(Annotated[dict[str, str], Field(min_length=1)], lambda on: tuple(on.items())),
    ] = Field(description="For each column of the key, column of `from`: column of `to`.")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of `one`."""
        return tuple(column for _, column in self.on)

    def __str__(self) -> str:
        return f"{self.many} -> {self.one}"


def tree_problem(tables: Sequence[str], relationships: Sequence[Relationship]) -> str | None:
    """Return why Tableau would refuse a file with these tables; None if it would not.

    Tableau (2021.4 and later) requires one fact table, from which every other table is reached by
    exactly one path of relationships from many to one.
    """
    edges: dict[str, list[str]] = {table: [] for table in tables}
    reached_from: dict[str, str] = {}
    for edge in relationships:
        if edge.one in reached_from:
            return (
                f'table "{edge.one}" is the "to" of two relationships, from '
                f'"{reached_from[edge.one]}" and from "{edge.many}"; Tableau needs one path to '
                "each table. Publish a second copy of it under another name, or leave one out"
            )
        edges[edge.many].append(edge.one)
        reached_from[edge.one] = edge.many
    facts = [table for table in tables if table not in reached_from]
    if len(facts) != 1:
        names = ", ".join(f'"{table}"' for table in facts) or "none"
        return (
            "Tableau needs exactly one fact table, which no relationship points to; here: "
            f"{names}. Connect every table by a relationship from the many side to the one side"
        )
    # No table has two parents by now, so only a circle can be out of reach of the fact table.
    seen, frontier = set(facts), list(facts)
    while frontier:
        frontier = [one for many in frontier for one in edges[many] if one not in seen]
        seen.update(frontier)
    if circle := [table for table in tables if table not in seen]:
        return f"these tables point at each other in a circle: {', '.join(circle)}"
    return None
