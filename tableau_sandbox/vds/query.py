"""Compute aggregates of the rows of one logical table."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from tableauhyperapi import Date, HyperProcess, TableName, Timestamp, escape_name

from tableau_sandbox.errors import RestError, refusal
from tableau_sandbox.faults import HideRows, QueryFault, StaleRows
from tableau_sandbox.hyperd import UnreadableFileError, connect, with_hyperd
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import Datasource
from tableau_sandbox.vds.model import NUMBERS, DataType, Field, LogicalTable, Model, read_model
from tableau_sandbox.vds.requests import QueryField, QueryRequest

T = TypeVar("T")
Value = bool | int | float | str | None
Row = list[Value]


class Function(StrEnum):
    """A computation on a column: an aggregate, or the number of rows of the column's table."""

    COUNT = "COUNT"
    COUNTD = "COUNTD"
    SUM = "SUM"
    MIN = "MIN"
    MAX = "MAX"
    ROWS = "SUM(IIF(ISNULL()))"


@dataclass(frozen=True, slots=True)
class Formula:
    """A function of a name in brackets. The name is a column or, for COUNT, possibly a table."""

    function: Function
    name: str


# Without the flag ASCII, some non-ASCII letters would match letters of a function's name.
_FLAGS = re.IGNORECASE | re.ASCII
_NAME = r"\[((?:[^\]]|\]\])+)\]"
_AGGREGATE = re.compile(rf"\s*(COUNT|COUNTD|SUM|MIN|MAX)\s*\(\s*{_NAME}\s*\)\s*", _FLAGS)
_ROWS = re.compile(
    rf"\s*SUM\s*\(\s*IIF\s*\(\s*ISNULL\s*\(\s*{_NAME}\s*\)\s*,\s*1\s*,\s*1\s*\)\s*\)\s*", _FLAGS
)
_AGGREGATES: Mapping[Function, str] = {
    Function.COUNT: "COUNT({})",
    Function.COUNTD: "COUNT(DISTINCT {})",
    Function.SUM: "SUM({})",
    Function.MIN: "MIN({})",
    Function.MAX: "MAX({})",
    Function.ROWS: "SUM(1)",
}
# hyperd cannot order truth values, and the sum of large numbers exceeds BIGINT.
_SPECIAL: Mapping[tuple[Function, DataType], str] = {
    (Function.MIN, DataType.BOOLEAN): "BOOL_AND({})",
    (Function.MAX, DataType.BOOLEAN): "BOOL_OR({})",
    (Function.SUM, DataType.INTEGER): "SUM(CAST({} AS NUMERIC(38, 0)))",
}
_COUNTS = (Function.COUNT, Function.COUNTD, Function.ROWS)


class _FileGoneError(Exception):
    """Another file replaced the data source's file before hyperd opened it."""


@dataclass(frozen=True, slots=True)
class _Column:
    """An aggregate of the rows of a logical table. In the SQL, the rows have the alias "t"."""

    sql: str
    table: str
    data_type: DataType


def compute(
    services: Services, source: Datasource, request: QueryRequest, faults: Sequence[QueryFault]
) -> list[Row]:
    """Return the rows of a query; each row has the values in the order of the query's fields.

    Raises:
        RestError: 400800, a calculation is invalid; 400803, the query breaks another rule; 404935,
            a caption is not unique; 404937, the data source has been deleted; 500810, the answer is
            empty; 501000, the sandbox does not emulate the query.
    """
    for fault in faults:
        if isinstance(fault, StaleRows):
            source = services.earlier(fault, source)
    hidden = sum(fault.rows for fault in faults if isinstance(fault, HideRows))
    while True:
        try:
            return _computed(services, source, request, hidden=hidden)
        except _FileGoneError:
            before, current = source, services.database.find(Datasource, luid=source.luid)
            if current is None:
                raise refusal("404937", "Datasource not found.") from None
            # Try again only if the data source has another file now.
            if current.hyper_file == before.hyper_file:
                raise
            source = current


def _computed(
    services: Services, source: Datasource, request: QueryRequest, *, hidden: int
) -> list[Row]:
    options, by_name = services.options, request.options.interpret_field_captions_as_field_names
    names = _Names(read_model(source), by_name=by_name)
    _check_fields(request.query.fields, names)
    columns = [
        _calculation(field.calculation, names, options.vds_schema) for field in request.query.fields
    ]
    rows = _table(names.model, {column.table for column in columns})
    if hidden:
        rows = f"(SELECT * FROM {rows} OFFSET {hidden})"  # noqa: S608
    sql = f"SELECT {', '.join(column.sql for column in columns)} FROM {rows} AS t"  # noqa: S608
    if options.vds_empty != "zero":
        # Real servers were seen to send hyperd such queries: they return no row for an empty table.
        sql += " HAVING COUNT(1) > 0"
    found = _run(sql, services.files.content / source.hyper_file)
    if not found and options.vds_empty == "error":
        raise refusal("500810", "The response has an empty table.")
    types = [column.data_type for column in columns]
    return [[_json(*each) for each in zip(row, types, strict=True)] for row in found]


