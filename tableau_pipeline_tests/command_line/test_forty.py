"""The command `status` on forty data sources."""

import dagster as dg
import pytest

from tableau_pipeline_tests.command_line.conftest import (
    World,
    asked,
    check_transcripts,
    let_time_pass,
    publish_by_hand,
)
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_sandbox.faults import FailJob

pytestmark = pytest.mark.long
FORTY = [f"region_{number:02}" for number in range(40)]


@pytest.fixture(scope="module")
def forty(world: World) -> World:
    """Forty data sources: one refused, one failed, one late, and one that a user published."""
    for key in FORTY:
        world.declare(key, **({"freshness": {"within": "24h"}} if key == "region_33" else {}))
        world.model(key, flights(8))
    world.refresh(*FORTY)
    world.model("region_30", flights(2))
    assert world.run("refresh", "region_30").code == 1
    world.model("region_31", flights(9))
    with world.sandbox.armed(FailJob(notes="Out of disk")):
        assert world.run("refresh", "region_31").code == 1
    let_time_pass(dg.AssetKey("region_33"), days=2)
    publish_by_hand(world.sandbox, "Region 32")
    return world


def test_those_that_need_somebody_come_first(forty: World, caplog: pytest.LogCaptureFixture):
    """Prevents: `status` hides one broken data source among forty, or sends forty requests."""
    with asked(caplog) as requests:
        assert forty.run("status").code == 1
    assert len(requests) < 10, requests
    check_transcripts("With forty data sources", forty.type)
