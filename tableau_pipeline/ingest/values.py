"""Columns of text as exact values: a text that is not a value of its column's type is bad.

Arrow converts what matches a pattern of texts that it reads exactly. A Python parser decides about
all other texts, once for each distinct one.
"""

import math
import re
from collections.abc import Callable, Sequence
from ctypes import c_float
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.options import Options

# Raises ValueError if the text is not exactly a value.
Parser = Callable[[str], Any]
_Value = TypeVar("_Value")

BITS: dict[type[T.DataType], int] = {
    T.ByteType: 8,
    T.ShortType: 16,
    T.IntegerType: 32,
    T.LongType: 64,
}
TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
STRINGS = (T.StringType, T.CharType, T.VarcharType)
_UTC = pa.timestamp("us", "UTC")
_ARROW: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.DateType: pa.date32(),
    T.TimestampType: _UTC,
    T.TimestampNTZType: pa.timestamp("us"),
    **dict.fromkeys(STRINGS, pa.string()),
}
_WORDS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
# Every number of so many digits without an exponent is held.
_HELD: dict[type[T.DataType], int] = {T.DoubleType: 15, T.FloatType: 6}
# 007 and +49 are codes, and so is 12E4, unless it is written as programs write numbers.
_PLAIN = r"-?(?:(?:0|[1-9]\d*)(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(rf"{_PLAIN}(?:[eE][+-]\d+)?|-?\d\.\d+E\d+", re.ASCII)
_DAY = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september",
           "october", "november", "december")  # fmt: skip
_OFFSET = r"Z|[+-]\d\d(?::?\d\d)?"
_PARTS = {
    "yyyy": r"\d{4}", "uuuu": r"\d{4}", "y": r"\d{4}", "yy": r"\d\d",
    "MM": r"\d\d", "M": r"\d{1,2}", "MMM": "|".join(name[:3] for name in _MONTHS),
    "MMMM": "|".join(_MONTHS), "dd": r"\d\d", "d": r"\d{1,2}",
    "HH": r"\d\d", "H": r"\d{1,2}", "hh": r"\d\d", "h": r"\d{1,2}", "a": "am|pm",
    "mm": r"\d\d", "m": r"\d{1,2}", "ss": r"\d\d", "s": r"\d{1,2}",
    **{"S" * digits: rf"\d{{{digits}}}" for digits in range(1, 7)},
    **dict.fromkeys(("X", "XX", "XXX", "x", "xx", "xxx", "Z"), _OFFSET),
}  # fmt: skip
_TOKEN = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|(.)", re.DOTALL)
_ISO_DATE = r"(?P<y>\d{4})-(?P<M>\d\d)-(?P<d>\d\d)"
_ISO_TIMESTAMP = (
    rf"{_ISO_DATE}(?:[T ](?P<H>\d\d):(?P<m>\d\d)(?::(?P<s>\d\d)(?:\.(?P<S>\d{{1,6}}))?)?"
    rf"(?P<X>{_OFFSET})?)?"
)


