"""The builder and its checks against the engine that carries batches out."""

import itertools
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from tableauhyperapi import SqlType, TableName

from tableau_pipeline.actions.batch import Batch, BatchError, Delete, batch_problems, source, target
from tableau_pipeline.actions.conditions import Condition
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.types import sql_type
from tableau_pipeline_tests.actions.rebuilt import built, spoilt_batches
from tableau_pipeline_tests.actions.strategies import Tables, write_tables
from tableau_sandbox.simulation import (
    Batch as ParsedBatch,
)
from tableau_sandbox.simulation import (
    BatchError as EngineError,
)
from tableau_sandbox.simulation import (
    Code,
    ColumnType,
    GrammarError,
    apply_batch,
    check_conditions,
    parse_batch,
)

DEPENDS_ON_ROWS = (Code.REPEATED_KEY, Code.ENGINE)


def runs(examples: int) -> Callable[[Any], Any]:
    """So many examples, the same each time."""
    return settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def new_folder() -> Generator[Path]:
    # hyperd lets go of the files of a failed batch a little later.
    with TemporaryDirectory() as name:
        yield Path(name)


def compare(folder: Path, case: tuple[Tables, Tables, list[dict]]) -> None:
    published, payload, actions = case
    expected = parsed_or_none(actions)
    batch = built_or_none(actions)
    if batch is None:
        event("refused by both")
        assert expected is None
        return
    parsed = parse_batch(batch.json().encode())
    # Of a junction of one condition, the builder makes that condition.
    if expected is not None:
        assert plain(parsed) == plain(expected)
    before = write_tables(folder / "before.hyper", published)
    uploaded = write_tables(folder / "payload.hyper", payload)
    hyper = hyper_process()
    problems = batch_problems(
        batch, target=table_columns(hyper, before), source=table_columns(hyper, uploaded)
    )
    first = min((int(problem.split()[1]) for problem in problems), default=None)
    failed = failure(before, uploaded, parsed, folder / "after.hyper")
    event(f"outcome: {failed.code if failed else 'carried out'}")
    if failed is None:
        assert problems == []
    elif failed.code in DEPENDS_ON_ROWS:
        assert first is None or first > position(failed), (failed.note, problems)
    else:
        assert first == position(failed), (failed.note, problems)


def parsed_or_none(actions: list[dict]) -> ParsedBatch | None:
    try:
        return parse_batch(json.dumps({"actions": actions}).encode())
    except GrammarError:
        return None


def built_or_none(actions: list[dict]) -> Batch | None:
    try:
        return built(actions)
    except BatchError:
        return None


def failure(before: Path, payload: Path, batch: ParsedBatch, after: Path) -> EngineError | None:
    try:
        apply_batch(before, payload, batch, after)
    except EngineError as error:
        return error
    return None


def position(error: EngineError) -> int:
    """As people count."""
    return -1 if error.action is None else error.action + 1


def plain(batch: ParsedBatch) -> list[dict[str, Any]]:
    """The actions of a batch, in which conditions that mean the same are the same."""
    actions = batch.model_dump()["actions"]
    return [{**action, "condition": _plain(action.get("condition"))} for action in actions]


def _plain(condition: Any) -> Any:
    if condition is None:
        return None
    if "args" not in condition:
        const = condition["const"]
        # NULL has any type.
        return {**condition, "const": "null"} if const and const["v"] is None else condition
    args: list[Any] = []
    for arg in map(_plain, condition["args"]):
        args += arg["args"] if arg["op"] == condition["op"] else (arg,)
    return args[0] if len(args) == 1 else {"op": condition["op"], "args": args}


@runs(30)
@given(case=spoilt_batches())
@pytest.mark.slow
def test_checks_agree_with_the_engine(case: tuple[Tables, Tables, list[dict]]):
    # Prevents: a batch passes the checks and fails on the server, or is refused for no reason.
    with new_folder() as folder:
        compare(folder, case)


@pytest.mark.long
@pytest.mark.timeout(1800)
@runs(500)
@given(case=spoilt_batches())
def test_checks_agree_with_the_engine_on_many_batches(case: tuple[Tables, Tables, list[dict]]):
    # Prevents: what a few examples do not hit.
    with new_folder() as folder:
        compare(folder, case)


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
