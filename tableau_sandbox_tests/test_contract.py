"""The suite of facts itself: what it says of other servers, and what it leaves on them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest
import requests
import tableauserverclient as tsc

from tableau_pipeline_tests.docs.page import page
from tableau_sandbox import rest
from tableau_sandbox.faults import Cut, Drop, Refuse
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.testing import Sandbox
from tableau_sandbox.vds.service.api import CALLS as VDS_CALLS
from tableau_sandbox_tests.access.test_roles import user
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.contract import session as names
from tableau_sandbox_tests.contract.conftest import OTHERS, VIEWER
from tableau_sandbox_tests.contract.session import Credentials, Others, Session
from tableau_sandbox_tests.contract.workspace import Workspace

SUITE = Path(__file__).with_name("contract")
COMMAND = [
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
    "--tb=short",
]
TOKEN = {"TABLEAU_TOKEN_NAME": Sandbox.token_name, "TABLEAU_TOKEN_VALUE": Sandbox.token_secret}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the suite in a process of its own, in whose environment nobody else may sign in."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("TABLEAU_")}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=usual | TOKEN | environment,
        cwd=SUITE.parents[1],
    )


def against(sandbox: Sandbox, *arguments: str, **environment: str):
    return run("--server", sandbox.url, *arguments, **environment)


def fact(name: str) -> str:
    """The place of a fact, for the command line."""
    (file,) = (
        each for each in SUITE.glob("test_*.py") if f"def {name}(" in each.read_text("utf-8")
    )
    return f"{file}::{name}"


@cache
def refused() -> list[tuple[str, Mapping[str, str]]]:
    """What each fact says of a server that refuses everything: the outcome, and the fact."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-p", "tableau_sandbox_tests.contract.refusing", "--tb=no", "--junitxml"]
        done = run(str(SUITE), *options, str(report))
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
        cases = ElementTree.parse(report).iter("testcase")
        return [(_outcome(case), _properties(case)) for case in cases]


def _outcome(case: ElementTree.Element) -> str:
    return next((each.tag for each in case if each.tag != "properties"), "passed")


def _properties(case: ElementTree.Element) -> dict[str, str]:
    return {each.get("name", ""): each.get("value", "") for each in case.iter("property")}


def test_no_fact_holds_of_a_server_that_refuses():
    """Prevents: a fact that asks nothing, or that takes any refusal for the one it expects."""
    assert len(refused()) > 100
    others = {about["fact"] for outcome, about in refused() if outcome != "failure"}
    assert others == set()


def test_facts_can_be_told_apart():
    """Prevents: a report in which nobody can see what a server does otherwise."""
    facts = [about for _, about in refused()]
    assert len({about["fact"] for about in facts}) == len(facts)
    assert [about["fact"] for about in facts if not about["claim"].endswith(".")] == []


def test_facts_are_about_calls_of_the_sandbox():
    """Prevents: a score for a call that does not exist."""
    modules = [
        import_module(each.name) for each in walk_packages(rest.__path__, f"{rest.__name__}.")
    ]
    routes = [route for module in modules for route in getattr(module, "ROUTES", ())]
    known = {f"{route.method} {route.pattern}" for route in routes} | set(VDS_CALLS)
    assert {about["endpoint"] for _, about in refused()} - known == set()


def test_sources_are_documented():
    """Prevents: a page that does not say where a fact comes from, or what nobody knows."""
    facts = [about for _, about in refused()]
    sections = page("fidelity.md").sections
    rows = {(row["source"], row["grade"]) for row in sections["Sources"].rows()}
    assert rows == {(about["source"], about["grade"]) for about in facts}
    choices = {
        (row["fact"], row["the sandbox's choice"])
        for row in sections["What nobody could tell"].rows()
    }
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
    done = against(sandbox, str(SUITE))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert content(server) == before
    assert sandbox.token_secret not in done.stdout + done.stderr
    assert "   0 of 2   GET sites/{site}/users/{user}" in done.stdout
    assert "unknown-user: A user that does not exist is refused with 404002." in done.stdout
    assert "503 with the error 503000" in done.stdout
    assert "POST sites/{site}/datasources" not in done.stdout


NEEDED = {
    "test_scope_to_read_content": names.APP,
    "test_switch_to_another_site": [names.OTHER_SITE],
    "test_viewer_uploads": names.VIEWER,
    "test_job_of_another_user": names.CREATOR,
    "test_sign_in_by_password": [names.USER, names.PASSWORD],
}


def test_facts_that_need_more(sandbox: Sandbox):
    """Prevents: a fact that nobody has tried counts as one that holds."""
    done = against(sandbox, "--project", "Default", "-rs", *map(fact, NEEDED))
    assert "0 of 0   all" in done.stdout
    assert f"{len(NEEDED)} skipped" in done.stdout
    for needed in NEEDED.values():
        assert f"set {', '.join(needed)}" in done.stdout


