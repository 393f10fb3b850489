"""The model of a data source as queries see it, read from the `.tds` and the stored tables.

This module also writes the model's fields in the form of the service's answers.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from xml.etree.ElementTree import Element

import defusedxml.ElementTree

from tableau_sandbox.store.records import Datasource


class DataType(StrEnum):
    """The type of a field."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    STRING = "STRING"
    DATETIME = "DATETIME"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    SPATIAL = "SPATIAL"
    UNKNOWN = "UNKNOWN"


NUMBERS = frozenset({DataType.INTEGER, DataType.REAL})


@dataclass(frozen=True, slots=True)
class LogicalTable:
    """A logical table of the model.

    Attributes:
        id: the table's identifier in the data source.
        caption: the table's name for people.
        stored: the schema and name of the table in the `.hyper` file; None if no single stored
            table has the rows.
    """

    id: str
    caption: str
    stored: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of the model.

    Attributes:
        name: the unique name in the data source.
        caption: the name for people.
        data_type: the type of the values.
        table: the identifier of the field's logical table; "" if the field belongs to none.
        column: the field's column in the `.hyper` file; None if the file has no such column.
        column_class: the origin of the values, as the service calls it.
        formula: the formula of a calculation.
        role: "dimension" or "measure" if the data source states the role.
        kind: "nominal", "ordinal" or "quantitative" if the data source states the kind.
        hidden: whether the field is hidden from people.
    """

    name: str
    caption: str
    data_type: DataType
    table: str
    column: str | None
    column_class: str
    formula: str | None
    role: str | None
    kind: str | None
    hidden: bool


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a data source."""

    tables: tuple[LogicalTable, ...]
    fields: tuple[Field, ...]


# Tableau's products use this prefix until a release officially supports an element or attribute.
_FEATURE = re.compile(r"^_\.fcp\.\w+\.(true|false)\.\.\.")
_PART_OF_NAME = re.compile(r"\[((?:[^\]]|\]\])*)\]")
# A model without logical tables, which older products wrote, counts as one table of this name.
_MIGRATED = "Migrated Data"
_COLUMN, _CALCULATION = "COLUMN", "CALCULATION"
_CLASSES = {"bin": "BIN", "categorical-bin": "GROUP"}
_TYPES: Mapping[str, DataType] = {
    **dict.fromkeys(("SMALL_INT", "INT", "BIG_INT", "OID"), DataType.INTEGER),
    **dict.fromkeys(("NUMERIC", "FLOAT", "DOUBLE"), DataType.REAL),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), DataType.STRING),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_TZ"), DataType.DATETIME),
    "BOOL": DataType.BOOLEAN,
    "DATE": DataType.DATE,
    "TABLEAU.TABGEOGRAPHY": DataType.SPATIAL,
}

# For each schema and table of a `.hyper` file: the types of the columns by name.
_Stored = Mapping[tuple[str, str], Mapping[str, str]]


def read_model(datasource: Datasource) -> Model:
    """Return the model of a data source, whose `.tds` was checked when it was published.

    The model omits fields without a column in the `.hyper` file. It keeps calculated fields, and
    fields of tables that are not in this file.
    """
    root = defusedxml.ElementTree.fromstring(datasource.tds, forbid_dtd=True)
    stored: _Stored = {
        (table["schema"], table["name"]): {
            column["name"]: column["type"] for column in table["columns"]
        }
        for table in json.loads(datasource.tables)
    }
    graph = _child(root, "object-graph")
    tables = tuple(_tables(graph, stored))
    columns = {column.get("name", ""): column for column in root if _plain(column.tag) == "column"}
    fields = (*_fields_of_columns(root, columns, tables, stored), *_calculated_fields(columns))
    return Model(tables, fields)


def _tables(graph: Element | None, stored: _Stored) -> Iterator[LogicalTable]:
    objects = [] if graph is None else [each for each in graph.iter() if each.tag == "object"]
    if not objects:
        only = next(iter(stored)) if len(stored) == 1 else None
        yield LogicalTable(_MIGRATED, _MIGRATED, only)
    for each in objects:
        place = _place(each, stored)
        if place is None and len(objects) == len(stored) == 1:
            place = next(iter(stored))
        identifier = each.get("id", "")
        yield LogicalTable(identifier, each.get("caption", identifier), place)


