"""Action batches: their grammar, and their effects in hyperd."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tableau_sandbox.batch.engine import apply_batch
from tableau_sandbox.batch.grammar import Action, Constant, GrammarError, parse_batch
from tableau_sandbox.batch.tables import BatchError, Code
from tableau_sandbox_tests.contract.files import rows_of
from tableau_sandbox_tests.samples import execute


def parse(*actions: Any) -> list[Action]:
    return parse_batch(json.dumps({"actions": actions}).encode()).actions


def delete(condition: Any, **more: Any) -> dict[str, Any]:
    return {"action": "delete", "target-table": "t", "condition": condition, **more}


def const(type_: str, value: Any, op: str = "eq") -> dict[str, Any]:
    return delete({"op": op, "target-col": "a", "const": {"type": type_, "v": value}})


def parsed_constant(action: dict[str, Any]) -> Constant:
    return parse(action)[0].condition.const


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
    # Prevents: a constant gets another value than the value that was sent.
    # Unlike equality, `repr` distinguishes 1 from True, and time zones from each other.
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
        # Doubles round 2^53 + 1 to this number, so the number that was meant is not certain.
        ("double", 1 << 53),
        ("integer", float(1 << 53)),
    ],
)
def test_constants_refused(type_: str, written: Any):
    # Prevents: the sandbox guesses at a constant that servers may read in another way.
    with pytest.raises(GrammarError):
        parse(const(type_, written))


def test_null_is_for_is():
    """Prevents: the sandbox accepts a constant NULL for operators that NULL can never match."""
    assert parsed_constant(const("datetime", None, op="is")).v is None
    with pytest.raises(GrammarError, match="'is' can compare with null"):
        parse(const("string", None, op="has"))


INSERTS = {"action": "insert", "target-table": "t", "source-table": "s"}
UPSERTS = {**INSERTS, "action": "upsert"}
EQUALS_ONE = {"op": "eq", "target-col": "a", "const": {"type": "integer", "v": "1"}}


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (delete({"op": "and", "args": [True]}), "args.0: .* valid dictionary .* it is True"),
        (delete({"op": "eq", "const": {"type": "string", "v": "x"}}), "needs exactly one column"),
        (const("integer", "1", op="has"), "of the type string"),
        ({**UPSERTS, "condition": True}, "must compare key columns"),
        ({**UPSERTS, "condition": EQUALS_ONE}, "must compare key columns"),
    ],
)
def test_actions_refused(action: Any, reason: str):
    # Prevents: the sandbox carries out a batch that real servers refuse or read differently.
    with pytest.raises(GrammarError, match=reason) as caught:
        parse(INSERTS, action)
    assert str(caught.value).startswith("actions.1")


TABLE = 'CREATE TABLE "Extract"."Extract" AS (SELECT * FROM (VALUES %s) AS t (id, name))'
SOURCE = 'CREATE TABLE "Extract".s AS (SELECT * FROM (VALUES %s) AS t (id, name))'
ON_ID = {"op": "eq", "target-col": "id", "source-col": "id"}
INSERT = {"action": "insert", "target-table": "Extract", "source-table": "s"}
UPDATE = {**INSERT, "action": "update", "condition": ON_ID}
UPSERT = {**UPDATE, "action": "upsert"}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return execute(tmp_path / "target.hyper", TABLE % "(1, 'one'), (2, 'two')")


def source(folder: Path, *statements: str) -> Path:
    return execute(folder / "payload.upload", *statements)


def applied(target: Path, payload: Path | None, *actions: Any) -> list[list]:
    output = target.with_name("output.hyper")
    batch = parse_batch(json.dumps({"actions": actions}).encode())
    apply_batch(target, payload, batch, output)
    return [[*row] for row in rows_of(output.read_bytes())]


def refused(target: Path, payload: Path | None, *actions: Any) -> BatchError:
    with pytest.raises(BatchError) as caught:
        applied(target, payload, *actions)
    assert not target.with_name("output.hyper").exists()
    assert rows_of(target.read_bytes()) == [(1, "one"), (2, "two")]
    return caught.value


def test_repeated_keys_are_named(tmp_path: Path, target: Path):
    """Prevents: several source rows match one row, and luck decides the result."""
    payload = source(tmp_path, SOURCE % "(2, 'zwei'), (2, 'deux'), (7, 'x')")
    for action in (UPDATE, UPSERT):
        error = refused(target, payload, action)
        problem = 'source table "s" match one row with "id" = 2 of the target table "Extract".'
        assert (error.code, error.message) == (Code.REPEATED_KEY, f"Several rows of the {problem}")


KEYED = 'CREATE TABLE "Extract".s AS (SELECT * FROM (VALUES %s) AS t (key, id, name))'


def test_upsert_by_a_key_of_another_name(tmp_path: Path, target: Path):
    # Prevents: an upsert adds or misses rows because its update has just changed their keys.
    by_key = {**UPSERT, "condition": {**ON_ID, "source-col": "key"}}
    payload = source(tmp_path, KEYED % "(2, 5, 'five'), (5, 7, 'seven'), (9, 9, 'nine')")
    rows = [[1, "one"], [5, "five"], [7, "seven"], [9, "nine"]]
    assert applied(target, payload, by_key) == rows


def test_upsert_by_a_constant(tmp_path: Path, target: Path):
    # Prevents: an upsert adds rows again because its update has changed a tested column.
    two = {"op": "eq", "target-col": "name", "const": {"type": "string", "v": "two"}}
    condition = {"op": "and", "args": [ON_ID, two]}
    payload = source(tmp_path, SOURCE % "(1, 'uno'), (2, 'zwei')")
    rows = [[1, "one"], [1, "uno"], [2, "zwei"]]
    assert applied(target, payload, {**UPSERT, "condition": condition}) == rows


def test_null_keys_of_an_upsert(tmp_path: Path, target: Path):
    # Prevents: an upsert refuses or merges rows without a key, or finds such rows by eq.
    payload = source(tmp_path, SOURCE % "(CAST(NULL AS INT), 'x'), (NULL, 'y'), (2, 'zwei')")
    assert len(applied(target, payload, UPSERT)) == 4
    by_is = {**UPSERT, "condition": {**ON_ID, "op": "is"}}
    assert refused(target, payload, by_is).code is Code.REPEATED_KEY


def test_constants_beside_a_source(tmp_path: Path, target: Path):
    # Prevents: a constant for a column of the source is compared with the target.
    used = {"op": "neq", "source-col": "name", "const": {"type": "string", "v": "keep"}}
    by = {**UPDATE, "action": "delete", "condition": {"op": "and", "args": [ON_ID, used]}}
    payload = source(tmp_path, SOURCE % "(1, 'keep'), (2, 'keep not')")
    assert applied(target, payload, by) == [[1, "one"]]


@pytest.mark.slow
def test_constants_of_each_type(tmp_path: Path):
    # Prevents: a constant is compared as another type, or in another time zone.
    values = {
        "CAST(2 AS SMALLINT)": ("integer", 2.0),
        "CAST('0.10' AS NUMERIC(9, 2))": ("double", "0.1"),
        "'A' COLLATE \"en_US_CI\"": ("string", "a"),
        "DATE '2020-01-02'": ("datetime", "2020-01-02T01:00:00+0100"),
        "TIMESTAMPTZ '2020-01-01 02:00+02'": ("datetime", "2020-01-01T01:00:00.000+0100"),
    }
    for sql, (type_, value) in values.items():
        made = f'CREATE TABLE "Extract"."Extract" AS (SELECT {sql} AS id)'
        test = {"op": "eq", "target-col": "id", "const": {"type": type_, "v": value}}
        delete = {"action": "delete", "target-table": "Extract", "condition": test}
        assert applied(execute(tmp_path / "target.hyper", made), None, delete) == [], sql


def test_only_schemas_with_tables_count(tmp_path: Path, target: Path):
    # Prevents: the empty schema "public", which every file has, makes names ambiguous.
    create = 'CREATE TABLE "public".s (id INT, name TEXT)'
    payload = source(tmp_path, create)
    assert len(applied(target, payload, INSERT)) == 2
    payload = source(tmp_path, create, SOURCE % "(3, 'three')")
    error = refused(target, payload, INSERT)
    assert error.code is Code.SCHEMA_NEEDED
    assert "'source-schema' must name one of them: Extract, public" in error.message
    named = {**INSERT, "source-schema": "Extract"}
    assert len(applied(target, payload, named)) == 3
    wrong_case = refused(target, payload, {**INSERT, "source-schema": "extract"})
    assert wrong_case.code is Code.NO_SUCH_TABLE


@pytest.mark.parametrize(
    ("columns", "action", "reason"),
    [
        ("id INT, name VARCHAR(9)", INSERT, "TEXT in the .* VARCHAR"),
        ('id INT, name TEXT COLLATE "en_US_CI"', INSERT, "COLLATE en_US_CI"),
        ("id BIGINT, name TEXT", UPDATE, "types INT and BIG_INT differ"),
        ("x INT", {**UPDATE, "condition": {**ON_ID, "source-col": "x"}}, "has no column of the"),
        ("x INT", UPDATE, 'source table "s" has no column "id"'),
    ],
)
def test_columns_must_agree(
    tmp_path: Path, target: Path, columns: str, action: dict[str, Any], reason: str
):
    # Prevents: Hyper silently converts or drops values where servers may fail.
    payload = source(tmp_path, f'CREATE TABLE "Extract".s ({columns})')
    error = refused(target, payload, action)
    assert error.code in (Code.COLUMNS, Code.TYPES)
    assert re.search(reason, error.message), error.message


def test_not_null_is_kept(tmp_path: Path):
    # Prevents: a column that must not be NULL gets a NULL, or the batch ends in a traceback.
    create = 'CREATE TABLE "Extract"."Extract" (id INT NOT NULL, name TEXT)'
    target = execute(tmp_path / "target.hyper", create)
    payload = source(tmp_path, SOURCE % "(CAST(NULL AS INT), 'x')")
    with pytest.raises(BatchError, match=r"(?i)null") as caught:
        applied(target, payload, INSERT)
    assert caught.value.code is Code.ENGINE
    assert caught.value.note.startswith("Action 1: ")
