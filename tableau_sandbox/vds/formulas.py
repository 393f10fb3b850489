"""The formulas of calculations that the sandbox computes."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tableau_sandbox.vds.errors import invalid_formula
from tableau_sandbox.vds.functions import APPLICABLE, DataType, Function, result_type
from tableau_sandbox.vds.schema import Part, Schema, knows_part


@dataclass(frozen=True, slots=True)
class Aggregate:
    """COUNT, COUNTD, SUM, MIN or MAX of a name in brackets: a column, or under COUNT a table."""

    function: Function
    name: str


@dataclass(frozen=True, slots=True)
class RowCount:
    """The number of rows of the table of a column, as a sum of ones."""

    column: str


@dataclass(frozen=True, slots=True)
class TableCount:
    """The number of rows of a table."""

    table: str


Formula: TypeAlias = Aggregate | RowCount
Resolved: TypeAlias = Aggregate | RowCount | TableCount

# Without it, other letters pass for those of a function's name.
_FLAGS = re.IGNORECASE | re.ASCII
_NAME = r"\[((?:[^\]]|\]\])+)\]"
_AGGREGATE = re.compile(rf"\s*(COUNT|COUNTD|SUM|MIN|MAX)\s*\(\s*{_NAME}\s*\)\s*", _FLAGS)
_ROW_COUNT = re.compile(
    rf"\s*SUM\s*\(\s*IIF\s*\(\s*ISNULL\s*\(\s*{_NAME}\s*\)\s*,\s*1\s*,\s*1\s*\)\s*\)\s*",
    _FLAGS,
)


def parse_formula(text: str) -> Formula:
    """Parse a formula.

    Raises:
        VdsError: 400800, the sandbox does not compute it.
    """
    if match := _AGGREGATE.fullmatch(text):
        return Aggregate(Function(match[1].upper()), _unescaped(match[2]))
    if match := _ROW_COUNT.fullmatch(text):
        return RowCount(_unescaped(match[1]))
    raise invalid_formula(f"The calculation {text[:200]!a} is invalid, or not emulated.")


def resolve(
    formula: Formula, *, columns: Mapping[str, DataType], tables: Collection[str], schema: Schema
) -> Resolved:
    """Decide whether a formula is about a column or a table; a column goes first.

    Args:
        formula: the formula.
        columns: the types of the columns of the data source, by their names or captions.
        tables: the identifiers or captions of its tables.
        schema: versions before 20261 count no tables.

    Raises:
        VdsError: 400800, there is no such column or table, or the function does not apply to it.
    """
    name = formula.column if isinstance(formula, RowCount) else formula.name
    if name in columns:
        if isinstance(formula, Aggregate) and formula.function not in APPLICABLE[columns[name]]:
            raise invalid_formula(f"{formula.function} does not apply to the field [{name}].")
        return formula
    if not isinstance(formula, Aggregate) or name not in tables:
        raise invalid_formula(f"The calculation refers to the unknown field [{name}].")
    if formula.function is not Function.COUNT or not knows_part(schema, Part.TABLE_COUNT):
        raise invalid_formula(f"{formula.function} does not apply to the table [{name}].")
    return TableCount(name)


def formula_type(resolved: Resolved, *, columns: Mapping[str, DataType]) -> DataType:
    """Return the type of the values of a calculation."""
    if isinstance(resolved, Aggregate):
        return result_type(resolved.function, columns[resolved.name])
    return DataType.INTEGER


def _unescaped(name: str) -> str:
    return name.replace("]]", "]")
