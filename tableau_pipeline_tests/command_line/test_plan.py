"""The command `plan` for reviewers: without the server, or in comparison with a git revision."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import dagster as dg
import pytest
import yaml
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tableau_pipeline.command_line.main import WRONG_USAGE, tableau_pipeline
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline_tests.command_line.conftest import (
    TRANSCRIPTS,
    World,
    asked,
    files,
    masked,
)
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_sandbox.faults import Refuse

PAGE = "how-to/pull-requests.md"
_WHOLE = TRANSCRIPTS.sections["For a pull request"]
_IN_PYTHON = """import dagster as dg

from tableau_pipeline.components import PublishedDatasource

# Another code location makes these models.
NAMES = ("airlines", "arrivals", "delays", "flights", "gates", "hotels", "planes", "seats")
models = [dg.AssetSpec(f"model_{name}") for name in NAMES]


@dg.component_instance
def seats(context: dg.ComponentLoadContext) -> PublishedDatasource:
    tables = {"flights": {"model": "model_seats"}}
    attributes = {"name": "Seats", "project": "Default", "tables": tables}
    return PublishedDatasource.from_attributes_dict(attributes=attributes)
"""
_CHECK = """import dagster as dg


@dg.asset_check(asset="model_arrivals", blocking=True)
def plausible() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False)
"""


@pytest.fixture(scope="module")
def review(world: World) -> World:
    """A branch that declares some of the published data sources differently from `main`."""
    (world.root / world.name / "defs" / "others.py").write_text(_IN_PYTHON, "utf-8")
    world.model("airlines", airlines())
    for key in ("arrivals", "delays", "flights", "gates", "hotels", "planes", "seats"):
        world.model(key, flights(8))
        if key not in ("planes", "seats"):
            world.declare(key)
    world.refresh("arrivals", "delays", "flights", "gates", "hotels", "seats")
    git(world, "init", "--quiet", "--initial-branch", "main")
    (world.root / ".gitignore").write_text("/data/\n/home/\n/sandbox/\n__pycache__/\n", "utf-8")
    git(world, "add", ".")
    git(world, "commit", "--quiet", "--message", "Declare what is published")
    keyed = {"diff": {"key": "flight_id"}}
    world.declare(
        "arrivals", tables={"flights": {"model": "model_arrivals", "guard": {"max_shrink": 0.1}}}
    )
    contract = {"flight_id": "bigint", "carrier": "string", "delay": "bigint"}
    delays = {"model": "model_delays", "refresh": keyed, "contract": contract}
    world.declare("delays", tables={"flights": delays})
    world.declare("flights", name="All Flights", trigger={"cron": "0 7 * * *"})
    world.declare(
        "gates",
        tables={
            "flights": {"model": "model_gates", "refresh": keyed},
            "airlines": {"model": "model_airlines"},
        },
        relationships=[{"from": "flights", "to": "airlines", "on": {"carrier": "carrier"}}],
    )
    world.remove("hotels")
    world.declare("planes")
    return world


def git(world: World, *args: str) -> None:
    """Run a git command in the project."""
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *who, *args], cwd=world.root, check=True, capture_output=True)


@pytest.mark.slow
def test_base(review: World, caplog: pytest.LogCaptureFixture):
    """Prevents: reviewers cannot see what a merge does to published data sources."""
    before = files(review.root)
    with asked(caplog):
        result = review.run("plan", "--base", "main")
        offline = review.run("plan", "--base", "main", "--offline")
    assert masked(result.text) == masked(_WHOLE.blocks("console")[0].partition("\n")[2])
    # Compare with the page's excerpt, too. The helper `documented` would return the transcript that
    # is kept with the tests.
    excerpt = "\n".join(masked(page(PAGE).whole.blocks("console")[0].partition("\n")[2]))
    pattern = re.escape(excerpt).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, "\n".join(masked(result.text)), re.DOTALL)
    assert result.code == offline.code == 1
    # No user has changed the server, so the offline plan shows the same changes.
    said = masked(offline.text)
    assert [each for each in said if not each.startswith("Offline:")] == masked(result.text)
    assert files(review.root) == before


@pytest.mark.slow
def test_a_workflow_without_data(review: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a CI workflow needs production's data, or reports unknown changes as no change."""
    shutil.copytree(review.root, tmp_path / "clone", ignore=shutil.ignore_patterns("data", "home"))
    clone = World(tmp_path / "clone", review.name, review.sandbox)
    monkeypatch.chdir(clone.root)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(clone.root / "data"))
    for name in ("DAGSTER_HOME", "TABLEAU_SERVER_URL", "TABLEAU_TOKEN_NAME"):
        monkeypatch.delenv(name)
    before = files(clone.root)
    result = clone.run("plan", "--offline", "--base", "main", "--format", "markdown")
    assert result.code == 2, result.errors
    (shown,) = _WHOLE.blocks("markdown")
    assert result.text == shown
    assert files(clone.root) == before
    everything = clone.run("plan", "--offline")
    assert everything.code == 2
    assert masked(everything.text)[-1].startswith("Plan: 0 update, 0 publish, 0 refused, 6 unknown")
    clone.forget()


