"""The command `publish`, which publishes a file from any folder."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tableau_pipeline.command_line.main import run
from tableau_pipeline_tests.command_line.conftest import Result, World, masked
from tableau_pipeline_tests.components.support.location import rows_on
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.testing import Sandbox, running_sandbox

Publish = Callable[..., Result]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture
def elsewhere(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user who has installed the package and set three variables."""
    for variable in ("DAGSTER_HOME", "PIPELINE_DATA_DIR", "TABLEAU_PROJECT_ROOT", "XDG_DATA_HOME"):
        # Set the variable first, so that `monkeypatch` later undoes a change by the command.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TABLEAU_SERVER_URL", sandbox.url)
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", sandbox.token_name)
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", sandbox.token_secret)
    folder = tmp_path / "anywhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def publish(elsewhere: Path) -> Publish:
    def publish(*args: str) -> Result:
        # The command may set this variable. A user's next command starts without it.
        os.environ.pop("PIPELINE_DATA_DIR", None)
        output, errors = StringIO(), StringIO()
        with redirect_stdout(output), redirect_stderr(errors):
            code = run(["publish", *args])
        return Result(code, output.getvalue(), errors.getvalue())

    return publish


@pytest.fixture
def name() -> str:
    """The name of a data source that is not published yet."""
    return f"Sales {uuid4().hex[:8]}"


@pytest.mark.slow
def test_a_file_in_any_folder(publish: Publish, sandbox: Sandbox, elsewhere: Path, name: str):
    """Prevents: `publish` needs a project, or leaves records in the current folder."""
    (elsewhere / "a.csv").write_text("id,v\n1,a\n2,\n", "utf-8")
    first = publish("a.csv", "--name", name, "--key", "id")
    assert first.code == 0, first.text + first.errors
    assert "publish (create), 2 rows" in first.text
    kept = elsewhere.parent / "home" / ".local" / "share" / "tableau-pipeline"
    assert f"are kept in {kept}. If this machine keeps no files" in first.errors
    assert rows_on(sandbox, name).to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
    again = publish("a.csv", "--name", name, "--key", "id")
    assert "no change" in again.text
    assert "are kept in" not in again.errors
    (elsewhere / "a.csv").write_text("id,v\n1,a\n2,b\n3,c\n", "utf-8")
    changed = publish("a.csv", "--name", name, "--key", "id", "--json")
    assert (changed.code, changed.data["decision"], changed.errors) == (0, "update", "")
    assert "-1 +2 rows" in changed.data["summary"]
    assert rows_on(sandbox, name)["v"].to_pylist() == ["a", "b", "c"]
    assert [path.name for path in elsewhere.iterdir()] == ["a.csv"]


@pytest.mark.slow
def test_what_is_refused(publish: Publish, sandbox: Sandbox, elsewhere: Path, name: str):
    """Prevents: a program reads a refusal as a success, or a refusal names no remedy."""
    (elsewhere / "a.csv").write_text("id,v\n1,a\n2,b\n3,c\n", "utf-8")
    bad = publish("a.csv", "--name", name, "--columns", "id int, v date", "--json")
    assert (bad.code, bad.data["success"]) == (1, False)
    assert 'a.csv, line 2: column "v": "a" is not a valid date' in bad.data["reason"]
    assert publish("a.csv", "--name", name).code == 0
    (elsewhere / "a.csv").write_text("id,v\n1,a\n", "utf-8")
    shrunk = publish("a.csv", "--name", name)
    assert shrunk.code == 1
    assert "a loss of 67%" in shrunk.text
    assert "-> the same command with --accept shrink" in shrunk.text
    assert publish("a.csv", "--name", name, "--json").data["accepts"] == ["shrink"]
    assert publish("a.csv", "--name", name, "--accept", "shrink").code == 0
    assert rows_on(sandbox, name).num_rows == 1
    assert "matches no file" in publish("b.csv", "--name", name).text
    assert publish("a.csv", "--name", name, "--reader", "sep").code == 64
    assert publish("a.csv").code == 64


