"""Suggest options that would read values which do not fit their type."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product

from pyspark.sql import types as T

from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.values.parsers import BITS, number_text, parser

_DAYS = (
    *("dd.MM.yyyy", "d.M.yyyy", "dd/MM/yyyy", "MM/dd/yyyy", "d/M/yyyy", "M/d/yyyy", "dd-MM-yyyy"),
    *("MM-dd-yyyy", "yyyy/MM/dd", "yyyy.MM.dd", "yyyyMMdd", "dd.MM.yy", "dd/MM/yy", "MM/dd/yy"),
    *("dd-MMM-yyyy", "d MMM yyyy", "MMM d, yyyy", "MMMM d, yyyy"),
)
_TIMES = ("HH:mm", "HH:mm:ss", "HH:mm:ss.SSS", "hh:mm a", "hh:mm:ss a", "h:mm a", "h:mm:ss a")
_NULLS = ("NA", "N/A", "NULL", "null", "None", "\\N", "-", "#N/A", "n/a", ".", "?")
# Of the largest decimal.
_DIGITS = 38
# Pairs of decimal and thousands separators.
_SIGNS = (
    *((".", each) for each in ("", ",", "'", "\u2019", " ")),
    *((",", each) for each in ("", ".", " ", "\u00a0", "\u202f")),
)


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
    types += [T.DecimalType(precision, scale)] if precision <= _DIGITS else []
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
