"""The command that checks the facts on anybody's server."""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import pytest
import tableauserverclient as tsc

from tableau_sandbox.command_line.verify import main
from tableau_sandbox.facts.answer import Deviation
from tableau_sandbox.facts.credentials import VIEWER as VIEWER_TOKEN
from tableau_sandbox.facts.credentials import Credentials, Others
from tableau_sandbox.facts.fact import reads
from tableau_sandbox.facts.playground import LeftBehindError, Playground
from tableau_sandbox.facts.registry import FACTS
from tableau_sandbox.facts.report import as_text
from tableau_sandbox.facts.run import Verdict, check
from tableau_sandbox.facts.scene import Scene
from tableau_sandbox.facts.sources import NOBODY
from tableau_sandbox.faults import Drop, Refuse
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.access.test_roles import user
from tableau_sandbox_tests.facts.others import ALICE, OTHERS, VIEWER
from tableau_sandbox_tests.service.command import COMMAND


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has the token of a sandbox."""
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", Sandbox.token_name)
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", Sandbox.token_secret)


def scene_of(sandbox: Sandbox, others: Mapping[str, str] | None = None) -> Scene:
    token = Credentials(token_name=sandbox.token_name, token_value=sandbox.token_secret)
    return Scene(sandbox.url, token, Others(others or {}))


def content(server: tsc.Server) -> tuple[list, ...]:
    """All that facts could leave on a server."""
    endpoints = (server.datasources, server.projects, server.jobs)
    return tuple([item.id for item in tsc.Pager(endpoint)] for endpoint in endpoints)


@pytest.mark.usefixtures("named")
def test_read_only(sandbox: Sandbox, server: tsc.Server, capsys: pytest.CaptureFixture[str]):
    """Prevents: a look at a real site changes it, or the report shows the token."""
    before = content(server)
    assert main(["--against", sandbox.url]) == 0
    assert content(server) == before
    output = capsys.readouterr()
    assert sandbox.token_secret not in output.out + output.err
    assert "GET sites/{site}/datasources " in output.out
    assert "POST sites/{site}/datasources " not in output.out


@pytest.mark.usefixtures("named")
def test_deviation(sandbox: Sandbox, server: tsc.Server, capsys: pytest.CaptureFixture[str]):
    """Prevents: a difference that nobody sees, or that nobody can report."""
    sandbox.control.add(Refuse(status=503, path="sites/*/users/*", times=1000))
    assert main(["--against", sandbox.url, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert sandbox.url not in json.dumps(report)
    (score,) = [s for s in report["scores"] if s["endpoint"] == "GET sites/{site}/users/{user}"]
    assert (score["holds"], score["shown"]) == (0, 2)
    (found,) = [f for f in report["facts"] if f["name"] == "unknown-user"]
    assert found["verdict"] == "deviates"
    assert "404002" in found["expected"]
    assert "503000" in found["got"]


NEEDED = {
    "scope-to-read-content": "set TABLEAU_CONNECTED_APP_CLIENT_ID, TABLEAU_CONNECTED_APP_SECRET_ID",
    "switch-to-another-site": "set TABLEAU_OTHER_SITE",
    "viewer-uploads": "set TABLEAU_VIEWER_TOKEN_NAME, TABLEAU_VIEWER_TOKEN_VALUE",
    "job-of-another-user": "set TABLEAU_CREATOR_TOKEN_NAME, TABLEAU_CREATOR_TOKEN_VALUE",
    "sign-in-by-password": "set TABLEAU_USERNAME, TABLEAU_PASSWORD",
}


def test_facts_that_need_more(sandbox: Sandbox):
    """Prevents: a fact that nobody has tried counts as one that holds."""
    scene = scene_of(sandbox)
    facts = [fact for fact in FACTS if fact.name in NEEDED]
    with Playground(scene, "Default") as playground:
        outcomes = list(check(facts, scene, playground))
    assert {each.verdict for each in outcomes} == {Verdict.NOT_SHOWN}
    for each in outcomes:
        assert NEEDED[each.fact.name] in each.got
        assert "not tried" in each.got
    assert as_text(outcomes, scene).count("0 of 0") == len(NEEDED) + 1
    assert "not shown: not tried without a Viewer: set" in as_text(outcomes, scene)


def test_others_without_their_role(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a token of the wrong user makes a server look as if it checked no rights."""
    seeds = replace(ALICE, site_role="Viewer"), replace(VIEWER, site_role="Explorer")
    sandbox = start_sandbox(users=seeds)
    scene = scene_of(sandbox, {**OTHERS, VIEWER_TOKEN[1]: "a-wrong-secret"})
    facts = [fact for fact in FACTS if fact.name in ("viewer-uploads", "job-of-another-user")]
    with Playground(scene, "Default") as playground:
        reasons = {each.fact.name: each.got for each in check(facts, scene, playground)}
    assert reasons == {
        "viewer-uploads": "the token of the other user does not sign in",
        "job-of-another-user": "the other user is no Creator",
    }


