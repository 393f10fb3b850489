"""What was read, and what was not: bad rows by line, column and value, with remedies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.options import NAMES, Files, digests, text_options
from tableau_pipeline.ingest.values import STRINGS, TIMES, converted, without_nulls

# PySparkException is raised by the driver, Py4JJavaError by a task.
READ_ERRORS = (PySparkException, Py4JJavaError)
# How many bad rows a message quotes, how many columns of each, and how much of a value.
_QUOTED, _NAMED, _LONGEST = 5, 3, 80
# How many good and bad values of a column are enough to try options with.
_KEPT = 50
_DAYS = ("dd.MM.yyyy", "dd/MM/yyyy", "MM/dd/yyyy", "d.M.yyyy", "d/M/yyyy", "M/d/yyyy", "yyyyMMdd")
_TIMES = ("HH:mm", "HH:mm:ss", "hh:mm:ss a")
# Options that often read values which do not fit without them.
_OPTIONS: Sequence[Mapping[str, str]] = (
    *({"nullValue": each} for each in ("NA", "N/A", "NULL", "null", "None", "\\N", "-")),
    *({"decimal": ","}, {"thousands": ","}, {"decimal": ",", "thousands": "."}),
    *({"decimal": ",", "thousands": " "}, {"thousands": "'"}),
    *({"dateFormat": day} for day in _DAYS),
    *({"timestampFormat": f"{day} {time}"} for day in _DAYS for time in _TIMES),
    {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"},
)
_NUMBERS = (T.LongType(), T.DecimalType(18, 4), T.DoubleType(), T.DecimalType(38, 10))


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
    # By column: values that do not fit it, and values that do.
    _columns: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)

    def add(self, path: Path, chunk: Chunk, wrong: Sequence[pa.Array]) -> pa.Array:
        """Count the bad rows of a chunk; return whether each of its rows is good.

        Args:
            wrong: by column, whether the value of each row does not fit.
        """
        is_bad = reduce(partial(_do, "or"), wrong)
        is_good, rows = _do("invert", is_bad), _do("indices_nonzero", is_bad).to_pylist()
        self.total += len(chunk.problems) + len(rows)
        for name, texts, misfits in zip(self.schema.names, chunk.columns, wrong, strict=True):
            if misfits.true_count:
                bad, good = self._columns.setdefault(name, ([], []))
                bad += texts.filter(misfits)[: _KEPT - len(bad)].to_pylist()
                good += texts.filter(is_good).drop_null()[: _KEPT - len(good)].to_pylist()
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
                problems.append(f'column "{column.name}": {shown} is not a valid {name}')
        if (more := len(problems) - _NAMED) > 0:
            problems[_NAMED:] = [f"and {more} more column{'s' * (more > 1)}"]
        return ", ".join(problems)

    @property
    def hints(self) -> list[str]:
        """The options, or types, that would read the bad values, if there are any."""
        found = [
            self._hint(self.schema[name].dataType, [*bad, *good])
            for name, (bad, good) in self._columns.items()
        ]
        return list(dict.fromkeys(each for each in found if each))

    def _hint(self, type_: T.DataType, values: Sequence[str]) -> str | None:
        texts = pa.array(values, pa.string())
        # With other signs, a number would become another one: 1.005 with too many decimals 1005.
        types = _NUMBERS if isinstance(type_, T.NumericType) else ()
        wider = [each for each in types if self._fits(texts, each, {})]
        if wider:
            names = " or ".join(each.simpleString() for each in wider[:2])
            return f"to read numbers with a fraction or more digits, declare {names}"
        known = [each for each in _OPTIONS if set(each) <= set(NAMES[self.files.format])]
        found = [_shown(each) for each in known if self._fits(texts, type_, each)]
        return f"to read such values, set {' or '.join(found[:2])}" if found else None

    def _fits(self, texts: pa.Array, type_: T.DataType, reader: Mapping[str, str]) -> bool:
        options = text_options({**self.files.reader, **reader}, self.files.format)
        if options.ignore_leading_white_space:
            texts = pc.call_function("utf8_trim", [texts], pc.TrimOptions(" \t"))
        if self.files.format == "csv":
            texts = without_nulls(texts, type_, options)
        return converted(texts, type_, options).null_count == texts.null_count

    def message(self) -> str:
        """Return the message for all bad rows, with the remedies."""
        described = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in self.schema)
        rows = "1 row does" if self.total == 1 else f"{self.total:,} rows do"
        more = self.total - len(self.examples)
        remedies = "; ".join([*self.hints, "fix the file", "declare other columns"])
        return (
            f"{rows} not fit the columns {described}: {'; '.join(self.examples)}"
            f"{f'; and {more:,} more' if more else ''}. "
            f"{remedies[:1].upper()}{remedies[1:]}, or leave such rows out with bad_rows: drop"
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """The good rows of files as a Spark DataFrame, and the errors of the bad ones.

    Attributes:
        digests: of each file, taken before it was read; empty if the rows are not from files.
        bad: the rows that are not in the frame.
    """

    frame: DataFrame
    digests: Mapping[Path, str] = field(default_factory=dict)
    bad: BadRows | None = None

    @property
    def bad_rows(self) -> int:
        """The number of rows that do not fit the types of the columns."""
        return self.bad.total if self.bad else 0

    @property
    def sample(self) -> str:
        """Some of the bad rows, by file, line, column and value."""
        return "; ".join(self.bad.examples) if self.bad else ""

    def check_rows(self) -> None:
        """Refuse bad rows: say how many, the first of them, and the remedies."""
        if self.bad and self.bad.total:
            raise RefusedError(self.bad.message())

    def check_unchanged(self) -> None:
        """Refuse the rows if one of the files has changed since it was read."""
        if digests(tuple(self.digests)) != self.digests:
            raise RefusedError(
                "A file changed while it was read: publish it again once it is complete"
            )


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
    cause, found = error.java_exception, ""
    while cause is not None:
        message = cause.getMessage()
        found = message if message and " " in message.strip() else found
        cause = cause.getCause()
    return str(found or error.java_exception.getClass().getSimpleName())


def _do(function: str, *arguments: Any) -> Any:
    return pc.call_function(function, [*arguments])


def _shown(reader: Mapping[str, str]) -> str:
    inner = ", ".join(f'{name}: "{value}"' for name, value in reader.items())
    return f"reader: {{{inner}}}"
