import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tableau_sandbox.batch.conditions import (
    Always,
    ColumnPair,
    Comparison,
    ConstantTest,
    Junction,
    Side,
)
from tableau_sandbox.batch.constants import Constant, ConstantType
from tableau_sandbox.batch.errors import GrammarError
from tableau_sandbox.batch.grammar.batches import Action, Kind, TableReference, parse_batch

PAIR = {"op": "eq", "target-col": "id", "source-col": "id"}


def parse(*actions: Any) -> tuple[Action, ...]:
    return parse_batch(json.dumps({"actions": actions}).encode()).actions


def delete(condition: Any, **more: Any) -> dict[str, Any]:
    return {"action": "delete", "target-table": "t", "condition": condition, **more}


def const(type_: str, value: Any, op: str = "eq") -> dict[str, Any]:
    return delete({"op": op, "target-col": "a", "const": {"type": type_, "v": value}})


def test_every_part_arrives():
    # Prevents: schemas, sides or nesting get mixed up on the way.
    nested = {
        "op": "or",
        "args": [{"op": "and", "args": [PAIR]}, const("string", "x")["condition"]],
    }
    (action,) = parse(
        delete(
            nested,
            **{"target-schema": "T", "source-schema": "S", "source-table": "s", "source-file": "f"},
        )
    )
    assert action.kind is Kind.DELETE
    assert action.target == TableReference("T", "t")
    assert action.source == TableReference("S", "s")
    pair = ColumnPair(Comparison.EQ, "id", "id")
    test = ConstantTest(Comparison.EQ, Side.TARGET, "a", Constant(ConstantType.STRING, "x"))
    assert action.condition == Junction(False, (Junction(True, (pair,)), test))
    assert parse(delete(True))[0].condition == Always()


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
    condition = parse(const(type_, written))[0].condition
    assert isinstance(condition, ConstantTest)
    # Unlike equality, this tells 1 from True, and time zones apart.
    assert repr(condition.constant) == repr(Constant(ConstantType(type_), value))


@pytest.mark.parametrize(
    ("type_", "written"),
    [
        ("boolean", "yes"),
        ("boolean", 1),
        ("integer", "9223372036854775808"),
        ("integer", 1 << 63),
        ("integer", "1.0"),
        ("integer", 1.5),
        ("integer", True),
        ("integer", " 1"),
        ("integer", "\u0661"),
        ("double", "NaN"),
        ("double", "1e999"),
        ("double", (1 << 53) + 1),
        # What stands in a text as 9007199254740993.0 is read as this number, too.
        ("double", 1 << 53),
        ("integer", float(1 << 53)),
        ("double", "0x1p3"),
        ("string", 1),
        ("string", ["x"]),
        ("string", "\ud800"),
        ("string", "a\0b"),
        ("datetime", "2020-06-00T00:00:00.00Z"),
        ("datetime", "2020-06-01T00:00:00"),
        ("datetime", "2020-06-01 00:00:00Z"),
        ("datetime", "2020-06-01"),
        ("datetime", "2020-06-01T00:00:00.1234Z"),
        ("datetime", "0001-01-01T00:00:00+0100"),
        ("datetime", 1591000000),
        ("date", "2020-06-01"),
        ("integer", None),
    ],
)
def test_constants_refused(type_: str, written: Any):
    # Prevents: a constant that servers may read otherwise is guessed at.
    with pytest.raises(GrammarError):
        parse(const(type_, written))


def test_null_is_for_is():
    # Prevents: a delete that never matches passes for a delete of the NULLs.
    condition = parse(const("datetime", None, op="is"))[0].condition
    assert isinstance(condition, ConstantTest)
    assert condition.constant.value is None
    with pytest.raises(GrammarError, match="'is' compares with it"):
        parse(const("string", None, op="has"))


