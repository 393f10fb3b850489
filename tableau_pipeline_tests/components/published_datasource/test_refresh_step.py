"""The step as Dagster runs it; on the snapshots and the sandbox that the demo left."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg
import pytest

from tableau_pipeline.components.journal import records_of
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.journal import Claim, ClaimRelease, Intent, read_history
from tableau_pipeline_tests.components.support.location import failure
from tableau_pipeline_tests.conftest import Story

PUBLISHED, EXTRACT = dg.AssetKey("nyc_flights"), dg.AssetKey("nyc_flights_extract")


def refresh(story: Story, **config: Any) -> dg.ExecuteInProcessResult:
    return story.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=story.instance,
        raise_on_error=False,
        asset_selection=[PUBLISHED, EXTRACT],
        run_config={"ops": {"nyc_flights": {"config": config}}},
    )


def metadata(result: dg.ExecuteInProcessResult) -> dict[dg.AssetKey, dict[str, Any]]:
    return {
        event.asset_key: {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in result.get_asset_materialization_events()
        if event.asset_key
    }


def test_no_change_materializes_the_datasource_alone(story: Story):
    """Prevents: an extract that seems new although none was built."""
    found = metadata(refresh(story))
    assert found.keys() == {PUBLISHED}
    assert found[PUBLISHED]["decision"] == "no change"
    assert found[PUBLISHED]["MB sent"] == 0
    checkpoint = read_history(records_of(story.instance, "nyc_flights")).checkpoint
    assert checkpoint
    assert checkpoint.luid == found[PUBLISHED]["details"]["luid"]


def test_columns_and_where_they_come_from(story: Story):
    """Prevents: nobody sees which model's column is behind a field of a dashboard, or what it
    means."""
    found = metadata(refresh(story))[PUBLISHED]
    columns = {column.name: column for column in found["dagster/column_schema"].columns}
    assert all(column.description for column in columns.values())
    assert columns["airlines.airline"].description == "Name of the airline."
    types = {name: column.type for name, column in columns.items()}
    assert types["flights.carrier"] == "TEXT"
    assert types["flights.scheduled_departure"] == "TIMESTAMP"
    deps = found["dagster/column_lineage"].deps_by_column
    assert deps.keys() == types.keys()
    assert deps["airlines.airline"] == [dg.TableColumnDep(dg.AssetKey("airlines"), "airline")]


def test_full_publishes_and_records_its_intent_before_and_after(story: Story):
    """Prevents: a sending that the run after a crash knows nothing of."""
    result = refresh(story, full=True)
    found = metadata(result)
    assert found.keys() == {PUBLISHED, EXTRACT}
    assert found[PUBLISHED]["reason"] == "full publish: asked for (full: true)"
    assert found[EXTRACT]["dagster/row_count"] == 336_762
    assert found[PUBLISHED]["dagster/row_count"] == 336_762
    # A path to a file that is gone with the run would help nobody.
    assert "dagster/uri" not in found[EXTRACT]
    records = [*reversed(records_of(story.instance, "nyc_flights"))]
    number = max(each.refresh for each in records)
    *sent, closing, claim = [each for each in records if each.refresh == number]
    assert isinstance(claim, Claim)
    assert claim.owner.run_id == result.run_id
    intents = [each for each in sent if isinstance(each, Intent)]
    assert [(bool(intent.job_id), intent.outcome) for intent in intents] == [
        (False, None),
        (True, None),
        (True, Outcome.DONE),
    ]
    assert {intent.run_id for intent in intents} == {result.run_id}
    assert isinstance(closing, ClaimRelease)
    assert closing.checkpoint
    assert closing.checkpoint.luid == found[PUBLISHED]["details"]["luid"]


def test_equal_contents_have_equal_data_versions(story: Story):
    """Prevents: everything downstream of a data source seeming stale after every refresh."""
    versions = set()
    for config in ({}, {"full": True}):
        (event,) = (
            event
            for event in refresh(story, **config).get_asset_materialization_events()
            if event.asset_key == PUBLISHED
        )
        versions.add(event.materialization.tags["dagster/data_version"])
    assert len(versions) == 1


def test_dry_run_reports_and_materializes_nothing(story: Story):
    """Prevents: a rehearsal that publishes, that counts as a refresh, or that the list of runs
    shows as one."""
    result = refresh(story, dry_run=True, full=True)
    assert result.success
    run = story.instance.get_run_by_id(result.run_id)
    assert run
    assert run.tags["tableau/nyc_flights"] == "dry run: publish (replace)"
    assert metadata(result) == {}
    (event,) = result.get_asset_observation_events()
    observed = event.asset_observation_data.asset_observation.metadata
    assert observed["decision"].value == "publish (replace)"


def test_publish_false_builds_the_file_alone(story: Story):
    """Prevents: a file that somebody only wanted to look at ending up on the server."""
    found = metadata(refresh(story, build_only=True))
    assert found.keys() == {EXTRACT}
    assert found[EXTRACT]["dagster/row_count"] == 336_762
    assert Path(unquote(urlsplit(found[EXTRACT]["dagster/uri"]).path)).is_file()


def test_without_a_server_the_step_says_what_to_start(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a stack of urllib3 for who forgot `make dev`."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", "http://127.0.0.1:9")
    message = failure(refresh(story))
    assert "http://127.0.0.1:9" in message
    assert "start the local one: `tableau-sandbox`" in message


@pytest.mark.parametrize(
    ("unset", "named"),
    [
        ("TABLEAU_SERVER_URL", "TABLEAU_SERVER_URL is not set"),
        ("TABLEAU_TOKEN_VALUE", "TABLEAU_TOKEN_VALUE is not set"),
        ("TABLEAU_TOKEN_NAME", "TABLEAU_TOKEN_NAME is not set"),
    ],
)
def test_missing_settings_are_named(
    story: Story, monkeypatch: pytest.MonkeyPatch, unset: str, named: str
):
    """Prevents: a guess at which variable is missing; or a location that does not load for it."""
    monkeypatch.delenv(unset)
    # The environment is read when a location is loaded.
    from tableau_pipeline.definitions import defs

    message = failure(refresh(replace(story, definitions=defs())))
    assert named in message
    assert story.sandbox.token_secret not in message


def test_unknown_acceptance_is_refused(story: Story):
    """Prevents: `accept: [shrnk]` that accepts nothing, in silence."""
    result = refresh(story, accept=["shrnk"])
    (event,) = result.get_step_failure_events()
    known = "shrink, schema, overwrite, takeover"
    assert f"'shrnk' is not one of {known}" in str(event.step_failure_data.error)
