"""The suite of facts itself: what it says of other servers, and what it leaves on them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest
import tableauserverclient as tsc

from tableau_pipeline_tests.docs.page import page
from tableau_sandbox import rest
from tableau_sandbox.faults import Cut, Drop, Refuse
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.testing import Sandbox
from tableau_sandbox.vds.api import CALLS as VDS_CALLS
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.contract import (
    test_datasources,
    test_publish,
    test_updates,
    test_vds,
)
from tableau_sandbox_tests.contract.conftest import ENVIRONMENT, VIEWER, or_stop
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.workspace import Workspace
from tableau_sandbox_tests.samples import user

SUITE = Path(__file__).with_name("contract")
TOKEN = {name: value for name, value in ENVIRONMENT.items() if name.startswith("TABLEAU_TOKEN")}
WRITING = ("--project", "Default", "-rs", "-k")
# What a shell starts in the background does not hear an interrupt, nor do its children.
PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


def suite(*arguments: str, environment: dict[str, str] = TOKEN) -> subprocess.Popen[str]:
    """Start the suite in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", PYTEST, "-p", "no:cacheprovider", str(SUITE), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **environment},
        cwd=SUITE.parents[1],
    )


def report(sandbox: Sandbox, *arguments: str, environment: dict[str, str] = TOKEN) -> str:
    """What the suite says of a sandbox of which some facts do not hold."""
    with suite("--server", sandbox.url, *arguments, environment=environment) as process:
        text, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.TESTS_FAILED, text
    return text


@cache
def refused() -> list[tuple[str, dict[str, str]]]:
    """Each fact, and what came of it on a server that refuses everything."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "report.xml")
        plugin = "tableau_sandbox_tests.contract.refusing"
        with suite("-p", plugin, "--tb=no", "--junitxml", str(file)) as process:
            text, _ = process.communicate()
        assert process.returncode == pytest.ExitCode.TESTS_FAILED, text
        return [
            (
                next((each.tag for each in case if each.tag != "properties"), "passed"),
                {each.get("name", ""): each.get("value", "") for each in case.iter("property")},
            )
            for case in ElementTree.parse(file).iter("testcase")
        ]


def test_no_fact_holds_of_a_server_that_refuses():
    """Prevents: a fact that asks nothing, or that takes any refusal for the one it expects."""
    assert len(refused()) > 200
    assert [about["fact"] for outcome, about in refused() if outcome != "failure"] == []


def test_facts_can_be_told_apart():
    """Prevents: a report in which nobody can see what a server does otherwise, or where."""
    facts = [about for _, about in refused()]
    assert len({about["fact"] for about in facts}) == len(facts)
    assert [about["fact"] for about in facts if not about["claim"].endswith(".")] == []
    modules = [
        import_module(each.name) for each in walk_packages(rest.__path__, f"{rest.__name__}.")
    ]
    routes = [route for module in modules for route in getattr(module, "ROUTES", ())]
    known = {f"{route.method} {route.pattern}" for route in routes} | set(VDS_CALLS)
    assert {about["endpoint"] for about in facts} - known == set()


def test_sources_are_documented():
    """Prevents: a page that does not say where a fact comes from, or what nobody knows."""
    facts = [about for _, about in refused()]
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


def test_others_without_their_role(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a token of the wrong user makes a server look as if it checked no rights."""
    sandbox = start_sandbox(users=(ALICE, replace(VIEWER, site_role="Explorer")))
    server = tsc.Server(sandbox.url, use_server_version=True)
    server.auth.sign_in(tsc.TableauAuth(sandbox.user, sandbox.password))
    project = server.projects.filter(name="Default")[0]
    herself = user(sandbox, ALICE).user_id
    leads = tsc.PermissionsRule(server.users.get_by_id(str(herself)), {"ProjectLeader": "Allow"})
    server.projects.update_permissions(project, [leads])
    facts = "viewer_uploads or closed_project or datasource_that_is_closed"
    text = report(sandbox, *WRITING, facts.replace("_", "-"), environment=ENVIRONMENT)
    assert "the other user is no Viewer" in text
    assert "0 of " in text
    assert content(server)[0] == []


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


def session_of(sandbox: Sandbox) -> Session:
    return Session(sandbox.url, TOKEN)


def workspace_of(sandbox: Sandbox) -> Workspace:
    return Workspace(session_of(sandbox), "Default", lambda: sandbox.advance(1))


def test_removal_after_a_lost_answer(sandbox: Sandbox, server: tsc.Server):
    """Prevents: what was published stays, because nobody has seen its LUID."""
    with workspace_of(sandbox) as workspace:
        sandbox.control.add(Drop(when="after", method="POST", path="sites/*/datasources"))
        with pytest.raises(OSError, match="Connection aborted"):
            workspace.publish(workspace.new_name())
        assert content(server)[0] != []
    assert content(server)[0] == []


def test_sessions_are_renewed(shared_sandbox: Sandbox):
    """Prevents: one deviation at sign-in makes all later facts deviate."""
    session = session_of(shared_sandbox)
    with pytest.raises(AssertionError), session.sessions_of_its_own():
        session.send("POST /auth/signout").succeeds(200)
    session.send("GET projects").succeeds()


def test_nothing_to_compare(sandbox: Sandbox):
    """Prevents: a server that was never checked passes for a good one, or for a bad one."""
    wrong = TOKEN | {"TABLEAU_TOKEN_VALUE": "a-wrong-secret"}
    session = session_of(sandbox)
    for make, reason in (
        (partial(Session, sandbox.url, {}), "set TABLEAU_TOKEN_NAME"),
        (partial(Session, sandbox.url, wrong), "401001"),
        (partial(Session, "http://127.0.0.1:9", TOKEN), "Connection refused"),
        (partial(Workspace, session, "None", print), "0 projects are called 'None'"),
    ):
        with pytest.raises(pytest.exit.Exception, match=reason) as stopped:
            or_stop(make)
        assert "a-wrong-secret" not in str(stopped.value)
    # The server was reached, and signed in to.
    sandbox.control.add(Drop(when="before", method="GET", path="sites/*/projects"))
    with pytest.raises(pytest.exit.Exception, match="Connection aborted"):
        or_stop(lambda: workspace_of(sandbox))


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
    with workspace_of(sandbox) as workspace:
        for fact, change in QUIRKS:
            sandbox.set_quirks(**usual)
            fact(workspace)
            sandbox.set_quirks(**change)
            with pytest.raises((AssertionError, LookupError)):
                fact(workspace)
