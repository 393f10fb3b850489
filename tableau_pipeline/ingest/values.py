"""Convert columns of text to exact values; a text becomes NULL if it is no value of the type.

Numbers, dates and timestamps have patterns, and Arrow converts the texts that match.
"""

import re
from decimal import MAX_PREC, Context, Decimal
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from tableau_pipeline.errors import FilesError
from tableau_pipeline.ingest.columns import arguments_of, kind_of
from tableau_pipeline.ingest.options import ReadOptions

# Spark's names of types, without arguments.
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_STRINGS = ("string", "char", "varchar")
_LOCAL, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
_ARROW: dict[str, pa.DataType] = {
    **dict(zip(_WHOLE, (pa.int8(), pa.int16(), pa.int32(), pa.int64()), strict=True)),
    **dict(zip(_TIMES, (pa.date32(), _UTC, _LOCAL), strict=True)),
    **dict.fromkeys(_STRINGS, pa.string()),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
}
# The most digits with which a float or double can hold every number without an exponent.
_EXACT_DIGITS = {"double": 15, "float": 6}
# Python has no year 0.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    f"|(?:0[13578]|1[02])-31)|{_LEAP}-02-29)"
)
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_OFFSET = "Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?"
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september",
           "october", "november", "december")  # fmt: skip
_SHORT_MONTHS = [name[:3] for name in _MONTHS]
# Patterns for the letters of a date format.
_LETTER_PATTERNS = {
    **dict.fromkeys(("yyyy", "uuuu", "y"), "[0-9]{4}"),
    **dict.fromkeys(("yy", "MM", "dd", "HH", "mm", "ss"), "[0-9]{2}"),
    **dict.fromkeys(("M", "d", "H", "m", "s"), "[0-9]{1,2}"),
    **{"S" * digits: f"[0-9]{{{digits}}}" for digits in range(1, 7)},
    **dict.fromkeys(("X", "XX", "XXX", "x", "xx", "xxx", "Z"), _OFFSET),
    "hh": "0[1-9]|1[0-2]", "h": "0?[1-9]|1[0-2]", "a": "am|pm",
    "MMM": "|".join(_SHORT_MONTHS), "MMMM": "|".join(_MONTHS),
}  # fmt: skip
# A context that never rounds.
_EXACT = Context(prec=MAX_PREC)
_TOKEN = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|(.)", re.DOTALL)


def is_text(type_: str) -> bool:
    """Whether a column of this type takes texts unchanged."""
    return kind_of(type_) in _STRINGS


def is_time(type_: str) -> bool:
    """Whether a type is a date or a timestamp."""
    return kind_of(type_) in _TIMES


def arrow_type(type_: str) -> pa.DataType | None:
    """Return the Arrow type for a Spark type; None if text cannot contain values of the type."""
    if kind_of(type_) == "decimal":
        return pa.decimal128(*arguments_of(type_))
    return _ARROW.get(kind_of(type_))


def without_nulls(texts: pa.Array, type_: str, options: ReadOptions) -> pa.Array:
    """Return texts from CSV, with NULL in place of each text that means NULL."""
    # Empty values without quotes are NULL already. In quotes, an empty value means NULL, too,
    # unless the column is a text column.
    nulls = [] if is_text(type_) else [""]
    nulls += [options.null_value] if options.null_value else []
    for null in nulls:
        is_null = call_arrow("equal", texts, null)
        # Test first: most columns have no such text, and the test is faster than a copy of all
        # texts.
        if is_null.true_count:
            texts = _null_unless(call_arrow("invert", is_null), texts)
    return texts


def converted(
    texts: pa.Array, type_: str, options: ReadOptions, *, as_written: bool = False
) -> pa.Array:
    """Convert texts to values of a type; texts that no value equals exactly become NULL.

    Args:
        as_written: accept only numbers in the form in which programs write them, and no codes such
            as 007.
    """
    match kind_of(type_):
        case "string":
            return texts
        case "char" | "varchar":
            (longest,) = arguments_of(type_)
            return _null_unless(
                call_arrow("less_equal", call_arrow("utf8_length", texts), longest), texts
            )
        case "boolean":
            lower = call_arrow("utf8_lower", texts)
            is_true = call_arrow("equal", lower, "true")
            return _null_unless(
                call_arrow("or_", is_true, call_arrow("equal", lower, "false")), is_true
            )
        case "date":
            if options.date_format:
                midnight = _matching(_as_iso(texts, options.date_format), _DAY + "T00:00:00.0+")
                texts = call_arrow("utf8_slice_codeunits", midnight, start=0, stop=10)
            return _matching(texts, _DAY).cast(pa.date32())
        case "timestamp" | "timestamp_ntz" as kind:
            if options.timestamp_format:
                texts = _as_iso(texts, options.timestamp_format)
            return _instants(texts) if kind == "timestamp" else _wall_clock(texts)
    return _numbers(texts, type_, options, as_written=as_written)


