"""Check comparisons: only equal types, as the engine would otherwise convert silently."""

from collections.abc import Iterator, Mapping

from tableau_pipeline.actions.conditions import Condition, Op, Predicate, Side, predicates
from tableau_pipeline.actions.constants import ConstantType
from tableau_pipeline.actions.table_names import KnownTable, listed
from tableau_pipeline.hyper.types.sql_types import is_collated, type_family

_CONSTANTS = {
    **dict.fromkeys(("SMALLINT", "INTEGER", "BIGINT"), ConstantType.INTEGER),
    **dict.fromkeys(("DOUBLE PRECISION", "NUMERIC", "REAL"), ConstantType.DOUBLE),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), ConstantType.STRING),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMPTZ"), ConstantType.DATETIME),
    "BOOLEAN": ConstantType.BOOLEAN,
}
_IN_PYTHON = {
    ConstantType.INTEGER: "int, such as 5",
    ConstantType.DOUBLE: "float, such as 5.0",
    ConstantType.STRING: "str",
    ConstantType.DATETIME: "datetime with a time zone",
    ConstantType.BOOLEAN: "bool",
}
_INCOMPARABLE = frozenset({"INTERVAL", "JSON", "GEOGRAPHY", "UNSUPPORTED"})
_EQUALITY = frozenset({Op.EQ, Op.NEQ, Op.IS})
_ORDER = _EQUALITY | {Op.LT, Op.LTE, Op.GT, Op.GTE}


def comparison_problems(
    condition: Condition | None, tables: Mapping[Side, KnownTable]
) -> Iterator[str]:
    """Yield why the comparisons of a condition do not fit the columns of its tables."""
    for predicate in predicates(condition):
        missing = [name for side, name in predicate.columns if name not in tables[side].types]
        if missing:
            yield from _missing(predicate, tables)
        elif problem := _problem(predicate, tables):
            yield f"{predicate}: {problem}"


def _missing(predicate: Predicate, tables: Mapping[Side, KnownTable]) -> Iterator[str]:
    for side, name in predicate.columns:
        if name not in tables[side].types:
            had = listed(f'"{each}"' for each in tables[side].types)
            yield f'{tables[side]} has no column "{name}", which the condition names; it has {had}'


def _problem(predicate: Predicate, tables: Mapping[Side, KnownTable]) -> str | None:
    types = [tables[side].types[name] for side, name in predicate.columns]
    described = ", ".join(
        f'"{name}" of {tables[side]} is {type_}'
        for (side, name), type_ in zip(predicate.columns, types, strict=True)
    )
    if len(set(types)) > 1:
        return f"{described}; cast the column in the payload"
    (type_,) = set(types)
    constant = predicate.constant
    if constant is not None and constant.text is None:
        return None
    if constant is not None and constant.type is not _CONSTANTS.get(type_family(type_)):
        return f"{described}, the constant of type {constant.type}; {_constant_remedy(type_)}"
    if predicate.op not in _operators(type_):
        allowed = ", ".join(op.symbol for op in Op if op in _operators(type_))
        return (
            f"{described}, which supports {allowed or 'only .is_null()'}: use another column or "
            "operator"
        )
    return None


def _constant_remedy(type_: str) -> str:
    fitting = _CONSTANTS.get(type_family(type_))
    if fitting is None:
        return "put the values into a small table of the payload, and compare with its column"
    return f"write it as {_IN_PYTHON[fitting]}"


def _operators(type_: str) -> frozenset[Op]:
    family = type_family(type_)
    if family in _INCOMPARABLE:
        return frozenset()
    if family == "BYTES" or is_collated(type_):
        return _EQUALITY
    return _ORDER | {Op.HAS} if _CONSTANTS.get(family) is ConstantType.STRING else _ORDER