def test_rights_that_somebody_has_too_many(sandbox: Sandbox, server: tsc.Server):
    """Prevents: nobody notices that a server does not refuse what the sandbox refuses."""
    project = server.projects.filter(name="Default")[0]
    herself = user(sandbox, ALICE).user_id
    leads = tsc.PermissionsRule(server.users.get_by_id(str(herself)), {"ProjectLeader": "Allow"})
    server.projects.update_permissions(project, [leads])
    names = ("publish-into-a-closed-project", "datasource-that-is-closed")
    facts = [fact for fact in FACTS if fact.name in names]
    scene = scene_of(sandbox, OTHERS)
    with Playground(scene, "Default") as playground:
        verdicts = [each.verdict for each in check(facts, scene, playground)]
    assert verdicts == [Verdict.DEVIATES, Verdict.DEVIATES]
    assert content(server)[0] == []


QUIRKS = [
    ("repeated-request-is-answered-alike", {"repeated_request": "conflict"}),
    ("repeated-request-has-a-job", {"repeated_request": "empty-job"}),
    ("update-moves-the-stamp", {"updates_move_stamp": "never"}),
    ("update-makes-no-revision", {"update_revisions": True}),
    ("revision-of-each-publish", {"revisions": False}),
    ("tags-leave-the-stamp", {"tags_move_stamp": True}),
    ("unfinished-job", {"early_finish_code": True}),
    ("replace-keeps-the-luid", {"replace": "refused"}),
    ("download-without-the-extract", {"download_without_extract": "tdsx"}),
    ("count-of-nothing", {"vds_empty": "zero"}),
    ("count-of-a-column", {"vds_access": "nobody"}),
]


@pytest.mark.slow
def test_what_tableau_leaves_open_is_noticed(sandbox: Sandbox):
    """Prevents: a fact that holds whatever a server does."""
    facts = {fact.name: fact for fact in FACTS}
    with Playground(
        scene_of(sandbox), "Default", pass_a_second=lambda: sandbox.advance(1)
    ) as playground:
        usual = {quirk.name: quirk.default for quirk in fields(Quirks)}
        for name, change in QUIRKS:
            sandbox.set_quirks(**usual)
            (as_usual,) = check([facts[name]], playground.scene, playground)
            assert as_usual.verdict is Verdict.HOLDS, name
            sandbox.set_quirks(**change)
            (otherwise,) = check([facts[name]], playground.scene, playground)
            assert otherwise.verdict is Verdict.DEVIATES, name