def test_the_workflow_of_the_page():
    """Prevents: the workflow that users copy from the page fails."""
    (text,) = page(PAGE).whole.blocks("yml")
    steps = yaml.safe_load(text)["jobs"]["plan"]["steps"]
    lines = [line.strip() for each in steps for line in each.get("run", "").splitlines()]
    (line,) = [each for each in lines if each.startswith("tableau-pipeline")]
    args = shlex.split(line.partition(">")[0])[1:]
    command = tableau_pipeline.get_command(click.Context(tableau_pipeline), args[0])
    assert command
    given = command.make_context(args[0], args[1:]).params
    assert given["offline"]
    assert given["form"] == "markdown"
    scripts = "\n".join(each.get("run", "") for each in steps)
    subprocess.run(["bash", "-n"], input=scripts, text=True, check=True)


@pytest.mark.slow
def test_a_revision_that_cannot_be_read(review: World, tmp_path: Path):
    """Prevents: for a mistyped branch, every data source looks unchanged or new."""
    result = review.run("plan", "--base", "mian")
    assert result.code == 1
    assert 'git knows no revision "mian"' in result.errors
    assert "fetch-depth: 0" in result.errors
    # `main` declares a component whose code does not exist in the working tree, as if the branch
    # had removed the code.
    gone = review.root / review.name / "defs" / "gone" / "defs.yaml"
    gone.parent.mkdir()
    gone.write_text(f"type: {review.name}.gone.Component\n", "utf-8")
    git(review, "add", str(gone))
    git(review, "commit", "--quiet", "--message", "Declare another component", "--", str(gone))
    shutil.rmtree(gone.parent)
    (left_out, seats) = review.run("plan", "--base", "main", "--json").data["left_out"]
    assert left_out.startswith("gone/defs.yaml as it was: today's code cannot read it: ")
    assert seats == "Seats is declared in Python"
    git(review, "reset", "--quiet", "--soft", "HEAD~")
    git(review, "reset", "--quiet")


def test_a_file_of_which_a_part_cannot_be_read(review: World):
    """Prevents: a half-read file counts as complete, so that its other data sources look new."""
    flights = review.root / review.name / "defs" / "flights" / "defs.yaml"
    half = flights.read_text("utf-8").replace("key: flights\n", "key: half\n")
    gone = review.root / review.name / "defs" / "gone" / "defs.yaml"
    gone.parent.mkdir()
    gone.write_text(f"{half}\n---\n{half.replace('key: half', 'kee: half')}", "utf-8")
    git(review, "add", str(gone))
    git(review, "commit", "--quiet", "--message", "Declare two", "--", str(gone))
    shutil.rmtree(gone.parent)
    result = review.run("plan", "--base", "main", "--offline", "--json").data
    git(review, "reset", "--quiet", "--soft", "HEAD~")
    git(review, "reset", "--quiet")
    assert result["left_out"][0].startswith(
        "gone/defs.yaml as it was: today's code cannot read it: "
    )
    assert "half" not in {each["key"] for each in result["datasources"]}


