"""The page on snapshots: its check runs, and its attributes exist."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from tableau_pipeline.resources import SnapshotIOManager, SparkResource
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support.models import snapshot

PAGE = page("reference/snapshot.md").whole


@pytest.mark.parametrize(("rows", "passed"), [(999, False), (1000, True)])
def test_its_check(tmp_path: Path, rows: int, passed: bool):
    """Prevents: a check that starts Spark, or an example that fails where it is copied to."""
    names: dict[str, Any] = {}
    (block,) = PAGE.blocks("python")
    exec(block, names)
    snapshot(tmp_path, pa.table({"id": pa.array(range(rows), pa.int64())}), asset_key="orders")
    spark = SparkResource(master="no such master")
    definitions = dg.Definitions(
        assets=[dg.AssetSpec("orders")],
        asset_checks=[names["enough_orders"]],
        resources={"io_manager": SnapshotIOManager(root=str(tmp_path), spark=spark)},
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    (found,) = job.execute_in_process(raise_on_error=False).get_asset_check_evaluations()
    assert (found.passed, found.metadata["rows"].value) == (passed, rows)


def test_its_attributes(tmp_path: Path):
    """Prevents: a page of attributes that are not there."""
    snapshot(tmp_path, pa.table({"id": pa.array([1, 2], pa.int64())}), asset_key="orders")
    found = SnapshotStore(tmp_path).newest("orders")
    listed = [name for row in PAGE.rows() for name in row["attribute"].split(", ")]
    assert found
    assert "row_count" in listed
    assert [name for name in listed if not hasattr(found, name)] == []
