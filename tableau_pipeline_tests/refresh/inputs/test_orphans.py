from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Diff, Guard, Partitions, Policy
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.types import ROW_HASH
from tableau_pipeline_tests.refresh.support.partitioned import keep_only
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import table

NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)
LAX = Guard(min_rows=0, max_shrink=1)
PARTS = ("a", "b")
Flight = tuple[int | None, str | None]


@pytest.mark.parametrize("policy", [Diff(("carrier",)), Partitions("part")], ids=["diff", "parts"])
def test_a_key_that_another_partition_has(star: Pipeline, policy: Policy):
    """Prevents: sums that are twice too large, as only changed files are read."""
    many, one = star.declaration.tables
    star.declare(tables=(many, replace(one, policy=policy, guard=LAX)))
    for part, carrier in (("a", "AA"), ("b", "UA")):
        star.snapshot("airlines", _airlines(part, {carrier: (part, "x")}), partition=part)
    star.run()
    star.snapshot("airlines", _airlines("b", {"AA": ("b", "x"), "UA": ("b", "x")}), partition="b")
    with pytest.raises(RefusedError, match=r"carrier is not unique, for instance AA \(2 times\)"):
        star.run()


def test_changed_words_do_not_make_keys_be_read(star: Pipeline):
    """Prevents: an update that reads every key of a large dimension, though no key changed."""
    many, one = star.declaration.tables
    star.declare(tables=(many, replace(one, policy=Partitions("part"), guard=LAX)))
    for part, carrier in (("a", "AA"), ("b", "UA")):
        star.snapshot("airlines", _airlines(part, {carrier: (part, "x")}), partition=part)
    star.run()
    keep_only(star, "airlines", part="a", columns={"part", ROW_HASH})
    star.snapshot("airlines", _airlines("b", {"UA": ("b", "y")}), partition="b")
    assert star.run().tables == {"airlines": RowCounts(deleted=1, inserted=1)}


def test_shared_rows_do_not_lose_their_partners(star: Pipeline):
    """Prevents: an update that looks for the partners of all rows, however few changed."""
    many, one = star.declaration.tables
    star.declare(tables=(replace(many, policy=Diff(("flight_id",)), guard=LAX), one))
    for part in PARTS:
        star.snapshot("flights", _flights(part, [(0, "AA"), (1, "DL")]), partition=part)
    assert star.run().orphans == {"flights -> airlines": 2}
    keep_only(star, "flights", part="a", columns={"flight_id", ROW_HASH})
    star.snapshot("flights", _flights("b", [(0, "UA"), (1, "UA")]), partition="b")
    report = star.run()
    assert report.plan.decision == "update"
    assert report.orphans == {"flights -> airlines": 1}


def _flights(part: str, content: list[Flight]) -> pa.Table:
    today = NOON.date()
    rows = [
        (10 * number + PARTS.index(part), None if ago is None else today - timedelta(ago), carrier)
        for number, (ago, carrier) in enumerate(content)
    ]
    return table(rows, flight_id=pa.int64(), day=pa.date32(), carrier=pa.string())


def _airlines(part: str, known: dict[str, tuple[str, str]]) -> pa.Table:
    rows = [(carrier, word, part) for carrier, (its, word) in known.items() if its == part]
    return table(rows, carrier=pa.string(), word=pa.string(), part=pa.string())
