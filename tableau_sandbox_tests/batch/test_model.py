"""The engine against a second reading of Tableau's text, on whatever Hypothesis comes up with."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableau_sandbox.batch.engine import apply_batch
from tableau_sandbox.batch.grammar import GrammarError, parse_batch
from tableau_sandbox.batch.tables import BatchError, Code
from tableau_sandbox_tests.batch import model
from tableau_sandbox_tests.batch.files import Contents, contents, read_tables, write_tables
from tableau_sandbox_tests.batch.model import RefusedError, Rows, Tables
from tableau_sandbox_tests.batch.strategies import batches, rows, tables

Case = tuple[Tables, Tables, list[dict]]
# What the data become; or which action is refused, and whether a NULL is the reason.
Outcome = Contents | tuple[int | None, bool]


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


def compare(folder: Path, case: Case) -> None:
    target, payload, actions = case
    before, after = folder / "before.hyper", folder / "after.hyper"
    as_published = write_tables(before, target).read_bytes()
    source = write_tables(folder / "payload.upload", payload) if payload else None
    expected = model_outcome(case)
    assert engine_outcome(before, source, actions, after) == expected
    assert after.exists() == isinstance(expected, dict)
    assert before.read_bytes() == as_published


def model_outcome(case: Case) -> Outcome:
    try:
        return contents(model.apply(*case))
    except RefusedError as error:
        return error.action, error.reason == "null"


def engine_outcome(before: Path, source: Path | None, actions: list[dict], after: Path) -> Outcome:
    try:
        batch = parse_batch(json.dumps({"actions": actions}).encode())
        apply_batch(before, source, batch, after)
    except GrammarError:
        return None, False
    except BatchError as error:
        return error.action, error.code is Code.ENGINE
    return read_tables(after)


@runs(15)
@given(case=batches())
def test_engine_does_what_the_model_does(case: Case):
    # Prevents: the pipeline is tested against an engine that does something else than documented.
    with new_folder() as folder:
        compare(folder, case)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@runs(500)
@given(case=batches())
def test_engine_does_what_the_model_does_on_many_batches(case: Case):
    # Prevents: what a few examples do not hit.
    with new_folder() as folder:
        compare(folder, case)


@st.composite
def deltas(draw: st.DrawFn) -> Case:
    """Delete whole keys, then insert rows of these keys only: what the pipeline ships."""
    table = draw(tables())
    key, *_ = table.columns
    affected = draw(rows([key]))
    values = {row[0] for row in affected if row[0] is not None}
    added = [row for row in draw(rows(table.columns)) if row[0] in values]
    pair = {"op": "eq", "target-col": key.name, "source-col": key.name}
    delete = {"action": "delete", "target-table": "t", "source-table": "d", "condition": pair}
    insert = {"action": "insert", "target-table": "t", "source-table": "i"}
    payload = {("x", "d"): Rows([key], affected), ("x", "i"): Rows(table.columns, added)}
    return {("x", "t"): table}, payload, [delete, insert]


@runs(7)
@given(case=deltas())
@pytest.mark.slow
def test_delete_then_insert_twice_equals_once(case: Case):
    # Prevents: a batch that is sent again after a crash doubles its rows.
    target, payload, actions = case
    batch = parse_batch(json.dumps({"actions": actions}).encode())
    with new_folder() as folder:
        source = write_tables(folder / "payload.upload", payload)
        files = [folder / f"{number}.hyper" for number in range(3)]
        write_tables(files[0], target)
        apply_batch(files[0], source, batch, files[1])
        apply_batch(files[1], source, batch, files[2])
        assert read_tables(files[1]) == read_tables(files[2])