def test_no_fact_holds_of_a_server_that_refuses(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a fact that asks nothing, or that takes any refusal for the one it expects."""
    sandbox = start_sandbox(users=(ALICE, VIEWER), sites=("second",))
    scene = scene_of(sandbox, OTHERS)
    playground = Playground(scene, "Default", pass_a_second=lambda: None)
    sandbox.control.add(Refuse(status=500, times=None))
    outcomes = check(FACTS, scene, playground)
    assert [each.fact.name for each in outcomes if each.verdict is Verdict.HOLDS] == []


def test_removal_after_a_failure(sandbox: Sandbox, server: tsc.Server):
    """Prevents: an interrupted check leaves data sources or projects on somebody's site."""
    before = content(server)[:2]

    def interrupted() -> None:
        with Playground(scene_of(sandbox), "Default") as playground:
            playground.published()
            playground.new_project()
            playground.publish(playground.new_name(), query="asJob=true").succeeds(202)
            raise KeyboardInterrupt

    with sandbox.held_jobs(), pytest.raises(KeyboardInterrupt):
        interrupted()
    sandbox.wait_until_idle()
    assert content(server)[:2] == before


def test_removal_after_a_lost_answer(sandbox: Sandbox, server: tsc.Server):
    """Prevents: what was published stays, because nobody has seen its LUID."""
    facts = [fact for fact in FACTS if fact.name == "published-record"]
    with Playground(scene_of(sandbox), "Default") as playground:
        sandbox.control.add(Drop(when="after", method="POST", path="sites/*/datasources"))
        (outcome,) = check(facts, playground.scene, playground)
        assert outcome.verdict is Verdict.DEVIATES
        assert content(server)[0] != []
    assert content(server)[0] == []


def test_removal_fails(sandbox: Sandbox):
    """Prevents: something is left on somebody's site, and nobody is told."""
    playground = Playground(scene_of(sandbox), "Default")
    name = playground.published().name
    sandbox.control.add(Refuse(status=503, method="DELETE", times=1000))
    with pytest.raises(LeftBehindError, match=name):
        playground.clear()


@reads("GET sites/{any_site}", NOBODY)
def goes_away(scene: Scene) -> None:
    """Signing out ends the session."""
    with scene.sessions_of_its_own():
        scene.call("POST", "auth/signout", token=scene.token).succeeds(204)
        raise Deviation("this", "that")


def test_sessions_are_renewed(sandbox: Sandbox):
    """Prevents: one deviation at sign-in makes all later facts deviate."""
    facts = [goes_away, *(fact for fact in FACTS if fact.name == "site-of-the-session")]
    verdicts = [outcome.verdict for outcome in check(facts, scene_of(sandbox), None)]
    assert verdicts == [Verdict.DEVIATES, Verdict.HOLDS]


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--against", "http://127.0.0.1:9"], "cannot be reached"),
        (["--against", "{url}", "--project", "No such project"], "0 projects are called"),
    ],
)
def test_nothing_to_check(
    shared_sandbox: Sandbox,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    output: str,
):
    """Prevents: a server that was never checked passes for a good one, or for a bad one."""
    assert main([part.replace("{url}", shared_sandbox.url) for part in arguments]) == 2
    assert output in capsys.readouterr().err


def test_no_token(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Prevents: a traceback where one line would do."""
    monkeypatch.delenv("TABLEAU_TOKEN_NAME", raising=False)
    monkeypatch.delenv("TABLEAU_TOKEN_VALUE", raising=False)
    assert main(["--against", "http://127.0.0.1:9"]) == 2
    assert "set TABLEAU_TOKEN_NAME" in capsys.readouterr().err


@pytest.mark.usefixtures("named")
def test_refused_token(
    shared_sandbox: Sandbox,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: a wrong token shows in an error message."""
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "a-wrong-secret")
    assert main(["--against", shared_sandbox.url]) == 2
    output = capsys.readouterr().err
    assert "401001" in output
    assert "a-wrong-secret" not in output


@pytest.mark.slow
@pytest.mark.usefixtures("named")
def test_whole_command(sandbox: Sandbox, server: tsc.Server):
    """Prevents: the command as users start it fails, or leaves something behind."""
    server.projects.create(tsc.ProjectItem("Verified"))
    before = content(server)[:2]
    command = [*COMMAND, "verify", "--against", sandbox.url, "--project", "Verified"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert content(server)[:2] == before
