"""The table that the web UI shows of each refresh, and the tags of its run."""

import dagster as dg
import pytest

from tableau_pipeline.core.declaration import Diff, Table
from tableau_pipeline_tests.components.published_datasource.test_checks import STAR
from tableau_pipeline_tests.components.published_datasource.test_checks import (
    star as star,  # a fixture
)
from tableau_pipeline_tests.components.support.location import MODEL, Location
from tableau_pipeline_tests.refresh.support.models import flights, snapshot

BY_KEY = Table("flights", MODEL, policy=Diff(("flight_id",)))
CHANGING = {**STAR, "tables": (BY_KEY, Table("airlines", "airlines"))}


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
    assert first[4] == "| flights | 8 |  |  | the whole file |"
    snapshot(star.root, flights(9), asset_key=MODEL)
    result = star.refresh("lines", declared=CHANGING)
    assert shown(result)[4:] == [
        "| flights | 9 | 0 | 1 | what changed |",
        "| airlines | 2 |  |  | nothing |",
    ]
    run = star.instance.get_run_by_id(result.run_id)
    assert run.tags["tableau/lines"] == "update"
    assert shown(star.refresh("lines", declared=CHANGING))[4].endswith("| nothing |")
