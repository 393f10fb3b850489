"""The rules of queries that need no data."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from tableau_sandbox.vds.checks.filter_rules import check_filter
from tableau_sandbox.vds.checks.known_names import KnownNames
from tableau_sandbox.vds.errors import against_the_rules, not_emulated
from tableau_sandbox.vds.filters import OtherFilter
from tableau_sandbox.vds.functions import DataType
from tableau_sandbox.vds.query_fields import (
    Bin,
    Calculation,
    Measure,
    QueryField,
    TableCalculation,
    answer_key,
)
from tableau_sandbox.vds.requests import Options, Query, Request
from tableau_sandbox.vds.schema import Schema

T = TypeVar("T", bound=Hashable)


def check_query(
    request: Request, *, types: Mapping[str, DataType], tables: Collection[str], schema: Schema
) -> None:
    """Refuse queries that are against the rules, and then those that the sandbox cannot compute.

    Args:
        request: the request; without a query, it follows the rules.
        types: the types of the fields of the data source, by captions, or by names if the request
            asks for that.
        tables: the captions or identifiers of its tables.
        schema: the version of the service.

    Raises:
        VdsError: 400800, a calculation is invalid; 400803, the query is against another rule;
            501000, the sandbox does not emulate a part of it.
    """
    if request.query is None:
        return
    known = KnownNames(types=types, tables=tables, schema=schema)
    _check_fields(request.query.fields, known)
    for filter_ in request.query.filters:
        check_filter(filter_, known)
    for reference in _repeated(filter_.field for filter_ in request.query.filters):
        raise against_the_rules(f"The query has several filters for {reference}.")
    _refuse_not_emulated(request.query, request.options)


def _check_fields(fields: Sequence[QueryField], known: KnownNames) -> None:
    if not fields:
        raise against_the_rules("The query needs at least one field.")
    for field in fields:
        _check_field(field, known)
    for caption, _ in _repeated(_identity(field) for field in fields):
        raise against_the_rules(f"The query has the field {caption!a} twice.")
    for priority in _repeated(field.sort_priority for field in fields):
        raise against_the_rules(f"Several fields have the sort priority {priority}.")


def _identity(field: QueryField) -> tuple[str, object]:
    """Return what no two fields share: SUM and AVG of a field are two, and a bin is a third."""
    match field:
        case Measure():
            return field.caption, field.function
        case Bin() | TableCalculation():
            return field.caption, type(field)
    return field.caption, None


def _check_field(field: QueryField, known: KnownNames) -> None:
    if not field.caption:
        raise against_the_rules("A field has an empty caption.")
    if field.max_decimal_places is not None and field.max_decimal_places < 0:
        raise against_the_rules(f"{field.caption!a} has a negative maximum of decimal places.")
    match field:
        case Calculation():
            if field.caption in known.types:
                raise against_the_rules(f"The calculation {field.caption!a} is named like a field.")
            known.type_of_formula(field.formula)
        case Measure():
            known.type_of_field(field.caption, field.function)
        # A table calculation may have a name of its own.
        case TableCalculation():
            pass
        case _:
            known.type_of_field(field.caption)


def _refuse_not_emulated(query: Query, options: Options) -> None:
    for field in query.fields:
        if isinstance(field, Bin | TableCalculation):
            raise not_emulated(f"{type(field).__name__} fields")
    for filter_ in query.filters:
        if isinstance(filter_, OtherFilter):
            raise not_emulated(f"{filter_.filter_type} filters")
    if query.parameters:
        raise not_emulated("Parameters")
    if options.disaggregate:
        raise not_emulated("The option 'disaggregate'")
    for key in _repeated(answer_key(field) for field in query.fields):
        raise not_emulated(f"Answers with the key {key!a} for two fields")


def _repeated(values: Iterable[T]) -> list[T]:
    counts = Counter(value for value in values if value is not None)
    return [value for value, count in counts.items() if count > 1]
