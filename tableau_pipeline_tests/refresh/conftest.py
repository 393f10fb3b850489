from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh import waiting
from tableau_pipeline.sandbox.options import UserSeed
from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox
from tableau_pipeline_tests.refresh.models import airlines, flights
from tableau_pipeline_tests.refresh.pipeline import STAR, Pipeline, declared, session

ANALYST = UserSeed(name="ann", password="ann-secret")


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox, None, None]:
    """One server for all tests of this folder: each publishes under names of its own."""
    with running_sandbox(tmp_path_factory.mktemp("sandbox"), users=(ANALYST,)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def eyes(sandbox: Sandbox) -> Generator[TableauSite, None, None]:
    """A session to look at the server with."""
    with session(sandbox) as site:
        yield site


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of these tests take no longer than a blink."""
    monkeypatch.setattr(waiting, "_FIRST_LOOKS", 100)


@pytest.fixture
def new_pipeline(
    sandbox: Sandbox, eyes: TableauSite, tmp_path: Path, quick_looks: None
) -> Callable[..., Pipeline]:
    """Makes data sources of one table, with content to publish."""

    def make(name: str = "", **more: Any) -> Pipeline:
        name = name or f"Flights {uuid4().hex[:8]}"
        made = Pipeline(sandbox, eyes, tmp_path, declared(name, **more))
        made.model("flights", flights())
        return made

    return make


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """A data source of one table that is not published yet."""
    return new_pipeline()


@pytest.fixture
def star(new_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """A data source of a fact table and a dimension that is not published yet."""
    made = new_pipeline(tables=("flights", "airlines"), relationships=STAR)
    made.model("airlines", airlines())
    return made
