"""Runs the facts against a sandbox of their own, or with `--server` against anybody's site."""

import inspect
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace

import pytest
from requests import RequestException

from tableau_sandbox.options import CONNECTED_APP, UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.conftest import VIEWER as WITHOUT_A_TOKEN
from tableau_sandbox_tests.contract import session as names
from tableau_sandbox_tests.contract.session import Credentials, Others, Session
from tableau_sandbox_tests.contract.workspace import UnknownProjectError, Workspace

VIEWER: UserSeed = replace(WITHOUT_A_TOKEN, tokens=(("vera", "vera-secret"),))
# Our own fixtures empty the environment before tests see it.
_ENVIRONMENT = dict(os.environ)
_APP = (CONNECTED_APP.client_id, CONNECTED_APP.secret_id, CONNECTED_APP.secret_value)
OTHERS = {
    **dict(zip(names.APP, _APP, strict=True)),
    **dict(zip(names.VIEWER, VIEWER.tokens[0], strict=True)),
    **dict(zip(names.CREATOR, ALICE.tokens[0], strict=True)),
    names.USER: Sandbox.user,
    names.PASSWORD: Sandbox.password,
    names.OTHER_SITE: "second",
}


@dataclass(frozen=True)
class Site:
    """A site to compare with the facts.

    Attributes:
        url: the address of its server.
        environment: who may sign in.
        project: the project to write to; empty for none.
        pass_a_second: returns when the clock of the server is in the next second.
        sandbox: the sandbox that it belongs to, if it is our own.
    """

    url: str
    environment: Mapping[str, str]
    project: str
    pass_a_second: Callable[[], None]
    sandbox: Sandbox | None = None


@pytest.fixture(scope="session")
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Site, None, None]:
    """The site that `--server` names, or one of a new sandbox."""
    url, project = (request.config.getoption(name) for name in ("--server", "--project"))
    if url:
        yield Site(url, _ENVIRONMENT, project or "", lambda: time.sleep(1.1))
        return
    token = {"TABLEAU_TOKEN_NAME": Sandbox.token_name, "TABLEAU_TOKEN_VALUE": Sandbox.token_secret}
    folder = tmp_path_factory.mktemp("contract")
    with running_sandbox(folder, users=(ALICE, VIEWER), sites=("second",)) as sandbox:
        advance = lambda: sandbox.advance(1)  # noqa: E731
        yield Site(sandbox.url, OTHERS | token, "Default", advance, sandbox)


@pytest.fixture(scope="session")
def session(site: Site) -> Session:
    """A session of the user who checks; facts that take only this change nothing."""
    name, value = (site.environment.get(f"TABLEAU_TOKEN_{part}", "") for part in ("NAME", "VALUE"))
    if not (name and value):
        pytest.exit("set TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE, and TABLEAU_SITE if needed", 2)
    credentials = Credentials(
        token_name=name, token_value=value, site=site.environment.get("TABLEAU_SITE", "")
    )
    try:
        return Session(site.url, credentials, Others(site.environment))
    except (AssertionError, RequestException) as error:
        pytest.exit(f"no session on {site.url}: {error}", 2)


@pytest.fixture(scope="session")
def workspace(site: Site, session: Session) -> Generator[Workspace, None, None]:
    """A project to write to. What facts create there is removed in the end."""
    if not site.project:
        pytest.skip("writes: name a project by --project")
    try:
        workspace = Workspace(session, site.project, pass_a_second=site.pass_a_second)
    except (AssertionError, RequestException, UnknownProjectError) as error:
        pytest.exit(f"no project to write to: {error}", 2)
    with workspace:
        yield workspace


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell reports what each fact is about."""
    for item in items:
        if mark := item.get_closest_marker("fact"):
            claim = " ".join((inspect.getdoc(item.function) or "").split())
            source = mark.kwargs["source"]
            item.user_properties += [
                ("fact", item.name.removeprefix("test_").replace("_", "-")),
                ("endpoint", mark.kwargs["endpoint"]),
                ("source", source.name),
                ("grade", str(source.grade)),
                ("claim", claim),
            ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the score of each endpoint of another server, and the claims that do not hold."""
    if not terminalreporter.config.getoption("--server"):
        return
    held, shown = Counter(), Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            about = dict(report.user_properties)
            if report.when != "call" or "fact" not in about:
                continue
            shown[about["endpoint"]] += 1
            held[about["endpoint"]] += outcome == "passed"
            if outcome == "failed":
                source = f"{about['source']} ({about['grade']})"
                terminalreporter.line(f"{about['fact']}: {about['claim']} Source: {source}")
    # By path first, so that all methods of a path stand together.
    for endpoint in sorted(shown, key=lambda each: each.split()[::-1]):
        terminalreporter.line(f"{held[endpoint]:>4} of {shown[endpoint]:<3} {endpoint}")
    terminalreporter.line(f"{held.total():>4} of {shown.total():<3} all")
