"""What Dagster shows of a refresh: the checks, the result and the metadata."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterInvalidSubsetError

from tableau_pipeline.components.column_descriptions import inherited_fields
from tableau_pipeline.components.dbt import DbtTrigger
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.components.reporting import check_specs
from tableau_pipeline.core.declaration import Declaration, Guard, Reconcile, Table
from tableau_pipeline.core.fields import Calculation, FieldMetadata
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.components.support.location import MODEL, Location, metadata_of
from tableau_pipeline_tests.components.support.projects import declared
from tableau_pipeline_tests.refresh.support.models import airlines, flights, snapshot
from tableau_pipeline_tests.refresh.support.other_users import edits_of
from tableau_pipeline_tests.refresh.support.pipeline import session

FLIGHTS = Table("flights", MODEL)
STAR = {
    "tables": (FLIGHTS, Table("airlines", "airlines")),
    "relationships": (Relationship("flights", "airlines", (("carrier", "carrier"),)),),
    "reconcile": Reconcile(checksums=True),
}


def checks(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str, str]]:
    """Whether each evaluated check passed, with its severity and description."""
    return {
        each.check_name: (each.passed, each.severity.name, each.description or "")
        for each in result.get_asset_check_evaluations()
    }


@pytest.fixture
def star(location: Location) -> Location:
    snapshot(location.root, flights(8), asset_key=MODEL)
    snapshot(location.root, airlines("UA", "AA"), asset_key="airlines")
    return location


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("check", "table", "words"),
    [
        ("guard", {"guard": Guard(min_rows=9)}, "8 rows, fewer than guard.min_rows"),
        ("keys", {"policy": Diff(("carrier",))}, "carrier is not unique"),
        ("schema", {"contract": (Column("gate", "int"),)}, "gate (int) is missing"),
    ],
)
@pytest.mark.slow
def test_a_refusal_is_a_failed_check(star: Location, check: str, table: dict[str, Any], words: str):
    """Prevents: a refused refresh shows only passed checks, or no checks."""
    result = star.refresh("refused", declared={"tables": (replace(FLIGHTS, **table),)})
    assert not result.success
    # A search for this tag finds last night's refusals.
    assert star.instance.get_run_by_id(result.run_id).tags["tableau/refused"] == "refused"
    found = checks(result)
    assert found[check][:2] == (False, "ERROR")
    assert words in found[check][2]
    others = {each[1:] for name, each in found.items() if name != check}
    assert others == {("WARN", "Not checked, because the refresh stopped earlier.")}


@pytest.mark.slow
def test_checks_that_a_refusal_did_not_reach_stay_as_they_were(star: Location):
    """Prevents: a refused refresh changes the results of checks that it did not evaluate."""
    unread = STAR | {"reconcile": Reconcile(max_mb=1e-6, by="download")}
    before = checks(star.refresh("kept", declared=unread))
    passed = {name: each[0] for name, each in before.items()}
    assert passed == {
        **dict.fromkeys(("guard", "keys", "metadata", "schema"), True),
        "reconciliation": False,
    }
    guarded = {**unread, "tables": (replace(FLIGHTS, guard=Guard(min_rows=9)), STAR["tables"][1])}
    for _ in range(2):
        found = checks(star.refresh("kept", declared=guarded))
        assert found["guard"][:2] == (False, "ERROR")
        assert {name: each[0] for name, each in found.items()} == passed | {"guard": False}
        words = f"Not checked, because the refresh stopped earlier. {before['reconciliation'][2]}"
        assert found["reconciliation"] == (False, "WARN", words)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["dry_run", "build_only"])
def test_a_rehearsal_tells_what_would_fail(star: Location, option: str):
    """Prevents: a dry run or a build finds nothing where the refresh would be refused."""
    guarded = {**STAR, "tables": (replace(FLIGHTS, guard=Guard(min_rows=9)), STAR["tables"][1])}
    found = checks(star.refresh("rehearsed", declared=guarded, **{option: True}))
    assert found["guard"][0] is False
    assert found["keys"] == (False, "WARN", "Not checked, because the refresh stopped earlier.")
    keys = {"tables": (replace(FLIGHTS, policy=Diff(("carrier",))),)}
    result = star.refresh("rehearsed", declared=keys, **{option: True})
    assert checks(result)["keys"][0] is False


@pytest.mark.slow
def test_what_is_only_built_is_not_said_to_pass(star: Location):
    """Prevents: after a build, a check passes although it has evaluated nothing."""
    found = checks(star.refresh("built", declared=STAR, build_only=True))
    assert found["reconciliation"][2] == "Not checked: nothing was published"
    assert [found[name][:2] for name in ("guard", "schema")] == [(False, "WARN")] * 2


def test_a_refresh_without_its_checks_cannot_be_selected(star: Location):
    """Prevents: a user avoids the checks by selecting the asset alone."""
    assets = refresh_assets(declared(), None)
    definitions = dg.Definitions(assets=[assets], resources=resources_from_env())
    job = definitions.resolve_implicit_global_asset_job_def()
    keys = {dg.AssetKey("shop_orders"), dg.AssetKey("shop_orders_extract")}
    with pytest.raises(DagsterInvalidSubsetError):
        job.get_subset(asset_selection=keys, asset_check_selection=set())


@pytest.mark.parametrize(("by", "way"), [("server", "server"), ("auto", "downloaded file")])
@pytest.mark.slow
def test_the_way_to_count_is_shown(star: Location, by: Any, way: str):
    """Prevents: a check hides how it counted rows, or a connected app lacks the scope to count."""
    star.by_app = True
    result = star.refresh("counted", declared={"reconcile": Reconcile(by=by)})
    assert result.success
    (found,) = (
        each.metadata
        for each in result.get_asset_check_evaluations()
        if each.check_name == "reconciliation"
    )
    shown = {name: found[name].value for name in ("rows found/flights", "counted by/flights")}
    assert shown == {"rows found/flights": 8, "counted by/flights": way}


@pytest.mark.parametrize(
    ("freshness", "policy"),
    [
        (
            {"by": "07:00", "timezone": "Europe/Paris"},
            dg.FreshnessPolicy.cron("0 7 * * *", timedelta(hours=7), "Europe/Paris"),
        ),
        # YAML reads 07:30 as the number 450.
        ({"by": 450}, dg.FreshnessPolicy.cron("30 7 * * *", timedelta(hours=7.5), "UTC")),
        ({"within": "24h"}, dg.FreshnessPolicy.time_window(timedelta(hours=24))),
        ({"within": "90m"}, dg.FreshnessPolicy.time_window(timedelta(minutes=90))),
    ],
)
def test_freshness(freshness: dict[str, Any], policy: dg.FreshnessPolicy):
    """Prevents: a stale data source goes unnoticed, or its deadline uses a wrong time zone."""
    context = dg.ComponentTree.for_test().load_context
    definitions = declared(freshness=freshness).build_defs(context)
    (assets,) = definitions.assets or ()
    assert isinstance(assets, dg.AssetsDefinition)
    specs = {spec.key.to_user_string(): spec for spec in assets.specs}
    assert specs["shop_orders"].freshness_policy == policy
    assert specs["shop_orders_extract"].freshness_policy is None


@pytest.mark.slow
def test_the_age_of_the_data(star: Location):
    """Prevents: a data source counts as fresh although its rows are a week old."""
    declared = STAR | {"freshness": {"within": "24h"}}
    assert checks(star.refresh("aged", declared=declared))["data_age"][0]
    star.grow_old_model("airlines", days=2)
    passed, severity, words = checks(star.refresh("aged", declared=declared))["data_age"]
    assert (passed, severity) == (False, "WARN")
    assert 'the published version of the model "airlines" is of 20' in words
    assert MODEL not in words
    # The dry run does not publish the new rows, so the published rows stay old.
    star.model(airlines("UA", "AA", "DL"), asset_key="airlines")
    ages = checks(star.refresh("aged", declared=declared, dry_run=True))
    assert not ages["data_age"][0]
    # An audit also finds old data if no refresh runs any more.
    star.grow_old_model(MODEL, days=2)
    audit = star.audit("aged", declared=declared)
    assert audit.success
    assert f'the published version of the model "{MODEL}" is of 20' in star.log(audit)
    key = dg.AssetCheckKey(dg.AssetKey("aged"), "data_age")
    record = star.instance.get_latest_asset_check_evaluation_record(key)
    assert record
    assert MODEL in str(record.event)
    # Airlines rarely change, so this declaration limits the check to flights.
    facts = STAR | {"freshness": {"within": "96h", "models": [MODEL]}}
    assert checks(star.refresh("aged", declared=facts))["data_age"][0]


@pytest.mark.parametrize(
    ("freshness", "words"),
    [
        ({}, "freshness needs either"),
        ({"by": "07:00", "within": "24h"}, "freshness needs either"),
        ({"by": "7 am"}, "not a time of day"),
        ({"within": "soon"}, "not a time span"),
        ({"by": "07:00", "timezone": "Paris"}, "Paris"),
        ({"within": "9999999999d"}, "freshness"),
        ({"within": "24h", "models": ["ordres"]}, 'no model "ordres": did you mean "orders"'),
    ],
)
def test_mistakes_in_freshness(freshness: dict[str, Any], words: str):
    """Prevents: nothing checks a deadline because it was misspelt."""
    with pytest.raises(ValueError, match=words):
        declared(freshness=freshness)


@pytest.mark.slow
def test_a_page_of_the_web_ui_is_told(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: users of Tableau cannot find the asset in Dagster behind a data source."""
    monkeypatch.setenv("PIPELINE_WEB_URL", "https://dagster.example/")
    location.model()
    assert location.refresh("told", declared={"description": "Ours"}).success
    with session(location.sandbox) as site:
        (item,) = site.tsc.datasources.filter(name="told")
        assert (
            item.description == f"Ours\n\nBuilt from {MODEL}. https://dagster.example/assets/told"
        )


