"""A project whose data sources are in every state that a team may find in the morning."""

import json
import logging
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml

from tableau_pipeline.command_line.main import run
from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.resources import TableauServerResource
from tableau_pipeline_tests.components.support.projects import OUR_DEFINITIONS, PIPELINE, PYPROJECT
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import Page, page
from tableau_pipeline_tests.refresh.support.models import flights, snapshot
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, session
from tableau_sandbox.faults import FailJob
from tableau_sandbox.testing import Sandbox, running_sandbox


@dataclass(frozen=True)
class Result:
    """The exit code of a command, its output and its errors."""

    code: int
    text: str
    errors: str

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.text)


@dataclass(frozen=True)
class World:
    """A project, its instance and its server."""

    root: Path
    name: str
    sandbox: Sandbox

    def declare(self, key: str, **more: Any) -> None:
        """Declare a data source of one table, with the model `model_{key}`."""
        table = {"model": f"model_{key}", "refresh": {"diff": {"key": "flight_id"}}}
        attributes = {
            "name": key.replace("_", " ").title(),
            "key": key,
            "project": "Default",
            "tables": {"flights": table},
            # A test's file is so small that any update would exceed the default growth limit.
            "republish": {"growth": 1000},
        }
        document = {
            "type": "tableau_pipeline.components.PublishedDatasource",
            "attributes": attributes | more,
        }
        file = self.root / self.name / "defs" / key / "defs.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(document), "utf-8")

    def remove(self, key: str) -> None:
        """Delete the declaration of a data source."""
        shutil.rmtree(self.root / self.name / "defs" / key)

    def model(self, key: str, rows: pa.Table) -> None:
        """Replace the rows of a data source's model."""
        snapshot(self.root / "data" / "snapshots", rows, asset_key=f"model_{key}")

    def run(self, *args: str) -> Result:
        """Run a command in the folder of the project."""
        self.forget()
        output, errors = StringIO(), StringIO()
        with redirect_stdout(output), redirect_stderr(errors):
            code = run(args)
        return Result(code, output.getvalue(), errors.getvalue())

    def refresh(self, *keys: str) -> None:
        """Refresh data sources in one run."""
        self.forget()
        with open_project(f"{self.name}.definitions") as project:
            job = project.definitions.resolve_implicit_global_asset_job_def()
            assets = [dg.AssetKey(each) for key in keys for each in (key, f"{key}_extract")]
            assert job.execute_in_process(instance=project.instance, asset_selection=assets).success

    def type(self, command: str) -> Result:
        """Run a command line as a user types it."""
        return self.run(*shlex.split(command))

    def forget(self) -> None:
        """Make the next command import the project again, as a new process would."""
        for module in [each for each in sys.modules if each.partition(".")[0] == self.name]:
            del sys.modules[module]


def project(root: Path, name: str) -> None:
    """Write a project without data sources."""
    pipeline = root / name / "defs" / "tableau"
    pipeline.mkdir(parents=True)
    (root / name / "__init__.py").touch()
    (root / "pyproject.toml").write_text(PYPROJECT.format(name=name), "utf-8")
    (root / name / "definitions.py").write_text(OUR_DEFINITIONS, "utf-8")
    (pipeline / "defs.yaml").write_text(PIPELINE, "utf-8")
    (root / "home").mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", root / "home")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An empty project, and environment variables that name a new sandbox."""
    root = tmp_path_factory.mktemp("daily")
    project(root, "daily")
    with running_sandbox(root / "sandbox") as sandbox, pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name, value in environment(root, sandbox).items():
            patch.setenv(name, value)
        patch.setattr(TableauServerResource, "timeouts", TIMEOUTS)
        world = World(root, "daily", sandbox)
        yield world
        world.forget()


def environment(root: Path, sandbox: Sandbox) -> dict[str, str]:
    """The environment variables that a command reads."""
    return {
        "DAGSTER_HOME": str(root / "home"),
        "PIPELINE_DATA_DIR": str(root / "data"),
        "TABLEAU_SERVER_URL": sandbox.url,
        "TABLEAU_TOKEN_NAME": sandbox.token_name,
        "TABLEAU_TOKEN_VALUE": sandbox.token_secret,
    }


@pytest.fixture(scope="module")
def morning(world: World) -> World:
    """The project in the morning: one data source is fresh, and all the others need attention."""
    at_seven = {"trigger": {"cron": "0 7 * * *"}}
    every_day = {"freshness": {"within": "24h"}, "trigger": {"after": "all"}}
    for key in ("arrivals", "delays", "flights", "gates", "hotels", "planes"):
        more = at_seven if key in ("arrivals", "planes") else every_day if key == "gates" else {}
        world.declare(key, **more)
        world.model(key, flights(8))
    # The data source `planes` is new: it was never refreshed.
    world.refresh("arrivals", "delays", "flights", "gates", "hotels")
    world.model("arrivals", flights(8, delay=1))
    assert world.run("refresh", "arrivals").code == 0
    world.model("delays", flights(2))
    refused = world.run("refresh", "delays")
    assert refused.code == 1
    assert "-> tableau-pipeline refresh delays --accept shrink" in refused.text
    world.model("flights", flights(8, delay=2))
    with world.sandbox.armed(FailJob(notes="Out of disk")):
        assert world.run("refresh", "flights").code == 1
    let_time_pass(dg.AssetKey("gates"), days=2)
    publish_by_hand(world.sandbox, "Hotels")
    return world