INSERT = {"action": "insert", "target-table": "t", "source-table": "s"}
UPSERT = {**INSERT, "action": "upsert"}
EQUALS_ONE = {"op": "eq", "target-col": "a", "const": {"type": "integer", "v": "1"}}


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({**INSERT, "action": "merge"}, "unknown action 'merge'"),
        ({**INSERT, "action": ["insert"]}, "unknown action"),
        ({**INSERT, "target_table": "t"}, "unknown key 'target_table'"),
        ({"action": "insert", "source-table": "s"}, "needs a 'target-table'"),
        ({"action": "insert", "target-table": "t"}, "needs a 'source-table'"),
        ({**INSERT, "target-table": 1}, "'target-table' must be a string"),
        ({**INSERT, "target-table": ""}, "1 to 255 characters"),
        ({**INSERT, "source-file": 7}, "'source-file' must be a string"),
        ({**INSERT, "condition": True}, "takes no 'condition'"),
        ({**INSERT, "action": "update"}, "needs a 'condition'"),
        ("insert", "must be a JSON object"),
        (delete(True, **{"source-schema": "x"}), "needs a 'source-table'"),
        (delete({"op": "<", "target-col": "a", "source-col": "b"}), "unknown op '<'"),
        (delete({"op": ["eq"]}), "unknown op"),
        (delete(False), "must be a JSON object"),
        (delete({"op": "and", "args": []}), "non-empty list 'args'"),
        (delete({"op": "and", "args": [True]}), "only the whole of it"),
        (delete({"op": "or", "conditions": [PAIR]}), "unknown key 'conditions'"),
        (delete({"op": "eq", "target-col": "a"}), "needs two columns"),
        (delete({"op": "eq", "const": {"type": "string", "v": "x"}}), "needs one column"),
        (delete({**PAIR, "const": {"type": "string", "v": "x"}}), "needs one column"),
        (delete({**PAIR, "op": "has"}), "needs a constant"),
        (delete(PAIR), "knows no 'source-col'"),
        (const("integer", "1", op="has"), "of the type string"),
        (delete({"op": "eq", "target-col": "a", "const": {"type": "string"}}), "needs a 'type'"),
        (delete({"op": "eq", "target-col": "a", "const": "x"}), "must be a JSON object"),
        ({**UPSERT, "condition": True}, "by 'and' only"),
        ({**UPSERT, "condition": {"op": "or", "args": [PAIR]}}, "by 'and' only"),
        ({**UPSERT, "condition": {**PAIR, "op": "gt"}}, "'eq' and 'is' only"),
        ({**UPSERT, "condition": EQUALS_ONE}, "must compare key columns"),
    ],
)
def test_actions_refused(action: Any, reason: str):
    # Prevents: a batch that real servers refuse, or understand otherwise, is carried out here.
    with pytest.raises(GrammarError, match=reason) as caught:
        parse(INSERT, action)
    assert str(caught.value).startswith("action 2: ")


VALID = json.dumps({"actions": [INSERT]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"actions": []}',
        b'{"actions": {}}',
        b'{"actions": [], "more": 1}',
        b'{"actions": [], ' + VALID[1:],
        b'{"actions": [NaN]}',
        b'{"actions": [' + b"1" * 5000 + b"]}",
        b"[" * 200_000,
        VALID.decode().encode("utf-16"),
        VALID.replace(b"t", b"\xe4"),
        b"\xff\xfe{}",
    ],
)
def test_bodies_refused(body: bytes):
    # Prevents: a body that is no batch brings the sandbox down, or does nothing and succeeds.
    parse_batch(b"\xef\xbb\xbf" + VALID)
    with pytest.raises(GrammarError):
        parse_batch(body)


def test_conditions_have_an_end():
    # Prevents: conditions that bring the engine of real servers down work in tests.
    terms = [EQUALS_ONE] * 5_000
    parse(delete({"op": "or", "args": terms}))
    with pytest.raises(GrammarError, match="5001 terms"):
        parse(delete({"op": "or", "args": [*terms, EQUALS_ONE]}))
    deep: dict = EQUALS_ONE
    for _ in range(101):
        deep = {"op": "and", "args": [deep]}
    with pytest.raises(GrammarError, match="nested more than 100 deep"):
        parse(delete(deep))
    parse(delete(deep["args"][0]))
