"""Check facts about Tableau's APIs on a new sandbox, or on the server that `--server` names.

Each fact is a test, whose docstring is the claim to check.
"""

import inspect
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest

from tableau_sandbox.options import CONNECTED_APP, UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.conftest import VIEWER as WITHOUT_A_TOKEN
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import endpoint_of
from tableau_sandbox_tests.contract.workspace import Workspace

VIEWER: UserSeed = replace(WITHOUT_A_TOKEN, tokens=(("vera", "vera-secret"),))
# The variables that name users, for the sandbox. For another server, they are in the environment.
ENVIRONMENT = {
    "TABLEAU_TOKEN_NAME": Sandbox.token_name,
    "TABLEAU_TOKEN_VALUE": Sandbox.token_secret,
    "TABLEAU_CONNECTED_APP_CLIENT_ID": CONNECTED_APP.client_id,
    "TABLEAU_CONNECTED_APP_SECRET_ID": CONNECTED_APP.secret_id,
    "TABLEAU_CONNECTED_APP_SECRET_VALUE": CONNECTED_APP.secret_value,
    "TABLEAU_USERNAME": Sandbox.user,
    "TABLEAU_PASSWORD": Sandbox.password,
    "TABLEAU_OTHER_SITE": "second",
    "TABLEAU_VIEWER_TOKEN_NAME": "vera",
    "TABLEAU_VIEWER_TOKEN_VALUE": "vera-secret",
    "TABLEAU_CREATOR_TOKEN_NAME": "alice",
    "TABLEAU_CREATOR_TOKEN_VALUE": "alice-secret",
}
_Made = TypeVar("_Made")
# Keep a copy, because another fixture empties the environment before tests.
_GIVEN = dict(os.environ)


@dataclass(frozen=True)
class Site:
    """A site to compare with the facts.

    Attributes:
        url: the address of the server.
        environment: the variables that name users and their credentials.
        project: the project to write to, if any.
        pass_a_second: waits until the clock of the server is in the next second.
        sandbox: the sandbox of the site; None for a server that `--server` names.
    """

    url: str
    environment: Mapping[str, str]
    project: str | None
    pass_a_second: Callable[[], None]
    sandbox: Sandbox | None = None


@pytest.fixture(scope="session")
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Site, None, None]:
    """Yield the site that `--server` names, or a site of a new sandbox."""
    if url := request.config.getoption("--server"):
        project = request.config.getoption("--project")
        yield Site(url, _GIVEN, project, lambda: time.sleep(1.1))
        return
    folder = tmp_path_factory.mktemp("contract")
    with running_sandbox(folder, users=(ALICE, VIEWER), sites=("second",)) as sandbox:
        # Some facts only read, but need a site with at least one data source.
        Workspace(Session(sandbox.url, ENVIRONMENT), "Default", lambda: None).published()
        yield Site(sandbox.url, ENVIRONMENT, "Default", lambda: sandbox.advance(1), sandbox)


@pytest.fixture(scope="session")
def session(site: Site) -> Session:
    """Return the session of the user who checks facts; without a workspace, facts only read."""
    return or_stop(lambda: Session(site.url, site.environment))


@pytest.fixture(scope="session")
def workspace(site: Site, session: Session) -> Generator[Workspace, None, None]:
    """Yield a project to write to; remove everything that facts have created there at the end."""
    if not (project := site.project):
        pytest.skip("the fact writes: name a project by --project")
    with or_stop(lambda: Workspace(session, project, site.pass_a_second)) as workspace:
        yield workspace


def or_stop(make: Callable[[], _Made]) -> _Made:
    """Return what `make` makes. If it fails, end the run: all facts need the result."""
    try:
        return make()
    except (AssertionError, LookupError, OSError) as error:
        pytest.exit(f"nothing can be compared: {error}", 2)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case of a fact, and of each fact about requests."""
    marks = [*metafunc.definition.iter_markers()]
    parameters = inspect.signature(metafunc.function).parameters.values()
    names = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    if names:
        cases = [
            pytest.param(*values, id=name.replace("_", "-"), marks=pytest.mark.fact(*mark.args))
            for mark in marks
            for name, values in mark.kwargs.items()
        ]
        metafunc.parametrize(names, cases)
    asked = []
    for mark in marks:
        if mark.name == "asks":
            source, *facts = mark.args
            for name, steps in facts:
                marked = pytest.mark.fact(endpoint_of(steps), source)
                asked.append(pytest.param(steps, id=name, marks=marked))
    if asked:
        metafunc.parametrize("steps", asked)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the properties of each fact to its report."""
    for item in items:
        if marks := [*item.iter_markers("fact")]:
            endpoint, source = marks[-1].args
            case = item.callspec if hasattr(item, "callspec") else None
            claim = " ".join((inspect.getdoc(item.function) or "").split())
            values = dict(case.params) if case else {}
            if "steps" in values:
                values["steps"] = "; ".join(map(" -> ".join, values["steps"]))
            item.user_properties += [
                ("fact", case.id if case else item.name[5:].replace("_", "-")),
                ("endpoint", endpoint),
                *zip(("source", "grade"), map(str, source.value), strict=True),
                ("claim", claim.format(**values) if case else claim),
            ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the claims that are false for the server, and the score of each endpoint."""
    if not terminalreporter.config.getoption("--server"):
        return
    held, shown = Counter(), Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            about = dict(report.user_properties)
            if report.when == "call" and "fact" in about:
                shown[about["endpoint"]] += 1
                held[about["endpoint"]] += outcome == "passed"
                if outcome == "failed":
                    source = f"{about['source']} ({about['grade']})"
                    terminalreporter.line(f"{about['fact']}: {about['claim']} Source: {source}")
    # The sort by path keeps all methods of a path together.
    for endpoint in sorted(shown, key=lambda each: each.split()[::-1]):
        terminalreporter.line(f"{held[endpoint]:>4} of {shown[endpoint]:<3} {endpoint}")
    terminalreporter.line(f"{held.total():>4} of {shown.total():<3} all")
