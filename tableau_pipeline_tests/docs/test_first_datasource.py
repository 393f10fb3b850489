"""The documented commands for a first data source, in this project and in projects of users."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import README, page
from tableau_pipeline_tests.environments import INSTALLER, run
from tableau_sandbox.testing import Sandbox

FIRST = README.sections["Your own project"]
(ENVIRONMENT,) = FIRST.blocks("sh")
MAKE, LAUNCH, CHANGE = FIRST.blocks("bash")
(SETTINGS,), (MODEL,), (OUTPUT,) = (FIRST.blocks(each) for each in ("ini", "python", "text"))
(ONE_FILE,) = README.sections["Publish a file"].blocks("bash")
(BACK,) = README.sections["Undo"].blocks("bash")
ELSEWHERE = page("how-to/own-project.md")
INSTALL, SCAFFOLDS, PUBLISH = ELSEWHERE.whole.blocks("bash")
WEB_SALES, LOADING = ELSEWHERE.whole.blocks("python")
FILES = page("how-to/files.md").whole
(PUBLISH_FILE,), (FILE_DROP,) = FILES.blocks("bash"), FILES.blocks("yaml")
(PUBLISHED_ROWS,) = page("how-to/published-rows.md").whole.blocks("python")
MODELS = page("how-to/models.md").sections
(DECLARED,) = MODELS["Declare the data source"].blocks("yaml")
(ORDERS,) = MODELS["Write a model"].blocks("python")
UV = INSTALLER["uv_environment"](INSTALLER["pip_settings"]())
STORED = '@dg.asset(io_manager_key="snapshots")\n'
STUB = 'import dagster as dg\n\ncustomers = dg.AssetSpec("crm/customers")\n'


class Project:
    """A Dagster project. Commands run in `folder`; `package` is its Python package."""

    def __init__(self, folder: Path, package: str, *, programs: Path, path: str) -> None:
        self.folder, self.package = folder, folder / package
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": path,
            **UV,
        }
        # The pages put these variables into `.env`.
        for name in [name for name in self.environment if name.startswith("TABLEAU_")]:
            del self.environment[name]

    def fill_in(self, sandbox: Sandbox) -> None:
        """Write the address of the sandbox into `.env`, and keep all other settings."""
        file = self.folder / ".env"
        text = file.read_text("utf-8")
        for line in SETTINGS.replace("http://127.0.0.1:8765", sandbox.url).splitlines():
            name = line.partition("=")[0]
            text, found = re.subn(rf"^{name}=.*$", line, text, flags=re.MULTILINE)
            assert found == 1
        file.write_text(text, "utf-8")

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def write(self, path: str, text: str) -> Path:
        """Write a file below `defs/`."""
        file = self.package / "defs" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        return file


def published(name: str = "My Sales") -> list[tuple]:
    """The rows of a data source, read by the code on the page about published rows."""
    names: dict[str, Any] = {}
    exec(PUBLISHED_ROWS, names)
    rows = names["published_rows"](name).to_pylist()
    return sorted(tuple(map(float, row.values())) for row in rows)


def follow_the_page(project: Project, sandbox: Sandbox) -> None:
    """Follow the page to a data source, its first change, a published file, and a rollback."""
    project.fill_in(sandbox)
    assert STORED in MODEL
    project.write("my_sales/models.py", MODEL)
    first, _, rest = OUTPUT.partition(" MB")
    assert rest
    assert first in project.run(LAUNCH)
    assert published() == [(1, 2.5), (2, 3)]
    declaration = project.package / "defs" / "my_sales" / "defs.yaml"
    text = declaration.read_text()
    commented = "# refresh: {diff: {key: [id]}}"
    assert commented.removeprefix("# ") in FIRST.text
    assert commented in text
    declaration.write_text(text.replace(commented, commented.removeprefix("# ")))
    assert "Decision: update" in project.run(CHANGE)
    assert published() == [(1, 2.5), (2, 4), (3, 5)]
    project.run(ONE_FILE)
    assert published("Sales of a File") == [(1, 2.5), (2, 4), (3, 5)]
    back, forth = BACK.splitlines()
    project.run(back)
    assert published() == [(1, 2.5), (2, 3)]
    assert "is released" in project.run(forth)


def use_the_rest(project: Project, model: str) -> None:
    """Publish a file without a model, and load the declarations of other guides."""
    (project.folder / "exports").mkdir()
    (project.folder / "exports" / "may.csv").write_text("sale_id,amount\n1,2\n")
    project.run(PUBLISH_FILE)
    assert published("Sales") == [(1, 2)]
    project.write("drop/defs.yaml", FILE_DROP)
    project.write("shop/defs.yaml", DECLARED)
    project.write("shop/models.py", model)
    project.write("shop/customers.py", STUB)
    assert "All definitions loaded successfully" in project.run("dg check defs")
    keys = project.run("dg list defs")
    assert all(key in keys for key in ("my_sales", "shop_orders"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_first_data_source(tableau_sandbox: Sandbox, tmp_path: Path):
    """Prevents: a newcomer follows the page to the letter, and a command fails."""
    programs, shop = Path(sys.executable).parent, tmp_path / "shop"
    checkout = Project(_checkout(tmp_path), ".", programs=programs, path=f"{ROOT}:{shop / 'src'}")
    # The environment of this test already has everything that `pip install` would install.
    installed = re.sub(r"^pip install .*\n", "", MAKE, flags=re.MULTILINE)
    assert len(installed.splitlines()) == len(MAKE.splitlines()) - 1
    checkout.run(installed)
    project = Project(shop, "src/shop", programs=programs, path=checkout.environment["PYTHONPATH"])
    follow_the_page(project, tableau_sandbox)
    use_the_rest(project, ORDERS.replace("@dg.asset\n", STORED))
    assert (shop / "dagster_home" / "data" / "snapshots").is_dir()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_project_of_somebody_else(tableau_sandbox: Sandbox, tmp_path: Path):
    """Prevents: the components work only in this repository, or store data among packages."""
    checkout, wheel = _checkout(tmp_path), str(_wheel(tmp_path / "dist"))
    *_, install = ENVIRONMENT.splitlines()
    programs = _own_python(tmp_path / "shop-environment")
    here = Project(checkout, ".", programs=programs, path="")
    here.run(f"{install.removesuffix(' .')} {wheel}")
    here.run(MAKE)
    project = Project(tmp_path / "shop", "src/shop", programs=programs, path="")
    follow_the_page(project, tableau_sandbox)
    _add_to(_new_project(tmp_path, programs), wheel, tableau_sandbox)
    (project.package / "definitions.py").write_text(LOADING)
    use_the_rest(project, ORDERS.replace("@dg.asset\n", STORED))
    assert [*(project.folder / "dagster_home" / "data" / "snapshots").rglob("@versions")]
    assert "site-packages" in project.run(
        "python -c 'import tableau_pipeline; print(tableau_pipeline.__file__)'"
    )
    assert [*programs.parent.rglob("@versions")] == []
    archive = "python -m tableau_pipeline.snapshots.make_class_archive"
    assert f"`{archive}`" in ELSEWHERE.whole.text
    project.run(archive)
    assert [*(programs.parent / "share").rglob("*.jsa")]


def _new_project(folder: Path, programs: Path) -> Project:
    """Create a project that does not use the pipeline."""
    Project(folder, ".", programs=programs, path="").run(
        "create-dagster project other --no-uv-sync"
    )
    return Project(folder / "other", "src/other", programs=programs, path="")


def _add_to(project: Project, wheel: str, sandbox: Sandbox) -> None:
    """Follow the page that adds the pipeline to an existing project."""
    commands = [line for each in (INSTALL, SCAFFOLDS, PUBLISH) for line in each.splitlines()]
    assert len(commands) == 4
    constraints = "/path/to/tableau_pipeline/constraints.txt"
    install = INSTALL.replace(constraints, str(ROOT / "constraints.txt"))
    project.run(install.replace("/path/to/tableau_pipeline", wheel))
    project.run(SCAFFOLDS)
    project.fill_in(sandbox)
    project.write("web_sales/models.py", WEB_SALES)
    output = project.run(PUBLISH)
    assert "Web Sales: publish (create), 2 rows" in output
    assert "Warning" not in output
    assert published("Web Sales") == [(1, 2.5), (2, 3)]
    output = project.run("dg list defs")
    assert "0 4 * * *" in output
    assert "Warning" not in output


def _checkout(folder: Path) -> Path:
    """Make a folder with the files of a checkout that `dg` and `pip` read."""
    made = folder / "tableau_pipeline"
    made.mkdir()
    for file in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / file, made)
    return made


def _own_python(folder: Path) -> Path:
    """Make an empty Python environment, whose `pip` calls uv, which is four times as fast."""
    venv.create(folder)
    programs = folder / "bin"
    pip = programs / "pip"
    pip.write_text(f'#!/bin/bash\nexec {sys.executable} -m uv pip "$@" --python {folder}\n')
    pip.chmod(0o755)
    return programs


def _wheel(folder: Path) -> Path:
    """Build the wheel of the package, and assert that it omits what users try out in `defs`."""
    copy, tried = folder / "copy", "tableau_pipeline/defs/my_sales/defs.yaml"
    ignored = shutil.ignore_patterns(".*", "data", "dagster_home", "dist", "site")
    shutil.copytree(ROOT, copy, ignore=ignored)
    (copy / tried).parent.mkdir()
    (copy / tried).touch()
    build = [sys.executable, "-m", "uv", "build", "--wheel", "--out-dir", str(folder)]
    run(*build, cwd=copy, seconds=300, **UV)
    (wheel,) = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert tried not in names
    assert "tableau_pipeline/defs/flights/models.py" in names
    return wheel


def test_every_key_is_in_the_scaffold():
    """Prevents: newcomers never learn of a key because the scaffold omits this key."""
    template = (ROOT / "tableau_pipeline/components/new_project/datasource.yaml").read_text()
    missing = [
        name
        for name in PublishedDatasource.model().model_json_schema()["properties"]
        if f"{name}:" not in template
    ]
    assert missing == []


def test_every_comment_in_the_scaffold_is_valid():
    """Prevents: a newcomer uncomments an example that does not load."""
    template = (ROOT / "tableau_pipeline/components/new_project/datasource.yaml").read_text()
    comments = re.findall(r"^( +)# (\w+: .+)$", template, re.MULTILINE)
    for indent, comment in comments:
        key: dict[str, Any] = yaml.safe_load(comment)
        table, others = (key, {}) if len(indent) > 2 else ({}, key)
        attributes = {"name": "Orders", "project": "Default", "certify": "after_reconcile"}
        attributes |= {"tables": {"rows": table}} | others
        assert PublishedDatasource.from_attributes_dict(attributes=attributes), comment
    assert len(comments) > 30


def test_every_key_is_described():
    """Prevents: `dg utils inspect-component` shows a key without a description."""
    schema = PublishedDatasource.model().model_json_schema()
    models = [schema, *schema["$defs"].values()]
    silent = [
        f"{model['title']}.{name}"
        for model in models
        for name, key in model.get("properties", {}).items()
        if "description" not in key
    ]
    assert silent == []
