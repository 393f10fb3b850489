"""The commands `rollback`, `hold` and `release`, and all other outputs that show a hold."""

from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.command_line.main import WRONG_USAGE
from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.components.notifications import incidents
from tableau_pipeline.components.quality_warnings import _warning_texts
from tableau_pipeline_tests.command_line.conftest import World, documented, masked
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session

KEY = "arrivals"


@pytest.fixture(scope="module")
def declared(world: World) -> World:
    """A project with one data source, which has two versions."""
    world.declare(KEY)
    # The third refresh finds no change, and makes no version.
    for count in (8, 9, 9):
        world.model(KEY, flights(count))
        assert world.run("refresh", KEY).code == 0
    return world


def rows(world: World) -> int:
    """How many rows are published."""
    with session(world.sandbox) as site:
        (item,) = site.tsc.datasources.filter(name=KEY.title())
        return published_rows(site, str(item.id)).num_rows


GUIDE = "how-to/undo.md"


@pytest.mark.slow
def test_a_bad_model_at_six(declared: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a rollback fails, a trigger undoes a rollback, or no output shows the hold."""
    listed = declared.run("rollback", KEY, "--list", "--json").data["versions"]
    assert [(each["number"], each["rows"]["flights"]) for each in listed] == [(2, 9), (1, 8)]
    assert [each["is_current"] for each in listed] == [True, False]
    monkeypatch.setenv("LOGNAME", "ann")
    command = f"tableau-pipeline rollback {KEY} --list"
    assert masked(declared.run("rollback", KEY, "--list").text) == documented(command, GUIDE)
    planned = declared.run("rollback", KEY, "--dry-run")
    assert "a refresh would be: update" in planned.text
    assert rows(declared) == 9
    done = declared.run("rollback", KEY, "--why", "wrong time zone")
    assert (done.code, rows(declared)) == (0, 8)
    command = f'tableau-pipeline rollback {KEY} --why "wrong time zone"'
    assert masked(done.text) == documented(command, GUIDE)
    status = declared.run("status", "--offline")
    assert status.code == 1
    assert ", at version 1: wrong time zone" in status.text
    assert f"-> tableau-pipeline release {KEY}" in status.text
    skipped = declared.run("refresh", KEY)
    assert skipped.code == 0
    assert "Nothing was done" in skipped.text
    assert rows(declared) == 8
    assert "held since" in shown_elsewhere(declared)
    released = declared.run("release", KEY)
    assert masked(released.text) == documented(f"tableau-pipeline release {KEY}", GUIDE)
    assert declared.run("refresh", KEY).code == 0
    assert rows(declared) == 9
    assert declared.run("status", "--offline").code == 0
    assert "was not held" in declared.run("release", KEY).text


def shown_elsewhere(world: World) -> str:
    """Check the warning in Tableau about the hold, and return the text of the incident."""
    world.forget()
    with open_project(f"{world.name}.definitions") as project:
        sources = project.datasources
        _, incident = incidents(project.instance, [*sources.values()])
        texts = dict(_warning_texts(project.instance, sources))
    assert incident.subject == f"{KEY}@hold"
    assert "wrong time zone" in texts[KEY]
    return incident.text


def test_a_step_that_skips(declared: World):
    """Prevents: while a data source is held, each run fails or reports new rows."""
    assert declared.run("hold", KEY, "--why", "audit").code == 0
    declared.model(KEY, flights(5))
    declared.refresh(KEY)
    assert rows(declared) == 9
    with dg.DagsterInstance.get() as instance:
        key = dg.AssetKey(KEY)
        (seen,) = instance.fetch_observations(key, limit=1).records
        assert seen.asset_observation
        assert seen.asset_observation.metadata["decision"].value == "held"
        reason = str(seen.asset_observation.metadata["reason"].value)
        assert reason.startswith("held since ")
        assert reason.endswith(": audit")
    assert declared.run("release", KEY).code == 0


@pytest.mark.parametrize(
    "details",
    [
        {"deleted": 3},
        {"inserted": {"flights": "many"}},
        {"bytes sent": 0.5, "bytes of a full publish": "8 MB"},
        {"rows taken at": "yesterday"},
        {"rows taken at": "2026-11-25T11:06:00"},
        {"seconds": 12.5},
        {"requests": "none", "compared": 7},
    ],
    ids=str,
)
def test_an_event_of_other_code(declared: World, details: dict[str, Any]):
    """Prevents: `status` ends with a traceback because other code reported on the asset."""
    metadata = {"decision": 7, "reason": 1.5, "dagster/row_count": 2.5, "details": details}
    with dg.DagsterInstance.get() as instance:
        event = dg.AssetMaterialization(KEY, metadata=metadata)
        instance.report_runless_asset_event(event)
    status = declared.run("status", KEY, "--offline")
    assert status.code == 0, status.errors
    assert declared.run("status", "--savings").code == 0
    assert declared.run("status", "--requests").code == 0
    assert " unknown " in status.text


@pytest.mark.parametrize("damaged", ["record", "hold"])
def test_what_cannot_be_read(declared: World, damaged: str):
    """Prevents: one damaged file hides the status of all data sources."""
    declared.declare("gates")
    declared.model("gates", flights(8))
    declared.refresh("gates")
    assert declared.run("hold", KEY).code == 0
    pattern = f"**/{KEY}/*.json" if damaged == "record" else "**/@holds/*.json"
    *_, file = sorted((declared.root / "data" / "journal").glob(pattern))
    text = file.read_text("utf-8")
    try:
        if damaged == "record":
            assert declared.run("release", KEY).code == 0
        file.write_text("{", "utf-8")
        status = declared.run("status", "--offline", "--json")
        doctor = declared.run("doctor", "--no-spark").text
    finally:
        file.write_text(text, "utf-8")
        assert declared.run("release", KEY).code == 0
        declared.remove("gates")
    assert status.code == 1
    states = {each["key"]: each["state"] for each in status.data["datasources"]}
    assert states == {KEY: "unknown", "gates": "fresh"}
    assert file.name in str(status.data)
    assert damaged == "hold" or file.name in doctor


@pytest.mark.slow
def test_what_is_refused(declared: World):
    """Prevents: a refused rollback leaves its data source held."""
    assert "No record is left of a refresh 77" in declared.run("rollback", KEY, "--to", "77").text
    assert declared.run("rollback", KEY, "--to", "0").code == WRONG_USAGE
    assert "held" not in declared.run("status", "--offline").text
