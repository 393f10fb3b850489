"""The command `doctor`, where all is well and where something is not."""

import os
import re

import pytest

from tableau_pipeline_tests.command_line.conftest import World, documented, masked
from tableau_pipeline_tests.refresh.support.models import flights

# Folders, versions and sizes of a host.
_LONG = re.compile(r"/\S+|\d+(\.\d+)+\S*|[\d,.]+ MB|\d+ s\b")


def found(world: World, *args: str) -> dict[str, dict[str, str]]:
    """What it finds, by what it looks at."""
    told = world.run("doctor", *args, "--json")
    return {each["about"]: each for each in told.data["findings"]}


def test_all_is_well(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a first look that finds faults where there are none, or shows a secret."""
    # What the machine of this test sets besides.
    for name in [*os.environ]:
        if re.match("(JAVA|SPARK|HYPER|TSC)_|TMPDIR$", name):
            monkeypatch.delenv(name)
    told = morning.run("doctor", "--no-spark")
    assert [_LONG.sub("<here>", line) for line in masked(told.text)] == [
        _LONG.sub("<here>", line) for line in documented("tableau-pipeline doctor --no-spark")
    ]
    assert told.code == 0
    assert morning.sandbox.token_secret not in told.text + told.errors


@pytest.mark.slow
def test_spark_and_the_largest_update(morning: World):
    """Prevents: a host on which executors cannot write, or blocks do not arrive, passes."""
    all_of_it = found(morning, "--upload")
    assert {all_of_it[about]["sign"] for about in ("spark", "executors", "upload")} == {"ok"}


def test_a_wrong_token(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: one wrong setting hides what else is wrong, or is shown as it is."""
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "not-the-secret")
    told = morning.run("doctor", "--no-spark")
    assert told.code == 1
    assert "not-the-secret" not in told.text + told.errors
    all_of_it = found(morning, "--no-spark")
    assert all_of_it["server"]["sign"] == "x"
    assert "401001" in all_of_it["server"]["text"]
    assert all_of_it["hyperd"]["sign"] == "ok"


def test_no_server(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a stack trace instead of the address that does not answer."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", "http://127.0.0.1:9")
    server = found(morning, "--no-spark")["server"]
    assert server["sign"] == "x"
    assert "http://127.0.0.1:9" in server["text"]


def test_where_variables_come_from(morning: World):
    """Prevents: somebody corrects a variable in one place while another one wins."""
    file = morning.root / ".env"
    file.write_text("# Settings\nPIPELINE_CACHE_GB=7\n", "utf-8")
    try:
        all_of_it = found(morning, "--no-spark")
    finally:
        file.unlink()
    assert all_of_it["PIPELINE_CACHE_GB"]["text"] == "7, from .env:2"
    assert all_of_it["TABLEAU_SERVER_URL"]["text"].endswith("from the environment")
    assert all_of_it["TABLEAU_TOKEN_VALUE"]["text"] == "(set), from the environment"


def test_a_project_that_is_not_there(morning: World):
    """Prevents: the first refresh of the night finds that its project is missing."""
    morning.model("lost", flights(2))
    morning.declare("lost", project="Nowhere")
    try:
        assert found(morning, "--no-spark")["project Nowhere"]["sign"] == "x"
    finally:
        morning.remove("lost")
