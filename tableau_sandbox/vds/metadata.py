"""What a data source holds, in the form of the service's answers."""

from collections.abc import Mapping
from typing import Any

from tableau_sandbox.vds.model import NUMBERS, DataType, Field, Model

_KINDS = {"quantitative": "CONTINUOUS", "nominal": "NOMINAL", "ordinal": "ORDINAL"}
_AGGREGATIONS: Mapping[DataType, str] = {
    **dict.fromkeys(NUMBERS, "SUM"),
    DataType.DATE: "YEAR",
    DataType.DATETIME: "YEAR",
    DataType.SPATIAL: "COLLECT",
}


def fields_answer(model: Model, *, hidden: bool) -> dict[str, Any]:
    """Return the fields of a model, with those that people do not see or without."""
    fields = [_field(field) for field in model.fields if hidden or not field.hidden]
    return {"data": fields, "extraData": {"parameters": []}}


def _field(field: Field) -> dict[str, Any]:
    told = {
        "fieldName": field.name,
        "fieldCaption": field.caption,
        "dataType": field.data_type,
        "logicalTableId": field.table,
        "defaultAggregation": _aggregation(field),
        "columnClass": field.column_class,
        "fieldRole": _role(field),
        "fieldType": _kind(field),
        "hidden": field.hidden,
    }
    return told if field.formula is None else {**told, "formula": field.formula}


def _aggregation(field: Field) -> str:
    is_calculated = field.column_class == "CALCULATION"
    return "AGG" if is_calculated else _AGGREGATIONS.get(field.data_type, "COUNT")


def _role(field: Field) -> str:
    usual = "MEASURE" if field.data_type in NUMBERS else "DIMENSION"
    return field.role.upper() if field.role in ("measure", "dimension") else usual


def _kind(field: Field) -> str:
    if field.kind in _KINDS:
        return _KINDS[field.kind]
    if field.data_type in NUMBERS:
        return "CONTINUOUS"
    is_date = field.data_type in (DataType.DATE, DataType.DATETIME)
    return "ORDINAL" if is_date else "NOMINAL"
