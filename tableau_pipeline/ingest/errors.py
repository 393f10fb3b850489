"""Rows read from text files, and a description of the bad rows by line, column and value."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa

from tableau_pipeline.ingest.columns import Columns
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.values import call_arrow, is_text, is_time

# The most bad rows that a message shows, the most columns of each row, and the most characters of a
# value.
_MOST_ROWS, _MOST_COLUMNS, _LONGEST_VALUE = 5, 3, 80
# Matches whole numbers that decimal(38,0) can hold.
_INTEGER = re.compile(r"-?\d{1,38}")
# The options of `reader` that often make more values valid.
_OPTIONS = {
    "csv": "nullValue, decimal, thousands, dateFormat, timestampFormat",
    "json": "dateFormat, timestampFormat",
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a text file.

    Attributes:
        columns: for each column, the texts of the values.
        problems: the places without a valid row, such as "line 7", each with the reason.
        places: a function that returns the place of each row.
    """

    columns: Sequence[pa.Array]
    problems: Sequence[tuple[str, str]]
    places: Callable[[], Sequence[str]]


@dataclass
class BadRows:
    """The bad rows of files that were read together.

    Attributes:
        total: the number of bad rows.
        examples: messages about the first bad rows.
    """

    files: Files
    columns: Columns
    total: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, path: Path, chunk: Chunk, wrong: Sequence[pa.Array]) -> pa.Array:
        """Count the bad rows of a chunk; return an array that is true for each good row.

        Args:
            wrong: for each column, an array that is true for each row whose value does not fit.
        """
        is_bad = reduce(partial(call_arrow, "or_"), wrong)
        rows = call_arrow("indices_nonzero", is_bad).to_pylist()
        self.total += len(chunk.problems) + len(rows)
        if free := _MOST_ROWS - len(self.examples):
            places = chunk.places() if rows else []
            examples = [(places[row], self._problem(chunk, row, wrong)) for row in rows[:free]]
            # Sort by the number in the place, so that "line 9" comes before "line 10".
            examples = sorted(
                [*examples, *chunk.problems], key=lambda item: (len(item[0]), item[0])
            )
            self.examples += [f"{path.name}, {': '.join(item)}" for item in examples[:free]]
        return call_arrow("invert", is_bad)

    def _problem(self, chunk: Chunk, row: int, wrong: Sequence[pa.Array]) -> str:
        problems = []
        columns = self.columns.columns
        for column, texts, misfits in zip(columns, chunk.columns, wrong, strict=True):
            if misfits[row].as_py():
                text, type_ = texts[row].as_py(), column.type
                # Quote the value. In JSON, a text is still in its quotes, unless the column has a
                # text or time type.
                is_plain = is_text(type_) or is_time(type_)
                is_quoted = self.files.format == "json" and not is_plain
                value = text if is_quoted else f'"{text}"'
                value = printable(
                    value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}..."
                )
                is_large = type_ in ("bigint", "double") and _INTEGER.fullmatch(text)
                hint = "; decimal(38,0) would hold it" if is_large else ""
                problems.append(f'column "{column.name}": {value} is not a valid {type_}{hint}')
        if (more := len(problems) - _MOST_COLUMNS) > 0:
            problems[_MOST_COLUMNS:] = [f"and {more} more column{'s' * (more > 1)}"]
        return ", ".join(problems)

    def message(self) -> str:
        """Return the message for all bad rows, with the remedies."""
        rows = "1 row does" if self.total == 1 else f"{self.total:,} rows do"
        more = self.total - len(self.examples)
        return (
            f"{rows} not fit the columns {self.columns.ddl}: {'; '.join(self.examples)}"
            f"{f'; and {more:,} more' if more else ''}. Set an option of reader "
            f"({_OPTIONS[self.files.format]}), declare other columns, fix the file, or leave such "
            "rows out with bad_rows: drop"
        )


def printable(text: str) -> str:
    """Escape those characters of a text that cannot be shown, such as line breaks."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