PLOTTED = (
    *("dagster/row_count", "rows sent", "MB sent", "seconds"),
    "growth of the file, % of its limit",
)
KEYED = {
    "tables": (Table("flights", MODEL, policy=Diff(("flight_id",))),),
    "reconcile": Reconcile(),
}


def plotted(result: dg.ExecuteInProcessResult) -> dict[str, float]:
    """The numeric metadata, which Dagster plots."""
    return {
        name: float(each.value or 0)
        for event in result.get_asset_materialization_events()[-1:]
        for name, each in event.materialization.metadata.items()
        if isinstance(each, dg.IntMetadataValue | dg.FloatMetadataValue)
    }


def guard(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of the check "guard"."""
    (found,) = (e for e in result.get_asset_check_evaluations() if e.check_name == "guard")
    return {name: value.value for name, value in found.metadata.items()}


@pytest.mark.slow
def test_a_refresh_as_it_is_shown(location: Location):
    """Prevents: a run shows its result below IDs and bytes, or plots twenty lines with gaps."""
    location.model()
    first = location.refresh("shown", declared=KEYED)
    assert [*metadata_of(first)][:3] == ["summary", "plan", "where the time went"]
    assert tuple(plotted(first)) == PLOTTED
    location.model(flights(9))
    result = location.refresh("shown", declared=KEYED)
    second = plotted(result)
    assert tuple(second) == PLOTTED
    assert (second["rows sent"], plotted(first)["rows sent"]) == (1, 8)
    assert 0 < second["growth of the file, % of its limit"] < 100
    bars = metadata_of(result)["where the time went"].splitlines()[2:]
    assert [bar.split("|")[1].strip() for bar in bars] == [
        *("queue of Dagster", "models, start", "plan, build"),
        *("upload", "job of the server", "comparison"),
    ]
    assert sum(bar.count("█") for bar in bars) > 20
    assert guard(result) == {"rows/flights": "9, +12.5% (limit: -50%)"}
    entitlements = {"table": "flights", "user": "carrier"}
    unchanged = location.refresh("shown", declared={**KEYED, "entitlements": entitlements})
    assert guard(unchanged) == {"rows/flights": "9, +0.0% (limit: -20%)"}
    same = metadata_of(unchanged)
    assert tuple(plotted(unchanged)) == PLOTTED
    # Users can still see the results of the last change.
    for name in ("content last changed", "last compared"):
        assert same[name] == metadata_of(result)[name]
    assert same["comparison"].startswith("equal when last compared, 2")


def test_what_stops_a_refresh_is_shown_as_blocking():
    """Prevents: the web UI shows a guard as harmless although the guard stops refreshes."""
    declaration = Declaration(name="Shown", project="Default", tables=(Table("flights", MODEL),))
    specs = check_specs(declaration)
    assert {spec.name for spec in specs if spec.blocking} == {"guard", "keys", "schema"}


CHANGING = {**STAR, "tables": (*KEYED["tables"], Table("airlines", "airlines"))}


def shown(result: dg.ExecuteInProcessResult) -> list[str]:
    found = [
        event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if "plan" in event.materialization.metadata
    ]
    return str(found[0]["plan"].value).splitlines()


@pytest.mark.slow
def test_each_table_has_a_line(star: Location):
    """Prevents: users cannot see what a refresh did to each table."""
    first = shown(star.refresh("lines", declared=CHANGING))
    assert first[0].startswith("**publish (create)**: first publish")
    assert first[4] == "| flights | 8 |  |  | all rows |"
    snapshot(star.root, flights(9), asset_key=MODEL)
    result = star.refresh("lines", declared=CHANGING)
    assert shown(result)[4:] == [
        "| flights | 9 | 0 | 1 | changed rows |",
        "| airlines | 2 |  |  | nothing |",
    ]
    run = star.instance.get_run_by_id(result.run_id)
    assert run.tags["tableau/lines"] == "update"
    assert shown(star.refresh("lines", declared=CHANGING))[4].endswith("| nothing |")


def captioned(caption: str) -> dict[str, Any]:
    field = FieldMetadata(name="delay", caption=caption, description="Minutes late.")
    twice = Calculation(name="Twice", formula="SUM([delay]) * 2")
    return {"tables": (Table("flights", MODEL, fields=(field,)),), "calculations": (twice,)}


@pytest.mark.slow
def test_fields_and_their_conflicts(location: Location):
    """Prevents: users do not see a conflict or its outcome, or the check always passes."""
    location.model()
    first = location.refresh("shown", declared=captioned("Delay"))
    found = metadata_of(first)
    assert "| caption of delay | Delay |  | published |" in found["fields"]
    (delay,) = [each for each in found["dagster/column_schema"].columns if each.name == "delay"]
    assert delay.description == "Minutes late."
    assert checks(first)["metadata"][0]
    edits_of(location.sandbox, "shown", lambda tds: tds.replace(b'"Delay"', b'"Late by"'))
    second = location.refresh("shown", declared=captioned("Minutes"))
    passed, severity, words = checks(second)["metadata"]
    assert (passed, severity) == (False, "WARN")
    conflict, how = words.splitlines()
    assert conflict == 'caption of delay is "Minutes" as declared, and "Late by" on the server'
    assert "run once with accept: [metadata]" in how
    assert (
        "| caption of delay | Minutes | Late by | conflict, stays |"
        in metadata_of(second)["fields"]
    )
    location.refresh("shown", declared=captioned("Minutes"), accept=["metadata"])
    assert checks(location.refresh("shown", declared=captioned("Minutes")))["metadata"][0]


@pytest.mark.slow
def test_conflicts_of_what_is_inherited(location: Location):
    """Prevents: no page shows that a user's description replaces the model's description."""
    for text in ("Minutes late", "Hours late"):
        snapshot(location.root, flights(8), asset_key=MODEL, comments={"delay": text})
        result = location.refresh("told")
        if text == "Minutes late":
            assert checks(result)["metadata"][0]
            edits_of(location.sandbox, "told", lambda tds: tds.replace(b">Minutes", b">Seconds"))
    said = 'description of delay is "Hours late" as declared, and "Seconds late" on the server'
    passed, severity, words = checks(result)["metadata"]
    assert (passed, severity, words.splitlines()[0]) == (False, "WARN", said)


class Manifest:
    """A dbt manifest, as dagster-dbt wraps it."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.manifest = {"nodes": {"model.shop.orders": {"columns": columns}}}


def dbt(columns: Mapping[str, Any]) -> dg.AssetSpec:
    return dg.AssetSpec(
        "dbt_orders",
        metadata={
            "dagster_dbt/manifest": Manifest(columns),
            "dagster_dbt/unique_id": "model.shop.orders",
        },
    )


def inherited(*specs: dg.AssetSpec, trigger: DbtTrigger | None = None):
    declaration = Declaration(name="Shop", project="Default", tables=(Table("orders", "orders"),))
    graph = dg.Definitions(assets=specs).resolve_asset_graph()
    return inherited_fields(declaration, graph, trigger)


def test_what_models_say_already():
    """Prevents: users must copy descriptions from dbt, or dbt replaces the model's descriptions."""
    schema = dg.TableSchema(columns=[dg.TableColumn("id", description="Number of the order.")])
    model = dg.AssetSpec("orders", deps=["dbt_orders"], metadata={"dagster/column_schema": schema})
    columns = {
        "id": {"description": "Key.", "meta": {}},
        "net": {"description": "Net.", "config": {"meta": {"tableau": {"caption": "Net amount"}}}},
    }
    assert inherited(model, dbt(columns)) == {
        ("orders", "id"): FieldMetadata(description="Number of the order."),
        ("orders", "net"): FieldMetadata(description="Net.", caption="Net amount"),
    }


@pytest.mark.parametrize("models", [None, ("raw_orders", "model.shop.orders")])
def test_what_dbt_says_that_runs_elsewhere(tmp_path: Path, models: tuple[str, ...] | None):
    """Prevents: descriptions from a dbt outside Dagster are ignored, or come from other models."""
    said = {"orders": "Key.", "raw_orders": "Raw key.", "customers": "Customer."}
    nodes = {
        f"model.shop.{name}": {"name": name, "columns": {f"{name[0]}_id": {"description": text}}}
        for name, text in said.items()
    }
    (tmp_path / "manifest.json").write_text(json.dumps({"nodes": nodes}))
    trigger = DbtTrigger(str(tmp_path / "run_results.json"), models)
    expected = {("orders", "o_id"): FieldMetadata(description="Key.")}
    if models:
        expected["orders", "r_id"] = FieldMetadata(description="Raw key.")
    assert inherited(dg.AssetSpec("orders"), trigger=trigger) == expected
    (tmp_path / "manifest.json").write_text('{"nodes": {')
    with pytest.raises(RefreshError, match=r"manifest.json cannot be read, perhaps because dbt"):
        inherited(dg.AssetSpec("orders"), trigger=trigger)
    (tmp_path / "manifest.json").unlink()
    assert not inherited(dg.AssetSpec("orders"), trigger=trigger)


def test_mistakes_in_dbt():
    """Prevents: a mistyped key in the dbt project has no effect and causes no error."""
    with pytest.raises(RefusedError, match=r'column "net" of model.shop.orders in dbt: captoin'):
        inherited(
            dg.AssetSpec("orders", deps=["dbt_orders"]),
            dbt({"net": {"meta": {"tableau": {"captoin": "Net"}}}}),
        )
