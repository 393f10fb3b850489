from datetime import date

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Diff, Feed, Replace
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts import builder
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import ships, table

# Prime numbers, and what is said of them.
ROWS = [(2, "a"), (3, "b"), (5, None), (7, "d")]


def remarks(*rows: tuple) -> pa.Table:
    return table(list(rows), id=pa.int64(), word=pa.string())


@pytest.fixture
def diffed(pipeline: Pipeline) -> Pipeline:
    """Published, and refreshed by comparing its rows."""
    pipeline.policy(Diff(("id",)))
    pipeline.model("flights", remarks(*ROWS))
    pipeline.run()
    return pipeline


@pytest.mark.few_variants(3)
@pytest.mark.parametrize(
    ("rows", "shipped"),
    [
        (ROWS, None),
        (ROWS[::-1], None),
        ([*ROWS, (11, "e")], RowCounts(deleted=0, inserted=1)),
        (ROWS[1:], RowCounts(deleted=1, inserted=0)),
        ([(2, "A"), *ROWS[1:]], RowCounts(deleted=1, inserted=1)),
        ([(2, None), *ROWS[1:]], RowCounts(deleted=1, inserted=1)),
        ([(2, "b"), (3, "a"), *ROWS[2:]], RowCounts(deleted=2, inserted=2)),
        ([(1, "a"), *ROWS[1:]], RowCounts(deleted=1, inserted=1)),
        ([(2, "A"), (3, "b"), (11, "e")], RowCounts(deleted=3, inserted=2)),
    ],
    ids=["none", "order", "insert", "delete", "update", "null", "swap", "key", "all kinds"],
)
def test_changed_rows_are_shipped(diffed: Pipeline, rows: list[tuple], shipped: RowCounts | None):
    """Prevents: a kind of change is not seen, or rows are shipped that did not change."""
    assert ships(diffed, remarks(*rows)) == shipped


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("keys", "type_"),
    [
        (["", "2"], pa.string()),
        ([float("nan"), 2.0], pa.float64()),
        (["2", "two"], pa.string()),
        ([1e300], pa.float64()),
        ([date(2024, 2, 29)], pa.date32()),
    ],
    ids=["empty", "NaN", "word", "too large", "date"],
)
def test_feed_whose_keys_are_of_another_type(
    pipeline: Pipeline, keys: list[object], type_: pa.DataType
):
    """Prevents: an error of hyperd in every refresh, because a key of the feed names no row."""
    pipeline.policy(Diff(("id",), Feed("feed", (("id", "id"),))))
    pipeline.feed("feed", table([], id=type_))
    pipeline.model("flights", remarks(*ROWS))
    pipeline.run()
    pipeline.feed("feed", table([(key,) for key in keys], id=type_))
    assert ships(pipeline, remarks((2, "A"), *ROWS[1:])) == RowCounts(deleted=1, inserted=1)


def test_one_update_after_another(diffed: Pipeline):
    """Prevents: an update is computed from another content than the last one left."""
    for number in range(2):
        rows = [(2, f"a{number}"), *ROWS[1 + number :], (100 + number, "new")]
        assert ships(diffed, remarks(*rows))
    checkpoint = diffed.journal.checkpoint()
    assert checkpoint is not None
    assert checkpoint.updates == 2


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("names", [("id", "h"), ("h", "_row_hash_"), ("n", "o"), ("old", "new")])
def test_composite_keys(pipeline: Pipeline, names: tuple[str, str]):
    """Prevents: rows that share a part of their key are mixed up, or a name is taken for ours."""
    one, two = names
    types = {one: pa.int64(), two: pa.string(), "word": pa.string()}
    pipeline.policy(Diff(names))
    pipeline.model("flights", table([(1, "x", "a"), (1, "y", "b"), (2, "x", "c")], **types))
    pipeline.run()
    rows = [(1, "x", "a"), (1, "y", "B"), (2, "y", "c")]
    assert ships(pipeline, table(rows, **types)) == RowCounts(deleted=2, inserted=2)


@pytest.mark.few_variants(3)
@pytest.mark.parametrize(
    ("rows", "phrase"),
    [
        ([*ROWS, (2, "x"), (3, "y")], "id is not unique, for instance 2 (2 times), 3 (2 times)"),
        ([*ROWS, ROWS[0]], "id is not unique, for instance 2 (2 times)"),
        ([*ROWS, (11, "x"), (11, "y")], "id is not unique, for instance 11 (2 times)"),
        ([*ROWS, (None, "x")], "id is NULL in 1 row"),
    ],
)
@pytest.mark.parametrize("publish", [True, False])
def test_keys_that_identify_no_row(diffed: Pipeline, rows: list[tuple], phrase: str, publish: bool):
    """Prevents: the wrong one of two rows is deleted, or a row without a key is never updated."""
    diffed.model("flights", remarks(*rows))
    records = diffed.journal.all_intents()
    with pytest.raises(RefusedError) as caught:
        diffed.run(publish=publish)
    for part in ("refresh: diff", 'table "flights"', phrase, "more columns in the key"):
        assert part in str(caught.value)
    assert diffed.journal.all_intents() == records


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[*ROWS, (2, "x")], [*ROWS, (None, "x")], [*ROWS, ROWS[0]]])
def test_policy_that_comes_after_rows_without_a_key(pipeline: Pipeline, rows: list[tuple]):
    """Prevents: what was published under another policy is not seen for want of a key."""
    pipeline.policy(Replace())
    pipeline.model("flights", remarks(*rows))
    pipeline.run()
    pipeline.policy(Diff(("id",)))
    assert ships(pipeline, remarks(*ROWS))


@pytest.mark.parametrize(
    ("row", "problem"),
    [((2, "x"), r"not unique, for instance 2 \(2 times\)"), ((None, "x"), "id is NULL in 1 row")],
)
def test_key_named_for_rows_that_stay(pipeline: Pipeline, row: tuple, problem: str):
    """Prevents: a key that nobody looked at passes until the next change of the rows."""
    pipeline.policy(Replace())
    pipeline.model("flights", remarks(*ROWS, row))
    pipeline.run()
    pipeline.policy(Diff(("id",)))
    for _ in range(2):
        with pytest.raises(RefusedError, match=problem):
            pipeline.run()


def test_key_that_was_looked_at_is_remembered(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch):
    """Prevents: rows that stay are grouped by their key in every refresh."""
    pipeline.policy(Replace())
    pipeline.model("flights", remarks(*ROWS))
    pipeline.run()
    pipeline.policy(Diff(("id",)))
    pipeline.run()
    checkpoint = pipeline.journal.checkpoint()
    assert checkpoint is not None
    assert checkpoint.tables["flights"].key == ("id",)
    monkeypatch.setattr(builder, "check_rows", None)
    pipeline.run()


def test_key_that_the_model_lacks(diffed: Pipeline):
    """Prevents: a misspelt key shows as an error of hyperd."""
    diffed.policy(Diff(("idd",)))
    with pytest.raises(
        RefusedError, match=r'"flights": refresh: diff: key names "idd", .* id, wor'
    ):
        diffed.run()