def let_time_pass(key: dg.AssetKey, *, days: float) -> None:
    """Move the last refresh of an asset into the past, in Dagster's records."""
    with dg.DagsterInstance.get() as instance:
        last = instance.get_latest_materialization_event(key)
        assert last
        instance.store_event(last._replace(timestamp=last.timestamp - days * 86_400))


def publish_by_hand(sandbox: Sandbox, name: str) -> None:
    """One hour later, publish a downloaded copy of a data source again, as a user may."""
    sandbox.advance(3600)
    with session(sandbox) as site, TemporaryDirectory() as folder:
        (item,) = site.tsc.datasources.filter(name=name)
        package = site.download(str(item.id), Path(folder))
        site.tsc.datasources.publish(item, package, "Overwrite")


_MASKS = {
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "<id>",
    r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?": "<time>",
    r"\b20\d\d-\d\d-\d\d\b": "<day>",
    r"\d\d:\d\d:\d\d": "<time>",
    r"\b20\d\d-\d\d\b": "<month>",
    r"\(\d+ (min|h|days) ago\)": "<ago>",
    r"-?\d+\.\d s\b": "<seconds>",
    r"\d+\.\d min\b": "<minutes>",
    r"\d+\.\d: [a-z 0-9.,]+?(?=  )": "<seconds>",
    r"http://127\.0\.0\.1:\d+": "<url>",
    r"/\S*/tableau_pipeline\S*": "<file>",
    r" +$": "",
    r" {2,}": "  ",
}


def masked(text: str) -> list[str]:
    """The lines of a transcript, with masks for the parts that differ in each run."""
    for pattern, mask in _MASKS.items():
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return text.strip().splitlines()


TRANSCRIPTS = Page(Path(__file__).parent / "transcripts.md")
# Folders, versions, sizes and durations that differ between hosts.
_OF_A_HOST = re.compile(r"/\S+|\d+(\.\d+)+\S*|[\d,.]+ MB|\d+ s\b")


def check_transcripts(section: str, run: Callable[[str], Result], *, block: int = 0) -> Result:
    """Run each command of a transcript and compare its output; "..." matches any text."""
    sections = {**page("reference/commands.md").sections, **TRANSCRIPTS.sections}
    text = sections[section].blocks("console")[block]
    for part in re.split(r"^\$ tableau-pipeline ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        result = run(command)
        # Leave out stderr, which mostly shows progress. Keep it for `status`, which may add an
        # error to its table, and for a command without other output.
        written = result.text + result.errors * (not result.text or command.startswith("status"))
        found, expected = ("\n".join(masked(_OF_A_HOST.sub("<here>", e))) for e in (written, shown))
        pattern = re.escape(expected).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, found, re.DOTALL), f"{command} wrote\n{found}"
    return result


def documented(command: str, where: str = "reference/commands.md") -> list[str]:
    """The output in a command's first transcript, as masked lines."""
    return masked(transcript(command, where))


def transcript(command: str, where: str = "reference/commands.md") -> str:
    """The output in a command's first transcript: in the tests' file, otherwise on a page."""
    blocks = [*TRANSCRIPTS.whole.blocks("console"), *page(where).whole.blocks("console")]
    text = next(each for each in blocks if each.startswith(f"$ {command}\n"))
    return text.partition("\n")[2]


def files(root: Path) -> dict[str, tuple[int, bytes]]:
    """The time and content of every file, except the caches of Python and the sandbox's files."""
    return {
        str(each): (each.stat().st_mtime_ns, each.read_bytes())
        for each in sorted(root.rglob("*"))
        if each.is_file() and not {"__pycache__", "sandbox"} & set(each.parts)
    }


# Requests that change nothing. Signing in and counting rows are POST requests.
_LOOKS = re.compile(r"GET |POST \S+/auth/sign(in|out) |POST /api/v1/vizql-data-service/")


@contextmanager
def asked(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Collect the requests that the sandbox logs, and assert that each of them only reads."""
    requests: list[str] = []
    with caplog.at_level(logging.INFO, "tableau_sandbox.requests"):
        yield requests
    requests += [each.getMessage() for each in caplog.records if each.name.endswith(".requests")]
    assert requests
    assert [each for each in requests if not _LOOKS.match(each)] == []
