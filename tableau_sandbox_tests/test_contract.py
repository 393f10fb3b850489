"""The suite of facts itself: what it says of other servers, and what it leaves on them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import tableauserverclient as tsc

from tableau_pipeline_tests.docs.page import page
from tableau_sandbox.faults import Cut, Refuse
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.contract import (
    test_datasources,
    test_publish,
    test_updates,
    test_vds,
)
from tableau_sandbox_tests.contract.conftest import ENVIRONMENT
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.workspace import Workspace

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
    """Prevents: a page that does not say where a fact comes from, or what nobody knows."""
    facts = [about for _, about in refused]
    sections = page("fidelity.md").sections
    rows = {(row["source"], row["grade"]) for row in sections["Sources"].rows()}
    assert rows == {(about["source"], about["grade"]) for about in facts}
    rows_of_choices = sections["What nobody could tell"].rows()
    choices = {(row["fact"], row["the sandbox's choice"]) for row in rows_of_choices}
    assumed = {(about["fact"], about["claim"]) for about in facts if about["grade"] == "assumed"}
    assert choices == assumed


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
    assert "unknown-user: A user who does not exist is refused. Source: " in text
    assert "503 with the error 503000" in text
    assert "POST sites/{site}/datasources" not in text


def test_one_fact_does_not_end_the_others(sandbox: Sandbox, server: tsc.Server):
    """Prevents: what is no zip ends the run; what nobody tried holds; nobody sees what is left."""
    sandbox.control.add(Cut(bytes=30, path="sites/*/datasources/*/content", times=None))
    path = "sites/*/datasources/*"
    sandbox.control.add(Refuse(status=503, method="DELETE", path=path, times=None))
    facts = "downloaded_rows or new_upload or app_signs_in or another_site or viewer or creator"
    text = report(sandbox, *WRITING, facts)
    assert "1 of 2   all" in text
    for needed in ("CONNECTED_APP_CLIENT_ID", "OTHER_SITE", "VIEWER_TOKEN_NAME"):
        assert f": set TABLEAU_{needed}" in text
    assert "LeftBehindError: verify-" in text


def test_removal_after_an_interrupt(sandbox: Sandbox, server: tsc.Server):
    """Prevents: an interrupted check leaves data sources or projects on somebody's site."""
    before = content(server)[:2]
    facts = "content_url_of_a_namesake or publish_as_a_job"
    with (
        sandbox.held_jobs(),
        suite("--server", sandbox.url, *WRITING, facts) as process,
    ):
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


replaced = partial(test_publish.test_mode, what="", mode="replace", rows=[(3, "three")])
QUIRKS: list[tuple[Callable[[Workspace], None], dict[str, Any]]] = [
    (test_updates.test_repeated_request_is_answered_alike, {"repeated_request": "conflict"}),
    (test_updates.test_repeated_request_has_a_job, {"repeated_request": "empty-job"}),
    (test_updates.test_update_moves_the_stamp, {"updates_move_stamp": "never"}),
    (test_updates.test_update_makes_no_revision, {"update_revisions": True}),
    (test_datasources.test_revision_of_each_publish, {"revisions": False}),
    (test_datasources.test_tags_leave_the_stamp, {"tags_move_stamp": True}),
    (test_datasources.test_download_without_the_extract, {"download_without_extract": "tdsx"}),
    (test_datasources.test_unfinished_job, {"early_finish_code": True}),
    (replaced, {"replace": "refused"}),
    (test_vds.test_count_of_nothing, {"vds_empty": "zero"}),
    (test_vds.test_count_by_a_constant, {"vds_access": "nobody"}),
]


@pytest.mark.slow
def test_what_tableau_leaves_open_is_noticed(sandbox: Sandbox):
    """Prevents: a fact that holds whatever a server does."""
    usual = {quirk.name: quirk.default for quirk in fields(Quirks)}
    session = Session(sandbox.url, TOKEN)
    with Workspace(session, "Default", lambda: sandbox.advance(1)) as workspace:
        for fact, change in QUIRKS:
            sandbox.set_quirks(**usual)
            fact(workspace)
            sandbox.set_quirks(**change)
            with pytest.raises((AssertionError, LookupError)):
                fact(workspace)