def declared(columns: str) -> T.StructType:
    """Parse columns such as "id bigint, day date".

    Raises:
        RefusedError: the text is not Spark's DDL, or a name is repeated.
    """
    try:
        schema = cast("T.StructType", T.StructType.fromDDL(columns))
    except PySparkException as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RefusedError(
            f'columns: "{columns}" cannot be parsed ({why}): write names and types '
            'as Spark does, "id bigint, day date", names with blanks in `backticks`'
        ) from error
    check_names(schema.names, "columns")
    return schema


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse column names that Spark cannot distinguish, or that are empty.

    Raises:
        RefusedError: names the columns.
    """
    if "" in names:
        position = [*names].index("") + 1
        raise RefusedError(f"{where}: the name of column {position} is empty: name it")
    folded = [name.casefold() for name in names]
    if twins := [f'"{name}"' for name in names if folded.count(name.casefold()) > 1]:
        raise RefusedError(
            f"{where}: the columns {', '.join(twins)} differ only in case, or not at all: rename "
            "all but one"
        )


def arrow_type(type_: T.DataType) -> pa.DataType:
    """Return the Arrow type that holds exactly the values of a type that `parser` knows."""
    if isinstance(type_, T.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    return _ARROW[type(type_)]


def converted(texts: pa.Array, type_: T.DataType, options: Options) -> tuple[pa.Array, list[int]]:
    """Return the values of texts, and the positions of the bad ones, which are NULL there.

    The type is one that `parser` knows.
    """
    values, unsure = _sure(texts, type_, options)
    rest = texts.filter(unsure)
    if not len(rest):
        return values, []
    distinct = rest.dictionary_encode()
    read = parser(type_, options) or str
    parsed, wrong = [], []
    for text in distinct.dictionary.to_pylist():
        try:
            parsed.append(read(text))
            wrong.append(False)
        except ValueError:
            parsed.append(None)
            wrong.append(True)
    found = pa.array(parsed, values.type).take(distinct.indices)
    is_bad = pa.array(wrong, pa.bool_()).take(distinct.indices)
    positions = _do("indices_nonzero", unsure).filter(is_bad)
    return _do("replace_with_mask", values, unsure, found), positions.to_pylist()


class Guess:
    """The type of one column: the narrowest one that fits every value without changing it."""

    def __init__(self, options: Options, types: Sequence[T.DataType] = ()) -> None:
        self._options = options
        self._empty = True
        # A date format that the user set may consist of digits only, as yyyyMMdd does.
        formats = [(T.DateType(), options.date), (T.TimestampType(), options.timestamp)]
        times: list[T.DataType] = [type_ for type_, pattern in formats if pattern]
        numbers = (T.IntegerType(), T.LongType(), T.DoubleType())
        others = (T.DateType(), T.TimestampType(), T.BooleanType())
        self._left = [*(types or (*times, *numbers, *others))]

    def see(self, texts: pa.Array) -> None:
        """Narrow the type by some values; NULL fits every type."""
        if texts.null_count < len(texts):
            self._empty = False
            self._left = [each for each in self._left if self._all_fit(each, texts)]

    @property
    def type(self) -> T.DataType:
        """The narrowest type that fits all values; string if none does, or if all are NULL."""
        return self._left[0] if self._left and not self._empty else T.StringType()

    def _all_fit(self, type_: T.DataType, texts: pa.Array) -> bool:
        _, unsure = _sure(texts, type_, self._options)
        rest = texts.filter(unsure)
        read = parser(type_, self._options) or str
        # Mostly the first value tells already.
        return not len(rest) or (
            self._fits(type_, read, rest[0].as_py())
            and all(self._fits(type_, read, text) for text in rest.unique().to_pylist())
        )

    def _fits(self, type_: T.DataType, read: Parser, text: str) -> bool:
        try:
            value = read(text)
        except ValueError:
            return False
        if isinstance(type_, T.DateType | T.TimestampType | T.BooleanType):
            return True
        plain = text.replace(self._options.thousands, "") if self._options.thousands else text
        plain = plain.replace(self._options.decimal, ".")
        if not _NUMBER.fullmatch(plain):
            return False
        if isinstance(type_, T.DoubleType):
            # The number is exact if its shortest representation equals the text.
            return Decimal(repr(value)) == Decimal(plain)
        # As an integer, -0 would lose its sign.
        return plain != "-0"


def _do(function: str, *arguments: Any, **options: Any) -> Any:
    return getattr(pc, function)(*arguments, **options)


def _matches(texts: pa.Array, pattern: str) -> pa.Array:
    return _do("match_substring_regex", texts, rf"\A(?:{pattern})\z").fill_null(False)


def _sure(texts: pa.Array, type_: T.DataType, options: Options) -> tuple[pa.Array, pa.Array]:
    """Return what Arrow reads exactly, in a form that needs no second look; and where it does not.

    All of it would be found by `Guess`, too: no codes with leading zeros, and no -0 as an integer.
    """
    if type(type_) is T.StringType:
        return texts, pa.array([False] * len(texts), pa.bool_())
    target = arrow_type(type_)
    values, unsure = pa.nulls(len(texts), target), texts.is_valid()
    if type(type_) in BITS or type(type_) in _HELD or isinstance(type_, T.DecimalType):
        texts = _unsigned(texts, options)
    for pattern, through in _patterns(type_, options):
        matched = _do("and", unsure, _matches(texts, pattern))
        if not matched.true_count:
            continue
        some = _do("if_else", matched, texts, pa.scalar(None, pa.string()))
        try:
            found = some.cast(through).cast(target)
        except pa.ArrowInvalid:
            # One of them is the 30th of February, or has one digit too many.
            continue
        if digits := _HELD.get(type(type_)):
            is_short = _do("less_equal", _do("binary_length", some), digits)
            is_same = _do("equal", found.cast(pa.string()), some)
            matched = _do("and", matched, _do("or", is_short, is_same).fill_null(False))
        values = _do("if_else", matched, found, values)
        unsure = _do("and_not", unsure, matched)
    return values, unsure


def _patterns(type_: T.DataType, options: Options) -> list[tuple[str, pa.DataType]]:
    """Return patterns of texts, and the types by which Arrow reads them."""
    target = arrow_type(type_)
    if bits := BITS.get(type(type_)):
        digits = {8: 2, 16: 4, 32: 9, 64: 18}[bits]
        return [(f"0|-?[1-9][0-9]{{0,{digits - 1}}}", target)]
    match type_:
        case T.DecimalType():
            before, after = max(type_.precision - type_.scale - 1, 0), type_.scale
            fraction = rf"(?:\.[0-9]{{1,{after}}})?" if after else ""
            return [(f"-?(?:0|[1-9][0-9]{{0,{before}}}){fraction}", target)]
        case T.DoubleType() | T.FloatType():
            return [(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", target)]
        case T.DateType() if not options.date:
            return [(_DAY, target)]
        case T.TimestampNTZType() if not options.timestamp_ntz:
            return [(f"{_DAY}(?:{_TIME})?", target)]
        case T.TimestampType() if not options.timestamp:
            # A text without an offset is in UTC. No offset leads out of the years up to 2999.
            offset = f"(?:{_TIME})(?:Z|[+-][01][0-9]:?[0-5][0-9])"
            return [(f"{_DAY}(?:{_TIME})?", pa.timestamp("us")), (f"[12]{_DAY[5:]}{offset}", _UTC)]
    return []


def _unsigned(texts: pa.Array, options: Options) -> pa.Array:
    """Return numbers with a point and without separators of thousands; NULL if they are none."""
    if options.decimal == "." and not options.thousands:
        return texts
    plain = texts
    if options.thousands:
        plain = _do("replace_substring", plain, options.thousands, "")
    plain = _do("replace_substring", plain, options.decimal, ".")
    is_number = _matches(texts, _number(options, fraction=True))
    return _do("if_else", is_number, plain, pa.scalar(None, pa.string()))


def parser(type_: T.DataType, options: Options) -> Parser | None:
    """Return a parser of non-empty texts for a type; None if text cannot hold the type.

    It returns datetimes without a zone; those of `timestamp` are in UTC.

    Raises:
        RefusedError: a format in the options is invalid.
    """
    read = _parser(type_, options)
    # Values repeat, and a cache lookup is faster than parsing.
    return read and lru_cache(1 << 15)(read)


def _parser(type_: T.DataType, options: Options) -> Parser | None:
    match type_:
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return _whole(type_, options)
        case T.DecimalType():
            return _decimal(type_, options)
        case T.DoubleType() | T.FloatType():
            return _floating(options, digits=_HELD[type(type_)])
        case T.StringType():
            return str
        case T.CharType() | T.VarcharType():
            return lambda text: _only_if(len(text) <= type_.length, text)
        case T.BooleanType():
            return lambda text: _only_if(text.lower() in ("true", "false"), text.lower() == "true")
        case T.DateType():
            moments = _moments(options.date, _ISO_DATE)
            return lambda text: _day(moments(text))
        case T.TimestampType():
            moments = _moments(options.timestamp, _ISO_TIMESTAMP)
            return lambda text: moments(text).replace(tzinfo=None)
        case T.TimestampNTZType():
            moments = _moments(options.timestamp_ntz, _ISO_TIMESTAMP)
            return lambda text: _wall_clock(moments(text))
    return None


def _number(options: Options, *, fraction: bool) -> str:
    """Return the pattern of numbers with the signs of the options, without words such as NaN."""
    thousands, decimal = re.escape(options.thousands), re.escape(options.decimal)
    # Groups have three digits, and the first does not begin with zero: 0.123 is not 123.
    grouped = rf"[1-9]\d{{0,2}}(?:{thousands}\d{{3}})+|" if thousands else ""
    if not fraction:
        return rf"[+-]?(?:{grouped}\d+)"
    return rf"[+-]?(?:(?:{grouped}\d+)(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d{{1,4}})?"


def number_text(options: Options, *, fraction: bool) -> Callable[[str], str]:
    """Return a function that normalizes a number for Python, or raises ValueError."""
    match = re.compile(_number(options, fraction=fraction), re.ASCII).fullmatch

    def normal(text: str) -> str:
        if not match(text):
            raise ValueError(text)
        if options.thousands:
            text = text.replace(options.thousands, "")
        return text.replace(options.decimal, ".")

    return normal


def _whole(type_: T.IntegralType, options: Options) -> Parser:
    normal, limit = number_text(options, fraction=False), 1 << (BITS[type(type_)] - 1)

    def read(text: str) -> int:
        value = int(normal(text))
        return _only_if(-limit <= value < limit, value)

    return read


def _decimal(type_: T.DecimalType, options: Options) -> Parser:
    normal = number_text(options, fraction=True)
    before, after = type_.precision - type_.scale, type_.scale

    def read(text: str) -> Decimal:
        value = Decimal(normal(text))
        # The exponent of zero shows only its number of decimals.
        fits = -int(value.as_tuple().exponent) <= after
        return _only_if(fits and not (value and value.adjusted() >= before), value)

    return read


def _floating(options: Options, *, digits: int) -> Parser:
    """Return a parser of numbers that double, or float, holds digit by digit.

    Args:
        digits: the type holds every number of so many digits that needs no exponent.
    """
    normal = number_text(options, fraction=True)

    def read(text: str) -> float:
        sign, word = (text[:1], text[1:]) if text[:1] in "+-" else ("", text)
        if (special := _WORDS.get(word.lower())) is not None:
            return -special if sign == "-" else special
        plain = normal(text)
        value = float(plain) if digits == _HELD[T.DoubleType] else c_float(float(plain)).value
        is_short = len(plain) <= digits and "e" not in plain.lower()
        # Most others are as Python writes them, and a look at their digits takes longer.
        return _only_if(is_short or repr(value) == plain or _is_held(plain, value), value)

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


def _only_if(fits: bool, value: _Value) -> _Value:
    if not fits:
        raise ValueError(value)
    return value


def _day(moment: datetime) -> date:
    return _only_if(moment.time() == datetime.min.time() and not moment.tzinfo, moment.date())


def _wall_clock(moment: datetime) -> datetime:
    # A text with an offset is an instant, not a wall clock time.
    return _only_if(moment.tzinfo is None, moment)


@cache
def time_pattern(pattern: str) -> Callable[[str], datetime]:
    """Return a parser of texts in a pattern of Java's DateTimeFormatter, "dd.MM.yyyy HH:mm[:ss]".

    It returns moments in UTC if the text has an offset, naive ones if not.

    Raises:
        RefusedError: a letter is unknown or repeated, or the year is missing.
    """
    expression, seen = "", set()
    for quoted, letters, _, other in _TOKEN.findall(pattern):
        if letters:
            # Letters with one meaning share a name, so that a format which repeats it is noticed.
            group = letters[0].translate(str.maketrans("uxZ", "yXX"))
            if letters not in _PARTS or group in seen:
                raise RefusedError(
                    f'The format "{pattern}" has "{letters}", which is not known here'
                    f"{' twice' * (group in seen)}: the letters are y M d H h m s S a X, and text "
                    "stands in single quotes"
                )
            seen.add(group)
            expression += f"(?P<{group}>{_PARTS[letters]})"
        elif other in ("[", "]"):
            expression += "(?:" if other == "[" else ")?"
        else:
            # Two single quotes in a row stand for one.
            expression += re.escape(other or quoted.replace("''", "'") or "'")
    if "y" not in seen or ("h" in seen) != ("a" in seen) or {"h", "H"} <= seen:
        raise RefusedError(
            f'The format "{pattern}" is incomplete: it needs a year (yyyy), '
            "and hours of the day (HH), or hours (hh) with am or pm (a)"
        )
    try:
        return _read_moment(expression)
    except re.error as error:
        raise RefusedError(f'The format "{pattern}" has unpaired brackets') from error


def _moments(pattern: str | None, iso: str) -> Callable[[str], datetime]:
    return time_pattern(pattern) if pattern else _read_moment(iso)


def _read_moment(expression: str) -> Callable[[str], datetime]:
    match = re.compile(expression, re.ASCII | re.IGNORECASE).fullmatch

    def read(text: str) -> datetime:
        found = match(text)
        parts = {key: value for key, value in found.groupdict().items() if value} if found else {}
        if "y" not in parts or ("h" in parts and "a" not in parts):
            # The text has another form, or lacks what the format makes optional.
            raise ValueError(text)
        # Java, too, takes two digits as a year of this century.
        moment = datetime(
            int(parts["y"]) + (2000 if len(parts["y"]) == 2 else 0),
            _month(parts.get("M", "1")),
            int(parts.get("d", 1)),
            _hour(parts),
            int(parts.get("m", 0)),
            int(parts.get("s", 0)),
            int(parts.get("S", "0").ljust(6, "0")),
        )
        if "X" not in parts:
            return moment
        try:
            return moment.replace(tzinfo=_zone(parts["X"])).astimezone(UTC)
        except OverflowError as error:
            raise ValueError(text) from error

    return read


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    return [name[:3] for name in _MONTHS].index(text[:3].lower()) + 1


def _hour(parts: dict[str, str]) -> int:
    if "h" not in parts:
        return int(parts.get("H", 0))
    hour = int(parts["h"])
    if not 1 <= hour <= 12:
        raise ValueError(parts["h"])
    return hour % 12 + (12 if parts["a"].lower() == "pm" else 0)


def _zone(text: str) -> timezone:
    if text.upper() == "Z":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    if int(digits[2:]) > 59:
        raise ValueError(text)
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
