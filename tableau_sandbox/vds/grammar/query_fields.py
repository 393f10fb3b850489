"""Parse the fields of queries from JSON."""

from collections.abc import Callable
from typing import Any

from tableau_sandbox.vds.errors import against_the_rules, malformed
from tableau_sandbox.vds.filters import Number
from tableau_sandbox.vds.functions import Function
from tableau_sandbox.vds.grammar.json_values import (
    Fields,
    Reader,
    choice,
    fields_of,
    number,
    text,
    whole,
)
from tableau_sandbox.vds.grammar.table_calculations import check_table_calculation
from tableau_sandbox.vds.query_fields import (
    Bin,
    Calculation,
    Dimension,
    Measure,
    QueryField,
    SortDirection,
    TableCalculation,
)
from tableau_sandbox.vds.schema import Part, Schema, knows_part

_COMMON = ("fieldCaption", "fieldAlias", "maxDecimalPlaces", "sortDirection", "sortPriority")
_NEWER = {
    "binSize": Part.BIN_FIELD,
    "tableCalculation": Part.TABLE_CALCULATION,
    "nestedTableCalculations": Part.NESTED_TABLE_CALCULATION,
}


def query_field_of(schema: Schema) -> Reader[QueryField]:
    """Return the reader of a field of a query."""
    newer = [key for key, part in _NEWER.items() if knows_part(schema, part)]
    known = (*_COMMON, "function", "calculation", *newer)

    def read(value: object, place: str) -> QueryField:
        fields = fields_of(value, place, known=known)
        common = _common(fields)
        kind = frozenset(fields.values).difference(_COMMON)
        if "tableCalculation" in kind and "binSize" not in kind:
            check_table_calculation(fields, schema)
            check_one_computation(fields)
            return TableCalculation(**common)
        if kind == {"function", "calculation"}:
            check_one_computation(fields)
        if kind not in _KINDS:
            raise malformed(f"{place} is no field with the keys {', '.join(sorted(kind))}.")
        return _KINDS[kind](fields, common)

    return read


def check_one_computation(fields: Fields) -> None:
    """Refuse fields that have a function and a calculation.

    Raises:
        VdsError: 400803; 400802, one of them is of the wrong type.
    """
    function = fields.maybe("function", choice(Function))
    calculation = fields.maybe("calculation", text)
    if function is not None and calculation is not None:
        raise against_the_rules(f"{fields.place} has both a function and a calculation.")


def _common(fields: Fields) -> dict[str, Any]:
    directions = choice(SortDirection)
    return {
        "caption": fields.required("fieldCaption", text),
        "alias": fields.maybe("fieldAlias", text),
        "max_decimal_places": fields.maybe("maxDecimalPlaces", whole()),
        "sort_direction": fields.optional("sortDirection", directions, SortDirection.ASC),
        "sort_priority": fields.maybe("sortPriority", whole(minimum=1)),
    }


def _measure(fields: Fields, common: dict[str, Any]) -> Measure:
    return Measure(**common, function=fields.required("function", choice(Function)))


def _calculation(fields: Fields, common: dict[str, Any]) -> Calculation:
    return Calculation(**common, formula=fields.required("calculation", text))


def _bin(fields: Fields, common: dict[str, Any]) -> Bin:
    return Bin(**common, size=fields.required("binSize", _bin_size))


def _bin_size(value: object, place: str) -> Number:
    size = number(value, place)
    if size < 1:
        raise malformed(f"{place} must not be less than 1.")
    return size


_KINDS: dict[frozenset[str], Callable[[Fields, dict[str, Any]], QueryField]] = {
    frozenset(): lambda _, common: Dimension(**common),
    frozenset({"function"}): _measure,
    frozenset({"calculation"}): _calculation,
    frozenset({"binSize"}): _bin,
}
