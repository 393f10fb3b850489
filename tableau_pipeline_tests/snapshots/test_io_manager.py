from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.resources import SnapshotIOManager
from tableau_pipeline_tests.snapshots.support.jobs import materialize, model, reader
from tableau_pipeline_tests.snapshots.support.samples import newest, store


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT id, 'x' AS `a b` FROM range(7)").repartition(2)


def stored_by(root: Path, assets: list[Any], key: str = "model") -> dg.AssetMaterialization:
    """The materialization of a model, as Dagster's instance keeps it."""
    instance = dg.DagsterInstance.ephemeral()
    assert materialize(root, assets, instance=instance).success
    event = instance.get_latest_materialization_event(dg.AssetKey.from_user_string(key))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization


def test_a_materialization_tells_what_was_stored(frame: DataFrame, tmp_path: Path) -> None:
    """Prevents a catalog without rows, columns or place of a model."""
    root = tmp_path / "with space"
    stored = stored_by(root, [model(frame, "area/model")], "area/model")
    snapshot = newest(root, "area/model")
    assert snapshot is not None
    metadata = {key: entry.value for key, entry in stored.metadata.items()}
    assert metadata["dagster/row_count"] == 7
    place = Path(snapshot.paths[0]).parent
    assert metadata["dagster/uri"] == place.as_uri()
    assert metadata["version"] == snapshot.number == 1
    assert metadata["bytes"] == snapshot.size
    assert metadata["fingerprint"] == snapshot.data_version
    assert (stored.tags or {})["dagster/data_version"] == snapshot.data_version
    assert isinstance(metadata["seconds"], float)
    schema = metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema)
    assert [(column.name, column.type) for column in schema.columns] == [
        ("id", "bigint"),
        ("a b", "string"),
    ]


def test_the_newest_snapshot_is_loaded(
    frame: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents reading rows of an earlier run, or of all runs together; and a reader of nothing but
    the files that has to start Spark."""
    seen: list[Any] = []
    materialize(tmp_path, [model(frame)])
    result = materialize(tmp_path, [model(spark.range(2)), reader(seen, "model", DataFrame)])
    materialize(tmp_path, [dg.AssetSpec("model"), reader(seen, "model", Snapshot)])
    assert sorted(row.id for row in seen[0].collect()) == [0, 1]
    assert seen[1] == newest(tmp_path)
    assert seen[1].run_id == result.run_id


def test_a_notebook_loads_the_newest_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents a notebook that cannot load a model, because it is no run."""
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))
    definitions = dg.Definitions(assets=[model(spark.range(2))], resources={"io_manager": manager})
    store(spark.range(9), tmp_path)
    assert definitions.load_asset_value("model", python_type=Snapshot) == newest(tmp_path)


def test_an_empty_model_is_loaded_with_its_columns(frame: DataFrame, tmp_path: Path) -> None:
    """Prevents readers that fail on the day on which a model has no rows."""
    seen: list[DataFrame] = []
    materialize(tmp_path, [model(frame.limit(0)), reader(seen, "model", DataFrame)])
    assert seen[0].dtypes == frame.dtypes
    assert seen[0].collect() == []


def test_a_model_without_a_snapshot_says_so(frame: DataFrame, tmp_path: Path) -> None:
    """Prevents a stack trace where a model was not materialized yet."""
    assets = [model(frame, "area/model"), reader([], "area/model", DataFrame)]
    with pytest.raises(dg.Failure) as failure:
        materialize(tmp_path, assets, select="reader")
    assert '"area/model"' in str(failure.value.description)
    assert str(tmp_path) in str(failure.value.description)
    assert "materialize it first" in str(failure.value.description)


@pytest.mark.parametrize("value", [7, [1]], ids=repr)
def test_what_is_not_a_frame_is_refused(value: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Prevents an attribute error deep in the writer when a model forgets to return its frame."""

    @dg.asset
    def wrong() -> Any:
        return value

    with pytest.raises(TypeError, match=rf'"wrong" returned {type(value).__name__}: return a'):
        materialize(tmp_path, [wrong])
    assert list(tmp_path.iterdir()) == []


def test_an_asset_without_an_output_stores_nothing(tmp_path: Path) -> None:
    """Prevents that assets which store elsewhere cannot use our IO manager as their default."""

    @dg.asset
    def elsewhere() -> Any:
        return None

    assert materialize(tmp_path, [elsewhere]).success
    assert list(tmp_path.iterdir()) == []
