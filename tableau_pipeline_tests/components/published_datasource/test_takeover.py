"""Data sources that two deployments declare."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.components.publish_file import publish_file
from tableau_pipeline.resources import HyperResource, SnapshotIOManager, SparkResource
from tableau_pipeline_tests.components.support.location import (
    ImpatientServer,
    Location,
    decision,
    failure,
)


@pytest.mark.slow
def test_another_instance_is_refused_until_it_takes_over(location: Location):
    """Prevents: two deployments that overwrite each other's rows in turn, all green."""
    location.model()
    assert location.refresh("busy").success
    with dg.instance_for_test() as instance:
        second = replace(location, instance=instance)
        before = location.jobs("busy")
        for config in ({}, {"full": True}, {"accept": ["shrink", "schema", "overwrite"]}):
            message = failure(second.refresh("busy", **config))
            assert "another deployment" in message
            assert "ops: {busy: {config: {accept: [takeover]}}}" in message
        assert location.jobs("busy") == before
        location.model()
        assert second.refresh("busy", accept=["takeover"]).success
        assert second.wrong("busy") == []
        assert decision(second.refresh("busy")).startswith("no change")
        before = location.jobs("busy")
        assert "accept: [takeover]" in failure(location.refresh("busy"))
        assert location.jobs("busy") == before


@pytest.mark.slow
def test_files_as_they_are_can_be_taken_over_too(location: Location, tmp_path: Path):
    """Prevents: a deployment that lost its records, whose files nobody can publish any more."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)

    def publish(instance: dg.DagsterInstance, *, takeover: bool) -> dg.ExecuteInProcessResult:
        spark = SparkResource()
        tableau = ImpatientServer(
            server_url=location.sandbox.url,
            username=location.sandbox.user,
            password=location.sandbox.password,
            takeover=takeover,
        )
        files = {"path": str(path), "name": "x", "mode": "as_is"}
        return publish_file.execute_in_process(
            instance=instance,
            raise_on_error=False,
            run_config={"ops": {"publish_files": {"config": files}}},
            resources={
                "spark": spark,
                "snapshots": SnapshotIOManager(root=str(location.root), spark=spark),
                "hyper": HyperResource(),
                "tableau": tableau,
            },
        )

    assert publish(location.instance, takeover=False).success
    with dg.instance_for_test() as instance:
        assert "TABLEAU_TAKEOVER=true" in failure(publish(instance, takeover=False))
        assert publish(instance, takeover=True).success
        assert publish(instance, takeover=False).success
