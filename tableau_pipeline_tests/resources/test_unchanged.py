"""Models that keep their last snapshot, because nothing came in."""

from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.resources import SparkResource, unchanged
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.resources.running import RAN, SOURCE, Location, limited, reader
from tableau_pipeline_tests.snapshots.support.samples import newest, store
from tableau_pipeline_tests.snapshots.support.versions import manifest


def test_the_last_snapshot_is_the_output(location: Location) -> None:
    """Prevents a version, or a data version, for each run in which nothing happened."""
    assert location.run([limited()]) == ["model"]
    first = location.materialization()
    assert "unchanged" not in first.metadata
    assert location.run([limited()]) == []
    again = location.materialization()
    assert again != first
    assert location.version() == again.metadata["version"].value == 1
    assert again.tags is not None
    assert first.tags is not None
    tag = "dagster/data_version"
    assert again.tags[tag] == first.tags[tag]
    assert "since version 1:" in str(again.metadata["unchanged"].value)
    for name in ("sources", "fingerprint", "dagster/row_count", "dagster/column_schema"):
        assert again.metadata[name] == first.metadata[name]
    assert first.metadata["sources"].value == "3 rows"


@pytest.mark.slow
def test_whatever_differs_lets_the_model_run(location: Location) -> None:
    """Prevents rows of yesterday's sources, code or run config that pass for today's."""

    def run(code: str | None = "1", **model: int) -> list[str]:
        config = {"ops": {"model": {"config": model}}}
        return location.run([limited(code)], run_config=config)

    assert [run(), run()] == [["model"], []]
    SOURCE["rows"] = 4
    assert [run(), run()] == [["model"], []]
    assert [run(code="2"), run(code="2")] == [["model"], []]
    assert [run(code="2", rows=2), run(code="2", rows=2)] == [["model"], []]
    assert [run(code="2", rows=2, force=True), run(code="2", rows=2)] == [["model"], []]
    assert [run(code=None, rows=2), run(code=None, rows=2)] == [["model"], ["model"]]


@pytest.mark.slow
def test_a_snapshot_with_a_lost_file_is_computed_again(location: Location) -> None:
    """Prevents a model that stays broken until its sources change."""
    location.run([limited()])
    found = newest(location.root)
    assert found
    Path(found.paths[0]).unlink()
    assert [location.run([limited()]), location.run([limited()])] == [["model"], []]
    manifest(SnapshotStore(location.root), 2).unlink()
    manifest(SnapshotStore(location.root), 1).unlink()
    assert location.run([limited()]) == ["model"]


@pytest.mark.slow
def test_a_snapshot_of_somebody_else_is_computed_again(location: Location) -> None:
    """Prevents rows that a script has stored meanwhile, and that pass for those of the model."""
    location.run([limited()])
    store(SparkSession.active().range(8), location.root)
    assert location.run([limited()]) == ["model"]


@pytest.mark.slow
def test_upstream_models_count_by_their_rows(location: Location) -> None:
    """Prevents a model that misses new rows upstream, or that runs for none."""
    both = [limited(), reader()]
    forced = {"ops": {"model": {"config": {"force": True}}}}
    reader_forced = {"ops": {"reader": {"config": {"force": True}}}}
    assert location.run(both) == ["model", "reader"]
    assert location.run(both) == []
    assert location.run(both, select="model", run_config=forced) == ["model"]
    assert location.version() == 2
    assert location.run(both, select="reader") == []
    assert location.run(both, select="reader", run_config=reader_forced) == ["reader"]
    assert location.run(both, select="reader") == []
    SOURCE["rows"] = 4
    assert location.run(both) == ["model", "reader"]


def test_what_was_loaded_counts(location: Location) -> None:
    """Prevents new rows upstream that pass for old ones, because no run of Dagster stored them."""
    assets = [limited(), reader()]
    assert location.run(assets) == ["model", "reader"]
    store(SparkSession.active().range(9), location.root)
    assert location.run(assets, select="reader") == ["reader"]
    assert location.run(assets, select="reader") == []


def test_upstream_assets_of_others_count_by_their_data_version(location: Location) -> None:
    """Prevents a model that misses a change of a table that is no snapshot."""
    version = ["a"]

    @dg.asset
    def table() -> dg.MaterializeResult:
        return dg.MaterializeResult(data_version=dg.DataVersion(version[0]))

    @dg.asset(deps=[table], code_version="1")
    def model(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame | None:
        if unchanged(context, "by upstream only"):
            return None
        RAN.append("model")
        return spark.spark_session.range(1)

    assert [location.run([table, model]), location.run([table, model])] == [["model"], []]
    version[0] = "b"
    assert location.run([table, model]) == ["model"]


def by_state(*states: str) -> dg.AssetsDefinition:
    """A model with a row for each state of the run."""

    @dg.asset(
        name="model",
        code_version="1",
        partitions_def=dg.StaticPartitionsDefinition(list(states)),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "state"},
    )
    def build(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame | None:
        if unchanged(context, f"{SOURCE['rows']} rows"):
            return None
        RAN.extend(context.partition_keys)
        rows = [(state, SOURCE["rows"]) for state in context.partition_keys]
        return spark.spark_session.createDataFrame(rows, "state string, n int")

    return build


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
@pytest.mark.slow
def test_each_partition_of_the_run_counts(location: Location) -> None:
    """Prevents a day without rows, because another day is as it was."""

    def run(first: str, last: str, states: str = "abc") -> list[str]:
        span = {
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        }
        return location.run([by_state(*states)], tags=span)

    assert [run("a", "a"), run("a", "a")] == [["a"], []]
    assert run("a", "b") == ["a", "b"]
    assert [run("a", "b"), run("b", "b")] == [[], []]
    assert location.version() == location.materialization().metadata["version"].value == 2
    SOURCE["rows"] = 4
    assert run("b", "b") == ["b"]
    SOURCE["rows"] = 3
    assert [run("a", "a"), run("a", "b")] == [[], ["a", "b"]]
    assert run("a", "a", states="abcd") == ["a"]
