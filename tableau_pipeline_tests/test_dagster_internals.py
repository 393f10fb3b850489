"""One test for each private name of Dagster that we use, to see what an upgrade breaks."""

import logging
import sys
from collections.abc import Iterator, Set
from datetime import UTC, datetime, timedelta
from inspect import getsource
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest
from dagster._cli import definitions as command_of_validation
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster_pyspark import LazyPySparkResource
from pydantic import BaseModel, TypeAdapter, ValidationError

from tableau_pipeline import __version__
from tableau_pipeline import dagster_internals as internals
from tableau_pipeline.rendering import message_of
from tableau_pipeline.resources.services import SparkResource

KEY = dg.AssetKey("made")
CHECK = dg.AssetCheckKey(KEY, "fine")
HOUR = timedelta(hours=1)
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03")
YAML = "type: tableau_pipeline_tests.test_dagster_internals.Plain\nattributes:\n  name: plain\n"


class Plain(dg.Component, dg.Model, dg.Resolvable):
    """A component that makes one asset."""

    name: str

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions(assets=[dg.AssetSpec(self.name)])


class Watching(dg.Component):
    """A component that records its declarations."""

    declared: ClassVar[list[Any]] = []

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        self.declared.append(context.component_decl)
        return dg.Definitions()


@dg.asset(check_specs=[dg.AssetCheckSpec("fine", asset="made")], io_manager_key="mine")
def made(context: dg.AssetExecutionContext):
    context.log.info("at work")
    seen.append(context)
    yield dg.AssetCheckResult(passed=True)
    yield dg.Output(1)


