"""The README's way to a data source of one's own, command by command, here and elsewhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tableauhyperapi import TableName

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.read import read_table
from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline.sandbox.testing import tableau_sandbox as tableau_sandbox  # a fixture
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.test_readme import README
from tableau_pipeline_tests.refresh.pipeline import session

FIRST = README.sections["Your first data source"]
_, SCAFFOLD, LAUNCH = FIRST.blocks("bash")
(MODEL,) = FIRST.blocks("python")
(RESOURCES,) = README.sections["In a Dagster project of your own"].blocks("python")


class Project:
    """A Dagster project in whose folder commands are run."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder, self._source = folder, source

    def run(self, commands: str) -> str:
        home = self.folder / "home of dagster"
        home.mkdir(exist_ok=True)
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(self._source),
            "DAGSTER_HOME": str(home),
            "PIPELINE_DATA_DIR": str(self.folder / "data"),
        }
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=self.folder, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def sales(folder: Path, *rows: str) -> None:
    (folder / "my_sales.csv").write_text("\n".join(["id,amount", *rows, ""]))


def published(sandbox: Sandbox) -> list[dict]:
    with session(sandbox) as site:
        (item,) = site.tsc.datasources.filter(name="My Sales")
    path = sandbox.hyper_file(str(item.id))
    rows = read_table(hyper_process(), path, TableName("Extract", "Extract")).to_pylist()
    return sorted(
        ({"id": row["id"], "amount": float(row["amount"])} for row in rows),
        key=lambda row: row["id"],
    )


@pytest.mark.slow
def test_the_first_data_source(tableau_sandbox: Sandbox, tmp_path: Path):
    """Prevents: a newcomer who follows the page to the letter, and stumbles."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tableau_pipeline", tmp_path / "tableau_pipeline")
    project = Project(tmp_path, tmp_path)
    project.run(SCAFFOLD)
    folder = tmp_path / "tableau_pipeline" / "defs" / "my_sales"
    (folder / "models.py").write_text(MODEL)
    sales(tmp_path, "1,2.50", "2,3")
    project.run(LAUNCH)
    assert published(tableau_sandbox) == [{"id": 1, "amount": 2.5}, {"id": 2, "amount": 3.0}]
    declaration = folder / "defs.yaml"
    text = declaration.read_text()
    line = next(line for line in text.splitlines() if "# refresh: {diff" in line)
    declaration.write_text(text.replace(line, line.replace("# refresh", "refresh")))
    sales(tmp_path, "1,2.50", "2,4", "3,5")
    assert "flights" not in (told := project.run(LAUNCH))
    assert "Decision: update" in told
    assert [row["amount"] for row in published(tableau_sandbox)] == [2.5, 4.0, 5.0]


@pytest.mark.slow
def test_a_project_of_somebody_else(tableau_sandbox: Sandbox, tmp_path: Path):
    """Prevents: a component that works in this repository only."""
    maker = Project(tmp_path, ROOT)
    maker.run("create-dagster project shop --no-uv-sync")
    project = Project(tmp_path / "shop", tmp_path / "shop" / "src")
    project.run(SCAFFOLD)
    defs = tmp_path / "shop" / "src" / "shop" / "defs"
    model = MODEL.replace("@dg.asset\n", '@dg.asset(io_manager_key="snapshots")\n')
    (defs / "my_sales" / "models.py").write_text(model)
    (defs / "resources.py").write_text(RESOURCES)
    sales(tmp_path / "shop", "1,2.50")
    project.run(LAUNCH)
    assert published(tableau_sandbox) == [{"id": 1, "amount": 2.5}]


def test_every_key_is_in_the_scaffold():
    """Prevents: a key that a newcomer never hears of."""
    template = (ROOT / "tableau_pipeline/components/new_datasource.yaml").read_text()
    missing = [name for name in PublishedDatasource.model_fields if f"{name}:" not in template]
    assert missing == []


def test_every_key_is_described():
    """Prevents: a key about which `dg utils inspect-component` has nothing to say."""
    schema = PublishedDatasource.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    silent = [
        f"{model['title']}.{name}"
        for model in models
        for name, key in model.get("properties", {}).items()
        if "description" not in key
    ]
    assert silent == []