def test_no_place_for_records(
    publish: Publish, elsewhere: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a missing home or a damaged project file causes a traceback or invalid JSON."""
    (elsewhere / "a.csv").write_text("id\n1\n", "utf-8")
    monkeypatch.setenv("HOME", "/dev/null")
    read_only = publish("a.csv", "--name", name, "--json")
    assert (read_only.code, read_only.data["success"], read_only.errors) == (1, False, "")
    assert "set PIPELINE_DATA_DIR to a folder" in read_only.data["reason"]
    with monkeypatch.context() as patch:
        patch.delenv("HOME")
        patch.setattr("pwd.getpwuid", {}.__getitem__)
        homeless = publish("a.csv", "--name", name, "--json")
    assert homeless.code == 1
    assert "set PIPELINE_DATA_DIR to a folder" in homeless.data["error"]
    (elsewhere / "pyproject.toml").write_text("[[[", "utf-8")
    damaged = publish("a.csv", "--name", name, "--json")
    assert damaged.code == 1
    assert "pyproject.toml cannot be read" in damaged.data["error"]
    assert "Traceback" not in damaged.errors


def test_what_is_only_tried(publish: Publish, sandbox: Sandbox, elsewhere: Path, name: str):
    """Prevents: `publish` with `--dry-run` or `--build-only` publishes the file."""
    (elsewhere / "a.csv").write_text("id,v\n1,a\n", "utf-8")
    for option in ("--dry-run", "--build-only"):
        assert publish("a.csv", "--name", name, option).code == 0
    with session(sandbox) as site:
        assert not list(site.tsc.datasources.filter(name=name))


@pytest.mark.slow
def test_files_are_added(publish: Publish, sandbox: Sandbox, elsewhere: Path, name: str):
    """Prevents: an append deletes the rows of earlier files, or ignores one of several files."""
    for month, row in (("may", "1,a"), ("june", "2,b"), ("july", "3,c")):
        (elsewhere / f"{month}.csv").write_text(f"id,v\n{row}\n", "utf-8")
    add = ("--name", name, "--mode", "append", "--file-column", "file")
    assert publish("ma*.csv", *add).code == 0
    found = publish("june.csv", "july.csv", *add, "--json")
    assert found.data["decision"] == "update"
    assert rows_on(sandbox, name)["file"].to_pylist() == ["may.csv", "june.csv", "july.csv"]


@pytest.mark.slow
def test_without_dagster_and_spark(elsewhere: Path, name: str):
    """Prevents: `publish` spends seconds to import Dagster and Spark, or needs Java."""
    (elsewhere / "a.csv").write_text("id,v\n1,a\n", "utf-8")
    code = (
        "import json, sys; from tableau_pipeline.command_line.main import run; "
        f"code = run(['publish', 'a.csv', '--name', {name!r}, '--json']); "
        "print(json.dumps([code, *{m.partition('.')[0] for m in sys.modules}]), file=sys.stderr)"
    )
    environment = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    exit_code, *modules = json.loads(done.stderr.splitlines()[-1])
    assert exit_code == 0, done.stdout
    assert not {"dagster", "pyspark"} & {*modules}


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["errors", "output"])
def test_a_publish_that_nobody_reads(
    publish: Publish, sandbox: Sandbox, elsewhere: Path, name: str, closed: str
):
    """Prevents: `publish` fails because a pipe or a cron job has closed its output."""
    (elsewhere / "a.csv").write_text("id\n1\n", "utf-8")
    command = [str(Path(sys.executable).with_name("tableau-pipeline")), "publish", "a.csv"]
    options = "2>&1 >/dev/null | true" if closed == "errors" else ">&-"
    script = f"set -o pipefail; {shlex.join([*command, '--name', name])} {options}"
    done = subprocess.run(["bash", "-c", script], stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    assert rows_on(sandbox, name).num_rows == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_interrupted(
    publish: Publish, sandbox: Sandbox, elsewhere: Path, name: str, number: signal.Signals
):
    """Prevents: an ended container or Ctrl-C that leaves files of the size of the data source
    behind, says nothing, or passes for a publish that ended well."""
    (elsewhere / "a.csv").write_text("id\n1\n", "utf-8")
    scratch, args = elsewhere / "tmp", ["a.csv", "--name", name]
    scratch.mkdir()
    command = [str(Path(sys.executable).with_name("tableau-pipeline")), "publish", *args]
    with (
        sandbox.armed(HoldJobs()),
        subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr
        while "running as job" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "The command was interrupted" in errors
    assert [*scratch.glob("*/work/*")] == []
    records = [*(elsewhere.parent / "home").rglob("journal/**/[0-9]*.json")]
    newest = json.loads(max(records).read_text("utf-8"))
    assert "It was interrupted" in newest["history"]["failure"]["reason"]
    again = publish(*args)
    assert again.code == 0, again.text + again.errors
    assert rows_on(sandbox, name).num_rows == 1


@pytest.mark.slow
def test_it_is_shown_like_others(world: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `status` ignores a published file, or calls a failed publish fresh."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(world.root / "data"))
    path = world.root / "shown.csv"
    path.write_text("id,v\n1,a\n2,b\n3,c\n", "utf-8")
    assert world.run("publish", str(path), "--name", "Shown").code == 0

    def shown() -> dict[str, Any]:
        result = world.run("status", "--json")
        (line,) = [each for each in result.data["datasources"] if each["name"] == "Shown"]
        assert "Shown" not in str(result.data["undeclared"])
        return line

    line = shown()
    assert (line["state"], line["last"]["rows"], line["last"]["decision"]) == (
        "fresh",
        3,
        "publish",
    )
    path.write_text("id,v\n1,a\n", "utf-8")
    assert world.run("publish", str(path), "--name", "Shown").code == 1
    line = shown()
    assert line["state"] == "refused"
    assert "1 rows where 3 are published: a loss of 67%" in line["why"]
    assert line["remedy"] == "publish the file again, with accept: [shrink]"
    assert world.run("hold", line["key"]).code == 0
    assert shown()["state"] == "held"
    assert world.run("publish", str(path), "--name", "Shown", "--accept", "shrink").code == 1
    assert world.run("release", line["key"]).code == 0
    assert world.run("publish", str(path), "--name", "Shown", "--accept", "shrink").code == 0
    assert (shown()["state"], shown()["last"]["rows"]) == ("fresh", 1)


@pytest.mark.slow
def test_the_page(publish: Publish, sandbox: Sandbox, elsewhere: Path):
    """Prevents: the guide shows output that its commands do not write."""
    blocks = page("how-to/publish-a-file.md").whole.blocks("console")
    contents = ("1,a\n2,b\n3,c\n", "1,a\n2,x\n3,c\n4,d\n", "1,a\n")
    for block, content in zip(blocks, contents, strict=True):
        (elsewhere / "sales.csv").write_text(f"id,v\n{content}", "utf-8")
        command, _, shown = block.partition("\n")
        result = publish(*shlex.split(command)[3:])
        shown = re.sub(r"http\S+", "http", shown)
        found = re.sub(r"http\S+", "http", result.text)
        assert masked(found) == masked(shown)
    (elsewhere / "exports").mkdir()
    (elsewhere / "exports" / "a.csv").write_text("id\n1\n", "utf-8")
    (command,) = (
        block
        for block in page("how-to/publish-a-file.md").whole.blocks("bash")
        if block.startswith("tableau-pipeline")
    )
    assert publish(*shlex.split(command)[2:]).code == 0
    assert rows_on(sandbox, "Exports").to_pylist() == [{"id": 1, "file": "a.csv"}]
