"""Dates and times in the patterns of Java's DateTimeFormatter, as in Spark's options."""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import cache

from tableau_pipeline.errors import RefusedError

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
_ISO_TIME = (
    r"(?:[T ](?P<H>\d\d):(?P<m>\d\d)(?::(?P<s>\d\d)(?:\.(?P<S>\d{1,6}))?)?(?P<X>" + _OFFSET + ")?)?"
)


class TimePattern:
    """Reads texts of exactly one pattern.

    Letters: y M d H h m s S a X, and text in single quotes; [ ] around optional parts.
    """

    def __init__(self, expression: str) -> None:
        self._expression = re.compile(expression, re.ASCII | re.IGNORECASE)

    def read(self, text: str) -> datetime:
        """Return the moment; in UTC if the text has an offset, naive if not.

        Raises:
            ValueError: the text has another form, or the day or time does not exist.
        """
        found = self._expression.fullmatch(text)
        if not found:
            raise ValueError(text)
        parts = {name: value for name, value in found.groupdict().items() if value is not None}
        if "y" not in parts or ("h" in parts and "a" not in parts):
            # What the format makes optional is missing, and without it this is no moment.
            raise ValueError(text)
        # Java, too, takes two digits as a year of this century.
        year = int(parts["y"]) + (2000 if len(parts["y"]) == 2 else 0)
        moment = datetime(
            year,
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


ISO_DATE = TimePattern(_ISO_DATE)
ISO_TIMESTAMP = TimePattern(_ISO_DATE + _ISO_TIME)


@cache
def time_pattern(pattern: str) -> TimePattern:
    """Parse the pattern of an option, such as "dd.MM.yyyy HH:mm[:ss]".

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
        return TimePattern(expression)
    except re.error as error:
        raise RefusedError(f'The format "{pattern}" has unpaired brackets') from error


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