class Guess:
    """Infers the type of a column: the narrowest type that can hold every value unchanged."""

    def __init__(self, options: ReadOptions) -> None:
        self._options, self._empty = options, True
        numbers = ["int", "bigint", "double"]
        # Try the user's own formats before numbers, because a date in yyyyMMdd also is a number.
        times = {"date": options.date_format, "timestamp": options.timestamp_format}
        formats = [type_ for type_, pattern in times.items() if pattern]
        self._left = [*formats, *numbers, *times, "boolean", "string"]
        # If all values fit the second type of a pair, they fit the first type, too. So the first
        # type needs no test.
        self._implied = {"bigint": "int", "double": "int"}
        if not formats:
            self._implied["timestamp"] = "date"

    def see(self, texts: pa.Array) -> None:
        """Drop each type that does not fit all of these values; NULL fits every type."""
        self._empty &= texts.null_count == len(texts)
        # Look at a few values first, which usually determine the type.
        for some in (texts[:20], texts):
            left: list[str] = []
            for type_ in self._left:
                if self._implied.get(type_) not in left:
                    values = converted(some, type_, self._options, as_written=True)
                    if values.null_count != some.null_count:
                        continue
                left.append(type_)
            self._left = left

    @property
    def type(self) -> str:
        """The narrowest type that fits all values; string if all are NULL."""
        return "string" if self._empty else self._left[0]


