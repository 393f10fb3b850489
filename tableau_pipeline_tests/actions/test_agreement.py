"""The checks of batches against the engine that carries batches out."""

import itertools
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tableauhyperapi import SqlType, TableName

from tableau_pipeline.actions.batch import (
    Batch,
    Delete,
    Insert,
    Replace,
    Update,
    Upsert,
    batch_problems,
    source,
    target,
)
from tableau_pipeline.actions.conditions import Condition
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.types import sql_type
from tableau_pipeline_tests.actions.batches import file_of
from tableau_sandbox.simulation import Batch as ParsedBatch
from tableau_sandbox.simulation import BatchError as EngineError
from tableau_sandbox.simulation import ColumnType, apply_batch, check_conditions, parse_batch

PUBLISHED = {"t": "SELECT 1::BIGINT AS id, 'a' AS name"}
# Tables of a payload, of which some fit some actions.
SOURCES = [
    "1::BIGINT AS id",
    "1::BIGINT AS id, 'b' AS name",
    "'b' AS name, 2::BIGINT AS id",
    "1::BIGINT AS id, 'b' AS name, 1 AS extra",
    "1::BIGINT AS key, 'b' AS name",
    "1::BIGINT AS key",
    "1 AS extra",
    "1::INTEGER AS id, 'b' AS name",
    "1::BIGINT AS id, DATE '2020-01-01' AS name",
    "1::BIGINT AS id, 'b' AS \"Name\"",
]
CONDITIONS = [target("id") == source("id"), target("id") == source("key")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Insert, Replace, Update, Upsert, Delete])
def test_columns_that_an_action_needs(tmp_path: Path, kind: type):
    """Prevents: a batch passes the checks and fails on the server, or is refused for no reason."""
    tables = {f"s{number}": f"SELECT {query}" for number, query in enumerate(SOURCES)}
    before = file_of(tmp_path / "before.hyper", PUBLISHED)
    payload = file_of(tmp_path / "payload.hyper", tables)
    known = [table_columns(hyper_process(), file) for file in (before, payload)]
    conditions = [{}] if kind in (Insert, Replace) else [{"where": each} for each in CONDITIONS]
    agreed = set()
    for name, where in itertools.product(tables, conditions):
        batch = Batch([kind(target="t", source=name, **where)])
        problems = batch_problems(batch, target=known[0], source=known[1])
        parsed = parse_batch(batch.json().encode())
        fault = nullcontext() if problems == [] else pytest.raises(EngineError)
        with fault:
            apply_batch(before, payload, parsed, tmp_path / "after.hyper")
        agreed.add(bool(problems))
    assert agreed == {True, False}


TYPES = [
    ColumnType(SqlType.bool(), None),
    ColumnType(SqlType.small_int(), None),
    ColumnType(SqlType.int(), None),
    ColumnType(SqlType.big_int(), None),
    ColumnType(SqlType.float(), None),
    ColumnType(SqlType.double(), None),
    ColumnType(SqlType.numeric(10, 2), None),
    ColumnType(SqlType.numeric(10, 3), None),
    ColumnType(SqlType.text(), None),
    ColumnType(SqlType.text(), "en_US_CI"),
    ColumnType(SqlType.varchar(9), None),
    ColumnType(SqlType.varchar(10), None),
    ColumnType(SqlType.char(9), None),
    ColumnType(SqlType.char(9), "de"),
    ColumnType(SqlType.bytes(), None),
    ColumnType(SqlType.date(), None),
    ColumnType(SqlType.time(), None),
    ColumnType(SqlType.timestamp(), None),
    ColumnType(SqlType.timestamp_tz(), None),
    ColumnType(SqlType.interval(), None),
    ColumnType(SqlType.json(), None),
    ColumnType(SqlType.oid(), None),
    ColumnType(SqlType.tabgeography(), None),
]
NAME = TableName("Extract", "t")


def comparisons() -> list[Condition]:
    others = [source("b"), True, 5, 5.0, "x", datetime(2020, 1, 1, tzinfo=UTC)]
    column = target("a")
    return [
        column.has("x"),
        column.is_null(),
        *(column.is_(other) for other in others),
        *(
            condition
            for other in others
            for condition in (
                column == other,
                column != other,
                column < other,
                column <= other,
                column > other,
                column >= other,
            )
        ),
    ]


@pytest.mark.parametrize("condition", comparisons(), ids=str)
def test_every_comparison_of_every_type(condition: Condition):
    # Prevents: a type is forgotten, by the checks or by their spelling of types.
    batch = Batch([Delete(target=NAME, source=NAME, where=condition)])
    parsed = parse_batch(batch.json().encode())
    for one, other in itertools.product(TYPES, TYPES):
        named = {"a": one}, {"b": other}
        known = [
            {NAME: {name: sql_type(each.type, each.collation) for name, each in types.items()}}
            for types in named
        ]
        problems = batch_problems(batch, target=known[0], source=known[1])
        found = [problem for problem in problems if "does not use" not in problem]
        assert bool(found) == is_refused(parsed, *named), (one, other, problems)


def is_refused(
    batch: ParsedBatch, target: dict[str, ColumnType], source: dict[str, ColumnType]
) -> bool:
    try:
        check_conditions(batch, target=target, source=source)
    except EngineError:
        return True
    return False
