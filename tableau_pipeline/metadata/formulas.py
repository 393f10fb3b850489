"""The fields that a formula of Tableau names."""

import re
from collections.abc import Callable, Iterator

# Strings and comments, where brackets mean nothing; then a field, perhaps of another data source.
_TOKEN = re.compile(
    r"""'[^']*'|"[^"]*"|//[^\n]*|/\*.*?\*/|(\[(?:[^\]]|\]\])*\])(\.\[(?:[^\]]|\]\])*\])?""",
    re.DOTALL,
)


def quoted(name: str) -> str:
    """Return a name in brackets."""
    return f"[{name.replace(']', ']]')}]"


def unquoted(name: str) -> str:
    """Return a name without its brackets; the last one of `[Extract].[Sales]`."""
    last = name.split("].[")[-1]
    return last.removeprefix("[").removesuffix("]").replace("]]", "]")


def field_name(path: tuple[str, ...], *, single: bool) -> str:
    """Return the name of a column or calculation: the column alone if there is a single table."""
    return path[1] if path[0] == "calculation" else path[2] if single else f"{path[1]}.{path[2]}"


def fields_in(formula: str) -> Iterator[str]:
    """Yield the names of the fields in a formula, in brackets; not [Parameters].[A]."""
    for match in _TOKEN.finditer(formula):
        if match[1] and not match[2]:
            yield match[1]


def with_fields(formula: str, new: Callable[[str], str]) -> str:
    """Return the formula with another name for each field; both in brackets."""

    def of(match: re.Match[str]) -> str:
        return new(match[1]) if match[1] and not match[2] else match[0]

    return _TOKEN.sub(of, formula)
