"""Commands on data sources in every state; the reference page shows their output."""

import os
import pty
import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from dagster_graphql.schema import create_schema
from graphql import parse, validate

from tableau_pipeline.command_line.main import WRONG_USAGE, run
from tableau_pipeline.refresh.updates import record_of
from tableau_pipeline_tests.command_line.conftest import (
    World,
    asked,
    check_transcripts,
    documented,
    files,
    masked,
    project,
    transcript,
)
from tableau_pipeline_tests.components.support.projects import DEFINITIONS
from tableau_pipeline_tests.dagster_servers import dg_dev
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import running_sandbox

_MODELS = """
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.resources import SparkResource


@dg.asset
def raw_boats() -> None:
    Path("ran").touch()


@dg.asset(io_manager_key="snapshots", deps=[raw_boats])
def model_boats(spark: SparkResource) -> DataFrame:
    return spark.spark_session.sql("SELECT 1L AS flight_id, 2L AS delay")
"""


def found(world: World, *args: str) -> dict[str, dict[str, str]]:
    """The findings of `doctor`, by topic."""
    result = world.run("doctor", *args, "--json")
    return {each["topic"]: each for each in result.data["findings"]}


def test_all_is_well(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `doctor` reports faults of a healthy host, or shows a secret."""
    # Remove variables that `doctor` would list, but that the transcript does not show.
    for name in [*os.environ]:
        if re.match("(JAVA|SPARK|HYPER|TSC)_|TMPDIR$", name):
            monkeypatch.delenv(name)
    result = check_transcripts("doctor", morning.type)
    assert result.code == 0
    assert morning.sandbox.token_secret not in result.text + result.errors


@pytest.mark.slow
def test_what_the_site_does(morning: World):
    """Prevents: users cannot see why refreshes work differently on their site."""
    with session(morning.sandbox) as site:
        record = record_of(site, morning.root / "data" / "sites")
        record.learn(takes_bare_stars=False)
    result = morning.run("status")
    site_of_json = morning.run("status", "--json").data["site"]
    looked = found(morning, "--no-spark")["site"]
    record.learn(takes_bare_stars=None)
    assert "Of this site: several tables are published with a model." in result.text
    assert site_of_json["takes_bare_stars"] is False
    assert looked["text"].startswith("several tables are published with a model; last seen on 20")
    assert "Of this site" not in morning.run("status").text


def test_resume_without_a_trial(morning: World):
    """Prevents: `doctor --resume` without `--trial` runs all checks and resumes nothing."""
    assert morning.run("doctor", "--resume").code == WRONG_USAGE


@pytest.mark.slow
def test_spark_and_the_largest_update(morning: World):
    """Prevents: `doctor` approves a host whose executors cannot write or whose uploads fail."""
    all_of_it = found(morning, "--upload")
    assert {all_of_it[about]["sign"] for about in ("spark", "executors", "upload")} == {"ok"}


@pytest.mark.slow
def test_a_wrong_token(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: one wrong setting hides other problems, or `doctor` shows the secret."""
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "not-the-secret")
    result = morning.run("doctor", "--no-spark")
    assert result.code == 1
    assert "not-the-secret" not in result.text + result.errors
    all_of_it = found(morning, "--no-spark")
    assert all_of_it["server"]["sign"] == "x"
    assert "401001" in all_of_it["server"]["text"]
    assert all_of_it["hyperd"]["sign"] == "ok"


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("TABLEAU_JOB_TIMEOUT", "2h", "TABLEAU_JOB_TIMEOUT is '2h'"),
        ("TABLEAU_QUEUE_TIMEOUT", "-1", "TABLEAU_QUEUE_TIMEOUT is '-1'"),
        ("TABLEAU_TAKEOVER", "perhaps", "TABLEAU_TAKEOVER is 'perhaps'"),
        ("PIPELINE_TRIGGERS", "yes", "PIPELINE_TRIGGERS"),
        ("PIPELINE_CACHE_GB", "much", "PIPELINE_CACHE_GB is 'much'"),
        ("TABLEAU_PROJECT_ROOT", "/", "TABLEAU_PROJECT_ROOT"),
        ("PIPELINE_DATA_DIR", "ftp://x/y", "PIPELINE_DATA_DIR"),
    ],
)
def test_a_wrong_variable(
    morning: World, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, part: str
):
    """Prevents: a mistyped variable causes tracebacks, or the exit code for late data sources."""
    monkeypatch.setenv(variable, value)
    morning.forget()
    result = morning.run("status")
    morning.forget()
    assert (result.code, result.text) == (2, "")
    (line,) = result.errors.splitlines()
    assert part in line


