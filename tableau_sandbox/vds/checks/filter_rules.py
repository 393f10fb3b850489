"""The rules of filters that need no data."""

from collections.abc import Iterable
from decimal import Decimal

from tableau_sandbox.vds.checks.known_names import KnownNames
from tableau_sandbox.vds.errors import against_the_rules, not_emulated
from tableau_sandbox.vds.filters import (
    Bounds,
    DateFilter,
    FieldReference,
    Filter,
    FilterType,
    MatchFilter,
    NumberFilter,
    OtherFilter,
    SetFilter,
    Value,
    filter_type,
)
from tableau_sandbox.vds.functions import DATES, NUMBERS, DataType
from tableau_sandbox.vds.schema import Part, knows_part

_ON_PLAIN_FIELDS = (FilterType.SET, FilterType.MATCH, FilterType.DATE)
_STRINGS = frozenset({DataType.STRING})


def check_filter(filter_: Filter, known: KnownNames) -> None:
    """Refuse a filter that is against the rules.

    Raises:
        VdsError: 400800, a calculation is invalid; 400803, the filter is against another rule;
            501000, the sandbox does not know how real servers compare its values.
    """
    _check_field(filter_, known)
    data_type = known.type_of(filter_.field)
    match filter_:
        case SetFilter():
            _check_set(filter_, data_type)
        case MatchFilter():
            _check_type(filter_, data_type, _STRINGS)
            _check_patterns(filter_)
        case NumberFilter():
            _check_type(filter_, data_type, NUMBERS)
            _check_bounds(filter_)
        case DateFilter():
            _check_type(filter_, data_type, DATES)
            _check_bounds(filter_)
        case OtherFilter():
            _check_other(filter_, data_type, known)


def _check_field(filter_: Filter, known: KnownNames) -> None:
    kind, field = filter_type(filter_), filter_.field
    is_plain = isinstance(field, FieldReference) and field.function is None
    if is_plain or kind not in _ON_PLAIN_FIELDS:
        return
    if not knows_part(known.schema, Part.COMPUTED_FILTER_FIELD):
        raise against_the_rules(f"{kind} filters take no function and no calculation.")


def _check_set(filter_: SetFilter, data_type: DataType) -> None:
    if not filter_.values:
        raise against_the_rules("SET filters need at least one value.")
    if data_type not in _SET_VALUES:
        raise not_emulated(f"SET filters on the type {data_type}")
    for value in filter_.values:
        if not _fits(value, data_type):
            raise against_the_rules(f"{value!a} is no value of the type {data_type}.")


def _fits(value: Value, data_type: DataType) -> bool:
    # True is an integer to Python.
    if isinstance(value, bool):
        return data_type is DataType.BOOLEAN
    return value is None or isinstance(value, _SET_VALUES[data_type])


def _check_patterns(filter_: MatchFilter) -> None:
    if not (filter_.starts_with or filter_.ends_with or filter_.contains):
        raise against_the_rules("MATCH filters need 'startsWith', 'endsWith' or 'contains'.")


def _check_bounds(filter_: NumberFilter | DateFilter) -> None:
    needed = _NEEDED.get(filter_.bounds, (False, False))
    if (filter_.minimum is not None, filter_.maximum is not None) != needed:
        raise against_the_rules(f"A filter of the type {filter_.bounds} has other bounds.")


def _check_other(filter_: OtherFilter, data_type: DataType, known: KnownNames) -> None:
    if filter_.filter_type is FilterType.DATE:
        _check_type(filter_, data_type, DATES)
    for reference in filter_.references:
        known.type_of(reference)


def _check_type(filter_: Filter, data_type: DataType, allowed: Iterable[DataType]) -> None:
    if data_type not in allowed:
        kind = filter_type(filter_)
        raise against_the_rules(f"{kind} filters do not apply to the type {data_type}.")


_SET_VALUES = {
    DataType.INTEGER: int | Decimal,
    DataType.REAL: int | Decimal,
    DataType.STRING: str,
    DataType.BOOLEAN: bool,
}
# Whether a minimum is needed, and a maximum.
_NEEDED = {Bounds.RANGE: (True, True), Bounds.MIN: (True, False), Bounds.MAX: (False, True)}
