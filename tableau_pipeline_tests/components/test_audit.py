"""The audit as a Dagster job: it reports on all data sources, and fails if rows may be wrong."""

from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.components.support.location import (
    MODEL,
    Location,
    claim_of,
    decision,
    failure,
)
from tableau_pipeline_tests.components.support.projects import Project
from tableau_pipeline_tests.components.test_published_datasource import rows
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import snapshot

READ = {"reconcile": Reconcile()}


def published(location: Location, *keys: str) -> None:
    """Publish data sources whose rows an audit may compare."""
    location.model()
    for key in keys:
        assert location.refresh(key, declared=READ).success


def report(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of an audit that succeeded or failed."""
    if result.success:
        (event,) = (each for each in result.all_events if each.is_successful_output)
        metadata = event.step_output_data.metadata
    else:
        (event,) = result.get_step_failure_events()
        metadata = event.step_failure_data.user_failure_data.metadata
    return {name: value.value for name, value in metadata.items()}


def lines(location: Location, result: dg.ExecuteInProcessResult) -> list[str]:
    """The lines that an audit logged about "busy" and "calm"."""
    logged = location.log(result).splitlines()
    return [line for line in logged if line.startswith(("busy: ", "calm: "))]


def test_equal_data_sources_are_green(location: Location):
    """Prevents: an audit changes records or runs jobs, or its report lacks the comparisons."""
    published(location, "busy", "calm")
    before = location.history("busy"), location.jobs("busy")
    result = location.audit("busy", "calm", declared=READ)
    assert result.success
    assert lines(location, result) == [
        "busy: equal, checksums, 8 / 8",
        "calm: equal, checksums, 8 / 8",
    ]
    found = report(result)
    assert found["summary"] == "2 equal"
    row = found["report"].splitlines()[2]
    assert row.startswith(f"| [busy]({location.sandbox.url}")
    assert row.endswith(" | equal | checksums | 8 / 8 |  |")
    assert (location.history("busy"), location.jobs("busy")) == before
    assert location.instance.get_asset_keys() == [
        dg.AssetKey(key) for key in ("busy", "busy_extract", "calm", "calm_extract")
    ]


@pytest.mark.slow
def test_a_foreign_update_without_a_stamp_is_red(location: Location):
    """Prevents: neither a refresh nor an audit notices that another user has deleted rows."""
    location.sandbox.set_quirks(updates_move_stamp="never", revisions=False)
    published(location, "busy", "calm")
    other_users.deletes_a_flight(location.sandbox, str(location.checkpoint("busy").luid))
    assert decision(location.refresh("busy", declared=READ)).startswith("no change")
    result = location.audit("busy", "calm", declared=READ)
    assert failure(result) == (
        "1 of 2 data sources are not what their last refresh left, or could not be looked at:\n"
        "busy: rows differ: flights holds 7 rows, its model 8. Run its refresh with full: true."
    )
    found = report(result)
    assert found["summary"] == "1 rows differ, 1 equal"
    assert "| **rows differ** | checksums | 8 / 7 | flights holds 7 rows" in found["report"]
    assert lines(location, result)[1] == "calm: equal, checksums, 8 / 8"
    assert location.refresh("busy", declared=READ, full=True).success
    assert location.audit("busy", "calm", declared=READ).success


@pytest.mark.slow
def test_a_large_file_is_counted_by_the_server(location: Location):
    """Prevents: an audit by a connected app cannot count rows because it lacks the scope."""
    location.by_app = True
    large = {"reconcile": Reconcile(max_mb=1e-6, by="server")}
    location.publish("busy", declared=large)
    found = report(location.audit("busy", declared=large))
    assert "| equal | count on the server | 8 / 8 |" in found["report"]


@pytest.mark.slow
def test_what_nobody_can_judge_is_green_with_warnings(location: Location):
    """Prevents: an audit fails because a refresh runs or a data source was never refreshed."""
    location.model()
    run_id = claim_of(location, dg.DagsterRunStatus.STARTED)
    result = location.audit("busy", "calm", declared=READ)
    assert report(result)["summary"] == "1 refreshing, 1 never refreshed"
    busy, calm = lines(location, result)
    assert f"refreshing: run {run_id} is refreshing it" in busy
    assert calm == "calm: never refreshed. Run its refresh."
    warned = [
        each
        for each in location.instance.all_logs(result.run_id)
        if each.user_message in (busy, calm) and each.level == 30
    ]
    assert len(warned) == 2


@pytest.mark.slow
def test_a_server_that_lists_nothing_hides_no_finding(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: an audit loses the findings of an hour because one listing failed."""
    published(location, "busy")

    def refuse(*_: Any) -> None:
        raise RefreshError("the line went dead")

    monkeypatch.setattr(TableauSite, "tagged", refuse)
    result = location.audit("busy", declared=READ)
    assert report(result)["summary"] == "1 equal"
    assert "could not be listed: the line went dead" in location.log(result)


@pytest.mark.slow
def test_a_data_source_of_another_deployment_is_reported_as_such(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: an audit takes a data source of another deployment for one of ours."""
    published(location, "busy")
    monkeypatch.setenv("PIPELINE_DEPLOYMENT", "other")
    assert location.refresh("mine", declared={"name": "copy"}).success
    found = report(location.audit("calm"))
    assert found["summary"] == "1 never refreshed, 2 not declared here"
    *_, theirs, ours = found["report"].splitlines()
    assert ours.startswith("| [copy](")
    assert 'Its key is "mine", with the tag of this deployment.' in ours
    assert "with tableau-pipeline-instance:" in theirs


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


@pytest.mark.slow
def test_partitions_that_the_model_has_lost(
    location: Location, project: Project, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: audits no longer compare any rows once a model has lost a partition."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(location.root.parent))
    project.write("models.py", MODELS)
    project.write("busy/defs.yaml", BUSY)
    project.add_pipeline(audit={})
    location.partitions[MODEL] = dg.StaticPartitionsDefinition(["ap", "eu", "us"])
    for key in ("ap", "eu", "us"):
        snapshot(location.root, rows([key]), asset_key=MODEL, partition=key)
    assert location.refresh("busy", declared=READ).success
    location.partitions[MODEL] = dg.StaticPartitionsDefinition(["eu", "us"])
    assert location.refresh("busy", declared=READ).success
    monkeypatch.setenv("TABLEAU_SERVER_URL", location.sandbox.url)
    monkeypatch.setenv("TABLEAU_USERNAME", location.sandbox.user)
    monkeypatch.setenv("TABLEAU_PASSWORD", location.sandbox.password)
    repository = ReconstructableRepository.for_module(
        f"{project.name}.definitions", "defs", working_directory=str(project.root)
    )
    result = dg.execute_job(
        repository.get_reconstructable_job("audit"),
        instance=location.instance,
        run_config={"execution": {"config": {"in_process": {}}}},
    )
    messages = [each.user_message for each in location.instance.all_logs(result.run_id)]
    assert "busy: equal, checksums, 20 / 20" in messages