class _Names:
    """Finds visible fields by caption or name, and tables by caption or identifier."""

    def __init__(self, model: Model, *, by_name: bool):
        self.model = model
        self._fields = [
            (field.name if by_name else field.caption, field)
            for field in model.fields
            if not field.hidden
        ]
        self._tables = [(table.id if by_name else table.caption, table) for table in model.tables]

    def field(self, name: str) -> Field | None:
        """Return the field with this name or caption; None if there is no such field.

        Raises:
            RestError: 404935, several fields have this name or caption.
        """
        return _only(name, [field for known, field in self._fields if known == name])

    def table(self, name: str) -> LogicalTable | None:
        """Return the table with this identifier or caption; None if there is no such table.

        Raises:
            RestError: 404935, several tables have this identifier or caption.
        """
        return _only(name, [table for known, table in self._tables if known == name])


def _only(name: str, found: Sequence[T]) -> T | None:
    if len(found) > 1:
        raise refusal("404935", f"The caption '{name}' is not unique.")
    return found[0] if found else None


def _check_fields(fields: Sequence[QueryField], names: _Names) -> None:
    if not fields:
        raise _against_the_rules("The query needs at least one field.")
    for field in fields:
        caption, is_known = field.field_caption, names.field(field.field_caption) is not None
        if not caption:
            raise _against_the_rules("A field has an empty caption.")
        if field.is_calculation and is_known:
            raise _against_the_rules(f"The calculation {caption!a} is named like a field.")
        if not field.is_calculation and not is_known:
            raise _against_the_rules(f"Unknown Field: {caption}.")
    if twice := _repeated(field.field_caption for field in fields):
        raise _against_the_rules(f"The query has the field {twice!a} twice.")
    if not all(field.is_calculation for field in fields):
        raise _not_emulated("Fields without a calculation")
    if twice := _repeated(field.key for field in fields):
        raise _not_emulated(f"Answers with the key {twice!a} for two fields")


def _repeated(texts: Iterable[str]) -> str | None:
    return next((text for text, count in Counter(texts).items() if count > 1), None)


def _calculation(formula: str, names: _Names, schema: str) -> _Column:
    """Return a calculation in SQL. The name in the formula is a field or, if none fits, a table."""
    parsed = parse_formula(formula)
    function, name = parsed.function, parsed.name
    field = names.field(name)
    if field is None:
        table = names.table(name) if function is not Function.ROWS else None
        if table is None:
            raise _invalid_formula(f"The calculation refers to the unknown field [{name}].")
        if function is not Function.COUNT or schema < "20261":
            raise _invalid_formula(f"{function} does not apply to the table [{name}].")
        return _Column("COUNT(*)", table.id, DataType.INTEGER)
    if not _applies(function, field.data_type):
        raise _invalid_formula(f"{function} does not apply to the field [{name}].")
    if field.column is None:
        raise _not_emulated(f"The field [{name}], of which the sandbox has no data")
    template = _SPECIAL.get((function, field.data_type), _AGGREGATES[function])
    return _Column(
        template.format(f"t.{escape_name(field.column)}"),
        field.table,
        DataType.INTEGER if function in _COUNTS else field.data_type,
    )


def _applies(function: Function, data_type: DataType) -> bool:
    if function is Function.SUM:
        return data_type in NUMBERS
    return function is Function.ROWS or data_type not in (DataType.SPATIAL, DataType.UNKNOWN)


def _table(model: Model, identifiers: set[str]) -> str:
    if len(identifiers) > 1:
        raise _not_emulated("Queries of several tables")
    stored = next((each.stored for each in model.tables if each.id in identifiers), None)
    if stored is None:
        raise _not_emulated("Queries of data that the sandbox does not have")
    return str(TableName(*stored))


def _run(sql: str, file: Path) -> list[list]:
    def work(hyper: HyperProcess) -> list[list]:
        with connect(hyper, file) as connection:
            return connection.execute_list_query(sql)

    try:
        return with_hyperd(work, file)
    except UnreadableFileError as error:
        if not file.exists():
            raise _FileGoneError from error
        raise _not_emulated(str(error)) from error


def _json(value: Any, data_type: DataType) -> Value:
    """Return a value of hyperd as a JSON value; null if JSON cannot represent the value."""
    return None if value is None else _WRITERS[data_type](value)


def _real(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _date(value: Date | Timestamp) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _moment(value: Timestamp) -> str:
    fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
    return f"{_date(value)}T{value.hour:02}:{value.minute:02}:{value.second:02}{fraction}"


_WRITERS: Mapping[DataType, Callable[[Any], Value]] = {
    DataType.INTEGER: int,
    DataType.REAL: _real,
    DataType.STRING: str,
    DataType.BOOLEAN: bool,
    DataType.DATE: _date,
    DataType.DATETIME: _moment,
}


def _invalid_formula(message: str) -> RestError:
    return refusal("400800", message)


def _against_the_rules(message: str) -> RestError:
    return refusal("400803", message)


def _not_emulated(what: str) -> RestError:
    return refusal("501000", f"{what}: not emulated.")


def parse_formula(text: str) -> Formula:
    """Parse a formula.

    Raises:
        RestError: 400800, the formula is invalid, or the sandbox does not emulate it.
    """
    if match := _AGGREGATE.fullmatch(text):
        return Formula(Function(match[1].upper()), _unescaped(match[2]))
    if match := _ROWS.fullmatch(text):
        return Formula(Function.ROWS, _unescaped(match[1]))
    raise _invalid_formula(f"The calculation {text[:200]!a} is invalid, or not emulated.")


def _unescaped(name: str) -> str:
    return name.replace("]]", "]")
