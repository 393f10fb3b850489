"""Approvals of pull requests, from the plan to the refresh; plans that are executed later."""

import errno
import json
import subprocess
from collections.abc import Sequence

import dagster as dg
import pyarrow as pa
import pytest

from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.components.asset_names import asset_keys, step_name
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline_tests.command_line.conftest import World, documented, masked
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session

KEY, GUIDE = "arrivals", "how-to/pull-requests.md"
FIELDS = {
    "flights": {
        "model": "model_arrivals",
        "refresh": {"diff": {"key": "flight_id"}},
        "fields": {"delay": {"caption": "Minutes late"}},
    }
}


def git(world: World, *args: str) -> None:
    """Run a git command in the project."""
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *who, *args], cwd=world.root, check=True, capture_output=True)


@pytest.fixture
def published(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A project in git, whose one data source is published as `main` declares it."""
    monkeypatch.setenv("LOGNAME", "ann")
    world.declare(KEY)
    world.model(KEY, flights(40))
    assert world.run("refresh", KEY).code == 0
    git(world, "init", "--quiet", "--initial-branch", "main")
    (world.root / ".gitignore").write_text("/*\n!/daily/\n__pycache__/\n", "utf-8")
    git(world, "add", ".")
    git(world, "commit", "--quiet", "--message", "Declare what is published", "--allow-empty")
    return world


def late(count: int, *, first: int = 0) -> pa.Table:
    """Rows of flights; the delays of the first `first` rows are 1,000 minutes longer."""
    rows = flights(count)
    delays = [n + 1000 * (at < first) for at, n in enumerate(rows["delay"].to_pylist())]
    at = rows.schema.get_field_index("delay")
    return rows.set_column(at, "delay", pa.array(delays, rows["delay"].type))


def rows(world: World) -> pa.Table:
    with session(world.sandbox) as site:
        (item,) = site.tsc.datasources.filter(name=KEY.title())
        return published_rows(site, str(item.id)).sort_by("flight_id")


def test_from_a_pull_request_to_a_refresh(published: World):
    """Prevents: a merge publishes changes that no reviewer saw, or needs a second approval."""
    git(published, "checkout", "--quiet", "-b", "captions")
    published.declare(KEY, tables=FIELDS)
    git(published, "commit", "--quiet", "--all", "--message", "Say what delay is")
    command = "plan --base main --out approval.json --max-change 10 --max-shrink 5"
    planned = published.run(*command.split())
    assert planned.code == 2
    assert masked(planned.text) == documented(f"tableau-pipeline {command}", GUIDE)
    # The model runs again before the merge.
    published.model(KEY, late(41, first=2))
    git(published, "checkout", "--quiet", "main")
    early = published.run("refresh", "--approval", "approval.json")
    assert early.code == 1
    assert "its declaration is not the approved one" in early.text
    git(published, "merge", "--quiet", "captions")
    # Another run of the model makes wrong rows.
    published.model(KEY, late(41, first=9))
    wrong = published.run("refresh", "--approval", "approval.json")
    assert wrong.code == 1
    published.model(KEY, late(41, first=2))
    before = rows(published)
    assert before.num_rows == 40
    done = published.run("refresh", "--approval", "approval.json")
    assert done.code == 0
    assert rows(published).num_rows == 41
    (beyond,) = documented("tableau-pipeline refresh --approval approval.json", GUIDE)
    assert masked(wrong.text) == [beyond]
    listed = published.run("rollback", KEY, "--list")
    assert "accepted: approved by ann" in listed.text
    with dg.DagsterInstance.get() as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey(KEY))
        assert event
        assert event.asset_materialization
        assert event.asset_materialization.metadata["accepted"].value == "approved by ann"


@pytest.mark.slow
def test_a_plan_of_an_operator(published: World):
    """Prevents: an operator reads one plan, and the refresh then publishes other rows."""
    published.model(KEY, late(42, first=3))
    planned = published.run("plan", KEY, "--out", "plan.json")
    assert planned.code == 2
    assert masked(planned.text) == documented(f"tableau-pipeline plan {KEY} --out plan.json", GUIDE)
    saved = json.loads((published.root / "plan.json").read_text("utf-8"))
    assert str(saved["plans"][0]["rows"]["flights"]) == "{'deleted': 3, 'inserted': 5}"
    published.model(KEY, late(42, first=42))
    done = published.run("refresh", "--plan", "plan.json")
    assert done.code == 0
    assert rows(published)["delay"].to_pylist() == late(42, first=3)["delay"].to_pylist()
    again = published.run("refresh", "--plan", "plan.json")
    assert again.code == 1
    command = "tableau-pipeline refresh --plan plan.json"
    assert masked(again.text) == documented(command, GUIDE)


@pytest.mark.slow
def test_who_launched_a_run(published: World):
    """Prevents: the web UI does not show which user accepted a shrunken table."""
    published.model(KEY, flights(3))
    published.forget()
    with open_project(f"{published.name}.definitions") as project:
        job = project.definitions.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(
            instance=project.instance,
            asset_selection=[*asset_keys(KEY)],
            run_config={"ops": {step_name(KEY): {"config": {"accept": ["shrink"]}}}},
            tags={"user": "zoe@example.org"},
        )
        assert done.success
        event = project.instance.get_latest_materialization_event(dg.AssetKey(KEY))
    assert event
    assert event.asset_materialization
    said = event.asset_materialization.metadata["accepted"].value
    assert said == "shrink by zoe@example.org"


@pytest.mark.slow
def test_wrong_usage(published: World):
    """Prevents: a command ignores a useless option, accepts a wrong file, or refreshes all."""
    for args in (
        ("plan", "--max-change", "10"),
        ("plan", "--offline", "--out", "plan.json"),
        ("refresh",),
    ):
        assert published.run(*args).code == 64, args
    published.run("plan", "--out", "plan.json")
    result = published.run("refresh", "--approval", "plan.json")
    assert result.code == 1
    assert "has no approvals" in result.errors + result.text
    other = published.run("refresh", KEY, "--plan", "plan.json", "--approval", "plan.json")
    assert other.code == 64


@pytest.mark.parametrize("option", [(), ("--base", "main")])
def test_a_place_that_cannot_be_written(published: World, option: Sequence[str]):
    """Prevents: `plan --out` runs for minutes before a wrong path ends the command."""
    early = published.run("plan", KEY, *option, "--out", ".gitignore/plans/plan.json")
    assert early.code == 64
    assert "Not a directory" in early.errors
    assert "Traceback" not in early.errors
    # The command ended before it planned anything.
    assert KEY.title() not in early.errors


def test_a_place_that_is_full_by_then(published: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `plan` hides a finished plan because the disk is full."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalStorage, "replace", full)
    late = published.run("plan", KEY, "--out", "plan.json")
    assert late.code == 1
    assert f"= {KEY.title()}" in late.text
    assert "plan.json could not be written: No space left on device" in late.text
    assert "Saved:" not in late.text