@pytest.mark.parametrize(
    "command",
    [
        "plan",
        "diff arrivals",
        "refresh arrivals",
        "adopt --project a",
        "assess",
        "remove --project-root a --yes",
    ],
)
def test_a_wrong_variable_of_any_command(
    morning: World, monkeypatch: pytest.MonkeyPatch, command: str
):
    """Prevents: a mistyped variable makes a command show tracebacks or report success."""
    monkeypatch.setenv("TABLEAU_JOB_TIMEOUT", "2h")
    morning.forget()
    result = morning.run(*command.split())
    morning.forget()
    assert (result.code != 0, result.text) == (True, "")
    (line,) = result.errors.splitlines()
    assert "TABLEAU_JOB_TIMEOUT is '2h'" in line


@pytest.mark.parametrize(("days", "sign"), [(60, "ok"), (3, "!")])
def test_the_end_of_a_token(
    morning: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, sign: str
):
    """Prevents: all refreshes of a night fail because `doctor` did not warn of a token's end."""
    with running_sandbox(tmp_path, token_days=days + 0.5) as cloud:
        monkeypatch.setenv("TABLEAU_SERVER_URL", cloud.url)
        token = found(morning, "--no-spark")["token"]
    assert token["sign"] == sign
    assert token["text"].startswith(f"pipeline ends in {days} days, at 20")


def test_where_variables_come_from(morning: World):
    """Prevents: a user corrects a variable in one place while another place overrides it."""
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
    """Prevents: only the first refresh of the night shows that a project is missing."""
    morning.model("lost", flights(2))
    morning.declare("lost", project="Nowhere")
    try:
        assert found(morning, "--no-spark")["project Nowhere"]["sign"] == "x"
    finally:
        morning.remove("lost")


def test_excerpts():
    """Prevents: the reference page shows output that no command writes."""
    for block in page("reference/commands.md").whole.blocks("console"):
        command, _, shown = block.partition("\n")
        pattern = re.escape(shown).replace(re.escape("...\n"), "(.*\n)*")
        assert re.fullmatch(pattern, transcript(command.removeprefix("$ "))), command


def test_status(morning: World):
    """Prevents: a team must open forty assets to find the broken data source."""
    result = morning.run("status")
    assert masked(result.text) == documented("tableau-pipeline status")
    assert (result.code, result.errors) == (1, "")


@pytest.mark.slow
def test_history(morning: World):
    """Prevents: users cannot see what refreshes did, or how much updates saved."""
    result = morning.run("status", "Arrivals")
    assert masked(result.text) == documented("tableau-pipeline status arrivals")
    assert result.code == 0
    first, second = morning.run("status", "arrivals", "--json").data["history"]["arrivals"]
    assert (first["decision"], second["decision"]) == ("update", "publish (create)")
    assert first["seconds"].keys() >= {"plan", "build", "upload", "job", "total"}
    assert first["bytes_saved"] == second["bytes_sent"] - first["bytes_sent"]
    months = morning.run("status", "arrivals", "--savings")
    assert masked(months.text) == documented("tableau-pipeline status arrivals --savings")
    result = morning.run("status", "arrivals", "--requests")
    assert masked(result.text)[0] == documented("tableau-pipeline status arrivals --requests")[0]
    sent = morning.run("status", "arrivals", "--requests", "--json").data["requests"]["arrivals"]
    assert [each["kind"] for each in sent] == ["publish (create)", "update"]
    assert all(10 < each["mean"] == each["most"] < 40 for each in sent)
    (month,) = morning.run("status", "arrivals", "--savings", "--json").data["savings"]["arrivals"]
    assert (month["refreshes"], month["full"]) == (2, 1)
    assert month["server_seconds_saved"] == pytest.approx(
        second["seconds"].get("job", 0) - first["seconds"].get("job", 0), abs=0.06
    )
    (refused, _) = morning.run("status", "delays", "--json").data["history"]["delays"]
    assert refused["decision"] == "refused"
    assert "guard.max_shrink" in refused["reason"]


def test_plan_changes_nothing(morning: World, caplog: pytest.LogCaptureFixture):
    """Prevents: `plan` writes a record or a file, or changes the server."""
    before = files(morning.root)
    with asked(caplog) as requests:
        result = morning.run("plan")
    assert masked(result.text) == documented("tableau-pipeline plan")
    assert result.code == 1
    assert len(requests) > 10
    assert files(morning.root) == before


