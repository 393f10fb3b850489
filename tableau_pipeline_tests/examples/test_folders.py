"""The example folders, copied into a project as their pages say, and the pages' commands."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4
from zipfile import ZipFile

import dagster as dg
import pytest
import yaml
from pyspark.sql import SparkSession
from tableauhyperapi import TableName

from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.command_line.conftest import World, environment, masked, project
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import Page
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import running_sandbox

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(each.parent.name for each in EXAMPLES.glob("*/defs.yaml"))


@dataclass(frozen=True)
class Example:
    """An example in the folder `defs` of a project."""

    world: World
    name: str

    @property
    def folder(self) -> Path:
        return self.world.root / self.world.name / "defs" / self.name

    @property
    def page(self) -> Page:
        return Page(EXAMPLES / self.name / "README.md")

    def play(self, block: int = 0) -> None:
        """Run the commands in a block of the page, and compare their output with the block."""
        text = self.page.whole.blocks("console")[block]
        typed = "".join(self._type(each) for each in re.findall(r"^\$ (.*)$", text, re.MULTILINE))
        found, shown = ("\n".join(masked(each)) for each in (typed, text))
        pattern = re.escape(shown).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, found), f"{self.name} wrote\n{found}"

    def _type(self, command: str) -> str:
        """Run a command; return its line, and the output if it is a command of this project."""
        program, _, rest = command.partition(" ")
        if program == "tableau-pipeline":
            result = self.world.type(rest)
            # A page shows the errors of a command only if the command has no result.
            return f"$ {command}\n{result.text or result.errors}"
        shell(command, self.folder)
        return f"$ {command}\n"

    def rows(self, name: str, table: str = "Extract") -> list[tuple]:
        """The published rows of a table, sorted."""
        with session(self.world.sandbox) as site, TemporaryDirectory() as folder:
            (item,) = site.tsc.datasources.filter(name=name)
            with ZipFile(site.download(str(item.id), Path(folder))) as package:
                (member,) = (each for each in package.namelist() if each.endswith(".hyper"))
                file = Path(package.extract(member, folder))
            rows = read_table(hyper_process(), file, TableName("Extract", table))
        return sorted(tuple(map(_plain, row.values())) for row in rows.to_pylist())


def _plain(value: object) -> object:
    """A decimal as a number and a day as text, so that the tests below can write rows briefly."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, date) else value


