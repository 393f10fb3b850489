"""Tables in Parquet files: the places of the files, and SQL for the rows.

hyperd reads only the columns of a file that a query uses.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from tableauhyperapi import HyperException, HyperProcess, escape_name

from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.types import (
    ROW_HASH,
    Column,
    hyper_type,
    stored_column,
    stored_name,
    stored_type,
    string_literal,
    value_of,
)


@runtime_checkable
class Folder(Protocol):
    """The files of a model; the name of a file is its path below the folder."""

    def uri(self, name: str) -> str:
        """Return the URI of a file or folder in this folder."""

    def full_name(self, name: str) -> str:
        """Return the path or URL of a file, for messages."""

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the local paths of files; fetch files that are not on this machine."""

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the full names of the given files that do not exist."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder on a disk; `path` is absolute. Files in other folders are named by absolute path."""

    path: Path

    def uri(self, name: str) -> str:
        """Return the URI of a file or folder in this folder."""
        return (self.path / name).as_uri()

    def full_name(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.path / name)

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of files."""
        folder = str(self.path)
        return tuple(name if name.startswith("/") else f"{folder}/{name}" for name in names)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the paths of the given files that do not exist."""
        return [path for path in self.paths(names) if not Path(path).exists()]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """How some Parquet files store a column: under a name, or as one value for all rows.

    Attributes:
        column: the column of the table.
        name: the name of the column in the files; None if the files lack the column.
        value: the text of the column's value in all rows, if the files lack the column; None for
            NULL.
    """

    column: Column
    name: str | None = None
    value: str | None = None


# How a file stores each column of its table, in the order of the columns.
Layout = tuple[StoredColumn, ...]


