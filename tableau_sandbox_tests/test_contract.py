"""The suite of facts itself: what it says of other servers, and what it leaves on them."""

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

# Each starts another pytest.
pytestmark = pytest.mark.slow
SUITE = Path(__file__).with_name("contract")
TOKEN = {name: value for name, value in ENVIRONMENT.items() if name.startswith("TABLEAU_TOKEN")}
WRITING = ("--project", "Default", "-rs", "-k")
# What a shell starts in the background does not hear an interrupt, nor do its children.
PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


def suite(*arguments: str) -> subprocess.Popen[str]:
    """Start the suite in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", PYTEST, "-p", "no:cacheprovider", str(SUITE), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **TOKEN},
        cwd=SUITE.parents[1],
    )


def report(sandbox: Sandbox, *arguments: str) -> str:
    """What the suite says of a sandbox of which some facts do not hold."""
    with suite("--server", sandbox.url, *arguments) as process:
        text, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.TESTS_FAILED, text
    return text


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, str]]]:
    """What came of each fact on a server that refuses everything, and what the fact is about."""
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
    """Prevents: a fact that asks nothing, or that takes any refusal for the one it expects."""
    assert len({about["fact"] for _, about in refused}) == len(refused) > 200
    assert [about["fact"] for outcome, about in refused if outcome != "failure"] == []


def test_sources_are_documented(refused: list[tuple[str, dict[str, str]]]):
    """Prevents: a page that does not say where a fact comes from, or what is not known."""
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
    """All that facts could leave on a server."""
    endpoints = (server.datasources, server.projects, server.jobs)
    return tuple([item.id for item in tsc.Pager(endpoint)] for endpoint in endpoints)


def test_read_only(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a look at a real site changes it, hides what it found, or shows the token."""
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
    """Prevents: an interrupted check leaves data sources or projects on somebody's site."""
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
    """Prevents: a server that was never checked passes for a good one, or for a bad one."""
    with suite("--server", "http://127.0.0.1:9") as process:
        text, _ = process.communicate()
    assert process.returncode == 2
    assert "nothing can be compared: " in text
