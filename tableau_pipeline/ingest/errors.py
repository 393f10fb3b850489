"""The result of reading files: good rows, and bad rows by line, column and value."""

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
from tableau_pipeline.ingest.values import STRINGS, TIMES, call_arrow

# The driver raises PySparkException, and a task Py4JJavaError.
READ_ERRORS = (PySparkException, Py4JJavaError)
# How many bad rows a message shows, how many columns of each, and how many characters of a value.
_MOST_ROWS, _MOST_COLUMNS, _LONGEST_VALUE = 5, 3, 80
# Whole numbers that decimal(38,0) can hold.
_INTEGER = re.compile(r"-?\d{1,38}")
# The options of `reader` with which more values often fit.
_OPTIONS = {
    "csv": "nullValue, decimal, thousands, dateFormat, timestampFormat",
    "json": "dateFormat, timestampFormat",
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a text file.

    Attributes:
        columns: the texts of their values, by column.
        problems: places without a valid row, such as "line 7", with the reasons.
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
        """Count the bad rows of a chunk; return an array of whether each row is good.

        Args:
            wrong: by column, whether the value of each row does not fit.
        """
        is_bad = reduce(partial(call_arrow, "or_"), wrong)
        is_good, rows = (
            call_arrow("invert", is_bad),
            call_arrow("indices_nonzero", is_bad).to_pylist(),
        )
        self.total += len(chunk.problems) + len(rows)
        if free := _MOST_ROWS - len(self.examples):
            places = chunk.places() if rows else []
            examples = [(places[row], self._problem(chunk, row, wrong)) for row in rows[:free]]
            # Sort by the number of the line: 9 comes before 10.
            examples = sorted(
                [*examples, *chunk.problems], key=lambda item: (len(item[0]), item[0])
            )
            self.examples += [f"{path.name}, {': '.join(item)}" for item in examples[:free]]
        return is_good

    def _problem(self, chunk: Chunk, row: int, wrong: Sequence[pa.Array]) -> str:
        problems = []
        for column, texts, misfits in zip(self.schema, chunk.columns, wrong, strict=True):
            if misfits[row].as_py():
                text, type_ = texts[row].as_py(), column.dataType
                # Texts from JSON already have quotes, except in text and time columns.
                is_quoted = self.files.format == "json" and not isinstance(type_, STRINGS + TIMES)
                value = text if is_quoted else f'"{text}"'
                value = printable(
                    value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}..."
                )
                name = type_.simpleString()
                is_large = isinstance(type_, T.LongType | T.DoubleType) and _INTEGER.fullmatch(text)
                hint = "; decimal(38,0) would hold it" if is_large else ""
                problems.append(f'column "{column.name}": {value} is not a valid {name}{hint}')
        if (more := len(problems) - _MOST_COLUMNS) > 0:
            problems[_MOST_COLUMNS:] = [f"and {more} more column{'s' * (more > 1)}"]
        return ", ".join(problems)

    def message(self) -> str:
        """Return the message for all bad rows, with the remedies."""
        described = ", ".join(
            f"{field.name} {field.dataType.simpleString()}" for field in self.schema
        )
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
        digests: the SHA-256 of each file, taken before it was read.
        bad: the rows of text files that are not in the frame; None if there are none.
        copies: the names of the files that were copied for Spark, by the folder name of the copy.
    """

    frame: DataFrame
    digests: Mapping[Path, str]
    bad: BadRows | None = None
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_of_a_row(self) -> str:
        """SQL for the name of the file that a row is from."""
        # In this hidden column of Spark, names are escaped as in a URI.
        hidden_name = "url_decode(replace(_metadata.file_name, '+', '%2B'))"
        if not self.copies:
            return hidden_name
        names_of_copies = ", ".join(
            f"{_sql_literal(copy)}, {_sql_literal(name)}" for copy, name in self.copies.items()
        )
        folder = "element_at(split(_metadata.file_path, '/'), -2)"
        return f"coalesce(element_at(map({names_of_copies}), {folder}), {hidden_name})"

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


def _sql_literal(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def printable(text: str) -> str:
    """Escape the characters of a text that cannot be shown, such as line breaks."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def reason(error: Exception) -> str:
    """Return the reason of an error, without Spark's stack trace.

    This is the message of the innermost cause whose message is more than a class name.
    """
    if not isinstance(error, Py4JJavaError):
        return str(error)
    causes = [error.java_exception]
    while cause := causes[-1].getCause():
        causes.append(cause)
    messages = [cause.getMessage() or "" for cause in reversed(causes)]
    sentences = [message for message in messages if " " in message.strip()]
    return sentences[0] if sentences else causes[0].getClass().getSimpleName()
