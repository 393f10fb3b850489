"""What was read, and what was not: bad rows by line, column and value, with remedies."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice, product
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.options import Options, digests
from tableau_pipeline.ingest.values import BITS, TIMES, number_text, parser

# PySparkException is raised by the driver, Py4JJavaError by a task.
READ_ERRORS = (PySparkException, Py4JJavaError)
# How many bad rows are quoted; a few are enough if the whole file is wrong.
_QUOTED = 5
# Bad columns that the message about a row names.
_NAMED = 3
_KEPT = 50
_LONGEST = 80
_DAYS = (
    *("dd.MM.yyyy", "d.M.yyyy", "dd/MM/yyyy", "MM/dd/yyyy", "d/M/yyyy", "M/d/yyyy", "dd-MM-yyyy"),
    *("MM-dd-yyyy", "yyyy/MM/dd", "yyyy.MM.dd", "yyyyMMdd", "dd.MM.yy", "dd/MM/yy", "MM/dd/yy"),
    *("dd-MMM-yyyy", "d MMM yyyy", "MMM d, yyyy", "MMMM d, yyyy"),
)
_TIMES = ("HH:mm", "HH:mm:ss", "HH:mm:ss.SSS", "hh:mm a", "hh:mm:ss a", "h:mm a", "h:mm:ss a")
_NULLS = ("NA", "N/A", "NULL", "null", "None", "\\N", "-", "#N/A", "n/a", ".", "?")
# Pairs of decimal and thousands separators.
_SIGNS = (
    *((".", each) for each in ("", ",", "'", "\u2019", " ")),
    *((",", each) for each in ("", ".", " ", "\u00a0", "\u202f")),
)


class Number(str):
    """The text of a JSON number, digit by digit."""

    __slots__ = ()


@dataclass
class BadRows:
    """The bad rows of files that were read together.

    Attributes:
        total: the number of bad rows.
        examples: messages about the first ones.
    """

    options: Options
    is_json: bool = False
    total: int = 0
    examples: list[str] = field(default_factory=list)
    # By column: its type, values that do not fit it, and values that do.
    _columns: dict[str, tuple[T.DataType, list[str], list[str]]] = field(default_factory=dict)

    def add(self, place: str, problem: str) -> None:
        """Count a row; `place` is its file and line."""
        self.total += 1
        if len(self.examples) < _QUOTED:
            self.examples.append(f"{place}: {problem}")

    def add_values(self, place: str, values: Sequence[tuple[T.StructField, Any]]) -> None:
        """Count a row by its bad values, each with its column."""
        problems = []
        for column, value in values:
            type_ = column.dataType
            _, bad, _ = self._columns.setdefault(column.name, (type_, [], []))
            # In JSON, no option reads a text as a number.
            can_be_read = type(value) is str and (not self.is_json or isinstance(type_, TIMES))
            if can_be_read and len(bad) < _KEPT:
                bad.append(value)
            shown = f'"{value}"' if type(value) is str else json_text(value)
            shown = printable(shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}...")
            problems.append(
                f'column "{column.name}": {shown} is not a valid {type_.simpleString()}'
            )
        if (more := len(problems) - _NAMED) > 0:
            problems[_NAMED:] = [f"and {more} more column{'s' * (more > 1)}"]
        self.add(place, ", ".join(problems))

    def keep_good(self, name: str, values: Iterable[Any]) -> None:
        """Keep good values of a column that has bad ones: an option has to read both."""
        if name in self._columns:
            *_, good = self._columns[name]
            good += islice((str(each) for each in values if each), _KEPT - len(good))

    @property
    def hints(self) -> list[str]:
        """The options that would read the bad values, if there are any."""
        found = [
            hint(type_, bad, self.options, others=good)
            for type_, bad, good in self._columns.values()
            if bad
        ]
        return list(dict.fromkeys(each for each in found if each))

    def message(self, columns: T.StructType) -> str:
        """Return the message for all bad rows, with the remedies."""
        described = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in columns)
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
        """Check that all rows could be read.

        Raises:
            RefusedError: reports the number of bad rows, the first of them, and the remedies.
        """
        if self.bad and self.bad.total:
            raise RefusedError(self.bad.message(self.frame.schema))

    def check_unchanged(self) -> None:
        """Check that the files have not changed since they were read.

        Raises:
            RefusedError: one of them has changed.
        """
        if digests(tuple(self.digests)) != self.digests:
            raise RefusedError(
                "A file changed while it was read: publish it again once it is complete"
            )


def printable(text: str) -> str:
    """Escape the characters of a text that cannot be shown, such as line breaks."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def json_text(value: Any) -> str:
    """Format a value as JSON, with numbers as they were written."""
    match value:
        case Number():
            return str(value)
        case dict():
            inner = (f"{json_text(name)}:{json_text(each)}" for name, each in value.items())
            return f"{{{','.join(inner)}}}"
        case list():
            return f"[{','.join(map(json_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


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