def shell(command: str, folder: Path) -> None:
    """Run a command of another program."""
    done = subprocess.run(
        ["bash", "-euc", command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def example(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Example]:
    """An example in a new project, with a new server. Commands run in the example's folder."""
    name = f"shop_{uuid4().hex[:8]}"
    project(tmp_path, name)
    folder = tmp_path / name / "defs" / request.param
    shutil.copytree(EXAMPLES / request.param, folder)
    with running_sandbox(tmp_path / "sandbox") as sandbox:
        variables = {
            **environment(tmp_path, sandbox),
            "LOGNAME": "ann",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{tmp_path}",
            "SHOP_EXPORTS": str(tmp_path / "exports"),
            "SHOP_LAKE": str(tmp_path / "lake"),
            "PYICEBERG_CATALOG__PROD__URI": f"sqlite:///{tmp_path}/catalog.db",
            "PYICEBERG_CATALOG__PROD__WAREHOUSE": f"file://{tmp_path}/lake",
        }
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.chdir(folder)
        world = World(tmp_path, name, sandbox)
        yield Example(world, request.param)
        world.forget()


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [name], indirect=True)


def test_each_folder_is_played():
    """Prevents: an example exists that no test has ever run."""
    assert "undo" in FOLDERS
    assert [name for name in FOLDERS if f"test_{name}" not in globals()] == []


def test_all_in_one_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a location fails to load if a reader copies several examples into it."""
    name = f"shop_{uuid4().hex[:8]}"
    project(tmp_path, name)
    monkeypatch.syspath_prepend(tmp_path)
    for variable in ("SHOP_LAKE", "SHOP_EXPORTS", "PIPELINE_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "data"))
    for each in FOLDERS:
        shutil.copytree(EXAMPLES / each, tmp_path / name / "defs" / each)
    found = load_definitions(tmp_path / name)
    declared = "\n".join((EXAMPLES / each / "defs.yaml").read_text("utf-8") for each in FOLDERS)
    graph = found.resolve_asset_graph()
    published = [key for key in graph.get_all_asset_keys() if "tableau" in graph.get(key).kinds]
    assert len(published) == declared.count(".PublishedDatasource")


@pytest.mark.slow
@of("star_schema")
def test_star_schema(example: Example):
    """Prevents: the example of several tables fails, or publishes only one table."""
    example.play()
    assert example.rows("Shop Orders", "customers") == [(1, "Ada"), (2, "Barbara")]
    assert [row[0] for row in example.rows("Shop Orders", "orders")] == [1, 2, 3, 4]


@pytest.mark.slow
@of("partitions")
def test_partitions(example: Example):
    """Prevents: Dagster does not accept the backfill on the page, or the backfill loses a day."""
    example.play()
    by_day = {order: day[-2:] for order, day, _ in example.rows("Daily Orders")}
    assert by_day == {1: "01", 2: "02", 3: "02", 4: "03", 5: "02"}


@pytest.mark.slow
@of("delta")
def test_delta(example: Example):
    """Prevents: the example needs more than the extra `delta`, or reads an old version."""
    example.play()
    assert example.rows("Shipments") == [(1, 10), (2, 20), (3, 30), (4, 40)]


@pytest.mark.slow
@of("iceberg")
def test_iceberg(example: Example):
    """Prevents: a refresh does not find a catalog that is named as the page says."""
    example.play()
    assert example.rows("Suppliers") == [("Ada", 3), ("Edsger", 6), ("Grace", 5)]


@pytest.mark.slow
@of("change_data_capture")
def test_change_data_capture(example: Example):
    """Prevents: a feed does not fit its declaration, or a closed account stays published."""
    example.play()
    assert example.rows("Bank Accounts") == [(1, 100), (2, 240), (4, 10)]


@pytest.mark.slow
@of("files")
def test_files(example: Example):
    """Prevents: the example publishes a file by a command, but not by its drop folder."""
    example.play()
    assert example.rows("First Sales") == [(1, 2.5), (2, 3.0), (3, 5.0)]
    Path(os.environ["SHOP_EXPORTS"]).mkdir()
    (drop,) = example.page.whole.blocks("bash")
    shell(drop, example.folder)
    definitions = load_definitions(example.world.root / example.world.name)
    sensor = definitions.get_sensor_def("file_drop")
    requests: list[dg.RunRequest] = []
    cursor = None
    with dg.DagsterInstance.get() as instance:
        for _ in range(3):
            found = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
            requests, cursor = list(found.run_requests or ()), found.cursor
        job = definitions.resolve_job_def(sensor.job_name)
        assert job.execute_in_process(requests[0].run_config, instance=instance).success
    assert example.rows("sales") == [(1, 2.5), (2, 3.0), (3, 5.0)]


@pytest.mark.slow
@of("several_hosts")
def test_several_hosts(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a host publishes again what another host has published."""
    example.play(0)
    elsewhere = World(tmp_path / "host-b", example.world.name, example.world.sandbox)
    shutil.copytree(example.world.root / example.world.name, elsewhere.root / example.world.name)
    shutil.copy(example.world.root / "pyproject.toml", elsewhere.root)
    other = Example(elsewhere, example.name)
    monkeypatch.chdir(other.folder)
    other.play(1)
    assert other.rows("Stock Levels") == [(17, 9), (18, 5)]
    workspace = yaml.safe_load((other.folder / "workspace.yaml").read_text("utf-8"))
    servers = [each["grpc_server"] for each in workspace["load_from"]]
    for key in ("host", "location_name"):
        assert len({each[key] for each in servers}) == 2
    (start,) = example.page.whole.blocks("bash")
    assert {each["port"] for each in servers} == {int(*re.findall(r"--port (\d+)", start))}


@pytest.mark.slow
@of("pull_requests")
def test_pull_requests(example: Example, monkeypatch: pytest.MonkeyPatch):
    """Prevents: the plan on the page does not show what the branch changes."""
    root = example.world.root
    (root / ".gitignore").write_text("/data/\n/home/\n/sandbox/\n__pycache__/\n", "utf-8")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    for command in ("init --quiet --initial-branch main", "add .", "commit --quiet -m Declare"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    example.play()
    assert len(example.rows("All Invoices")) == 3


@pytest.mark.slow
@of("undo")
def test_undo(example: Example):
    """Prevents: readers still see wrong rows after the rollback on the page."""
    example.play()
    assert [row[1] for row in example.rows("Site Visits")] == [120, 95, 150]
