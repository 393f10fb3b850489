"""Check table calculations, of which the sandbox computes none."""

from enum import StrEnum

from tableau_sandbox.vds.errors import malformed
from tableau_sandbox.vds.functions import Function
from tableau_sandbox.vds.grammar.json_values import (
    Fields,
    Reader,
    choice,
    fields_of,
    flag,
    many,
    text,
    whole,
)
from tableau_sandbox.vds.query_fields import SortDirection
from tableau_sandbox.vds.schema import Part, Schema, knows_part


class TableCalculationType(StrEnum):
    """The kind of a table calculation."""

    CUSTOM = "CUSTOM"
    NESTED = "NESTED"
    DIFFERENCE_FROM = "DIFFERENCE_FROM"
    PERCENT_DIFFERENCE_FROM = "PERCENT_DIFFERENCE_FROM"
    PERCENT_FROM = "PERCENT_FROM"
    PERCENT_OF_TOTAL = "PERCENT_OF_TOTAL"
    RANK = "RANK"
    PERCENTILE = "PERCENTILE"
    RUNNING_TOTAL = "RUNNING_TOTAL"
    MOVING_CALCULATION = "MOVING_CALCULATION"


class RelativeTo(StrEnum):
    """The row with which a difference compares."""

    PREVIOUS = "PREVIOUS"
    NEXT = "NEXT"
    FIRST = "FIRST"
    LAST = "LAST"


class RankType(StrEnum):
    """How equal values are ranked."""

    COMPETITION = "COMPETITION"
    MODIFIED_COMPETITION = "MODIFIED COMPETITION"
    DENSE = "DENSE"
    UNIQUE = "UNIQUE"


class Aggregation(StrEnum):
    """What a running total or a moving calculation computes."""

    SUM = "SUM"
    AVG = "AVG"
    MIN = "MIN"
    MAX = "MAX"


_COMMON = ("tableCalcType", "dimensions")
_ADDRESSED = ("levelAddress", "customSort")
_DIFFERENCE = (*_ADDRESSED, "relativeTo")
_CUSTOM = (*_ADDRESSED, "restartEvery")
_RUNNING = ("aggregation", "customSort", "secondaryTableCalculation")
_KEYS = {
    TableCalculationType.CUSTOM: _CUSTOM,
    TableCalculationType.NESTED: (*_CUSTOM, "fieldCaption"),
    TableCalculationType.DIFFERENCE_FROM: _DIFFERENCE,
    TableCalculationType.PERCENT_DIFFERENCE_FROM: _DIFFERENCE,
    TableCalculationType.PERCENT_FROM: _DIFFERENCE,
    TableCalculationType.PERCENT_OF_TOTAL: _ADDRESSED,
    TableCalculationType.RANK: ("rankType", "direction"),
    TableCalculationType.PERCENTILE: ("direction",),
    TableCalculationType.RUNNING_TOTAL: (*_RUNNING, "restartEvery"),
    TableCalculationType.MOVING_CALCULATION: (
        *_RUNNING,
        "previous",
        "next",
        "includeCurrent",
        "fillInNull",
    ),
}


def check_table_calculation(fields: Fields, schema: Schema) -> None:
    """Refuse fields whose table calculations are not of the right form.

    Raises:
        VdsError: 400802.
    """
    specification = _specification_of(schema)
    fields.required("tableCalculation", specification)
    if fields.values.get("nestedTableCalculations") is not None:
        fields.required("nestedTableCalculations", many(specification))


def _specification_of(schema: Schema) -> Reader[TableCalculationType]:
    def read(value: object, place: str) -> TableCalculationType:
        kind = fields_of(value, place).required("tableCalcType", choice(TableCalculationType))
        if kind is TableCalculationType.NESTED:
            if not knows_part(schema, Part.NESTED_TABLE_CALCULATION):
                raise malformed(f"{place}.tableCalcType has the unknown value '{kind}'.")
            fields_of(value, place).required("fieldCaption", text)
        fields = fields_of(value, place, known=(*_COMMON, *_KEYS[kind]))
        fields.required("dimensions", many(_reference))
        for key in fields.values:
            fields.required(key, readers[key])
        return kind

    readers = {**_READERS, "secondaryTableCalculation": read}
    return read


def _reference(value: object, place: str) -> None:
    fields = fields_of(value, place, known=("fieldCaption", "function"))
    fields.required("fieldCaption", text)
    fields.maybe("function", choice(Function))


def _custom_sort(value: object, place: str) -> None:
    fields = fields_of(value, place, known=("fieldCaption", "function", "direction"))
    fields.required("fieldCaption", text)
    fields.required("function", choice(Function))
    fields.required("direction", choice(SortDirection))


_READERS: dict[str, Reader[object]] = {
    "tableCalcType": choice(TableCalculationType),
    "dimensions": many(_reference),
    "fieldCaption": text,
    "levelAddress": _reference,
    "restartEvery": _reference,
    "customSort": _custom_sort,
    "relativeTo": choice(RelativeTo),
    "rankType": choice(RankType),
    "direction": choice(SortDirection),
    "aggregation": choice(Aggregation),
    "previous": whole(),
    "next": whole(),
    "includeCurrent": flag,
    "fillInNull": flag,
}