def test_others_without_their_role(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a token of the wrong user makes a server look as if it checked no rights."""
    seeds = replace(ALICE, site_role="Viewer"), replace(VIEWER, site_role="Explorer")
    sandbox = start_sandbox(users=seeds)
    facts = map(fact, ("test_viewer_uploads", "test_job_of_another_user"))
    others = OTHERS | {names.VIEWER[1]: "a-wrong-secret"}
    done = against(sandbox, "--project", "Default", "-rs", *facts, **others)
    assert "2 skipped" in done.stdout
    assert "the token of the other user does not sign in" in done.stdout
    assert "the other user is no Creator" in done.stdout


def test_rights_that_somebody_has_too_many(sandbox: Sandbox, server: tsc.Server):
    """Prevents: nobody notices that a server does not refuse what the sandbox refuses."""
    project = server.projects.filter(name="Default")[0]
    herself = user(sandbox, ALICE).user_id
    leads = tsc.PermissionsRule(server.users.get_by_id(str(herself)), {"ProjectLeader": "Allow"})
    server.projects.update_permissions(project, [leads])
    facts = map(fact, ("test_publish_into_a_closed_project", "test_datasource_that_is_closed"))
    done = against(sandbox, "--project", "Default", *facts, **OTHERS)
    assert "0 of 2   all" in done.stdout
    assert content(server)[0] == []


QUIRKS: list[tuple[str, dict[str, Any]]] = [
    ("test_repeated_request_is_answered_alike", {"repeated_request": "conflict"}),
    ("test_repeated_request_has_a_job", {"repeated_request": "empty-job"}),
    ("test_update_moves_the_stamp", {"updates_move_stamp": "never"}),
    ("test_update_makes_no_revision", {"update_revisions": True}),
    ("test_revision_of_each_publish", {"revisions": False}),
    ("test_tags_leave_the_stamp", {"tags_move_stamp": True}),
    ("test_unfinished_job", {"early_finish_code": True}),
    ("test_replace_keeps_the_luid", {"replace": "refused"}),
    ("test_download_without_the_extract", {"download_without_extract": "tdsx"}),
    ("test_count_of_nothing", {"vds_empty": "zero"}),
    ("test_count_of_a_column", {"vds_access": "nobody"}),
]


def function(name: str) -> Callable[[Workspace], None]:
    file = Path(fact(name).partition("::")[0])
    return getattr(import_module(f"tableau_sandbox_tests.contract.{file.stem}"), name)


@pytest.fixture
def workspace(sandbox: Sandbox) -> Iterator[Workspace]:
    with workspace_of(sandbox) as workspace:
        yield workspace


def workspace_of(sandbox: Sandbox) -> Workspace:
    token = Credentials(token_name=sandbox.token_name, token_value=sandbox.token_secret)
    session = Session(sandbox.url, token, Others())
    return Workspace(session, "Default", pass_a_second=lambda: sandbox.advance(1))


@pytest.mark.slow
def test_what_tableau_leaves_open_is_noticed(sandbox: Sandbox, workspace: Workspace):
    """Prevents: a fact that holds whatever a server does."""
    usual = {quirk.name: quirk.default for quirk in fields(Quirks)}
    for name, change in QUIRKS:
        sandbox.set_quirks(**usual)
        function(name)(workspace)
        sandbox.set_quirks(**change)
        with pytest.raises((AssertionError, LookupError, ValueError)):
            function(name)(workspace)


def test_removal_after_an_interrupt(sandbox: Sandbox, server: tsc.Server):
    """Prevents: an interrupted check leaves data sources or projects on somebody's site."""
    before = content(server)[:2]

    def interrupted() -> None:
        with workspace_of(sandbox) as workspace:
            workspace.published()
            workspace.new_project()
            workspace.publish(workspace.new_name(), query="asJob=true").succeeds(202)
            raise KeyboardInterrupt

    with sandbox.held_jobs(), pytest.raises(KeyboardInterrupt):
        interrupted()
    sandbox.wait_until_idle()
    assert content(server)[:2] == before


def test_removal_after_a_lost_answer(sandbox: Sandbox, server: tsc.Server):
    """Prevents: what was published stays, because nobody has seen its LUID."""
    with workspace_of(sandbox) as workspace:
        sandbox.control.add(Drop(when="after", method="POST", path="sites/*/datasources"))
        with pytest.raises(requests.ConnectionError):
            workspace.publish(workspace.new_name())
        assert content(server)[0] != []
    assert content(server)[0] == []


def test_removal_fails(sandbox: Sandbox):
    """Prevents: something is left on somebody's site, and nobody is told."""
    sandbox.control.add(
        Refuse(status=503, method="DELETE", path="sites/*/datasources/*", times=None)
    )
    done = against(sandbox, "--project", "Default", fact("test_published_record"))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "LeftBehindError: verify-" in done.stdout


def test_download_that_is_no_zip(sandbox: Sandbox):
    """Prevents: one answer in another form ends the whole run."""
    sandbox.control.add(Cut(bytes=30, path="sites/*/datasources/*/content", times=None))
    facts = map(fact, ("test_generated_model", "test_downloaded_rows", "test_unknown_revision"))
    done = against(sandbox, "--project", "Default", *facts)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 of 3   all" in done.stdout


def test_sessions_are_renewed(workspace: Workspace):
    """Prevents: one deviation at sign-in makes all later facts deviate."""
    session = workspace.session
    with pytest.raises(AssertionError), session.sessions_of_its_own():
        session.call("POST", "auth/signout", token=session.token).succeeds(200)
    session.ask("GET", "projects").succeeds(200)


def test_nothing_to_check(sandbox: Sandbox):
    """Prevents: a server that was never checked passes for a good one, or for a bad one."""
    some = fact("test_published_record")
    unknown = against(sandbox, "--project", "No such project", some)
    assert "0 projects are called 'No such project'" in unknown.stdout
    refused = against(sandbox, some, TABLEAU_TOKEN_VALUE="a-wrong-secret")
    assert "401001" in refused.stdout
    assert "a-wrong-secret" not in refused.stdout
    unnamed = against(sandbox, some, TABLEAU_TOKEN_NAME="")
    assert "set TABLEAU_TOKEN_NAME" in unnamed.stdout
    sandbox.control.add(Drop(when="before", method="GET", path="sites/*/projects"))
    broken = against(sandbox, "--project", "Default", some)
    assert "no project to write to: " in broken.stdout
    assert {each.returncode for each in (unknown, refused, unnamed, broken)} == {2}
