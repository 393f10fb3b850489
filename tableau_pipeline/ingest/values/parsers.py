"""Convert text to values exactly: a text that does not fit a type is an error."""

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from pyspark.sql import types as T

from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.values.times import ISO_DATE, ISO_TIMESTAMP, time_pattern

Parser = Callable[[str], Any]

BITS = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_WORDS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_BOOLEANS = {"true": True, "false": False}
# Values repeat, and a cache lookup is faster than parsing.
_REMEMBERED = 1 << 15


def parser(type_: T.DataType, options: Options) -> Parser | None:
    """Return a parser of non-empty texts for a type; None if text cannot hold the type.

    The parser raises ValueError if the text is not exactly a value of the type. It returns
    datetimes without a zone; those of `timestamp` are in UTC.

    Raises:
        RefusedError: a format in the options is invalid.
    """
    made = _parser(type_, options)
    return made and lru_cache(_REMEMBERED)(made)


def _parser(type_: T.DataType, options: Options) -> Parser | None:
    if bits := BITS.get(type(type_)):
        return _whole(bits, options)
    match type_:
        case T.DecimalType():
            return _decimal(type_, options)
        case T.CharType() | T.VarcharType():
            return _text(type_.length)
    makers: dict[type[T.DataType], Callable[[], Parser]] = {
        T.DoubleType: lambda: _floating(options, lambda value: value, digits=15),
        T.FloatType: lambda: _floating(options, _as_float, digits=6),
        T.StringType: lambda: str,
        T.BooleanType: lambda: _boolean,
        T.DateType: lambda: _date(options.date),
        T.TimestampType: lambda: _instant(options.timestamp),
        T.TimestampNTZType: lambda: _wall_clock(options.timestamp_ntz),
    }
    make = makers.get(type(type_))
    return make() if make else None


def number_text(options: Options, *, fraction: bool) -> Callable[[str], str]:
    """Return a function that normalizes a number for Python, or raises ValueError."""
    thousands, decimal = re.escape(options.thousands), re.escape(options.decimal)
    # Groups have three digits, and the first does not begin with zero: 0.123 is not 123.
    grouped = rf"[1-9]\d{{0,2}}(?:{thousands}\d{{3}})+|" if thousands else ""
    expression = rf"[+-]?(?:{grouped}\d+)"
    if fraction:
        expression = (
            rf"[+-]?(?:(?:{grouped}\d+)(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d{{1,4}})?"
        )
    match = re.compile(expression, re.ASCII).fullmatch

    def normal(text: str) -> str:
        if not match(text):
            raise ValueError(text)
        if options.thousands:
            text = text.replace(options.thousands, "")
        return text.replace(options.decimal, ".")

    return normal


def _whole(bits: int, options: Options) -> Parser:
    normal = number_text(options, fraction=False)
    limit = 1 << (bits - 1)

    def read(text: str) -> int:
        value = int(normal(text))
        if not -limit <= value < limit:
            raise ValueError(text)
        return value

    return read


def _decimal(type_: T.DecimalType, options: Options) -> Parser:
    normal = number_text(options, fraction=True)
    before, after = type_.precision - type_.scale, type_.scale

    def read(text: str) -> Decimal:
        value = Decimal(normal(text))
        exponent = int(value.as_tuple().exponent)
        # The exponent of zero shows only its number of decimals.
        if -exponent > after or (value and value.adjusted() >= before):
            raise ValueError(text)
        return value

    return read


def _floating(options: Options, rounded: Callable[[float], float], *, digits: int) -> Parser:
    """Return a parser of numbers that the type holds digit by digit.

    Args:
        digits: the type holds every number of so many digits that needs no exponent.
    """
    normal = number_text(options, fraction=True)

    def read(text: str) -> float:
        sign, word = (text[:1], text[1:]) if text[:1] in "+-" else ("", text)
        if (special := _WORDS.get(word.lower())) is not None:
            return -special if sign == "-" else special
        plain = normal(text)
        value = rounded(float(plain))
        is_short = len(plain) <= digits and "e" not in plain and "E" not in plain
        # Most others are as Python writes them, and a look at their digits takes longer.
        if not is_short and repr(value) != plain and not _is_held(plain, value):
            raise ValueError(text)
        return value

    return read


def _is_held(text: str, value: float) -> bool:
    """Whether a value, rounded to as many digits as a text has, is the number in the text.

    So 0.1 and 0.10000000000000001 are held, as programs write the same double either way, but not
    9007199254740993, which becomes ...992.
    """
    if math.isinf(value):
        return False
    number = Decimal(text)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return Decimal(f"{value:.{max(len(digits) - 1, 0)}e}") == number


def _as_float(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf


def _text(length: int) -> Parser:
    def read(text: str) -> str:
        if len(text) > length:
            raise ValueError(text)
        return text

    return read


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError(text)
    return value


def _date(pattern: str | None) -> Parser:
    moments = time_pattern(pattern) if pattern else ISO_DATE

    def read(text: str) -> date:
        moment = moments.read(text)
        if moment.time() != datetime.min.time() or moment.tzinfo:
            raise ValueError(text)
        return moment.date()

    return read


def _instant(pattern: str | None) -> Parser:
    moments = time_pattern(pattern) if pattern else ISO_TIMESTAMP
    # A text without an offset is in UTC.
    return lambda text: moments.read(text).replace(tzinfo=None)


def _wall_clock(pattern: str | None) -> Parser:
    moments = time_pattern(pattern) if pattern else ISO_TIMESTAMP

    def read(text: str) -> datetime:
        moment = moments.read(text)
        if moment.tzinfo is UTC:
            # A text with an offset is an instant, not a wall clock time.
            raise ValueError(text)
        return moment

    return read
