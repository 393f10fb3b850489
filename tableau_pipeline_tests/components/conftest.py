import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

import dagster as dg
import pytest

from tableau_pipeline_tests.components.support.location import Location
from tableau_pipeline_tests.components.support.projects import project
from tableau_sandbox.testing import running_sandbox

__all__ = ["project"]

NewInstance = Callable[[], AbstractContextManager[dg.DagsterInstance]]


@pytest.fixture(scope="session")
def empty_instance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an empty instance. Tests copy it, as Dagster creates tables slowly."""
    folder = tmp_path_factory.mktemp("instance")
    with dg.instance_for_test(temp_dir=str(folder)) as instance:
        instance.fetch_materializations(dg.AssetKey("none"), limit=1)
    return folder


@pytest.fixture
def new_instance(empty_instance: Path, tmp_path_factory: pytest.TempPathFactory) -> NewInstance:
    """A function that makes a new instance, with storage on disk, for each call."""

    def made() -> AbstractContextManager[dg.DagsterInstance]:
        folder = tmp_path_factory.mktemp("instance") / "home"
        shutil.copytree(empty_instance, folder)
        return dg.instance_for_test(temp_dir=str(folder))

    return made


@pytest.fixture
def location(
    tmp_path: Path, new_instance: NewInstance, monkeypatch: pytest.MonkeyPatch
) -> Generator[Location]:
    """Data sources with a new instance and a new server."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    with running_sandbox(tmp_path / "sandbox") as sandbox, new_instance() as instance:
        yield Location(sandbox, tmp_path / "snapshots", instance)
