"""The audit of a project, as Dagster loads and runs it."""

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline_tests.components.audit.test_audit_job import READ
from tableau_pipeline_tests.components.published_datasource.test_partitions_change import rows
from tableau_pipeline_tests.components.support.location import MODEL, Location
from tableau_pipeline_tests.components.support.projects import Project, project
from tableau_pipeline_tests.refresh.support.models import snapshot

__all__ = ["project"]

AUDIT = {"cron": "30 5 * * SUN", "timezone": "Europe/Paris"}
BUSY = f"""type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: busy
  project: Default
  tables: {{flights: {{model: {MODEL}}}}}
"""
MODELS = f"""import dagster as dg

flights = dg.AssetSpec(
    {MODEL.split("/")}, partitions_def=dg.StaticPartitionsDefinition(["eu", "us"])
)
"""
DEFINITIONS = """from pathlib import Path

import dagster as dg

from tableau_pipeline.components.loading import load_definitions


@dg.definitions
def defs() -> dg.Definitions:
    return load_definitions(Path(__file__).parent)
"""


@pytest.fixture
def audited(project: Project) -> Project:
    """A project with one data source and the audit."""
    project.write("models.py", MODELS)
    project.write("busy/defs.yaml", BUSY)
    project.add_pipeline(audit=AUDIT)
    (project.package / "definitions.py").write_text(DEFINITIONS, "utf-8")
    return project


def test_a_job_and_a_schedule(audited: Project):
    """Prevents: an audit at another time than declared, or one that nobody switched on."""
    definitions = load_definitions(audited.package)
    dg.Definitions.validate_loadable(definitions)
    assert definitions.resolve_job_def("audit")
    (schedule,) = definitions.schedules or ()
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.name, schedule.job_name) == ("audit_schedule", "audit")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 5 * * SUN", "Europe/Paris")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED


def test_a_mistake_is_one_line(audited: Project):
    """Prevents: an audit that never runs because of a slip, or an error that names no line."""
    audited.add_pipeline(audit={"cron": "weekly"})
    with pytest.raises(DeclarationError, match=r'defs\.yaml:4: .*"weekly" is not a cron schedule'):
        load_definitions(audited.package)


@pytest.mark.slow
def test_partitions_that_the_model_has_lost(
    location: Location, audited: Project, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: rows that are never compared again once the model has lost a partition."""
    location.partitions[MODEL] = dg.StaticPartitionsDefinition(["ap", "eu", "us"])
    for key in ("ap", "eu", "us"):
        snapshot(location.root, rows([key]), asset_key=MODEL, partition=key)
    assert location.refresh("busy", declared=READ).success
    location.partitions[MODEL] = dg.StaticPartitionsDefinition(["eu", "us"])
    assert location.refresh("busy", declared=READ).success
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(location.root.parent))
    monkeypatch.setenv("TABLEAU_SERVER_URL", location.sandbox.url)
    monkeypatch.setenv("TABLEAU_USERNAME", location.sandbox.user)
    monkeypatch.setenv("TABLEAU_PASSWORD", location.sandbox.password)
    repository = ReconstructableRepository.for_module(
        f"{audited.name}.definitions", "defs", working_directory=str(audited.root)
    )
    result = dg.execute_job(
        repository.get_reconstructable_job("audit"),
        instance=location.instance,
        run_config={"execution": {"config": {"in_process": {}}}},
    )
    messages = [each.user_message for each in location.instance.all_logs(result.run_id)]
    assert "busy: equal, checksums, 20 / 20" in messages
