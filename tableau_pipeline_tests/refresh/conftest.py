from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pytest

from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import STAR, Pipeline, declared, session
from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox

EMPTY: Mapping[str, Any] = MappingProxyType({})
ANALYST = UserSeed(name="ann", password="ann-secret")


Server = Callable[..., tuple[Sandbox, TableauSite]]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server, None, None]:
    """A function that returns a server with settings, and a session to inspect the server.

    All tests that ask for the same settings share a server. Each test publishes under its own
    names.
    """
    running: dict[str, tuple[Sandbox, TableauSite]] = {}
    with ExitStack() as stack:

        def start(**options: Any) -> tuple[Sandbox, TableauSite]:
            if repr(options) not in running:
                folder = tmp_path_factory.mktemp("sandbox")
                sandbox = stack.enter_context(running_sandbox(folder, users=(ANALYST,), **options))
                running[repr(options)] = sandbox, stack.enter_context(session(sandbox))
            return running[repr(options)]

        yield start


@pytest.fixture(scope="session")
def sandbox(server: Server) -> Sandbox:
    """The server with default settings."""
    return server()[0]


@pytest.fixture(scope="session")
def eyes(server: Server) -> TableauSite:
    """A session to inspect the server with default settings."""
    return server()[1]


@pytest.fixture
def new_pipeline(server: Server, tmp_path: Path) -> Callable[..., Pipeline]:
    """A function that makes a data source of one table with rows. `on` has server settings."""

    def make(
        name: str = "",
        *,
        on: Mapping[str, Any] = EMPTY,
        user: tuple[str, str] = ("", ""),
        **more: Any,
    ) -> Pipeline:
        name = name or f"Flights {uuid4().hex[:8]}"
        made = Pipeline(*server(**on), tmp_path, declared(name, **more), user=user)
        made.model("flights", flights())
        return made

    return make


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """A data source of one table that is not published yet."""
    return new_pipeline()


@pytest.fixture
def star(new_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """An unpublished data source of a fact table and a dimension."""
    made = new_pipeline(tables=("flights", "airlines"), relationships=STAR)
    made.model("airlines", airlines())
    return made
