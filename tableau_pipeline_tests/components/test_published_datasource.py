"""The refresh step as Dagster runs it; some tests use the snapshots and the sandbox of the demo."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.asset_names import step_name
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.components.reporting import run_tag
from tableau_pipeline.core.declaration import Guard, Table
from tableau_pipeline.core.hold import holds
from tableau_pipeline.core.policies import Partitions, ReplaceAll
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.components.support.location import (
    MODEL,
    Location,
    decision,
    failure,
    metadata_of,
    rows_on,
)
from tableau_pipeline_tests.components.support.projects import STAR, declared
from tableau_pipeline_tests.conftest import Story
from tableau_pipeline_tests.refresh.support.models import flights, snapshot
from tableau_pipeline_tests.refresh.support.partitioned import day


def test_two_assets_of_one_step():
    """Prevents: a plan is out of date because another step builds its payload."""
    datasource = declared()
    assets = refresh_assets(datasource, datasource.trigger)
    assert not assets.can_subset
    published, extract = dg.AssetKey("shop_orders"), dg.AssetKey("shop_orders_extract")
    assert assets.keys == {published, extract}
    assert assets.asset_deps[published] == {extract}
    assert assets.asset_deps[extract] == {
        dg.AssetKey(["orders"]),
        dg.AssetKey(["crm", "customers"]),
    }


class Ours(PublishedDatasource):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.merge_attributes(owners=["team:sales"], tags={"tier": "gold"})


class Renamed(PublishedDatasource):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(key=spec.key.with_prefix("tableau"))


def test_a_subclass_says_more_of_its_assets():
    """Prevents: a project cannot add owners and tags, or can change a key that refreshes need."""
    context = dg.ComponentTree.for_test().load_context
    made = Ours.from_attributes_dict(attributes=STAR).build_defs(context)
    (assets,) = (each for each in made.assets or () if isinstance(each, dg.AssetsDefinition))
    specs = {each.key.to_user_string(): each for each in assets.specs}
    for key in ("shop_orders", "shop_orders_extract"):
        assert (specs[key].owners, specs[key].tags["tier"]) == (["team:sales"], "gold")
    renamed = Renamed.from_attributes_dict(attributes=STAR)
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="key"):
        renamed.build_defs(context)


def test_bare_on_is_a_key():
    """Prevents: relationships are refused because YAML 1.1 reads a bare `on` as true."""
    text = yaml.safe_dump(STAR).replace("'on':", "on:").replace('"on":', "on:")
    attributes = yaml.safe_load(text)
    assert True in attributes["relationships"][0]
    datasource = PublishedDatasource.from_attributes_dict(attributes=attributes)
    assert datasource.relationships[0].on == (("customer", "id"),)


def test_models_of_other_locations_need_no_stub():
    """Prevents: a data source fails to load because its models are in another location."""
    datasource = declared()
    definitions = dg.Definitions(
        assets=[refresh_assets(datasource, None)],
        resources={name: object() for name in ("snapshots", "hyper", "tableau")},
    )
    dg.Definitions.validate_loadable(definitions)


PUBLISHED, EXTRACT = dg.AssetKey("nyc_flights"), dg.AssetKey("nyc_flights_extract")


def refresh(story: Story, **config: Any) -> dg.ExecuteInProcessResult:
    return story.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=story.instance,
        raise_on_error=False,
        asset_selection=[PUBLISHED, EXTRACT],
        run_config={"ops": {step_name("nyc_flights"): {"config": config}}},
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
    """Prevents: an extract seems new although the run has built no file."""
    found = metadata(refresh(story))
    assert found.keys() == {PUBLISHED}
    assert found[PUBLISHED]["decision"] == "no change"
    assert found[PUBLISHED]["MB sent"] == 0


def test_columns_and_where_they_come_from(story: Story):
    """Prevents: users see neither the column behind a field nor the description of the column."""
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


def test_full_publishes_the_whole(story: Story):
    """Prevents: `full: true` sends only a part, or an event links to a deleted file."""
    found = metadata(refresh(story, full=True))
    assert found.keys() == {PUBLISHED, EXTRACT}
    assert found[PUBLISHED]["reason"] == "full publish: asked for (full: true)"
    assert found[EXTRACT]["dagster/row_count"] == found[PUBLISHED]["dagster/row_count"] == 336_762
    # The file disappears with the run, so a path to the file would not help.
    assert "dagster/uri" not in found[EXTRACT]
    checkpoint = journal_of(story.instance, "nyc_flights").history().checkpoint
    assert checkpoint
    assert checkpoint.luid == found[PUBLISHED]["details"]["luid"]


def test_equal_contents_have_equal_data_versions(story: Story):
    """Prevents: everything downstream of a data source looks stale after every refresh."""
    versions = set()
    for config in ({}, {"full": True}):
        (event,) = (
            event
            for event in refresh(story, **config).get_asset_materialization_events()
            if event.asset_key == PUBLISHED
        )
        versions.add(event.materialization.tags["dagster/data_version"])
    assert len(versions) == 1


@pytest.mark.parametrize("build_only", [False, True])
def test_dry_run_reports_and_materializes_nothing(story: Story, *, build_only: bool):
    """Prevents: a dry run publishes, materializes an asset, or counts as a refresh."""
    result = refresh(story, dry_run=True, full=True, build_only=build_only)
    assert result.success
    run = story.instance.get_run_by_id(result.run_id)
    assert run
    assert run.tags["tableau/nyc_flights"] == "dry run: publish (replace)"
    assert metadata(result) == {}
    (event,) = result.get_asset_observation_events()
    observed = event.asset_observation_data.asset_observation.metadata
    assert observed["decision"].value == "publish (replace)"


def test_publish_false_builds_the_file_alone(story: Story):
    """Prevents: `build_only` publishes a file that a user only wants to look at."""
    found = metadata(refresh(story, build_only=True))
    assert found.keys() == {EXTRACT}
    assert found[EXTRACT]["dagster/row_count"] == 336_762
    assert Path(unquote(urlsplit(found[EXTRACT]["dagster/uri"]).path)).is_file()


def test_without_a_server_the_step_says_what_to_start(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a user who forgot `make dev` sees a traceback of urllib3."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", "http://127.0.0.1:9")
    message = failure(refresh(story))
    assert "http://127.0.0.1:9" in message
    assert "start the local one: `tableau-sandbox`" in message


@pytest.mark.parametrize("unset", ["SERVER_URL", "TOKEN_VALUE", "TOKEN_NAME"])
def test_missing_settings_are_named(story: Story, monkeypatch: pytest.MonkeyPatch, unset: str):
    """Prevents: users must guess the missing variable, or the location fails to load."""
    monkeypatch.delenv(f"TABLEAU_{unset}")
    # A location reads the environment when it loads, so load it without the variable.
    from tableau_pipeline.definitions import defs

    message = failure(refresh(replace(story, definitions=defs())))
    assert f"TABLEAU_{unset} is not set" in message
    assert story.sandbox.token_secret not in message


def test_unknown_acceptance_is_refused(story: Story):
    """Prevents: `accept: [shrnk]` accepts nothing, and no message says so."""
    result = refresh(story, accept=["shrnk"])
    (event,) = result.get_step_failure_events()
    known = ", ".join(Accept)
    assert f"'shrnk' is not one of {known}" in str(event.step_failure_data.error)


@pytest.mark.parametrize(
    "option",
    [
        {"build_only": True},
        {"metadata_only": True},
        {"accept": ["takeover"]},
        {"approval": {"key": "busy"}},
    ],
    ids=lambda option: min(option),
)
def test_a_rollback_that_contradicts_itself(location: Location, option: dict[str, Any]):
    """Prevents: a rollback publishes old rows although another option of the run forbids that."""
    location.publish("busy")
    location.model(flights(9))
    assert location.refresh("busy").success
    result = location.refresh("busy", rollback=1, **option)
    (event,) = result.get_step_failure_events()
    assert f"rollback: it excludes {min(option)}" in str(event.step_failure_data.error)
    assert rows_on(location.sandbox, "busy").num_rows == 9
    assert not holds(journal_of(location.instance, "busy").place)


FIRST = date(2026, 1, 4)  # a Sunday, on which Dagster's weeks begin
POLICIES = pytest.mark.parametrize(
    "policy",
    [pytest.param(ReplaceAll(), marks=pytest.mark.slow), Partitions("key")],
    ids=["whole", "delta"],
)


def rows(keys: Iterable[Any], *, value: int = 0) -> pa.Table:
    """Ten rows for each key."""
    keys = [key for key in keys for _ in range(10)]
    return pa.table({"key": keys, "value": pa.array([value] * len(keys), pa.int64())})


def days(first: date, number: int) -> list[date]:
    return [first + timedelta(days=each) for each in range(number)]


def write(location: Location, start: date, *, length: int, value: int = 0) -> None:
    """Store one partition, a day or a week, and keep all other partitions."""
    snapshot(
        location.root,
        rows(days(start, length), value=value),
        asset_key=MODEL,
        partition=str(start),
        span=day(str(start), days=length),
    )


@pytest.mark.slow
@POLICIES
def test_days_that_become_weeks(location: Location, policy: Any):
    """Prevents: after days became weeks, the rows of the days stay published for ever."""
    declared = {"tables": (Table("flights", MODEL, policy=policy, guard=Guard(max_shrink=1)),)}
    location.partitions[MODEL] = dg.DailyPartitionsDefinition(str(FIRST))
    for each in days(FIRST, 14):
        write(location, each, length=1)
    assert metadata_of(location.refresh("weeks", declared=declared))["dagster/row_count"] == 140
    location.partitions[MODEL] = dg.WeeklyPartitionsDefinition(str(FIRST))
    for number, start in enumerate((FIRST, FIRST + timedelta(days=7)), start=1):
        write(location, start, length=7, value=number)
        found = metadata_of(location.refresh("weeks", declared=declared))
        assert found["dagster/row_count"] == number * 70
        assert location.wrong("weeks", declared) == []
    write(location, FIRST, length=7, value=3)
    assert location.refresh("weeks", declared=declared).success
    assert location.wrong("weeks", declared) == []
    assert decision(location.refresh("weeks", declared=declared)).startswith("no change")


@given(keys=st.lists(st.from_regex(r"[a-z_]([a-z_./]{0,90}[a-z_])?", fullmatch=True), unique=True))
@example(keys=["a/b", "a.b"])
@example(keys=["sales_" * 20 + "north", "sales_" * 20 + "south"])
def test_each_data_source_has_a_run_tag_of_its_own(keys: list[str]):
    """Prevents: a run shows one data source's result as the state of another data source."""
    tags = [run_tag(key) for key in keys]
    assert len({*tags}) == len(keys)
    assert all(len(tag) <= 63 + len("tableau/") for tag in tags)