def call_arrow(function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of `pyarrow.compute`, which declares no types for its functions."""
    return getattr(pc, function)(*arguments, **options)


def _null_unless(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Return the values where the mask is true, NULL elsewhere."""
    return call_arrow("if_else", mask, values, pa.scalar(None, values.type))


def _matching(texts: pa.Array, pattern: str) -> pa.Array:
    """Return the texts that match a pattern completely, and NULL for all other texts."""
    return _null_unless(call_arrow("match_substring_regex", texts, rf"\A(?:{pattern})\z"), texts)


def _numbers(texts: pa.Array, type_: str, options: ReadOptions, *, as_written: bool) -> pa.Array:
    thousands, decimal = re.escape(options.thousands), re.escape(options.decimal)
    # If `as_written`, refuse codes such as 007, +49 and 12E4: programs write numbers differently.
    sign, first, least = ("-?", "[1-9]", "+") if as_written else ("[+-]?", "[0-9]", "*")
    exponent = "[eE][+-][0-9]+" if as_written else "[eE][+-]?[0-9]{1,4}"
    # Each group after the first has three digits. The first group does not begin with zero: if a
    # point separates groups, 0.123 is not 123.
    grouped = rf"[1-9][0-9]{{0,2}}(?:{thousands}[0-9]{{3}})+|" if thousands else ""
    whole = rf"{grouped}{first}[0-9]*"
    pattern = rf"{sign}(?:{whole})|0"
    if kind_of(type_) not in _WHOLE:
        fraction = rf"(?:{whole}|0)(?:{decimal}[0-9]{least})?|{decimal}[0-9]+"
        pattern = rf"{sign}(?:{fraction})(?:{exponent})?|-?[0-9]{decimal}[0-9]+E[0-9]{{1,4}}"
    if type_ in _EXACT_DIGITS and not as_written:
        pattern += "|[+-]?(?i:nan|inf|infinity)"
    plain = _matching(texts, pattern)
    if options.thousands:
        plain = call_arrow("replace_substring", plain, options.thousands, "")
    if options.decimal != ".":
        plain = call_arrow("replace_substring", plain, options.decimal, ".")
    plain = call_arrow("utf8_ltrim", plain, "+")
    if kind_of(type_) == "decimal":
        # Write out numbers with an exponent or too many digits, because Arrow overflows without an
        # error.
        is_risky = call_arrow("match_substring_regex", plain, "[eE]|.{39}").fill_null(False)
        written_out = [
            f"{Decimal(number).normalize(_EXACT):f}"
            for number in plain.filter(is_risky).to_pylist()
        ]
        plain = call_arrow("replace_with_mask", plain, is_risky, pa.array(written_out, pa.string()))
        digits = call_arrow("replace_substring", call_arrow("utf8_ltrim", plain, "-"), ".", "")
        plain = _null_unless(
            call_arrow("less_equal", call_arrow("binary_length", digits), 38), plain
        )
    target = cast("pa.DataType", arrow_type(type_))
    try:
        values = plain.cast(target)
    except pa.ArrowInvalid:
        # Arrow does not name the values that do not fit. Find them here.
        values = _null_unless(_fit(plain, target), plain).cast(target)
    if digits := _EXACT_DIGITS.get(type_):
        return _null_unless(_are_exact(plain, values, digits), values)
    return values


def _fit(numbers: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return an array that is true for each number that fits the type."""
    if isinstance(type_, pa.Decimal128Type):
        whole, scale = type_.precision - type_.scale, type_.scale
        pattern = rf"\A-?0*[0-9]{{0,{whole}}}(?:\.[0-9]{{0,{scale}}}0*)?\z"
        return call_arrow("match_substring_regex", numbers, pattern)
    limit = 2 ** (type_.bit_width - 1)
    texts = numbers.to_pylist()
    return pa.array([text is not None and -limit <= Decimal(text) < limit for text in texts])


def _are_exact(texts: pa.Array, values: pa.Array, digits: int) -> pa.Array:
    """Return an array that is true for each value that its text denotes exactly.

    Round a value to as many digits as its text has; the result must equal the text. So 0.1 and
    0.10000000000000001 are exact: programs may write the same double in both ways. 9007199254740993
    is not exact, because it becomes ...992.

    Args:
        digits: the most digits with which every number without an exponent is exact.
    """

    def is_exact(text: str, value: float) -> bool:
        if repr(value) == text or "n" in text.lower():
            return True
        number = Decimal(text)
        length = len("".join(map(str, number.as_tuple().digits)).rstrip("0"))
        return Decimal(f"{value:.{max(length - 1, 0)}e}") == number

    are_exact = call_arrow("match_substring_regex", texts, rf"\A[0-9.-]{{1,{digits}}}\z")
    is_unsure = call_arrow("invert", are_exact).fill_null(False)
    checked = map(
        is_exact, texts.filter(is_unsure).to_pylist(), values.filter(is_unsure).to_pylist()
    )
    return call_arrow("replace_with_mask", are_exact, is_unsure, pa.array(checked, pa.bool_()))


def _wall_clock(texts: pa.Array) -> pa.Array:
    return _matching(texts, f"{_DAY}(?:{_TIME})?").cast(_LOCAL)


def _instants(texts: pa.Array) -> pa.Array:
    # First read texts without an offset, as times in UTC.
    values = _wall_clock(texts).cast(_UTC)
    if values.null_count == texts.null_count:
        return values
    with_offset = _matching(texts, f"{_DAY}{_TIME}(?:{_OFFSET})").cast(_UTC)
    # An offset may move a time to a year that Python does not have.
    year = call_arrow("year", with_offset.cast(_LOCAL))
    is_known = call_arrow("and_", call_arrow("greater", year, 0), call_arrow("less", year, 10_000))
    return call_arrow("coalesce", values, _null_unless(is_known, with_offset))


def _as_iso(texts: pa.Array, pattern: str) -> pa.Array:
    """Convert texts in a format of Java's DateTimeFormatter to ISO 8601; other texts to NULL."""
    expression, letters = _time_pattern(pattern)
    groups = call_arrow("extract_regex", texts, rf"(?i)\A(?:{expression})\z")
    parts = dict(zip(letters, groups.flatten(), strict=True))

    def part(letter: str, otherwise: str) -> pa.Array:
        given = parts.get(letter, pa.scalar(otherwise))
        return call_arrow("utf8_lpad", given, width=2, padding="0")

    if "MMM" in letters.get("M", ""):
        name = call_arrow(
            "utf8_lower", call_arrow("utf8_slice_codeunits", parts["M"], start=0, stop=3)
        )
        month = call_arrow("index_in", name, value_set=pa.array(_SHORT_MONTHS))
        parts["M"] = call_arrow("add", month, 1).cast(pa.string())
    if "a" in letters:
        half = call_arrow(
            "index_in", call_arrow("utf8_lower", parts["a"]), value_set=pa.array(["am", "pm"])
        )
        hour = parts["h"].cast(pa.int32())
        hour = call_arrow("if_else", call_arrow("equal", hour, 12), 0, hour)
        parts["H"] = call_arrow("add", hour, call_arrow("multiply", half, 12)).cast(pa.string())
    # As in Java, two digits mean a year of this century.
    day = ["20" * (letters["y"] == "yy"), parts["y"], "-", part("M", "01"), "-", part("d", "01")]
    time = ["T", part("H", "00"), ":", part("m", "00"), ":", part("s", "00"), "."]
    rest = [parts.get("S", "0"), parts.get("X", "")]
    return call_arrow("binary_join_element_wise", *day, *time, *rest, "")


def _time_pattern(pattern: str) -> tuple[str, dict[str, str]]:
    """Return a regular expression for a format of Java, and the letters of each group.

    Raises:
        FilesError: the format has other letters, repeats a letter, or is incomplete.
    """
    expression, groups = "", dict[str, str]()
    for quoted, letters, _, other in _TOKEN.findall(pattern):
        # Give letters with the same meaning one group, so that a repetition is noticed.
        group = letters[:1].translate(str.maketrans("uxZ", "yXX"))
        if (letters and letters not in _LETTER_PATTERNS) or group in groups or other in ("[", "]"):
            raise FilesError(
                f'The format "{pattern}" has "{letters or other}": the letters are y M d H h m s S '
                "a X, each once; put other text in single quotes",
            )
        if letters:
            groups[group] = letters
            expression += f"(?P<{group}>{_LETTER_PATTERNS[letters]})"
        else:
            # Two single quotes in a row mean one quote.
            expression += re.escape(other or quoted.replace("''", "'") or "'")
    if "y" not in groups or ("h" in groups) != ("a" in groups) or {"h", "H"} <= set(groups):
        raise FilesError(
            f'The format "{pattern}" is incomplete: it needs a year (yyyy), '
            "and hours of the day (HH), or hours (hh) with am or pm (a)",
        )
    return expression, groups