@pytest.mark.slow
def test_diff(morning: World):
    """Prevents: users cannot see which rows a merge changes, or which rows a user changed."""
    result = morning.run("diff", "flights", "--sample", "2")
    assert masked(result.text) == documented("tableau-pipeline diff flights --sample 2")
    assert result.code == 1
    found = morning.run("diff", "flights", "--json").data["tables"]["flights"]
    assert (found["percent_equal"]["delay"], found["columns"]["delay"]) == (0, 8)
    result = morning.run("diff", "hotels", "--json")
    assert (result.code, result.data["equal"]) == (0, True)
    assert morning.run("diff", "planes").code == 2


@pytest.mark.slow
def test_a_refresh_does_what_the_plan_told(morning: World):
    """Prevents: a refresh decides differently from its plan, or `--full` publishes nothing."""
    morning.model("arrivals", flights(9, delay=4))
    (planned,) = (result := morning.run("plan", "arrivals", "--json")).data["datasources"]
    assert result.code == 2
    done = morning.run("refresh", "arrivals", "--json").data
    assert (planned["decision"], planned["reason"]) == (done["decision"], done["reason"])
    (last,) = morning.run("status", "arrivals", "--json").data["datasources"]
    assert (last["last"]["bytes_sent"], last["last"]["rows"]) == (planned["size"], planned["rows"])
    nothing = morning.run("plan", "arrivals")
    assert masked(nothing.text)[-1] == "Plan: 0 update, 0 publish, 0 refused, 1 unchanged; 0.00 MB"
    assert nothing.code == 0
    full = morning.run("refresh", "arrivals", "--full", "--json").data
    assert full["decision"] == "publish (replace)"


@pytest.mark.slow
def test_a_dry_run_and_a_build_are_no_refreshes(morning: World):
    """Prevents: after a dry run, `status` hides that the last refresh was refused."""
    for option in ("--dry-run", "--build-only"):
        assert morning.run("refresh", "delays", "--accept", "shrink", option).code == 0
        (line,) = morning.run("status", "delays", "--offline", "--json").data["datasources"]
        assert line["state"] == "refused"


@pytest.mark.parametrize(
    "args", [("refresh", "arivals"), ("plan", "arrivals", "fligths"), ("plan", "--what")]
)
def test_wrong_usage(morning: World, args: tuple[str, ...]):
    """Prevents: a mistyped name refreshes everything, or has the exit code that means changes."""
    result = morning.run(*args)
    assert result.code == 64
    if args[-1] == "fligths":
        assert 'No data source is called "fligths": did you mean "flights"?' in result.errors
    assert morning.run(*args, "--json").data["error"] in result.errors


