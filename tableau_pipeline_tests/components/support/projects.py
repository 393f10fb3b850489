"""Small and valid declarations, and Dagster projects like those that create-dagster makes."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest
import yaml

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline_tests.refresh.support.models import snapshot

PYPROJECT = """[project]
name = "{name}"
version = "0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{name}"
"""
RESOURCES = """import dagster as dg

from tableau_pipeline.resources import resources_from_env


@dg.definitions
def resources() -> dg.Definitions:
    return dg.Definitions(resources=resources_from_env())
"""
# The definitions that create-dagster writes. OUR_DEFINITIONS also check the whole location.
DEFINITIONS = """from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
OUR_DEFINITIONS = """from pathlib import Path

import dagster as dg

from tableau_pipeline.components.loading import load_definitions


@dg.definitions
def defs() -> dg.Definitions:
    return load_definitions(Path(__file__).parent)
"""
PIPELINE = "type: tableau_pipeline.components.TableauPipeline\n"


@dataclass(frozen=True)
class Project:
    """A Dagster project: its root folder, and the name of the package in it.

    `data` is the PIPELINE_DATA_DIR of the project.
    """

    root: Path
    name: str

    @property
    def package(self) -> Path:
        return self.root / self.name

    @property
    def data(self) -> Path:
        return self.root / "data"

    def write(self, path: str, text: str) -> Path:
        """Write a file below `defs/`."""
        file = self.package / "defs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def add_pipeline(self, **attributes: Any) -> Path:
        """Declare the component that brings resources and triggers."""
        text = PIPELINE + (yaml.safe_dump({"attributes": attributes}) if attributes else "")
        return self.write("tableau/defs.yaml", text)

    def snapshot(self, model: str, **columns: Any) -> None:
        """Write a snapshot of a model whose columns have integers."""
        rows = pa.table({name: pa.array(each, pa.int64()) for name, each in columns.items()})
        snapshot(self.data / "snapshots", rows, asset_key=model)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    # Users' folders may have spaces. Even then, messages must show where the path ends.
    root = tmp_path / "look at this"
    # Python caches modules by name, so each project has its own name.
    project = Project(root, f"project_{uuid4().hex[:8]}")
    project.write("__init__.py", "")
    (project.package / "__init__.py").touch()
    (project.package / "definitions.py").write_text(DEFINITIONS, "utf-8")
    (root / "pyproject.toml").write_text(PYPROJECT.format(name=project.name), "utf-8")
    monkeypatch.syspath_prepend(root)
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(project.data))
    yield project
    for module in [name for name in sys.modules if name.partition(".")[0] == project.name]:
        del sys.modules[module]


STAR: dict[str, Any] = {
    "name": "Shop Orders",
    "project": "Default",
    "tables": {"orders": {}, "customers": {"model": "crm/customers"}},
    "relationships": [{"from": "orders", "to": "customers", "on": {"customer": "id"}}],
}


def declared(**changes: Any) -> PublishedDatasource:
    """The declaration STAR, with some keys changed."""
    return PublishedDatasource.from_attributes_dict(attributes={**STAR, **changes})


def scaffolding(target: Path, root: Path) -> dg.ScaffoldRequest:
    """A request as `dg scaffold` makes it."""
    return dg.ScaffoldRequest(
        type_name="x", target_path=target, scaffold_format="yaml", project_root=root, params=None
    )
