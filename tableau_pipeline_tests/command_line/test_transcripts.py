"""The commands on data sources in every state, as the page of commands shows them."""

import logging
import re
from pathlib import Path

import pytest

from tableau_pipeline_tests.command_line.conftest import World, documented, masked, project
from tableau_pipeline_tests.refresh.support.models import flights

# Neither signing in nor counting changes anything.
_LOOKS = re.compile(r"GET |POST \S+/auth/sign(in|out) |POST /api/v1/vizql-data-service/")


def test_status(morning: World):
    """Prevents: a team that clicks through forty assets to learn what broke."""
    told = morning.run("status")
    assert masked(told.text) == documented("tableau-pipeline status")
    assert (told.code, told.errors) == (1, "")


def test_history(morning: World):
    """Prevents: nobody knows what the refreshes of a data source did, and what updates saved."""
    told = morning.run("status", "Arrivals")
    assert masked(told.text) == documented("tableau-pipeline status arrivals")
    assert told.code == 0
    first, second = morning.run("status", "arrivals", "--json").data["history"]["arrivals"]
    assert (first["decision"], second["decision"]) == ("update", "publish (create)")
    assert first["seconds"].keys() >= {"plan", "build", "upload", "job", "total"}
    assert first["bytes_saved"] == second["bytes_sent"] - first["bytes_sent"]
    months = morning.run("status", "arrivals", "--savings")
    assert masked(months.text) == documented("tableau-pipeline status arrivals --savings")
    (month,) = morning.run("status", "arrivals", "--savings", "--json").data["savings"]["arrivals"]
    assert (month["refreshes"], month["full"]) == (2, 1)
    assert month["server_seconds_saved"] == pytest.approx(
        second["seconds"].get("job", 0) - first["seconds"].get("job", 0), abs=0.06
    )
    (refused, _) = morning.run("status", "delays", "--json").data["history"]["delays"]
    assert refused["decision"] == "refuse"
    assert "guard.max_shrink" in refused["reason"]


def test_plan_changes_nothing(morning: World, caplog: pytest.LogCaptureFixture):
    """Prevents: a look at what would be done that leaves a record, a file or a change behind."""
    before = morning.files()
    with caplog.at_level(logging.INFO, "tableau_sandbox.requests"):
        told = morning.run("plan")
    assert masked(told.text) == documented("tableau-pipeline plan")
    assert told.code == 1
    requests = [each.getMessage() for each in caplog.records if each.name.endswith(".requests")]
    assert len(requests) > 10
    assert [each for each in requests if not _LOOKS.match(each)] == []
    assert morning.files() == before


def test_diff(morning: World):
    """Prevents: nobody knows which rows a merge changes, or what somebody's publish has changed."""
    told = morning.run("diff", "flights", "--sample", "2")
    assert masked(told.text) == documented("tableau-pipeline diff flights --sample 2")
    assert told.code == 1
    found = morning.run("diff", "flights", "--json").data["tables"]["flights"]
    assert (found["percent_equal"]["delay"], found["columns"]["delay"]) == (0, 8)
    told = morning.run("diff", "hotels", "--json")
    assert (told.code, told.data["equal"]) == (0, True)
    assert morning.run("diff", "planes").code == 2


def test_a_refresh_does_what_the_plan_told(morning: World):
    """Prevents: a merge on the strength of a plan that the next refresh does not follow."""
    morning.model("arrivals", flights(9, delay=4))
    (planned,) = (told := morning.run("plan", "arrivals", "--json")).data["datasources"]
    assert told.code == 2
    done = morning.run("refresh", "arrivals", "--json").data
    assert (planned["decision"], planned["reason"]) == (done["decision"], done["reason"])
    (last,) = morning.run("status", "arrivals", "--json").data["datasources"]
    assert (last["last"]["bytes_sent"], last["last"]["rows"]) == (planned["size"], planned["rows"])
    nothing = morning.run("plan", "arrivals")
    assert masked(nothing.text)[-1] == "Plan: 0 update, 0 publish, 0 refused, 1 unchanged; 0.00 MB"
    assert nothing.code == 0


