"""What a data source holds, in the form of the service's answers."""

from typing import Any

from tableau_sandbox.vds.functions import DATES, NUMBERS, DataType
from tableau_sandbox.vds.model import ColumnClass, Field, Model, Relationship
from tableau_sandbox.vds.requests import Options
from tableau_sandbox.vds.schema import Schema

_KINDS = {"quantitative": "CONTINUOUS", "nominal": "NOMINAL", "ordinal": "ORDINAL"}


def fields_answer(model: Model, options: Options, schema: Schema) -> dict[str, Any]:
    """Return the fields of a model; hidden ones if the options ask for them."""
    shown = [field for field in model.fields if options.include_hidden_fields or not field.hidden]
    return {
        "data": [_field(field, schema) for field in shown],
        "extraData": {"parameters": []},
    }


def model_answer(model: Model, schema: Schema) -> dict[str, Any]:
    """Return the logical tables of a model and their relationships."""
    return {
        "logicalTables": [
            {"logicalTableId": table.id, "caption": table.caption} for table in model.tables
        ],
        "logicalTableRelationships": [_relationship(each, schema) for each in model.relationships],
    }


def _field(field: Field, schema: Schema) -> dict[str, Any]:
    known: dict[str, Any] = {
        "fieldName": field.name,
        "fieldCaption": field.caption,
        "dataType": field.data_type,
        "logicalTableId": field.table,
    }
    if schema >= Schema.V20252:
        known["defaultAggregation"] = _aggregation(field)
    if schema >= Schema.V20253:
        known["columnClass"] = field.column_class
        if field.formula is not None:
            known["formula"] = field.formula
    if schema >= Schema.V20261:
        known["fieldRole"] = _role(field)
        known["fieldType"] = _kind(field)
        known["hidden"] = field.hidden
    return known


def _aggregation(field: Field) -> str:
    if field.column_class is ColumnClass.CALCULATION:
        return "AGG"
    if field.data_type in NUMBERS:
        return "SUM"
    return {DataType.DATE: "YEAR", DataType.DATETIME: "YEAR", DataType.SPATIAL: "COLLECT"}.get(
        field.data_type, "COUNT"
    )


def _role(field: Field) -> str:
    usual = "MEASURE" if field.data_type in NUMBERS else "DIMENSION"
    return field.role.upper() if field.role in ("measure", "dimension") else usual


def _kind(field: Field) -> str:
    if field.kind in _KINDS:
        return _KINDS[field.kind]
    if field.data_type in NUMBERS:
        return "CONTINUOUS"
    return "ORDINAL" if field.data_type in DATES else "NOMINAL"


def _relationship(relationship: Relationship, schema: Schema) -> dict[str, Any]:
    ends: dict[str, Any] = {
        "fromLogicalTable": {"logicalTableId": relationship.first},
        "toLogicalTable": {"logicalTableId": relationship.second},
    }
    # Servers of 2025.3 send none.
    if schema >= Schema.V20261 and relationship.pairs:
        several = {"op": "AND"} if len(relationship.pairs) > 1 else {}
        pairs = [
            {"operator": pair.operator, "fromField": pair.first, "toField": pair.second}
            for pair in relationship.pairs
        ]
        ends["expression"] = {**several, "relationships": pairs}
    return ends