def hint(
    type_: T.DataType, values: Sequence[str], options: Options, *, others: Sequence[str] = ()
) -> str | None:
    """Return the options that would read all of these values of a column; None if none would.

    Args:
        others: values of the column that fit already, and have to go on doing so.
    """
    null = values[0]
    if null in _NULLS and all(value == null for value in values):
        return f"to read {null} as NULL, set {_shown({'nullValue': null})}"
    every = [*values, *others]
    # With other signs, a number would become another one: 1.005 with too many decimals 1005.
    signs = not any(_are_numbers([value], options) for value in values)
    found = [
        _shown(reader)
        for reader, changed in _candidates(type_, options, signs=signs)
        if _all_fit(type_, every, changed)
    ]
    if found:
        return f"to read such values, set {' or '.join(found[:3])}"
    wider = _wider(every, options) if _is_number(type_) else []
    names = [each.simpleString() for each in wider if each != type_]
    if names:
        return f"to read numbers with a fraction or more digits, declare {' or '.join(names)}"
    return None


def _is_number(type_: T.DataType) -> bool:
    return type(type_) in BITS or isinstance(type_, T.DecimalType | T.DoubleType | T.FloatType)


def _wider(values: Sequence[str], options: Options) -> list[T.DataType]:
    """Return the types that hold all of these numbers, digit by digit; [] if one is no number."""
    if not _are_numbers(values, options):
        return []
    plain = number_text(options, fraction=True)
    numbers = [Decimal(plain(value)) for value in values]
    decimals = max(max(-int(each.as_tuple().exponent), 0) for each in numbers)
    whole = max(0, *(each.adjusted() + 1 for each in numbers))
    # Rows that nothing is known of may have more digits.
    scale = max(decimals, 4) if decimals else 0
    precision = max(whole + scale, 18)
    types: list[T.DataType] = [T.DoubleType()] if decimals else [T.LongType()]
    types += [T.DecimalType(precision, scale)] if precision <= 38 else []
    return [each for each in types if _all_fit(each, values, options)]


def _are_numbers(values: Sequence[str], options: Options) -> bool:
    plain = number_text(options, fraction=True)
    try:
        return all(plain(value) for value in values)
    except ValueError:
        return False


def _candidates(
    type_: T.DataType, options: Options, *, signs: bool
) -> Iterable[tuple[Mapping[str, str], Options]]:
    if _is_number(type_) and signs:
        for decimal, thousands in _SIGNS:
            pair = {"decimal": decimal, "thousands": thousands}
            now = {"decimal": options.decimal, "thousands": options.thousands}
            reader = {name: sign for name, sign in pair.items() if sign != now[name]}
            yield reader, replace(options, **pair)
    elif isinstance(type_, T.DateType):
        for pattern in _DAYS:
            yield {"dateFormat": pattern}, replace(options, date=pattern)
    elif isinstance(type_, T.TimestampType | T.TimestampNTZType):
        name = "timestampFormat" if isinstance(type_, T.TimestampType) else "timestampNTZFormat"
        for day, time in product((*_DAYS, "yyyy-MM-dd"), (*_TIMES, "")):
            pattern = f"{day} {time}".strip()
            yield {name: pattern}, replace(options, timestamp=pattern, timestamp_ntz=pattern)
    if not isinstance(type_, T.StringType):
        trimming = dict.fromkeys(("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"), "true")
        yield trimming, replace(options, trim_left=True, trim_right=True)


def _all_fit(type_: T.DataType, values: Sequence[str], options: Options) -> bool:
    read = parser(type_, options)
    if read is None:
        return False
    try:
        for value in values:
            read(value.strip(" \t") if options.trim_left else value)
    except ValueError:
        return False
    return True


def _shown(reader: Mapping[str, str]) -> str:
    inner = ", ".join(f'{name}: "{value}"' for name, value in reader.items())
    return f"reader: {{{inner}}}"
