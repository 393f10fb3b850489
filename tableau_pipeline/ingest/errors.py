"""What was read, and what was not: bad rows by line, column and value, with remedies."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tableau_pipeline.errors import FilesError
from tableau_pipeline.ingest.options import Files, digests
from tableau_pipeline.ingest.values import STRINGS, TIMES, do

# PySparkException is raised by the driver, Py4JJavaError by a task.
READ_ERRORS = (PySparkException, Py4JJavaError)
# How many bad rows a message quotes, how many columns of each, and how much of a value.
_QUOTED, _NAMED, _LONGEST = 5, 3, 80
# Numbers that are too large for other types.
_WHOLE = re.compile(r"-?\d{1,38}")
# The options that often read values which do not fit without them.
_OPTIONS = {
    "csv": "nullValue, decimal, thousands, dateFormat, timestampFormat",
    "json": "dateFormat, timestampFormat",
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a text file.

    Attributes:
        columns: the texts of their values, by column.
        problems: places that are no rows, such as "line 7", and why.
        places: returns the place of each row.
    """

    columns: Sequence[pa.Array]
    problems: Sequence[tuple[str, str]]
    places: Callable[[], Sequence[str]]


@dataclass
class BadRows:
    """The bad rows of files that were read together.

    Attributes:
        total: the number of bad rows.
        examples: messages about the first ones.
    """

    files: Files
    schema: T.StructType
    total: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, path: Path, chunk: Chunk, wrong: Sequence[pa.Array]) -> pa.Array:
        """Count the bad rows of a chunk; return whether each of its rows is good.

        Args:
            wrong: by column, whether the value of each row does not fit.
        """
        is_bad = reduce(partial(do, "or_"), wrong)
        is_good, rows = do("invert", is_bad), do("indices_nonzero", is_bad).to_pylist()
        self.total += len(chunk.problems) + len(rows)
        if free := _QUOTED - len(self.examples):
            places = chunk.places() if rows else []
            found = [(places[row], self._problem(chunk, row, wrong)) for row in rows[:free]]
            # By the number of a line: 9 comes before 10.
            found = sorted([*found, *chunk.problems], key=lambda each: (len(each[0]), each[0]))
            self.examples += [f"{path.name}, {': '.join(each)}" for each in found[:free]]
        return is_good

    def _problem(self, chunk: Chunk, row: int, wrong: Sequence[pa.Array]) -> str:
        problems = []
        for column, texts, misfits in zip(self.schema, chunk.columns, wrong, strict=True):
            if misfits[row].as_py():
                text, type_ = texts[row].as_py(), column.dataType
                # The texts of JSON have quotes already, except in columns of texts.
                is_quoted = self.files.format == "json" and not isinstance(type_, STRINGS + TIMES)
                shown = text if is_quoted else f'"{text}"'
                shown = printable(shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}...")
                name = type_.simpleString()
                is_large = isinstance(type_, T.LongType | T.DoubleType) and _WHOLE.fullmatch(text)
                held = "; decimal(38,0) would hold it" if is_large else ""
                problems.append(f'column "{column.name}": {shown} is not a valid {name}{held}')
        if (more := len(problems) - _NAMED) > 0:
            problems[_NAMED:] = [f"and {more} more column{'s' * (more > 1)}"]
        return ", ".join(problems)

    def message(self) -> str:
        """Return the message for all bad rows, with the remedies."""
        described = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in self.schema)
        rows = "1 row does" if self.total == 1 else f"{self.total:,} rows do"
        more = self.total - len(self.examples)
        return (
            f"{rows} not fit the columns {described}: {'; '.join(self.examples)}"
            f"{f'; and {more:,} more' if more else ''}. Set an option of reader "
            f"({_OPTIONS[self.files.format]}), declare other columns, fix the file, or leave such "
            "rows out with bad_rows: drop"
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """The good rows of files as a Spark DataFrame.

    Attributes:
        digests: of each file, taken before it was read.
        bad: the rows of text files that are not in the frame; None if there are none.
        copies: the names of files that were copied for Spark, by the names of the folders of their
            copies.
    """

    frame: DataFrame
    digests: Mapping[Path, str]
    bad: BadRows | None = None
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_of_a_row(self) -> str:
        """SQL for the name of the file that a row is from."""
        # A hidden column of Spark, in which names are escaped as in a URI.
        own = "url_decode(replace(_metadata.file_name, '+', '%2B'))"
        if not self.copies:
            return own
        pairs = ", ".join(f"{_quoted(copy)}, {_quoted(name)}" for copy, name in self.copies.items())
        folder = "element_at(split(_metadata.file_path, '/'), -2)"
        return f"coalesce(element_at(map({pairs}), {folder}), {own})"

    def check_rows(self) -> None:
        """Refuse bad rows."""
        if self.bad:
            raise FilesError(self.bad.message())

    def check_unchanged(self) -> None:
        """Refuse the rows if one of the files has changed since it was read."""
        if digests(tuple(self.digests)) != self.digests:
            raise FilesError(
                "A file changed while it was read: publish it again once it is complete",
            )


def _quoted(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def printable(text: str) -> str:
    """Escape the characters of a text that cannot be shown, such as line breaks."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def reason(error: Exception) -> str:
    """Return the reason of an error, without Spark's stack trace.

    It is the message of the innermost cause that has one of more than a class name.
    """
    if not isinstance(error, Py4JJavaError):
        return str(error)
    causes = [error.java_exception]
    while cause := causes[-1].getCause():
        causes.append(cause)
    messages = [cause.getMessage() or "" for cause in reversed(causes)]
    found = [message for message in messages if " " in message.strip()]
    return found[0] if found else causes[0].getClass().getSimpleName()