def plain_layout(columns: Sequence[Column]) -> Layout:
    """Return the layout of files that store each column under its own name and type."""
    return tuple(StoredColumn(stored, stored.name) for stored in map(stored_column, columns))


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table to build, and the Parquet files with its rows.

    Attributes:
        name: the table's name in the extract, in the schema "Extract".
        columns: the columns in the order of the extract; further columns of the files are left out.
        files: the names of files in `folder`, or absolute paths; () for an empty table.
        layouts: for each layout, the files with this layout; {} if all files store each column
            under its own name and type. If there are layouts, the hash of each row is computed
            instead of read.
        where: an SQL condition for the rows to include; None for all rows.
        comments: the comments of columns; the keys are column names.
        folder: the folder of the files, which returns their local paths when the rows are read.
    """

    name: str
    columns: tuple[Column, ...]
    files: tuple[str, ...]
    layouts: Mapping[Layout, tuple[str, ...]] = field(default_factory=dict)
    where: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    folder: Folder = field(default_factory=partial(LocalFolder, Path("/")))


_HASH = escape_name(ROW_HASH)


def row_text(columns: Sequence[Column]) -> str:
    """Return SQL for the text of a row; different rows have different texts."""
    parts = []
    for column in columns:
        value, type_ = escape_name(column.name), hyper_type(column, table="")
        text = f"CAST({value} AS TEXT)"
        if type_ == "BYTES":
            # Encode bytes, because bytes may be invalid text.
            text = f"encode({value}, 'hex')"
        elif type_ in ("DOUBLE PRECISION", "REAL"):
            # Give 0.0 and -0.0 the same text: hyperd stores only one of them if a column has both.
            text = f"CASE WHEN {value} = 0 THEN '0' ELSE {text} END"
        elif type_ == "TEXT":
            # Prefix the length of a text, because only a text may contain the separator, a
            # semicolon.
            text = f"LENGTH({text}) || '=' || {text}"
        parts.append(f"COALESCE({text}, '-') || ';'")
    return " || ".join(parts)


def number_of(hash_: str, size: int) -> str:
    """Return SQL for the first `size` bytes of a hash as a whole number; `size` is at most 7."""
    return " + ".join(
        f"CAST(get_byte({hash_}, {number}) AS BIGINT) * {256**number}" for number in range(size)
    )


def names(columns: Sequence[str]) -> str:
    """Return SQL for a list of column names."""
    return ", ".join(escape_name(column) for column in columns)


def select_sql(table: TableSource) -> str:
    """Return a subquery with the columns of `table`, in their Hyper types."""
    values, stored = [], []
    for column in table.columns:
        type_ = hyper_type(column, table=table.name)
        # If there are no files to scan, use NULLs of the right types.
        value = value_of(column) if table.files else "NULL"
        values.append(f"CAST({value} AS {type_}) AS {escape_name(column.name)}")
        stored.append(f"{escape_name(stored_name(column))} {stored_type(column, type_)}")
    if table.layouts:
        source = f"FROM {_in_layouts(table)}"
    elif table.files:
        source = f"FROM {_parquet(table, table.files, columns=stored)}"
    else:
        source = "WHERE FALSE"
    typed = f"(SELECT {', '.join(values)} {source})"
    return f"(SELECT * FROM {typed} typed WHERE {table.where})" if table.where else typed  # noqa: S608


def _parquet(table: TableSource, files: Sequence[str], *, columns: Sequence[str]) -> str:
    """Return SQL that reads some columns from some files of a table.

    hyperd refuses a file if one of `columns` has another type in the file. Other columns of the
    file may even have types that hyperd cannot read.
    """
    sources = ", ".join(map(string_literal, table.folder.paths(files)))
    # If no columns are given, let hyperd find them in the file, because an external table needs at
    # least one column.
    descriptor = f"COLUMNS => DESCRIPTOR({', '.join(columns)}), " if columns else ""
    return f"external(ARRAY[{sources}], {descriptor}FORMAT => 'parquet')"


def _in_layouts(table: TableSource) -> str:
    """Return a subquery with all columns of the layouts and the hash of each row."""
    parts = [_in_layout(table, layout, files) for layout, files in table.layouts.items()]
    columns = [stored.column for stored in next(iter(table.layouts))]
    selected, united = (
        names([column.name for column in columns]),
        f"({' UNION ALL '.join(parts)}) united",
    )
    # Hash the stored values, so that the hash does not depend on the types that a data source
    # declares.
    hashed = f"(SELECT {selected}, sha256({row_text(columns)}) AS {_HASH} FROM {united}) hashed"  # noqa: S608
    # The last of the eight bytes determines the sign of the number.
    number = f"{number_of(_HASH, 7)} + (CAST(get_byte({_HASH}, 7) AS BIGINT) - 128) * {256**7}"
    return f"(SELECT {selected}, {number} AS {_HASH} FROM {hashed}) stored"  # noqa: S608


def _in_layout(table: TableSource, layout: Layout, files: Sequence[str]) -> str:
    """Return SQL that reads all columns of a layout from the files with this layout."""
    values, stored = [], []
    for each in layout:
        type_ = stored_type(each.column, hyper_type(each.column, table=""))
        if each.name:
            value = escape_name(each.name)
            stored.append(f"{value} {type_}")
        else:
            text = "NULL" if each.value is None else string_literal(each.value)
            value = f"CAST({text} AS {type_})"
        values.append(f"{value} AS {escape_name(each.column.name)}")
    source = _parquet(table, files, columns=stored)
    return f"SELECT {', '.join(values)} FROM {source} stored"  # noqa: S608


def unreadable_columns(hyper: HyperProcess, table: TableSource) -> Iterator[str]:
    """Read the whole table, and yield a phrase for each column with values that hyperd refuses.

    Each query reads one column, because hyperd's own errors may not name the column.
    """
    for column in table.columns:
        # Drop the condition on rows, because it may name another column.
        alone = replace(table, columns=(column,), where=None)
        # Use DISTINCT, because a plain count would not read the values.
        values = f"SELECT DISTINCT * FROM {select_sql(alone)} source"  # noqa: S608
        try:
            with connect(hyper) as connection:
                connection.execute_list_query(f"SELECT COUNT(*) FROM ({values}) found")  # noqa: S608
        except HyperException as error:
            reason = str(error.main_message).strip().splitlines()[-1]
            yield f'table "{table.name}", column "{column.name}": {reason}'
