"""Updates above the limit for payloads, sent in consecutive pieces."""

import random
from collections.abc import Callable
from datetime import date, timedelta

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Append, Diff, Partitions, Policy
from tableau_pipeline.refresh.plan import NoChange, UpdateTables
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.refresh.support.partitioned import materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

LIMIT = 400_000
DAY_ROWS = 2000
KIND_ROWS = 5000
pytestmark = pytest.mark.slow
POLICIES: dict[str, Policy] = {
    "diff": Diff(("id",)),
    "composite": Diff(("day", "id")),
    "append": Append("id", 5),
    "dates": Append("day", "2 days"),
    "partitions": Partitions("kind"),
}


def notes(rows: int, *, seed: int = 1) -> pa.Table:
    """Rows that are hardly to be compressed, some thousand a day; another seed changes a tenth."""
    first, other = random.Random(1), random.Random(seed)
    texts = [f"{first.random()}" for _ in range(rows)]
    texts[::10] = [f"{other.random()}" for _ in texts[::10]]
    days = [date(2020, 1, 1) + timedelta(days=number // DAY_ROWS) for number in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "day": pa.array(days, pa.date32()),
            "kind": pa.array([f"kind {number // KIND_ROWS}" for number in range(rows)]),
            "text": pa.array(texts),
        }
    )


def split_by_kind(rows: pa.Table) -> dict[str, pa.Table]:
    kinds = rows["kind"].unique().to_pylist()
    return {kind: rows.filter(pa.compute.equal(rows["kind"], kind)) for kind in kinds}


def give(pipeline: Pipeline, rows: pa.Table) -> None:
    (table,) = pipeline.declaration.tables
    if isinstance(table.policy, Partitions):
        materialize(pipeline, split_by_kind(rows))
    else:
        pipeline.model("flights", rows)


@pytest.fixture
def large(new_pipeline: Callable[..., Pipeline]) -> Callable[[str], Pipeline]:
    """A published data source, and new content that is too large for one payload."""

    def make(policy: str) -> Pipeline:
        pipeline = new_pipeline(on_oversize="split", payload_limit_mb=LIMIT / 1e6)
        pipeline.policy(POLICIES[policy])
        give(pipeline, notes(50_000))
        pipeline.run()
        give(pipeline, notes(75_000, seed=2 if isinstance(POLICIES[policy], Diff) else 1))
        return pipeline

    return make


def pieces(report: Report) -> int:
    assert isinstance(report.plan, UpdateTables), report.plan
    return report.plan.pieces


@pytest.mark.parametrize("policy", POLICIES)
def test_pieces_add_up(large: Callable[[str], Pipeline], policy: str):
    """Prevents: rows between two pieces are lost or sent twice, or a piece is still too large."""
    pipeline = large(policy)
    before = set(pipeline.extract_files())
    report = pipeline.run()
    assert pipeline.wrong() == []
    sent = [file for file in pipeline.extract_files() if file not in before]
    assert len(sent) == pieces(report) > 1
    assert all(file.stat().st_size <= LIMIT for file in sent)
    assert report.extract
    assert report.extract.size == sum(file.stat().st_size for file in sent)
    assert report.extract.rows == {"flights": report.tables["flights"].inserted}
    assert report.plan
    assert "split, because the update of" in report.plan.reason
    assert isinstance(pipeline.run().plan, NoChange)
