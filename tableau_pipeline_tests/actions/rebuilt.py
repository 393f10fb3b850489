"""Batches as JSON, written again with the builder, and spoilt in ways that people find."""

import copy
import operator
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from tableauhyperapi import TableName

from tableau_pipeline.actions.batch import (
    Action,
    Batch,
    Delete,
    Insert,
    Replace,
    Update,
    Upsert,
    all_of,
    always,
    any_of,
    source,
    target,
)
from tableau_pipeline.actions.columns import ColumnRef
from tableau_pipeline.actions.conditions import Condition
from tableau_pipeline_tests.actions.strategies import Tables, batches, rarely

_ACTIONS: dict[str, Callable[..., Action]] = {
    "insert": Insert,
    "update": Update,
    "upsert": Upsert,
    "delete": Delete,
    "replace": Replace,
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "lt": operator.lt,
    "gte": operator.ge,
    "lte": operator.le,
    "is": ColumnRef.is_,
    "has": ColumnRef.has,
}
_VALUES: dict[str, Callable[[Any], Any]] = {
    "boolean": lambda written: str(written).lower() == "true",
    "integer": int,
    "double": float,
    "string": str,
    "datetime": datetime.fromisoformat,
}


def built(actions: list[dict]) -> Batch:
    """The same batch by the builder, which may refuse it."""
    return Batch([_action(action) for action in actions])


@st.composite
def spoilt_batches(draw: st.DrawFn) -> tuple[Tables, Tables, list[dict]]:
    """Tables and a batch, with a few more mistakes."""
    tables, payload, actions = draw(batches())
    actions = copy.deepcopy(actions)
    for action in actions:
        for leaf in _leaves(action.get("condition", True)):
            for key in ("target-col", "source-col"):
                if key in leaf and rarely(draw):
                    leaf[key] = "no such column"
        if action["action"] == "delete" and rarely(draw):
            action.pop("source-table", None)
        if rarely(draw):
            action.pop("condition", None)
    return tables, payload, actions


def _leaves(condition: Any) -> Iterator[dict]:
    if condition is not True:
        yield condition
        for arg in condition.get("args", ()):
            yield from _leaves(arg)


def _action(action: dict) -> Action:
    parts = {
        side: TableName(action[f"{side}-schema"], action[f"{side}-table"])
        if f"{side}-schema" in action
        else action[f"{side}-table"]
        for side in ("target", "source")
        if f"{side}-table" in action
    }
    if "condition" in action:
        parts["where"] = _condition(action["condition"])
    return _ACTIONS[action["action"]](**parts)


def _condition(condition: Any) -> Condition:
    if condition is True:
        return always
    if condition["op"] in ("and", "or"):
        combine = all_of if condition["op"] == "and" else any_of
        return combine(_condition(arg) for arg in condition["args"])
    operands: list[Any] = [
        side(condition[key])
        for key, side in (("target-col", target), ("source-col", source))
        if key in condition
    ]
    if "const" in condition:
        type_, value = condition["const"]["type"], condition["const"]["v"]
        operands.append(None if value is None else _VALUES[type_](value))
    return _OPERATORS[condition["op"]](*operands)