seen: list[dg.AssetExecutionContext] = []
definitions = dg.Definitions([made], resources={"mine": dg.mem_io_manager})


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write a project with one component, and yield its folder."""
    (tmp_path / "plain" / "defs" / "one").mkdir(parents=True)
    (tmp_path / "plain" / "defs" / "one" / "defs.yaml").write_text(YAML)
    (tmp_path / "plain" / "__init__.py").touch()
    (tmp_path / "plain" / "definitions.py").touch()
    (tmp_path / ".env").write_text("COLOUR=blue\n")
    text = '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "plain"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "plain"]:
        del sys.modules[name]


def load(project: Path) -> dg.Definitions:
    with internals.loading_alone():
        return dg.load_from_defs_folder(path_within_project=project / "plain")


def run(instance: dg.DagsterInstance) -> dg.AssetExecutionContext:
    """Materialize the asset; return the context of its step."""
    seen.clear()
    assert dg.materialize([made], instance=instance, resources={"mine": dg.mem_io_manager}).success
    return seen[0]


# Each test checks names and the behaviour that we rely on.


def test_graphs():
    graph = definitions.resolve_asset_graph()
    assert isinstance(graph, internals.AssetGraph)
    assert isinstance(graph, internals.BaseAssetGraph)
    assert (graph.get(KEY).is_partitioned, graph.get(KEY).is_external) == (False, False)
    assert set(graph.get_check_keys_for_assets({KEY})) == {CHECK}


def test_selection_by_graph():
    def chosen(graph: internals.BaseAssetGraph) -> Set[dg.AssetKey]:
        return {key for key in graph.get_all_asset_keys() if key == KEY}

    job = dg.define_asset_job("chosen", internals.AssetSelectionByGraph(chosen))
    jobs = dg.Definitions([made], jobs=[job], resources={"mine": dg.mem_io_manager})
    assert jobs.resolve_job_def("chosen").asset_layer.selected_asset_keys == {KEY}


def test_steps_and_their_functions():
    assert internals.step_of(made).name == "made"
    function = internals.function_of(made)
    assert function
    assert function.__code__.co_filename == __file__
    assert internals.function_of(dg.AssetSpec("other")) is None
    assert internals.output_of(made, KEY).io_manager_key == "mine"


def test_contexts(instance: dg.DagsterInstance):
    context = run(instance)
    assert internals.step_key(context.op_execution_context) == "made"
    assert internals.run_graph(context).has(KEY)


def test_location_of_a_step(instance: dg.DagsterInstance):
    module = ReconstructableRepository.for_module(__name__, "definitions")
    job = module.get_reconstructable_job(internals.ASSET_JOB)
    config = {"execution": {"config": {"in_process": {}}}}
    seen.clear()
    assert dg.execute_job(job, instance, run_config=config).success
    # The job has loaded this module a second time, and has filled the list of that copy.
    import tableau_pipeline_tests.test_dagster_internals as loaded

    location = internals.location_of(loaded.seen[0])
    assert location
    assert location.asset_graph.has(KEY)


def test_messages(instance: dg.DagsterInstance):
    records: list[logging.LogRecord] = []

    class Keeping(logging.Logger):
        def handle(self, record: logging.LogRecord) -> None:
            records.append(record)

    keeping = dg.LoggerDefinition(lambda _: Keeping("keeping"))
    job = dg.define_asset_job("logged", [KEY])
    logged = dg.Definitions(
        [made], jobs=[job], loggers={"keeping": keeping}, resources={"mine": dg.mem_io_manager}
    )
    config = {"loggers": {"keeping": {}}}
    logged.resolve_job_def("logged").execute_in_process(config, instance=instance)
    assert "at work" in map(message_of, records)
    assert "at work" not in [record.getMessage() for record in records]


def test_name_of_the_storage(instance: dg.DagsterInstance):
    assert internals.name_of_storage(instance) == "SqliteEventLogStorage"


def test_results_of_checks(instance: dg.DagsterInstance):
    run(instance), run(instance)
    (result,) = internals.check_history(instance, CHECK, limit=1)
    newest = internals.newest_results(instance, [CHECK])[CHECK]
    passed = internals.AssetCheckExecutionRecordStatus.SUCCEEDED
    assert isinstance(result, internals.AssetCheckExecutionRecord)
    assert (result.status, newest.status, newest.run_id) == (passed, passed, result.run_id)
    assert len(internals.check_history(instance, CHECK, limit=9)) == 2
    assert result.evaluation
    assert result.evaluation.passed


def test_results_outside_of_runs(instance: dg.DagsterInstance):
    result = dg.AssetCheckResult(
        passed=False, asset_key=KEY, check_name="fine", description="late", metadata={"days": 2}
    )
    instance.report_runless_asset_event(internals.evaluation_of(result))
    reported = internals.newest_results(instance, [CHECK])[CHECK].evaluation
    assert reported
    assert (reported.passed, reported.description) == (False, "late")
    assert reported.metadata["days"].value == 2


def test_newest_events_of_partitions(instance: dg.DagsterInstance):
    kind = dg.DagsterEventType.ASSET_OBSERVATION
    for partition in ("a", "b", "a"):
        instance.report_runless_asset_event(dg.AssetObservation(KEY, partition=partition))
    ids = internals.newest_by_partition(instance, KEY, kind)
    assert ids.keys() == {"a", "b"}
    assert ids["a"] > ids["b"]


def test_windows():
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
    assert (internals.is_hourly(hours), internals.is_hourly(DAYS)) == (True, False)
    days = dg.DailyPartitionsDefinition("2026-01-01", exclusions=[datetime(2026, 1, 2)])
    out = [internals.is_left_out(days, datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2)]
    assert out == [False, True]


def test_times_of_schedules():
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert internals.get_next_cron_tick("0 6 * * *", now, "UTC") == datetime(
        2026, 1, 2, 6, tzinfo=UTC
    )
    last = internals.get_latest_completed_cron_tick("0 6 * * *", now, "UTC")
    assert last == datetime(2026, 1, 1, 6, tzinfo=UTC)
    assert internals.is_valid_cron_schedule("0 6 * * *")
    assert not internals.is_valid_cron_schedule("at six")


def test_policies_of_freshness():
    cron = dg.FreshnessPolicy.cron(deadline_cron="0 6 * * *", lower_bound_delta=HOUR)
    window = dg.FreshnessPolicy.time_window(fail_window=HOUR)
    assert isinstance(cron, internals.CronFreshnessPolicy)
    assert isinstance(window, internals.TimeWindowFreshnessPolicy)
    with pytest.raises(internals.CheckError):
        dg.FreshnessPolicy.cron(deadline_cron="at six", lower_bound_delta=HOUR)
    assert internals.not_none(1) == 1


def test_projects(project: Path):
    found = internals.find_project(project / "plain")
    assert found == internals.DagsterProject(project, "plain.definitions")
    assert internals.variables_of(project) == {"COLOUR": "blue"}
    assert internals.find_project(Path("/")).module is None


def test_components(project: Path):
    loaded = load(project)
    (spec,) = loaded.resolve_all_asset_specs()
    assert isinstance(internals.component_of(spec), Plain)
    assert internals.component_of(dg.AssetSpec("other")) is None
    folder = project / "plain" / "defs"
    assert internals.folder_of(loaded) == folder.resolve()
    assert internals.folder_of(dg.Definitions()) is None
    (component,) = internals.declared_in(
        folder / "one" / "defs.yaml", Plain, definitions=loaded, folder=folder
    )
    assert component.name == "plain"
    assert internals.replace(loaded, assets=[]).assets == []
    lazy = dg.definitions(lambda: dg.Definitions())
    assert isinstance(lazy, internals.LazyDefinitions)


def test_components_of_functions(project: Path):
    file = project / "plain" / "defs" / "made.py"
    code = (
        "import dagster as dg\nfrom tableau_pipeline_tests.test_dagster_internals import Watching\n"
    )
    file.write_text(f"{code}@dg.component_instance\ndef made(context):\n    return Watching()\n")
    load(project)
    (declared,) = Watching.declared
    assert isinstance(declared, internals.ComponentLoaderDecl)
    assert declared.component_node_fn.__name__ == "made"


def test_mistakes_in_components(project: Path):
    file = project / "plain" / "defs" / "one" / "defs.yaml"
    file.write_text(YAML.replace("name: plain", "colour: blue"))
    with pytest.raises(internals.ComponentTreeException):
        load(project)
    file.write_text(YAML.replace("Plain", "Nothing"))
    with pytest.raises(internals.DagsterUnresolvableSymbolError):
        load(project)


def test_places_in_yaml():
    class Shape(BaseModel):
        size: int

    (tree,) = internals.parse_yamls_with_source_position("a: b\nattributes:\n  size: large\n")
    attributes = tree.source_position_tree.children["attributes"]
    assert attributes.children["size"].position.start.line == 3
    with (
        pytest.raises(ValidationError) as caught,
        internals.enrich_validation_errors_with_source_position(attributes, ["attributes"]),
    ):
        TypeAdapter(Shape).validate_python({"size": "large"})
    assert " at " in str(caught.value.errors()[0]["loc"][0])


def test_state_of_schedules():
    states = internals.InstigatorStatus
    assert states.RUNNING is not states.DECLARED_IN_CODE
    assert states.RUNNING.value == dg.DefaultSensorStatus.RUNNING.value


def test_failures_of_steps(instance: dg.DagsterInstance):
    class Refused(dg.Failure, internals.DagsterUserCodeProcessError):
        def __init__(self) -> None:
            Exception.__init__(self, "too few rows")
            self.description, self.metadata, self.allow_retries = "too few rows", {}, False
            shown = internals.SerializableErrorInfo("Refused: too few rows\n", [], "Refused")
            self.user_code_process_error_infos = [shown]

    @dg.asset
    def refusing():
        raise Refused

    result = dg.materialize([refusing], instance=instance, raise_on_error=False)
    data = result.failure_data_for_node("refusing")
    assert data
    assert data.user_failure_data
    assert data.user_failure_data.description == "too few rows"
    assert data.error
    assert "Refused: too few rows" in data.error.to_string()


def test_interruptions(instance: dg.DagsterInstance):
    @dg.asset
    def interrupted():
        raise internals.DagsterExecutionInterruptedError

    with pytest.raises(internals.DagsterExecutionInterruptedError):
        dg.materialize([interrupted], instance=instance)


def test_validation():
    # `dg check defs` runs this command.
    assert f'"{internals.IS_VALIDATION}"] = "1"' in getsource(command_of_validation)


def test_who_launched_a_run():
    # Dagster+ sets this tag. Its code is not public, so this test can check only the name.
    assert internals.USER_TAG == "user"


def test_which_location_has_launched_a_run():
    assert internals.REPOSITORY_TAG == ".dagster/repository"


def test_sessions_of_spark():
    assert SparkResource._init_session is not LazyPySparkResource._init_session
    session = object()

    class Counting(LazyPySparkResource):
        def _init_session(self) -> None:
            self._spark_session: Any = session

    assert Counting(spark_config={}).spark_session is session


def test_every_name_is_tried():
    """Prevents: an upgrade of Dagster silently breaks a name that has no test."""
    tried = Path(__file__).read_text("utf-8")
    assert [name for name in internals.__all__ if f"internals.{name}" not in tried] == []


def test_the_release_is_listed_among_libraries():
    """Prevents: Dagster lists the libraries of a location, but this library is missing."""
    assert internals.DagsterLibraryRegistry.get()["tableau-pipeline"] == __version__