def test_a_dry_run_and_a_build_are_no_refreshes(morning: World):
    """Prevents: a refused data source that seems well again, because somebody has tried it out."""
    for option in ("--dry-run", "--build-only"):
        assert morning.run("refresh", "delays", "--accept", "shrink", option).code == 0
        (line,) = morning.run("status", "delays", "--offline", "--json").data["datasources"]
        assert line["state"] == "refused"


@pytest.mark.parametrize(
    "args", [("refresh", "arivals"), ("plan", "arrivals", "fligths"), ("plan", "--what")]
)
def test_wrong_usage(morning: World, args: tuple[str, ...]):
    """Prevents: a mistyped name that refreshes everything, or that CI takes for changes."""
    told = morning.run(*args)
    assert told.code == 64
    if args[-1] == "fligths":
        assert 'No data source is called "fligths": did you mean "flights"?' in told.errors


def test_where_no_server_answers(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: data sources that count as equal although nobody has looked."""
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "wrong")
    told = morning.run("status")
    assert told.code == 2
    assert "Check TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE" in told.errors
    assert "Delays  refused" in "\n".join(masked(told.text))
    assert morning.run("plan").code == 1
    told = morning.run("diff", "hotels")
    assert (told.code, masked(told.errors)) == (2, documented("tableau-pipeline diff hotels"))
    morning.sandbox.stop()
    try:
        told = morning.run("diff", "hotels")
        there = documented("tableau-pipeline diff hotels", number=1)
        assert (told.code, masked(told.errors)) == (2, there)
        told = morning.run("status", "--json")
        assert told.code == 2
        assert "no connection to" in told.data["error"]
        assert morning.run("status", "arrivals", "--offline").code == 0
    finally:
        morning.sandbox.start()


def test_what_nothing_declares(morning: World):
    """Prevents: a data source that nobody refreshes any more, and that looks alive."""
    declaration = morning.root / morning.name / "defs" / "hotels" / "defs.yaml"
    text = declaration.read_text("utf-8")
    declaration.unlink()
    try:
        (found,) = morning.run("status", "--json").data["undeclared"]
    finally:
        declaration.write_text(text, "utf-8")
    assert found["name"] == "Hotels"
    assert "This instance last refreshed it at" in found["why"]


def test_an_empty_project(morning: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a traceback for who has just begun."""
    project(tmp_path, "nothing_yet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    empty = World(tmp_path, "nothing_yet", morning.sandbox)
    assert masked(empty.run("status").text) == documented("tableau-pipeline status", number=2)
    assert empty.run("status").code == empty.run("plan").code == 0
    monkeypatch.delenv("DAGSTER_HOME")
    told = empty.run("status")
    assert (told.code, "DAGSTER_HOME is not set" in told.errors) == (2, True)
    # In the wrong folder, its .env is not read either.
    monkeypatch.chdir(tmp_path.parent)
    assert "is no Dagster project" in empty.run("status").errors
    empty.forget()


def test_refresh(morning: World):
    """Prevents: `1+key:"..."` and JSON to be typed, in which a mistake runs everything."""
    told = morning.run("refresh", "Planes")
    assert masked(told.text) == documented("tableau-pipeline refresh planes")
    assert "Decision: publish (create). Reason: first publish" in told.errors
    assert told.code == 0


def test_mistakes_with_definitions_of_dagster(
    morning: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a hundred lines of traceback around the one that says what is wrong."""
    project(tmp_path, "mistaken")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "mistaken" / "definitions.py").write_text(
        "from pathlib import Path\n\nfrom dagster import definitions, load_from_defs_folder\n\n\n"
        "@definitions\ndef defs():\n"
        "    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    mistaken = World(tmp_path, "mistaken", morning.sandbox)
    mistaken.declare("gates", model="x")
    file = tmp_path / "mistaken" / "defs" / "gates" / "defs.yaml"
    assert re.fullmatch(
        rf"{file}:\d+: attributes.model: unknown key: .*\n", mistaken.run("plan").errors
    )
    file.write_text(file.read_text("utf-8").replace("PublishedDatasource", "PublishedDataSource"))
    told = mistaken.run("plan").errors
    assert 'has no "PublishedDataSource": did you mean "PublishedDatasource"?' in told
    assert f"{file}:" in told
    mistaken.declare("gates")
    mistaken.declare("twin", name="Gates")
    assert "each would replace the rows of the other" in mistaken.run("plan").errors
    mistaken.forget()