def _place(table: Element, stored: _Stored) -> tuple[str, str] | None:
    """Return where the rows of a table are stored. An extract has priority over its origin."""
    relations = {
        properties.get("context", ""): _child(properties, "relation")
        for properties in table
        if _plain(properties.tag) == "properties"
    }
    for context in ("extract", ""):
        relation = relations.get(context)
        parts = () if relation is None else _parts(relation.get("table", ""))
        if len(parts) == 2 and parts in stored:
            return parts[0], parts[1]
    return None


@dataclass(frozen=True, slots=True)
class _Record:
    """What the `.tds` states about a column of a table."""

    remote_name: str
    local_type: str
    table: str


def _records(root: Element) -> dict[str, _Record]:
    """Return the records by the names of their fields. An extract has priority over its origin."""
    found: dict[str, _Record] = {}
    for path in ("connection", "extract"):
        for record in root.iterfind(f"./{path}//metadata-record[@class='column']"):
            texts = {_plain(child.tag): child.text or "" for child in record}
            name = texts.get("local-name", "")
            before = found.get(name)
            found[name] = _Record(
                texts.get("remote-name", ""),
                texts.get("local-type", ""),
                _unquoted(texts.get("object-id", "")) or (before.table if before else ""),
            )
    return found


def _fields_of_columns(
    root: Element,
    columns: Mapping[str, Element],
    tables: tuple[LogicalTable, ...],
    stored: _Stored,
) -> Iterator[Field]:
    by_id = {table.id: table for table in tables}
    for name, record in _records(root).items():
        table = by_id.get(record.table) or (tables[0] if len(tables) == 1 else None)
        place = table.stored if table else None
        types = stored[place] if place else {}
        if place and record.remote_name not in types:
            # A later publish replaced the data but kept the model, and the new data lack this
            # column.
            continue
        yield _field(
            name,
            columns.get(name),
            data_type=_data_type(types.get(record.remote_name), record.local_type),
            table=table.id if table else "",
            column=record.remote_name if place else None,
        )


def _calculated_fields(columns: Mapping[str, Element]) -> Iterator[Field]:
    for name, column in columns.items():
        calculation = column.find("calculation")
        if calculation is not None:
            yield _field(
                name,
                column,
                data_type=_data_type(None, column.get("datatype", "")),
                column_class=_CLASSES.get(calculation.get("class", ""), _CALCULATION),
                formula=calculation.get("formula"),
            )


def _field(
    name: str,
    element: Element | None,
    *,
    data_type: DataType,
    table: str = "",
    column: str | None = None,
    column_class: str = _COLUMN,
    formula: str | None = None,
) -> Field:
    attributes = {} if element is None else element.attrib
    plain = _unquoted(name)
    return Field(
        name=plain,
        caption=attributes.get("caption", plain),
        data_type=data_type,
        table=table,
        column=column,
        column_class=column_class,
        formula=formula,
        role=attributes.get("role"),
        kind=attributes.get("type"),
        hidden=attributes.get("hidden") == "true",
    )


def _child(parent: Element, tag: str) -> Element | None:
    return next((child for child in parent if _plain(child.tag) == tag), None)


def _data_type(hyper_type: str | None, local_type: str) -> DataType:
    if hyper_type is not None:
        return _TYPES.get(hyper_type.partition("(")[0], DataType.UNKNOWN)
    word = local_type.upper()
    return DataType(word) if word in DataType.__members__ else DataType.UNKNOWN


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.replace("]]", "]") for part in _PART_OF_NAME.findall(name))


def _unquoted(name: str) -> str:
    return name.removeprefix("[").removesuffix("]").replace("]]", "]")


def _plain(name: str) -> str:
    return _FEATURE.sub("", name)


_KINDS = {"quantitative": "CONTINUOUS", "nominal": "NOMINAL", "ordinal": "ORDINAL"}
_AGGREGATIONS: Mapping[DataType, str] = {
    **dict.fromkeys(NUMBERS, "SUM"),
    DataType.DATE: "YEAR",
    DataType.DATETIME: "YEAR",
    DataType.SPATIAL: "COLLECT",
}


def fields_answer(model: Model, *, hidden: bool) -> dict[str, Any]:
    """Return the fields of a model as an answer; include hidden fields only if `hidden` is true."""
    fields = [_field_answer(field) for field in model.fields if hidden or not field.hidden]
    return {"data": fields, "extraData": {"parameters": []}}


def _field_answer(field: Field) -> dict[str, Any]:
    answer = {
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
    return answer if field.formula is None else {**answer, "formula": field.formula}


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
