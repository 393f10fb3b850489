"""Models that keep their last snapshot: without Java, without a run, without our IO manager."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from tableau_pipeline.core.snapshot import Origin
from tableau_pipeline.ingest import files_version, read_files
from tableau_pipeline.resources import SparkResource, unchanged
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.resources.running import Location
from tableau_pipeline_tests.snapshots.support.versions import commit, manifest


class Exports(dg.Config):
    folder: str


@dg.asset(name="model", code_version="1")
def exported(
    context: dg.AssetExecutionContext, config: Exports, spark: SparkResource
) -> DataFrame | None:
    """A model of files, as the guide shows it."""
    came_in = files_version(config.folder)
    if unchanged(context, came_in):
        return None
    return read_files(spark.spark_session, config.folder, columns="id bigint")


@pytest.mark.slow
def test_no_java_is_needed(location: Location, tmp_path: Path) -> None:
    """Prevents a JVM that starts only to find that there is nothing to do."""
    exports = tmp_path / "exports"
    exports.mkdir()
    (exports / "1.csv").write_text("id\n1\n", "utf-8")
    config = {"ops": {"model": {"config": {"folder": str(exports)}}}}
    location.run([exported], run_config=config)
    code = f"""if True:
        import dagster as dg
        from pathlib import Path
        from tableau_pipeline_tests.resources.running import Location
        from tableau_pipeline_tests.resources.test_no_java import exported
        location = Location(Path({str(location.root)!r}))
        location.run([exported], run_config={config!r})
        assert "unchanged" in location.materialization().metadata
        Path({str(exports / "2.csv")!r}).write_text("id\\n2\\n", "utf-8")
        try:
            location.run([exported], run_config={config!r})
        except dg.Failure as error:
            assert "could not start its Java process" in str(error)
            assert error.__cause__ is None
            print("no Java")
    """
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "nowhere"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.stdout == "no Java\n", child.stderr
    assert child.returncode == 0


def test_another_io_manager_is_refused(location: Location) -> None:
    """Prevents a model that is never stored anywhere, because its output is None."""
    elsewhere = dg.asset(name="model", io_manager_key="memory")(
        lambda context: unchanged(context, "1")
    )
    with pytest.raises(TypeError, match='"model" has the IO manager memory, which stores no snap'):
        dg.materialize([elsewhere], resources={"memory": dg.InMemoryIOManager()})


def test_the_origin_is_no_part_of_the_data(tmp_path: Path) -> None:
    """Prevents refreshes of rows that are the same, and manifests of older releases that fail."""
    snapshots = SnapshotStore(tmp_path)
    older = commit(snapshots)
    assert "origin" not in older.manifest()
    assert snapshots.newest("model") == older
    (part,) = older.parts
    origin = Origin(source_version="1", upstream={"a/b": "c"})
    newer = older.model_copy(update={"parts": (part.model_copy(update={"origin": origin}),)})
    assert newer.data_version == older.data_version
    manifest(snapshots, 1).write_text(newer.manifest(), "utf-8")
    assert snapshots.newest("model") == newer