@pytest.mark.slow
def test_where_no_server_answers(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a command that cannot reach the server reports data sources as equal."""
    with monkeypatch.context() as wrong:
        wrong.setenv("TABLEAU_TOKEN_VALUE", "wrong")
        check_transcripts("With a wrong token", morning.type)
        check_transcripts("With a wrong token", morning.type, block=1)
        assert [morning.run(each).code for each in ("status", "plan")] == [2, 1]
    morning.sandbox.stop()
    try:
        check_transcripts("While the server is down", morning.type)
        result = morning.run("status", "--json")
        assert result.code == 2
        assert "no connection to" in result.data["error"]
        assert morning.run("status", "arrivals", "--offline").code == 0
    finally:
        morning.sandbox.start()


def test_what_nothing_declares(morning: World):
    """Prevents: `status` hides a data source that no declaration updates any more."""
    declaration = morning.root / morning.name / "defs" / "hotels" / "defs.yaml"
    text = declaration.read_text("utf-8")
    declaration.unlink()
    try:
        (found,) = morning.run("status", "--json").data["undeclared"]
    finally:
        declaration.write_text(text, "utf-8")
    assert found["name"] == "Hotels"
    assert "with the tag of this deployment" in found["why"]


@pytest.mark.slow
def test_an_empty_project(morning: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a user with an empty project gets a traceback."""
    project(tmp_path, "nothing_yet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIPELINE_DEPLOYMENT", "new")
    empty = World(tmp_path, "nothing_yet", morning.sandbox)
    check_transcripts("For a new deployment", empty.type)
    assert empty.run("status").code == empty.run("plan").code == 0
    empty.forget()
    monkeypatch.chdir(morning.root)
    check_transcripts("For a new deployment", morning.type, block=1)
    check_transcripts("For a new deployment", morning.type, block=2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME")
    for command, code in (("status", 2), ("plan", 1)):
        result = empty.run(command)
        assert (result.code, "DAGSTER_HOME is not set" in result.errors) == (code, True)
    # Outside a project, no .env is read. Then the error names the folder, not DAGSTER_HOME.
    monkeypatch.chdir(tmp_path.parent)
    assert "is no Dagster project" in empty.run("status").errors
    empty.forget()


@pytest.mark.slow
def test_a_bar(morning: World):
    """Prevents: `diff` shows no progress for minutes, or mixes progress into its JSON."""
    for more, shows in ((), True), (("--json",), False):
        screen, terminal = pty.openpty()
        with open(terminal, "w") as errors, redirect_stdout(StringIO()) as result:  # noqa: PTH123
            with redirect_stderr(errors):
                run(["diff", "hotels", *more])
            errors.write("\nend")
        shown = b""
        while not shown.endswith(b"end"):
            shown += os.read(screen, 100_000)
        os.close(screen)
        assert (b"Comparing flights" in shown) == shows
        assert "Comparing" not in result.getvalue()


def test_a_narrow_terminal(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a narrow terminal hides the names of the data sources."""
    monkeypatch.setenv("COLUMNS", "20")
    screen, terminal = pty.openpty()
    with open(terminal, "w") as shown, redirect_stdout(shown):  # noqa: PTH123
        run(["status", "--offline"])
    assert "Arrivals" in os.read(screen, 100_000).decode()
    os.close(screen)


def test_mistakes_in_code(morning: World, caplog: pytest.LogCaptureFixture):
    """Prevents: `doctor` blames the host for a mistake in code, or hides the traceback."""
    file = morning.root / morning.name / "definitions.py"
    text = file.read_text("utf-8")
    file.write_text(text.replace("return", "return 1 / 0 or"), "utf-8")
    try:
        result = morning.run("--debug", "doctor", "--no-spark")
    finally:
        file.write_text(text, "utf-8")
    assert "ZeroDivisionError: division by zero. This is a mistake in code:" in result.text
    assert "definitions.py" in caplog.text


@pytest.mark.parametrize("command", ["status", "diff arrivals", "plan", "refresh arrivals"])
def test_mistakes_in_code_of_any_command(morning: World, command: str):
    """Prevents: a syntax error looks like a refused data source, or breaks the JSON output."""
    file = morning.root / morning.name / "definitions.py"
    text = file.read_text("utf-8")
    file.write_text("def broken(:\n", "utf-8")
    try:
        result = morning.run(*command.split(), "--json")
    finally:
        file.write_text(text, "utf-8")
    assert result.code == (2 if command.split()[0] in ("status", "diff") else 1)
    assert result.data["error"].startswith("SyntaxError: ")
    assert "definitions.py" in result.errors


@pytest.mark.slow
def test_refresh(morning: World):
    """Prevents: users must type an asset selection and JSON to refresh a data source."""
    result = morning.run("refresh", "Planes")
    assert masked(result.text) == documented("tableau-pipeline refresh planes")
    assert "Decision: publish (create). Reason: first publish" in result.errors
    assert result.code == 0


def test_mistakes_with_definitions_of_dagster(
    morning: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a hundred lines of traceback hide the one line that names the mistake."""
    project(tmp_path, "mistaken")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "mistaken" / "definitions.py").write_text(DEFINITIONS, "utf-8")
    mistaken = World(tmp_path, "mistaken", morning.sandbox)
    mistaken.declare("gates", model="x")
    file = tmp_path / "mistaken" / "defs" / "gates" / "defs.yaml"
    said = rf"{file}:\d+: attributes.model: unknown key: .*\n"
    assert re.fullmatch(said, mistaken.run("plan").errors)
    file.write_text(file.read_text("utf-8").replace("PublishedDatasource", "PublishedDataSource"))
    result = mistaken.run("plan").errors
    assert 'has no "PublishedDataSource": did you mean "PublishedDatasource"?' in result
    assert f"{file}:" in result
    # Dagster's own loader takes an unknown model for a model of another code location, and accepts
    # it. The commands report it.
    mistaken.declare("gates", tables={"flights": {"model": "gate_model"}})
    models = "import dagster as dg\n\ngates_model = dg.AssetSpec('gates_model')\n"
    (tmp_path / "mistaken" / "defs" / "models.py").write_text(models, "utf-8")
    said = 'no asset \\"gate_model\\": did you mean \\"gates_model\\"?'
    for option in ("--offline", "--json"):
        assert said in mistaken.run("plan", option, "--json").text
    mistaken.declare("gates")
    mistaken.declare("twin", name="Gates")
    assert "each would replace the rows of the other" in mistaken.run("plan").errors
    mistaken.forget()


@pytest.mark.slow
def test_models(morning: World):
    """Prevents: `refresh --models` runs only some of the models, or none of them."""
    morning.declare("boats")
    models = morning.root / morning.name / "defs" / "boat_models.py"
    models.write_text(_MODELS, "utf-8")
    try:
        result = morning.run("refresh", "boats", "--models", "--json")
        assert result.code == 0, result.text + result.errors
        assert result.data["decision"] == "publish (create)"
        assert (morning.root / "ran").exists()
    finally:
        morning.remove("boats")
        models.unlink()


class WebServer:
    """A web server that gives one prepared answer to each query, in order.

    An exception as an answer means that the web server restarts.
    """

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        location = {"name": "__repository__", "location": {"name": "daily"}}
        self.answers = [{"assetNodes": [{"repository": location}]}, *answers]

    def post(self, _: str, *, json: dict[str, Any], timeout: float) -> Any:
        """Check the query against Dagster's schema, and return the next answer."""
        assert validate(create_schema().graphql_schema, parse(json["query"])) == []
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(raise_for_status=lambda: None, json=lambda: {"data": answer})


def test_a_web_server_that_is_restarted(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a refresh counts as failed because the web server restarted during its run."""
    ended = {"status": "SUCCESS", "eventConnection": {"cursor": "1", "events": []}}
    gone = requests.ConnectionError()
    server = WebServer({"launchRun": {"run": {"runId": "1"}}}, gone, gone, {"runOrError": ended})
    monkeypatch.setattr(requests, "post", server.post)
    monkeypatch.setattr("time.sleep", lambda _: None)
    result = morning.run("refresh", "arrivals", "--webserver", "http://here", "--json")
    assert (result.code, result.data["run_id"]) == (0, "1")
    server = WebServer({"launchRun": {"run": {"runId": "1"}}}, *[gone] * 9)
    monkeypatch.setattr(requests, "post", server.post)
    result = morning.run("refresh", "arrivals", "--webserver", "http://here", "--json")
    assert result.code == 1
    assert "Run 1 may still go on there" in result.data["error"]


def test_a_deployment_of_another_release(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: the error says "did not start the run: None" and hides the cause."""
    problem = 'Received unexpected config entry "samples"'
    server = WebServer({"launchRun": {"errors": [{"message": problem}]}})
    monkeypatch.setattr(requests, "post", server.post)
    result = morning.run("refresh", "arrivals", "--webserver", "http://here")
    assert result.code == 1
    assert f"http://here did not start the run: {problem}" in result.errors


def test_a_launch_without_an_answer(morning: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a user launches a second run, because the first one seems not to have started."""
    monkeypatch.setattr(requests, "post", WebServer(requests.ReadTimeout()).post)
    result = morning.run("refresh", "arrivals", "--webserver", "http://here")
    assert result.code == 1
    assert "The run may have started: look at http://here/runs" in result.errors


@pytest.mark.long
@pytest.mark.timeout(600)
def test_in_a_deployment(morning: World, tmp_path: Path):
    """Prevents: `refresh --webserver` reports success too early, or reports a wrong cause."""
    workspace = f"load_from: [{{python_module: {morning.name}.definitions}}]\n"
    (morning.root / "workspace.yaml").write_text(workspace, "utf-8")
    morning.model("arrivals", flights(12, delay=9))
    environment = {**os.environ, "PYTHONPATH": str(morning.root)}
    with dg_dev(morning.root, environment, tmp_path / "log") as server:
        result = morning.run("refresh", "arrivals", "--webserver", server.url)
        assert result.code == 0, result.errors
        assert result.text.startswith("= Arrivals: update")
        refused = morning.run("refresh", "delays", "--webserver", server.url)
        assert refused.code == 1
        assert "guard.max_shrink" in refused.text
        assert "Traceback" not in refused.text + refused.errors
    nobody = morning.run("refresh", "arrivals", "--webserver", server.url)
    assert nobody.code != 0
    assert f"No Dagster web server answers at {server.url}" in nobody.errors
