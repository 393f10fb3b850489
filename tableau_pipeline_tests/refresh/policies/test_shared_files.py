"""Versions of a partitioned model, which share the files of unchanged partitions."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Diff, Guard, Retain
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.tables import ROW_HASH
from tableau_pipeline_tests.refresh.support.partitioned import keep_only, materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import ships, table

NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)
LAX = Guard(min_rows=0, max_shrink=1)
PARTS = ("north", "south", "west")

# A row is its id, how many days ago it was, and a word. Few ids, so that some are repeated.
Row = tuple[int, int | None, str]


def visits(rows: list[Row]) -> pa.Table:
    # Without a column for the partition, so that two partitions may have the same row.
    today = NOON.date()
    days = [(id_, None if ago is None else today - timedelta(days=ago), word)
            for id_, ago, word in rows]  # fmt: skip
    return table(days, id=pa.int64(), day=pa.date32(), word=pa.string())


@pytest.fixture
def parted(pipeline: Pipeline) -> Pipeline:
    """Two partitions are published."""
    pipeline.policy(Diff(("id",)), guard=LAX)
    materialize(
        pipeline,
        {
            "north": visits([(1, 0, "a"), (2, 9, "b"), (3, None, "c")]),
            "south": visits([(4, 0, "d"), (5, 9, "e")]),
        },
    )
    pipeline.run(around={"now": NOON})
    return pipeline


@pytest.mark.parametrize("retain", [None, Retain("day", 5)], ids=["all", "window"])
def test_shared_files_are_hardly_read(parted: Pipeline, retain: Retain | None):
    """Prevents: an update that costs as much as the model is large, however little changed."""
    day = {"day"} if retain else set()
    parted.policy(Diff(("id",)), retain=retain, guard=LAX)
    parted.run(around={"now": NOON})
    keep_only(parted, "flights", part="north", columns={"id", ROW_HASH, *day})
    materialize(parted, {"south": visits([(4, 0, "D"), (6, 1, "f")])})
    report = parted.run(around={"now": NOON})
    deleted = 1 if retain else 2  # the other one had expired
    assert report.tables == {"flights": RowCounts(deleted=deleted, inserted=2)}


def test_a_key_that_a_shared_file_has_is_refused(parted: Pipeline):
    """Prevents: a new row whose key another partition has deletes that partition's row."""
    materialize(parted, {"south": visits([(1, 0, "x")])})
    with pytest.raises(RefusedError, match=r"id is not unique, for instance 1 \(2 times\)"):
        parted.run(around={"now": NOON})


def test_a_row_moves_to_another_partition(parted: Pipeline):
    """Prevents: a row that left a partition is deleted after it arrived in the other one."""
    rows = {"north": visits([(1, 0, "a")]), "south": visits([(2, 9, "b")])}
    materialize(parted, rows)
    assert ships(parted, now=NOON)
