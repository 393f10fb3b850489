"""The test suite in `contract`: its reports about servers, and the removal of its data."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tableauserverclient as tsc

from tableau_sandbox.faults import Refuse
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.contract.conftest import ENVIRONMENT
from tableau_sandbox_tests.test_quirks import rows

# Each test starts another pytest.
pytestmark = pytest.mark.slow
SUITE = Path(__file__).with_name("contract")
TOKEN = {name: value for name, value in ENVIRONMENT.items() if name.startswith("TABLEAU_TOKEN")}
WRITING = ("--project", "Default", "-rs", "-k")
# Background processes of a shell, and their children, ignore interrupts unless they set a handler.
PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


def suite(*arguments: str) -> subprocess.Popen[str]:
    """Start the suite in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-c", PYTEST, "-p", "no:cacheprovider", str(SUITE), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **TOKEN},
        cwd=SUITE.parents[1],
    )


def report(sandbox: Sandbox, *arguments: str) -> str:
    """Run the suite against a sandbox that breaks some facts, and return the report."""
    with suite("--server", sandbox.url, *arguments) as process:
        text, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.TESTS_FAILED, text
    return text


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, str]]]:
    """Return the outcome and the properties of each fact on a server that refuses everything."""
    file = tmp_path_factory.mktemp("refused") / "report.xml"
    plugin = "tableau_sandbox_tests.contract.refusing"
    with suite("-p", plugin, "--tb=no", "--junitxml", str(file)) as process:
        process.communicate()
    return [
        (
            next((each.tag for each in case if each.tag != "properties"), "passed"),
            {each.get("name", ""): each.get("value", "") for each in case.iter("property")},
        )
        for case in ElementTree.parse(file).iter("testcase")
    ]


def test_no_fact_holds_of_a_server_that_refuses(refused: list[tuple[str, dict[str, str]]]):
    """Prevents: a fact sends no request, or accepts any refusal in place of the expected one."""
    assert len({about["fact"] for _, about in refused}) == len(refused) > 200
    assert [about["fact"] for outcome, about in refused if outcome != "failure"] == []


def test_sources_are_documented(refused: list[tuple[str, dict[str, str]]]):
    """Prevents: the documentation names no source for a fact, or hides that none is known."""
    facts = [about for _, about in refused]
    sources = {(about["source"], about["grade"]) for about in facts}
    assert set(map(tuple, rows("Sources", of="fidelity.md"))) == sources
    claims = {about["fact"]: about["claim"].replace("`", "") for about in facts}
    assumed = {about["fact"] for about in facts if about["grade"] == "assumed"}
    listed = rows("What no source could tell", of="fidelity.md")
    assert dict(listed) == {fact: claims[fact] for fact in assumed}
    graded = {about["fact"]: (about["grade"], about["source"]) for about in facts}
    for fact, claim, *source, _ in rows("What decides how a refresh goes", of="fidelity.md"):
        assert (claim, tuple(source)) == (claims[fact], graded[fact])


def content(server: tsc.Server) -> tuple[list, ...]:
    """Return the LUIDs of all items that facts could leave on a server."""
    endpoints = (server.datasources, server.projects, server.jobs)
    return tuple([item.id for item in tsc.Pager(endpoint)] for endpoint in endpoints)


def test_read_only(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a check of a real site changes the site, hides differences or shows a token."""
    before = content(server)
    sandbox.control.add(Refuse(status=503, path="sites/*/users/*", times=None))
    text = report(sandbox)
    assert content(server) == before
    assert sandbox.token_secret not in text
    assert "   0 of 2   GET sites/{site}/users/{user}" in text
    assert "unknown-user: GET users/{nothing} -> 404002. Source: " in text
    assert "503 with the error 503000" in text
    assert "POST sites/{site}/datasources" not in text


def test_removal_after_an_interrupt(sandbox: Sandbox, server: tsc.Server):
    """Prevents: an interrupted check leaves data sources or projects on a real site."""
    before = content(server)[:2]
    facts = "content_url_of_a_namesake or publish_as_a_job"
    with sandbox.held_jobs(), suite("--server", sandbox.url, *WRITING, facts) as process:
        while not content(server)[2] and process.poll() is None:
            time.sleep(0.1)
        during = content(server)[:2]
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, text
    sandbox.wait_until_idle()
    assert during != before
    assert content(server)[:2] == before


def test_nothing_to_compare():
    """Prevents: a server that was never checked passes for a good or a bad server."""
    with suite("--server", "http://127.0.0.1:9") as process:
        text, _ = process.communicate()
    assert process.returncode == 2
    assert "nothing can be compared: " in text
