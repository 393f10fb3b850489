"""The filters of queries as SQL."""

from collections.abc import Sequence

from tableau_sandbox.hyperd import string_literal
from tableau_sandbox.vds.engine.expressions import Expression
from tableau_sandbox.vds.errors import not_emulated
from tableau_sandbox.vds.filters import (
    Bounds,
    DateFilter,
    Filter,
    MatchFilter,
    Number,
    NumberFilter,
    SetFilter,
    filter_type,
)
from tableau_sandbox.vds.functions import DataType

_BIGINT = 2**63


def condition(filter_: Filter, about: Expression) -> str:
    """Return a filter of an expression as SQL; the rules must have accepted it.

    Raises:
        VdsError: 501000, it is not emulated.
    """
    match filter_:
        case SetFilter():
            return _set(filter_, about)
        case MatchFilter():
            return _match(filter_, about)
        case NumberFilter():
            limits = [
                None if limit is None else _number(limit, about.data_type)
                for limit in (filter_.minimum, filter_.maximum)
            ]
            return _range(filter_, _comparable(about), limits)
        case DateFilter():
            limits = [
                None if limit is None else f"DATE '{limit.isoformat()}'"
                for limit in (filter_.minimum, filter_.maximum)
            ]
            return _range(filter_, f"CAST({about.sql} AS DATE)", limits)
    raise not_emulated(f"The filter {filter_type(filter_)}")


def _set(filter_: SetFilter, about: Expression) -> str:
    values = [_literal(value, about.data_type) for value in filter_.values if value is not None]
    parts = [f"{_comparable(about)} IN ({', '.join(values)})"] if values else []
    if None in filter_.values:
        parts.append(f"{about.sql} IS NULL")
    return _passes(" OR ".join(parts), exclude=filter_.exclude)


def _match(filter_: MatchFilter, about: Expression) -> str:
    # hyperd pads a CHAR, and cannot always take it apart.
    sql, parts = f"CAST({about.sql} AS TEXT)", []
    if filter_.starts_with is not None:
        text = string_literal(filter_.starts_with)
        parts.append(f"LEFT({sql}, {len(filter_.starts_with)}) = {text}")
    if filter_.ends_with is not None:
        text = string_literal(filter_.ends_with)
        parts.append(f"RIGHT({sql}, {len(filter_.ends_with)}) = {text}")
    if filter_.contains is not None:
        parts.append(f"POSITION({string_literal(filter_.contains)} IN {sql}) > 0")
    return _passes(" AND ".join(parts), exclude=filter_.exclude)


def _range(filter_: NumberFilter | DateFilter, sql: str, limits: Sequence[str | None]) -> str:
    if filter_.bounds is Bounds.ONLY_NULL:
        return f"{sql} IS NULL"
    if filter_.bounds is Bounds.ONLY_NON_NULL:
        return f"{sql} IS NOT NULL"
    bounds = zip((">=", "<="), limits, strict=True)
    parts = [f"{sql} {operator} {limit}" for operator, limit in bounds if limit is not None]
    inside = f"({' AND '.join(parts)})"
    return f"({inside} OR {sql} IS NULL)" if filter_.include_nulls else inside


def _passes(parts: str, *, exclude: bool) -> str:
    # NULL is no value of the set, and matches no pattern; what excludes them lets it through.
    return f"(({parts}) IS NOT TRUE)" if exclude else f"({parts})"


def _comparable(about: Expression) -> str:
    # What is no whole number is compared as JSON has it.
    is_real = about.data_type is DataType.REAL
    return f"CAST({about.sql} AS DOUBLE PRECISION)" if is_real else about.sql


def _literal(value: bool | Number | str, data_type: DataType) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return string_literal(value) if isinstance(value, str) else _number(value, data_type)


def _number(value: Number, data_type: DataType) -> str:
    fits = isinstance(value, int) and -_BIGINT <= value < _BIGINT
    if fits and data_type is DataType.INTEGER:
        return f"CAST('{value}' AS BIGINT)"
    try:
        text = repr(float(value))
    except OverflowError:
        text = "inf" if value > 0 else "-inf"
    text = text.replace("inf", "Infinity")
    return f"CAST('{text}' AS DOUBLE PRECISION)"
