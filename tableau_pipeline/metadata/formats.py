"""Validate declared formats of numbers and dates, and convert them to Tableau's form."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

FormatKind = Literal["number", "date"]

# The first characters of Tableau's formats. _OF_NUMBERS: formats of numbers, currencies and
# percentages. _UNCHECKED: formats that are not validated, because they may be any text, or follow
# the locale.
_OF_NUMBERS, _UNCHECKED = ("n", "c", "p"), ("*", "C", "L", "S")
# Literal text: text in quotes, or a character after a backslash.
_LITERAL = re.compile(r'"[^"]*"|\\.|\'[^\']*\'', re.DOTALL)
_CURRENCY = re.compile(r'(?:"([^"]+)"|([$€£¥]))(.*)', re.DOTALL)
_EXPONENT = re.compile(r"[Ee][+-]?[0#]+")
# A fraction of a second, as in "ss.000".
_FRACTION = re.compile(r"(?<=s)[.,:]0+")
_LETTER = re.compile(r"[^\W\d_]")
# The letters of Tableau's custom date formats, and of ICU's patterns.
_OF_DATES = frozenset("acdehkmnopqstuvwyzADEFGHKLMPQSUVYZ")
_THOUSANDS = 3


def tableau_format(text: str) -> str:
    """Return a format in Tableau's form: with a prefix for its kind, such as "n" for numbers.

    Formats of numbers and currencies get a second format for negative numbers, as in data sources
    that Tableau saved. Otherwise, Tableau might add the second format when a user saves the data
    source, and the added format would look like an edit by this user.
    """
    has_kind = not text or text.startswith((*_OF_NUMBERS, *_UNCHECKED))
    format_ = text if has_kind else _with_kind(text)
    is_whole = format_[:1] not in ("n", "c") or ";" in _plain(format_)
    return format_ if is_whole else f"{format_};-{format_[1:]}"


def kind_of(text: str) -> FormatKind | None:
    """Return whether a format is for numbers or for dates; None if only Tableau knows."""
    if not text or text.startswith(_UNCHECKED):
        return None
    return "number" if text.startswith(_OF_NUMBERS) or _has_digits(text) else "date"


def fault_in_format(text: str) -> str | None:
    """Return a phrase with the fault that Tableau would find in a format; None without a fault."""
    match kind_of(text):
        case "number":
            of_numbers = text[1:] if text.startswith(_OF_NUMBERS) else text
            return next(filter(None, map(_fault_of_numbers, _plain(of_numbers).split(";"))), None)
        case "date":
            unknown = [
                letter for letter in _LETTER.findall(_plain(text)) if letter not in _OF_DATES
            ]
            listed = ", ".join(f'"{letter}"' for letter in dict.fromkeys(unknown))
            return f"a date format has no {listed}, unless it is in quotes" if unknown else None
        case None:
            return None


_KINDS: Mapping[str, FormatKind] = MappingProxyType(
    {
        **dict.fromkeys(("real", "integer"), "number"),
        **dict.fromkeys(("date", "datetime"), "date"),
    }
)


def misfit(text: str, datatype: str) -> str | None:
    """Return why a format does not fit values of a Tableau type; None if the format fits."""
    kind = kind_of(text.removeprefix("*"))
    if kind in (None, _KINDS.get(datatype)):
        return None
    return f"{text!r} is a {kind} format, and the values are of the type {datatype}"


def _fault_of_numbers(part: str) -> str | None:
    rest = _EXPONENT.sub("", part)
    if _LETTER.search(rest):
        return """text of a number format goes in quotes: '#,##0.00" EUR"'"""
    whole, _, fraction = rest.partition(".")
    *groups, last = re.sub(r"[^0#,]", "", whole).rstrip(",").split(",")
    if (groups and "0" in last and len(last) < _THOUSANDS) or re.search(r",.*[0#]", fraction):
        # In a format, commas and points mean the same in every locale. Tableau shows the separators
        # of the reader's locale.
        return (
            "in a number format, a comma separates thousands, and a point separates decimals: "
            "#,##0.00"
        )
    return None


def _has_digits(text: str) -> bool:
    return bool(re.search("[0#]", _FRACTION.sub("", _plain(text))))


def _plain(text: str) -> str:
    """Return a format without literal text."""
    return _LITERAL.sub("", text)


def _with_kind(text: str) -> str:
    if not _has_digits(text):
        return f"*{text}"
    if "%" in _plain(text):
        return f"p{text}"
    if currency := _CURRENCY.match(text):
        return f'c"{currency[1] or currency[2]}"{currency[3]}'
    return f"n{text}"
