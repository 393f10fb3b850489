import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tableau_sandbox.batch.grammar import (
    Action,
    Comparison,
    Constant,
    GrammarError,
    parse_batch,
)

PAIR = {"op": "eq", "target-col": "id", "source-col": "id"}


def parse(*actions: Any) -> list[Action]:
    return parse_batch(json.dumps({"actions": actions}).encode()).actions


def delete(condition: Any, **more: Any) -> dict[str, Any]:
    return {"action": "delete", "target-table": "t", "condition": condition, **more}


def const(type_: str, value: Any, op: str = "eq") -> dict[str, Any]:
    return delete({"op": op, "target-col": "a", "const": {"type": type_, "v": value}})


def parsed_constant(action: dict[str, Any]) -> Constant | None:
    condition = parse(action)[0].condition
    assert isinstance(condition, Comparison)
    return condition.const


@pytest.mark.parametrize(
    ("type_", "written", "value"),
    [
        ("boolean", "TrUe", True),
        ("boolean", False, False),
        ("integer", "-9223372036854775808", -(1 << 63)),
        ("integer", 3.0, 3),
        ("integer", 9223372036854775807, (1 << 63) - 1),
        ("double", "1e-3", 0.001),
        ("double", ".5", 0.5),
        ("double", 2, 2.0),
        ("string", "", ""),
        ("datetime", "2007-12-03T10:15:30+0100", datetime(2007, 12, 3, 9, 15, 30, tzinfo=UTC)),
        ("datetime", "2018-12-06T19:21:12.12Z", datetime(2018, 12, 6, 19, 21, 12, 120000, UTC)),
        ("datetime", "2007-12-03T10:15:30-00:30", datetime(2007, 12, 3, 10, 45, 30, tzinfo=UTC)),
    ],
)
def test_constants(type_: str, written: Any, value: Any):
    # Prevents: rows are chosen by another value than the one that was sent.
    # Unlike equality, this tells 1 from True, and time zones apart.
    found = parsed_constant(const(type_, written))
    assert repr(found) == f"Constant(type={type_!r}, v={value!r})"


NO_CONSTANTS = {
    "boolean": ("yes", 1),
    "integer": ("9223372036854775808", 1 << 63, "1.0", 1.5, True, " 1", "\u0661", None),
    "double": ("NaN", "1e999", "0x1p3", (1 << 53) + 1),
    "string": (1, ["x"], "\ud800", "a\0b"),
    "datetime": (
        *("2020-06-00T00:00:00.00Z", "2020-06-01 00:00:00Z", "2020-06-01", 1591000000),
        *("2020-06-01T00:00:00.1234Z", "0001-01-01T00:00:00+0100"),
    ),
    "date": ("2020-06-01",),
}


@pytest.mark.parametrize(
    ("type_", "written"),
    [
        *[(type_, each) for type_, values in NO_CONSTANTS.items() for each in values],
        # What stands in a text as 9007199254740993.0 is read as this number, too.
        ("double", 1 << 53),
        ("integer", float(1 << 53)),
    ],
)
def test_constants_refused(type_: str, written: Any):
    # Prevents: a constant that servers may read otherwise is guessed at.
    with pytest.raises(GrammarError):
        parse(const(type_, written))


def test_null_is_for_is():
    # Prevents: a delete that never matches passes for a delete of the NULLs.
    found = parsed_constant(const("datetime", None, op="is"))
    assert found is not None
    assert found.v is None
    with pytest.raises(GrammarError, match="'is' compares with it"):
        parse(const("string", None, op="has"))


INSERT = {"action": "insert", "target-table": "t", "source-table": "s"}
UPSERT = {**INSERT, "action": "upsert"}
EQUALS_ONE = {"op": "eq", "target-col": "a", "const": {"type": "integer", "v": "1"}}


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({**INSERT, "target_table": "t"}, "insert.target_table: Extra inputs .* it is 't'"),
        ({"action": "insert", "target-table": "t"}, "insert.source-table: Field required"),
        ({**INSERT, "target-schema": None}, "target-schema: .* valid string; it is None"),
        ({**INSERT, "action": "update"}, "update.condition: Field required"),
        ("insert", "valid dictionary"),
        (delete(True, **{"source-schema": "x"}), "needs a 'source-table'"),
        (delete(False), "condition: .* valid dictionary"),
        (delete({"op": "and", "args": [True]}), "args.0: .* valid dictionary .* it is True"),
        (delete({"op": "or", "conditions": [PAIR]}), "args: Field required"),
        (delete({"op": "eq", "target-col": "a"}), "needs two columns"),
        (delete({"op": "eq", "const": {"type": "string", "v": "x"}}), "needs one column"),
        (delete({**PAIR, "more": 1}), "eq.more: Extra inputs"),
        (delete({**PAIR, "op": "has"}), "needs a constant"),
        (const("integer", "1", op="has"), "of the type string"),
        ({**UPSERT, "condition": True}, "must compare key columns"),
        ({**UPSERT, "condition": EQUALS_ONE}, "must compare key columns"),
    ],
)
def test_actions_refused(action: Any, reason: str):
    # Prevents: a batch that real servers refuse, or understand otherwise, is carried out here.
    with pytest.raises(GrammarError, match=reason) as caught:
        parse(INSERT, action)
    assert str(caught.value).startswith("actions.1")
