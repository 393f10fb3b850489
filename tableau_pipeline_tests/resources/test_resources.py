"""Models that keep their last snapshot, settings of the services, and how failures show."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.server import Timeouts
from tableau_pipeline.core.snapshot import Origin, Snapshot
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.ingest import files_version, read_files
from tableau_pipeline.resources import (
    SnapshotIOManager,
    SparkResource,
    TableauServerResource,
    resources_from_env,
    unchanged,
)
from tableau_pipeline.resources.services import as_failure
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.snapshots.support import commit, manifest, newest, store

# How many rows the sources have, which are their version, too.
SOURCE = {"rows": 3}
RAN: list[str] = []


class Limit(dg.Config):
    rows: int = 100
    force: bool = False


def limited(code_version: str | None = "1") -> dg.AssetsDefinition:
    """A model of its sources, and of run config."""

    @dg.asset(name="model", code_version=code_version)
    def build(
        context: dg.AssetExecutionContext, config: Limit, spark: SparkResource
    ) -> DataFrame | None:
        if unchanged(context, f"{SOURCE['rows']} rows"):
            return None
        RAN.append("model")
        return spark.spark_session.range(min(SOURCE["rows"], config.rows))

    return build


def reader(*deps: str) -> dg.AssetsDefinition:
    """A model of that model, after others."""

    @dg.asset(name="reader", code_version="1", deps=deps)
    def build(
        context: dg.AssetExecutionContext, model: Snapshot, spark: SparkResource
    ) -> DataFrame | None:
        if unchanged(context, "nothing else"):
            return None
        RAN.append("reader")
        return spark.spark_session.range(model.fingerprint.rows)

    return build


@dataclass
class Location:
    """Where models run."""

    root: Path
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def run(self, assets: Sequence[Any], select: str | None = None, **changes: Any) -> list[str]:
        """Run these assets; return which of them have computed something."""
        spark = SparkResource()
        manager = SnapshotIOManager(root=str(self.root), spark=spark)
        RAN.clear()
        result = dg.materialize(
            assets,
            resources={"spark": spark, "io_manager": manager},
            instance=self.instance,
            selection=select,
            **changes,
        )
        assert result.success
        return [*RAN]

    def materialization(self, key: str = "model") -> dg.AssetMaterialization:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(key))
        assert event
        assert event.asset_materialization
        return event.asset_materialization

    def version(self, key: str = "model") -> int:
        return newest(self.root, key).number


@pytest.fixture
def location(spark: SparkSession, tmp_path: Path) -> Iterator[Location]:
    """An empty one, whose sources have three rows."""
    SOURCE["rows"] = 3
    yield Location(tmp_path / "snapshots")
    SOURCE["rows"] = 3


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
    Path(newest(location.root).paths[0]).unlink()
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
        from tableau_pipeline_tests.resources.test_resources import Location
        from tableau_pipeline_tests.resources.test_resources import exported
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


SHRUNK = "1 rows where 8 are published. If that is right, run again with accept: [shrink]"


def failed(error: Exception, *, step: str | None = None) -> dg.Failure:
    """What Dagster gets to see of an error."""
    with pytest.raises(dg.Failure) as raised, as_failure(logging.getLogger(), step=step):
        raise error
    return raised.value


def test_the_message_is_that_of_the_error():
    """Prevents: a cause that stands below a page of our own code."""
    failure = failed(RefusedError("The key must identify every row"), step="shop_orders")
    assert failure.description == "The key must identify every row"
    assert failure.__cause__ is None
    assert failure.__suppress_context__


def test_where_accept_is_written():
    """Prevents: a remedy of which nobody knows where it goes."""
    failure = failed(RefusedError(SHRUNK), step="shop__orders")
    first, second = str(failure.description).splitlines()
    assert first == SHRUNK
    assert second.endswith("as: ops: {shop__orders: {config: {accept: [shrink]}}}")
    assert failed(RefusedError(SHRUNK)).description == SHRUNK


def test_the_traceback_is_for_developers(caplog: pytest.LogCaptureFixture):
    """Prevents: a hundred lines in the log of each refusal."""
    caplog.set_level(logging.DEBUG)
    failed(RefusedError(SHRUNK))
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage().startswith("Traceback")


def test_only_what_may_pass_is_tried_again():
    """Prevents: a refusal that is repeated until somebody sees it."""
    assert not failed(RefusedError("no")).allow_retries
    assert failed(RefreshError("not now")).allow_retries


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    # Prevents: a site whose jobs take longer cannot be refreshed, or a setting has no effect.
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts, tableau.takeover) == (Timeouts(), False)
    monkeypatch.setenv("TABLEAU_JOB_TIMEOUT", "60")
    monkeypatch.setenv("TABLEAU_QUEUE_TIMEOUT", "70")
    monkeypatch.setenv("TABLEAU_TAKEOVER", "true")
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts.job, tableau.timeouts.queue, tableau.takeover) == (60, 70, True)


def test_empty_settings_are_none(monkeypatch: pytest.MonkeyPatch):
    # Prevents: a line of .env that was left empty stops the location.
    for name in ("TABLEAU_JOB_TIMEOUT", "TABLEAU_QUEUE_TIMEOUT", "TABLEAU_TAKEOVER"):
        monkeypatch.setenv(name, "")
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts, tableau.takeover) == (Timeouts(), False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLEAU_JOB_TIMEOUT", "2h"),
        ("TABLEAU_JOB_TIMEOUT", "0"),
        ("TABLEAU_QUEUE_TIMEOUT", "-1"),
        ("TABLEAU_TAKEOVER", "maybe"),
        ("PIPELINE_CACHE_GB", "10 GB"),
        ("PIPELINE_CACHE_GB", "-1"),
    ],
)
def test_bad_values(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    # Prevents: a slip in a setting shows as an error without its name, or passes for the default.
    monkeypatch.setenv(name, value)
    with pytest.raises(RefusedError, match=f"{name} is '{value}'"):
        resources_from_env()


def test_defaults_without_the_environment():
    # Prevents: a project that sets the resource up itself waits otherwise than ours.
    assert TableauServerResource().timeouts == Timeouts()