def test_a_declaration_that_could_not_be_read(review: World):
    """Prevents: `plan` omits a declaration that cannot be read in the base revision."""
    file = review.root / review.name / "defs" / "flights" / "defs.yaml"
    text = file.read_text("utf-8")
    file.write_text(f"{text}: {{", "utf-8")
    git(review, "commit", "--quiet", "--message", "Break it", "--", str(file))
    file.write_text(text, "utf-8")
    result = review.run("plan", "--base", "main", "--offline", "--json", "flights")
    git(review, "reset", "--quiet", "--soft", "HEAD~")
    git(review, "reset", "--quiet")
    assert result.code == 2
    assert [each["key"] for each in result.data["datasources"]] == ["flights"]
    assert "today's code cannot read it" in result.data["datasources"][0]["notes"][0]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_output_that_nobody_reads(review: World, option: list[str]):
    """Prevents: `| head` or a terminal without Unicode makes a CI step fail."""
    command = [str(Path(sys.executable).with_name("tableau-pipeline")), "plan", "--offline"]
    expected = review.run("plan", "--offline").code
    assert expected
    with subprocess.Popen(
        [*command, *option], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(60) == expected, errors
        assert "Traceback" not in errors
        assert "BrokenPipe" not in errors
    in_ascii = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    found = subprocess.run([*command, *option], env=in_ascii, capture_output=True, check=False)
    assert found.returncode == expected
    assert b"Traceback" not in found.stderr
    assert found.stdout


def test_an_empty_base(review: World):
    """Prevents: an empty CI variable as `--base` leads to a plan against another revision."""
    assert review.run("plan", "--offline", "--base", "").code == WRONG_USAGE


def test_nothing(review: World):
    """Prevents: if a branch declares nothing differently, the command fails or prints nothing."""
    result = review.run("plan", "--base", "main", "--offline", "seats")
    first, second, *_ = masked(result.text)
    assert first == "Nothing is declared differently from main."
    assert second == "Not compared: Seats is declared in Python"
    assert result.code == 0


def test_records_without_runs(review: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: without DAGSTER_HOME, `plan` ignores records, or omits its note on checks."""
    monkeypatch.delenv("DAGSTER_HOME")
    result = review.run("plan", "--offline", "seats")
    assert result.code == 0, result.text + result.errors
    assert "Plan: 0 update, 0 publish, 0 refused, 1 unchanged" in result.text
    note = "DAGSTER_HOME is not set: which rows a check has rejected is not known."
    assert note in masked(result.text)


def test_another_key(review: World):
    """Prevents: a changed key publishes a data source a second time without a warning."""
    file = review.root / review.name / "defs" / "flights" / "defs.yaml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("key: flights\n", "key: all_flights\n"), "utf-8")
    try:
        result = review.run("plan", "--base", "main", "all_flights").text
    finally:
        file.write_text(text, "utf-8")
    assert "key: the key was flights, and another key means another data source" in result


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("command", ["plan", "status"])
def test_queries(review: World, command: str):
    """Prevents: a command queries the database once for each of 500 data sources."""
    one, all_ = [queries(review, command, "--offline", *names) for names in (["gates"], [])]
    # With a name, a command also reads the history of that data source. Without a name, `status`
    # needs a few queries more, to find data sources that were published from files.
    of_files = 5 if command == "status" else 0
    assert 0 < all_ <= one + of_files


def queries(world: World, *args: str) -> int:
    """Return how many statements a command sends to databases."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert world.run(*args).code in (0, 1, 2)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return len(asked)


@pytest.mark.slow
def test_an_open_sending(review: World):
    """Prevents: a plan ignores that an open job may still change the data source."""
    review.model("arrivals", flights(9))
    unseen = Refuse(status=500, method="GET", path="sites/*/jobs/*", times=None)
    with review.sandbox.held_jobs():
        with review.sandbox.armed(unseen):
            assert review.run("refresh", "arrivals").code == 1
        (now,) = review.run("plan", "arrivals", "--json").data["datasources"]
        (later,) = review.run("plan", "arrivals", "--offline", "--json").data["datasources"]
    with dg.DagsterInstance.get() as instance:
        (intent,) = journal_of(instance, "arrivals").history().intents
    (note,) = [each["text"] for each in now["notes"] if each["topic"] == "waits"]
    assert note.endswith(f"still runs as job {intent.job_id}: plan again after that")
    (note,) = [each["text"] for each in later["notes"] if each["topic"] == "waits"]
    assert note.endswith(f"became job {intent.job_id}, and how that ended is not known here")
    review.sandbox.wait_until_idle()
    assert review.run("refresh", "arrivals").code == 0


@pytest.mark.slow
def test_rejected_rows(review: World):
    """Prevents: `plan` or `status` ignores that a blocking check rejected the model's rows."""
    file = review.root / review.name / "defs" / "checks.py"
    file.write_text(_CHECK, "utf-8")
    review.model("arrivals", flights(10))
    rejected = dg.AssetCheckEvaluation(
        dg.AssetKey("model_arrivals"), "plausible", passed=False, blocking=True
    )
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(rejected)
    try:
        result = review.run("plan", "--offline", "arrivals").text
        (before,) = review.run("status", "--offline", "arrivals", "--json").data["datasources"]
        assert review.run("refresh", "--metadata-only", "arrivals").code == 0
        (meanwhile,) = review.run("status", "--offline", "arrivals", "--json").data["datasources"]
        assert review.run("refresh", "arrivals").code == 1
        (later,) = review.run("status", "--offline", "arrivals", "--json").data["datasources"]
    finally:
        file.unlink()
    assert 'the blocking check "plausible" of the model "model_arrivals" rejected' in result
    assert "fix: tableau-pipeline refresh arrivals --accept checks" in result
    for each in (before, meanwhile, later):
        assert each["state"] == "refused"
        assert each["remedy"] == "tableau-pipeline refresh arrivals --accept checks"
