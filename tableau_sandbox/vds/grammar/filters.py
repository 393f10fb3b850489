"""Parse the filters of queries from JSON."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from tableau_sandbox.vds.errors import against_the_rules, malformed
from tableau_sandbox.vds.filters import (
    Bounds,
    DateFilter,
    FieldReference,
    Filter,
    FilterType,
    FormulaReference,
    MatchFilter,
    NumberFilter,
    OtherFilter,
    Reference,
    SetFilter,
    Value,
)
from tableau_sandbox.vds.functions import Function
from tableau_sandbox.vds.grammar.json_values import (
    Fields,
    Reader,
    choice,
    day,
    fields_of,
    flag,
    many,
    number,
    scalar,
    text,
    whole,
)
from tableau_sandbox.vds.grammar.query_fields import check_one_computation
from tableau_sandbox.vds.schema import Part, Schema, knows_part

_COMMON = ("field", "filterType", "context")
_QUANTITATIVE = ("quantitativeFilterType", "includeNulls")


class PeriodType(StrEnum):
    """The unit of a relative range of dates."""

    MINUTES = "MINUTES"
    HOURS = "HOURS"
    DAYS = "DAYS"
    WEEKS = "WEEKS"
    MONTHS = "MONTHS"
    QUARTERS = "QUARTERS"
    YEARS = "YEARS"


class DateRangeType(StrEnum):
    """The direction of a relative range of dates."""

    CURRENT = "CURRENT"
    LAST = "LAST"
    LASTN = "LASTN"
    NEXT = "NEXT"
    NEXTN = "NEXTN"
    TODATE = "TODATE"


class End(StrEnum):
    """The end of an order from which values are taken."""

    TOP = "TOP"
    BOTTOM = "BOTTOM"


class Operator(StrEnum):
    """The comparison of a condition."""

    EQ = "="
    NEQ = "<>"
    LT = "<"
    LTE = "<="
    GT = ">"
    GTE = ">="


def filter_of(schema: Schema) -> Reader[Filter]:
    """Return the reader of a filter."""

    def read(value: object, place: str) -> Filter:
        kind = fields_of(value, place).required("filterType", choice(FilterType))
        if kind is FilterType.CONDITION and not knows_part(schema, Part.CONDITION_FILTER):
            raise malformed(f"{place}.filterType has the unknown value '{kind}'.")
        keys, build = _KINDS[kind]
        fields = fields_of(value, place, known=(*_COMMON, *keys))
        common = {
            "field": fields.required("field", _reference),
            "context": fields.optional("context", flag, False),
        }
        return build(fields, common)

    return read


def _reference(value: object, place: str) -> Reference:
    fields = fields_of(value, place, known=("fieldCaption", "function", "calculation"))
    check_one_computation(fields)
    if "calculation" not in fields:
        caption = fields.required("fieldCaption", text)
        return FieldReference(caption, fields.maybe("function", choice(Function)))
    if "fieldCaption" in fields:
        raise malformed(f"{place} must not have 'fieldCaption' and 'calculation'.")
    return FormulaReference(fields.required("calculation", text))


def _set(fields: Fields, common: dict[str, Any]) -> SetFilter:
    values: tuple[Value, ...] = fields.required("values", many(scalar))
    return SetFilter(**common, values=values, exclude=fields.optional("exclude", flag, False))


def _match(fields: Fields, common: dict[str, Any]) -> MatchFilter:
    return MatchFilter(
        **common,
        starts_with=fields.maybe("startsWith", text),
        ends_with=fields.maybe("endsWith", text),
        contains=fields.maybe("contains", text),
        exclude=fields.optional("exclude", flag, False),
    )


def _numbers(fields: Fields, common: dict[str, Any]) -> NumberFilter:
    return NumberFilter(
        **common,
        bounds=fields.required("quantitativeFilterType", choice(Bounds)),
        minimum=fields.maybe("min", number),
        maximum=fields.maybe("max", number),
        include_nulls=fields.optional("includeNulls", flag, False),
    )


def _dates(fields: Fields, common: dict[str, Any]) -> DateFilter:
    return DateFilter(
        **common,
        bounds=fields.required("quantitativeFilterType", choice(Bounds)),
        minimum=fields.maybe("minDate", day),
        maximum=fields.maybe("maxDate", day),
        include_nulls=fields.optional("includeNulls", flag, False),
    )


def _relative_dates(fields: Fields, common: dict[str, Any]) -> OtherFilter:
    fields.required("periodType", choice(PeriodType))
    kind = fields.required("dateRangeType", choice(DateRangeType))
    count = fields.maybe("rangeN", whole())
    fields.maybe("anchorDate", day)
    fields.maybe("includeNulls", flag)
    if (count is not None) != (kind in (DateRangeType.LASTN, DateRangeType.NEXTN)):
        raise against_the_rules(f"{fields.place} needs 'rangeN' for LASTN and NEXTN only.")
    return OtherFilter(**common, filter_type=FilterType.DATE)


def _top(fields: Fields, common: dict[str, Any]) -> OtherFilter:
    count = fields.required("howMany", whole())
    fields.maybe("direction", choice(End))
    measured = fields.required("fieldToMeasure", _reference)
    if count < 1:
        raise against_the_rules(f"{fields.place}.howMany must not be less than 1.")
    return OtherFilter(**common, filter_type=FilterType.TOP, references=(measured,))


def _condition(fields: Fields, common: dict[str, Any]) -> OtherFilter:
    fields.maybe("calculation", text)
    condition = fields.maybe("condition", _comparison)
    if ("condition" in fields) == ("calculation" in fields):
        raise against_the_rules(f"{fields.place} needs either 'condition' or 'calculation'.")
    references = () if condition is None else (condition,)
    return OtherFilter(**common, filter_type=FilterType.CONDITION, references=references)


def _comparison(value: object, place: str) -> FieldReference:
    fields = fields_of(value, place, known=("fieldCaption", "function", "comparison", "value"))
    fields.required("comparison", choice(Operator))
    fields.required("value", _compared)
    return FieldReference(
        fields.required("fieldCaption", text), fields.required("function", choice(Function))
    )


def _compared(value: object, place: str) -> object:
    return text(value, place) if isinstance(value, str) else number(value, place)


_Builder = Callable[[Fields, dict[str, Any]], Filter]
_KINDS: dict[FilterType, tuple[tuple[str, ...], _Builder]] = {
    FilterType.SET: (("values", "exclude"), _set),
    FilterType.MATCH: (("startsWith", "endsWith", "contains", "exclude"), _match),
    FilterType.QUANTITATIVE_NUMERICAL: ((*_QUANTITATIVE, "min", "max"), _numbers),
    FilterType.QUANTITATIVE_DATE: ((*_QUANTITATIVE, "minDate", "maxDate"), _dates),
    FilterType.DATE: (
        ("periodType", "dateRangeType", "rangeN", "anchorDate", "includeNulls"),
        _relative_dates,
    ),
    FilterType.TOP: (("howMany", "fieldToMeasure", "direction"), _top),
    FilterType.CONDITION: (("condition", "calculation"), _condition),
}
