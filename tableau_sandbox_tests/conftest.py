from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as tsc

from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.samples import signed_in, write_hyper

ALICE = UserSeed(name="alice", password="wonderland", tokens=(("alice", "alice-secret"),))
VIEWER = UserSeed(name="vera", password="look", site_role="Viewer")
NewServer = Callable[..., tuple[Sandbox, tsc.Server]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of `contract` here, where pytest finds them in a run of all tests."""
    group = parser.getgroup("contract", "check the facts on the site that TABLEAU_SITE names")
    group.addoption("--server", metavar="URL", help="check this server; write only with --project")
    group.addoption("--project", metavar="NAME", help="write to this project, and try all facts")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--server") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--server takes no -n: a token has one session at a time")


@pytest.fixture(scope="session")
def later() -> Generator[Callable[[Callable[[], None]], None], None, None]:
    """Yield a function that runs actions in the background; failures show after all tests."""
    with ThreadPoolExecutor(2) as executor:
        begun: list[Future[None]] = []
        yield lambda action: begun.append(executor.submit(action))
        for future in begun:
            future.result()


@pytest.fixture
def start_sandbox(
    tmp_path: Path, later: Callable[[Callable[[], None]], None]
) -> Generator[Callable[..., Sandbox], None, None]:
    """Yield a function that starts a sandbox with the options of `running_sandbox`."""
    stack = ExitStack()

    def start(**options: Any) -> Sandbox:
        return stack.enter_context(running_sandbox(tmp_path / "sandbox", **options))

    yield start
    # uvicorn sleeps for 0.2 s before it ends, so do not wait for its end.
    later(stack.close)


@pytest.fixture
def new_server(start_sandbox: Callable[..., Sandbox]) -> NewServer:
    """Return a function that starts a sandbox and signs its administrator in."""

    def start(**options: Any) -> tuple[Sandbox, tsc.Server]:
        sandbox = start_sandbox(**options)
        return sandbox, signed_in(sandbox)

    return start


@pytest.fixture
def sandbox(start_sandbox: Callable[..., Sandbox]) -> Sandbox:
    """Return a new sandbox with an administrator, two other users and a second site."""
    return start_sandbox(users=(ALICE, VIEWER), sites=("second",))


@pytest.fixture(scope="session")
def shared_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox, None, None]:
    """Yield a sandbox that tests share: the start and the end of a sandbox take 0.3 s."""
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def shared_server(shared_sandbox: Sandbox) -> tsc.Server:
    """Return Tableau's own client, signed in to the shared sandbox."""
    return signed_in(shared_sandbox)


@pytest.fixture
def server(sandbox: Sandbox) -> tsc.Server:
    """Return Tableau's own client, signed in as the administrator."""
    return signed_in(sandbox)


@pytest.fixture(scope="session")
def one_row(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a `.hyper` file with the row (1, 'one')."""
    path = tmp_path_factory.mktemp("files") / "one.hyper"
    return write_hyper(path, "SELECT 1 AS id, 'one' AS name")


@pytest.fixture(scope="session")
def two_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a `.hyper` file with the rows (1, 'one') and (2, 'two')."""
    path = tmp_path_factory.mktemp("files") / "two.hyper"
    return write_hyper(path, "SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS t (id, name)")
