"""What the web UI shows of a refresh: the result first, numbers to plot, records with a label."""

import dagster as dg
import pytest

from tableau_pipeline.components.journal import JOURNAL
from tableau_pipeline.components.reporting import check_specs
from tableau_pipeline.core.declaration import Declaration, Diff, Reconcile, Table
from tableau_pipeline_tests.components.published_datasource.test_checks import STAR
from tableau_pipeline_tests.components.published_datasource.test_checks import (
    star as star,  # a fixture
)
from tableau_pipeline_tests.components.support.location import MODEL, Location, metadata_of
from tableau_pipeline_tests.refresh.support.models import flights, snapshot

PLOTTED = (
    *("dagster/row_count", "rows changed", "MB sent", "seconds"),
    "growth of the file, % of its limit",
)
KEYED = {
    "tables": (Table("flights", MODEL, policy=Diff(("flight_id",))),),
    "reconcile": Reconcile(),
}


def plotted(result: dg.ExecuteInProcessResult) -> dict[str, float]:
    """What Dagster draws as lines: all numbers."""
    return {
        name: float(each.value or 0)
        for event in result.get_asset_materialization_events()[-1:]
        for name, each in event.materialization.metadata.items()
        if isinstance(each, dg.IntMetadataValue | dg.FloatMetadataValue)
    }


@pytest.mark.slow
def test_a_refresh_as_it_is_shown(location: Location):
    """Prevents: a result that stands below ids and bytes; twenty plots, of which most have gaps;
    "rows lost: -140 %"; records that nobody can tell apart."""
    location.model()
    first = location.refresh("shown", declared=KEYED)
    assert [*metadata_of(first)][:3] == ["summary", "plan", "where the time went"]
    assert tuple(plotted(first)) == PLOTTED
    location.model(flights(9))
    result = location.refresh("shown", declared=KEYED)
    second = plotted(result)
    assert tuple(second) == PLOTTED
    assert (second["rows changed"], plotted(first)["rows changed"]) == (1, 8)
    assert 0 < second["growth of the file, % of its limit"] < 100
    bars = metadata_of(result)["where the time went"].splitlines()[2:]
    assert [bar.split("|")[1].strip() for bar in bars] == [
        *("queue of Dagster", "models, start", "plan, build"),
        *("upload", "job of the server", "comparison"),
    ]
    assert sum(bar.count("█") for bar in bars) > 20
    numbers = {
        each.check_name: {name: value.value for name, value in each.metadata.items()}
        for each in result.get_asset_check_evaluations()
    }
    assert numbers["guard"] == {"rows/flights": "9, +12.5% (limit: -50%)"}
    same = metadata_of(unchanged := location.refresh("shown", declared=KEYED))
    assert tuple(plotted(unchanged)) == PLOTTED
    # What came of the last change is still to be seen.
    for name in ("content last changed", "last compared"):
        assert same[name] == metadata_of(result)[name]
    assert same["comparison"].startswith("equal when last compared, 2")
    records = location.instance.fetch_observations(JOURNAL, limit=50).records
    noted = [each.asset_observation for each in records]
    labels = [str(each and each.description) for each in noted]
    assert labels[0] == "refresh 3 ends: the data source equals its models"
    assert labels[-1] == "refresh 1 begins"
    assert all(label.startswith(("refresh ", "publish", "update")) for label in labels)


def test_what_stops_a_refresh_is_shown_as_blocking():
    """Prevents: a guard that the web UI calls harmless, although nothing is sent without it."""
    declaration = Declaration(name="Shown", project="Default", tables=(Table("flights", MODEL),))
    specs = check_specs(declaration, dg.AssetKey("shown"))
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
    """Prevents: a page full of numbers from which nobody can tell what a refresh did."""
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
