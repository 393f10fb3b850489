"""The formulas of calculations that the sandbox computes."""

import re
from dataclasses import dataclass
from enum import StrEnum

from tableau_sandbox.vds.errors import invalid_formula


class Function(StrEnum):
    """What is computed of a column: an aggregate, or the number of rows of its table."""

    COUNT = "COUNT"
    COUNTD = "COUNTD"
    SUM = "SUM"
    MIN = "MIN"
    MAX = "MAX"
    ROWS = "SUM(IIF(ISNULL()))"


@dataclass(frozen=True, slots=True)
class Formula:
    """A function of a name in brackets: a column, or under COUNT a table."""

    function: Function
    name: str


# Without it, other letters pass for those of a function's name.
_FLAGS = re.IGNORECASE | re.ASCII
_NAME = r"\[((?:[^\]]|\]\])+)\]"
_AGGREGATE = re.compile(rf"\s*(COUNT|COUNTD|SUM|MIN|MAX)\s*\(\s*{_NAME}\s*\)\s*", _FLAGS)
_ROWS = re.compile(
    rf"\s*SUM\s*\(\s*IIF\s*\(\s*ISNULL\s*\(\s*{_NAME}\s*\)\s*,\s*1\s*,\s*1\s*\)\s*\)\s*", _FLAGS
)


def parse_formula(text: str) -> Formula:
    """Parse a formula.

    Raises:
        VdsError: 400800, the sandbox does not compute it.
    """
    if match := _AGGREGATE.fullmatch(text):
        return Formula(Function(match[1].upper()), _unescaped(match[2]))
    if match := _ROWS.fullmatch(text):
        return Formula(Function.ROWS, _unescaped(match[1]))
    raise invalid_formula(f"The calculation {text[:200]!a} is invalid, or not emulated.")


def _unescaped(name: str) -> str:
    return name.replace("]]", "]")
