"""Parse conditions from JSON."""

from typing import Any

from tableau_sandbox.batch.conditions import (
    Always,
    ColumnPair,
    Comparison,
    Condition,
    ConstantTest,
    Junction,
    Side,
)
from tableau_sandbox.batch.constants import Constant, ConstantType, constant_of
from tableau_sandbox.batch.errors import GrammarError
from tableau_sandbox.batch.grammar.json_values import fields_of, name_of

# Longer conditions crash the engine of real servers.
MOST_TERMS = 5_000
_DEEPEST = 100
_COLUMNS = {Side.TARGET: "target-col", Side.SOURCE: "source-col"}


def parse_condition(value: object) -> Condition:
    """Parse a JSON value as a condition.

    Raises:
        GrammarError: it is not a condition, or is too long.
    """
    if value is True:
        return Always()
    condition, terms = _parse(value, depth=0)
    if terms > MOST_TERMS:
        raise GrammarError(f"the condition has {terms} terms, more than {MOST_TERMS}")
    return condition


def _parse(value: object, *, depth: int) -> tuple[Condition, int]:
    if depth > _DEEPEST:
        raise GrammarError(f"the condition is nested more than {_DEEPEST} deep")
    if not isinstance(value, dict):
        raise GrammarError(
            "a condition must be a JSON object; only the whole of it may be the constant true"
        )
    op = value.get("op")
    if op in ("and", "or"):
        return _junction(value, op=op, depth=depth)
    if op not in list(Comparison):
        known = ", ".join(("and", "or", *Comparison))
        raise GrammarError(f"the condition has the unknown op {op!r}; known: {known}")
    return _predicate(value, Comparison(op)), 1


def _junction(value: dict[str, Any], *, op: str, depth: int) -> tuple[Junction, int]:
    args = fields_of(value, known=("op", "args"), what=f"the condition {op!r}").get("args")
    if not isinstance(args, list) or not args:
        raise GrammarError(f"the condition {op!r} needs a non-empty list 'args'")
    parsed = [_parse(arg, depth=depth + 1) for arg in args]
    conditions = tuple(condition for condition, _ in parsed)
    return Junction(op == "and", conditions), sum(terms for _, terms in parsed)


def _predicate(value: dict[str, Any], comparison: Comparison) -> ColumnPair | ConstantTest:
    what = f"the condition '{comparison}'"
    fields_of(value, known=("op", *_COLUMNS.values(), "const"), what=what)
    names = {
        side: name_of(value[key], what=f"'{key}'") for side, key in _COLUMNS.items() if key in value
    }
    if "const" not in value:
        if len(names) != len(_COLUMNS):
            raise GrammarError(f"{what} needs two columns, or a column and a constant")
        if comparison is Comparison.HAS:
            raise GrammarError(f"{what} needs a constant to look for")
        return ColumnPair(comparison, names[Side.TARGET], names[Side.SOURCE])
    if len(names) != 1:
        raise GrammarError(f"{what} has a constant and needs one column beside it")
    (side, column), constant = next(iter(names.items())), _constant(value["const"])
    if comparison is Comparison.HAS and constant.type is not ConstantType.STRING:
        raise GrammarError(f"{what} needs a constant of the type string")
    if constant.value is None and comparison is not Comparison.IS:
        raise GrammarError(f"{what} never holds for null; 'is' compares with it")
    return ConstantTest(comparison, side, column, constant)


def _constant(value: object) -> Constant:
    fields = fields_of(value, known=("type", "v"), what="'const'")
    if len(fields) != len(("type", "v")):
        raise GrammarError("'const' needs a 'type' and a 'v'")
    if fields["type"] not in list(ConstantType):
        known = ", ".join(ConstantType)
        raise GrammarError(f"'const' has the unknown type {fields['type']!r}; known: {known}")
    return constant_of(ConstantType(fields["type"]), fields["v"])
