"""Trials of sites that behave as documented, and of sites that behave differently."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as TSC
from tableauhyperapi import TableName

from tableau_pipeline.command_line.main import run
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.build import NEW, create_table, new_file
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.updates import record_of
from tableau_pipeline.trial.facts import FACTS, Verdict
from tableau_pipeline.trial.trial import STEPS, Trial, try_out
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN, ANN
from tableau_pipeline_tests.refresh.support.pipeline import (
    STAR,
    WHOLE,
    Pipeline,
    declared,
    session,
)
from tableau_pipeline_tests.refresh.support.server_jobs import jobs
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox

NO_LIST = dict.fromkeys(
    (
        "titles-in-the-list",
        "kind-of-a-publish-in-the-list",
        "kind-of-an-update-in-the-list",
    ),
    "may not list jobs",
)
# Facts that cannot be checked by a user who may not ask for jobs.
NO_JOBS = NO_LIST | {
    "finished-job-is-kept": "may not ask for jobs",
    "listed-at-once": "may not ask for jobs",
    "stamp-of-a-job": "no job was seen to end",
    "repeated-request-while-its-job-waits": "may not ask for jobs",
    "failed-update": "may not ask for jobs",
    "taken-name-as-a-job": "may not ask for jobs",
}
# The sites of the usual tests; `make test-long` tries all sites.
_IN_CI = ("as documented", "a creator", "ended sessions", "2024.3", "blocks as they come")
# For each site: its quirks, the user, and the facts that are not as assumed.
SITES: Mapping[str, tuple[dict[str, Any], tuple[str, str], dict[str, str]]] = {
    "as documented": ({}, ADMIN, {}),
    "a creator": ({}, ANN, NO_JOBS),
    "own jobs": (
        {"job_access": "own-jobs", "failed_jobs": "error-note"},
        ANN,
        NO_LIST
        | {
            "own-job-of-a-creator": "no administrator, this user may ask",
            "failed-update": "the finishCode 0",
        },
    ),
    "ended sessions": (
        {"job_access": "session-lost", "table_ids": "plain"},
        ANN,
        {
            **NO_JOBS,
            "identifiers-by-desktop": "it is like Extract_",
        },
    ),
    "stamps that stay": (
        {"updates_move_stamp": "never", "revisions": False, "second_update": "queued"},
        ADMIN,
        {
            "update-moves-the-stamp": "it never moves",
            "revision-of-each-publish": "no revisions",
            "update-makes-no-revision": "no revisions",
            "second-update": "it is queued",
        },
    ),
    "late stamps": (
        {"updates_move_stamp": "late", "update_revisions": True, "edits_move_stamp": False},
        ADMIN,
        {
            "update-moves-the-stamp": "some seconds later",
            "stamp-of-a-job": "it follows by 2 s",
            "update-makes-no-revision": "it makes 1",
            "description-moves-the-stamp": "it stays",
        },
    ),
    "Replace fails": (
        {"replace": "fails", "several_tables": "refused", "tags_move_stamp": True},
        ADMIN,
        {
            "replace-keeps-the-model": "its job fails",
            "two-related-tables": "its job fails",
            "tags-leave-the-stamp": "it moves updatedAt",
        },
    ),
    "Replace overwrites": (
        {"replace": "like-overwrite", "taken_name": "at-request", "missing_warnings": "empty"},
        ADMIN,
        {
            "replace-keeps-the-model": "it drops them",
            "taken-name-as-a-job": "the request is refused",
            "warnings-of-an-asset-without-one": "the list is empty",
        },
    ),
    "blocks as they come": (
        {"block_numbers": "ignored"},
        ADMIN,
        {"blocks-out-of-order": "the file is damaged then"},
    ),
    "2024.3": (
        {"rest_version": "3.24", "product_version": "2024.3.0", "vds": False},
        ADMIN,
        {"replace-keeps-the-model": "3.24 of the REST API has no Replace", "count-of-rows": ""},
    ),
    "jobs without a name": (
        {"job_titles": False, "job_words": "unknown", "repeated_request": "empty-job"},
        ADMIN,
        {
            "titles-in-the-list": "jobs have no titles",
            "kind-of-a-publish-in-the-list": "it is upload_datasource",
            "kind-of-an-update-in-the-list": "it is apply_data_changes",
            "repeated-request-while-its-job-waits": "answered without a job",
            "repeated-request-is-answered-alike": "answered without a job",
        },
    ),
    "jobs that are gone": (
        {"finished_jobs": "gone", "repeated_request": "conflict", "index_lag_seconds": 3},
        ADMIN,
        {
            "finished-job-is-kept": "it is gone at once",
            "listed-at-once": "it takes",
            "stamp-of-a-job": "no job was seen to end",
            "repeated-request-while-its-job-waits": "refused as another update",
            "repeated-request-is-answered-alike": "refused as another update",
            "failed-update": "no longer shows the job",
        },
    ),
    "no packages": (
        {"packages": False, "download_without_extract": "tdsx-with-data"},
        ADMIN,
        {
            "data-without-the-extract": "it has the data",
            "published-package": "",
            "overwrite-keeps-the-luid": "no package",
            "overwrite-keeps-tags": "no package",
            "replace-keeps-the-model": "no package",
            "refresh-keeps-work": "no package",
        },
    ),
}


@contextmanager
def site_of(
    folder: Path, user: tuple[str, str], **quirks: Any
) -> Generator[tuple[Sandbox, TableauSite]]:
    """Yield a site with these quirks; its jobs wait a little, so that two jobs can overlap."""
    ann = UserSeed(name=ANN[0], password=ANN[1])
    options: dict[str, Any] = {"job_delay": 0.3, **quirks}
    with (
        running_sandbox(folder / "sandbox", users=(ann,), **options) as sandbox,
        session(sandbox, *user) as site,
    ):
        yield sandbox, site


def tried(site: TableauSite, folder: Path, **more: Any) -> Trial:
    """Try a site out, with the files of the trial in `folder`."""
    given: dict[str, Any] = {"wait": 20, "resume": False, "tell": lambda _: None, **more}
    place = {"folder": folder / "trials", "backups": folder / "kept"}
    return try_out(site, hyper_process(), "Default", **place, **given)


def publish(site: TableauSite, folder: Path, name: str) -> None:
    """Publish a data source, as a user does in Tableau Desktop."""
    file = folder / "theirs.hyper"
    with new_file(hyper_process(), file, version=2) as connection:
        create_table(connection, TableName(NEW, "Extract", "Extract"), {"id": "BIGINT"})
    item = TSC.DatasourceItem(site.project("Default", create=False), name=name)
    site.tsc.datasources.publish(item, file, "CreateNew")


def left(site: TableauSite) -> list[str]:
    """Return the names of the data sources in the project."""
    return [each.name for each in site.in_project(site.project("Default", create=False))]


def refreshes(sandbox: Sandbox, folder: Path, user: tuple[str, str], **quirks: Any) -> None:
    """Check that refreshes use what a trial has found: none of their jobs fails."""
    with session(sandbox) as eyes:

        def pipeline(name: str, **more: Any) -> Pipeline:
            declaration = declared(name, reconcile=Reconcile(), **more)
            made = Pipeline(sandbox, eyes, folder, declaration, user=user)
            made.model("flights", flights())
            return made

        rows = pipeline("Rows")
        rows.policy(Diff(("flight_id",)))
        star = pipeline("Star", tables=("flights", "airlines"), relationships=STAR)
        star.model("airlines", airlines())
        files = pipeline("Files", **WHOLE)
        for each in (rows, star, files):
            assert each.run().decision == "publish (create)"
        rows.model("flights", flights(9))
        assert rows.run().decision == "update"
        star.run()
        if quirks.get("packages", True):
            other_users.adds_a_calculated_field(files)
        assert files.run().decision == "publish (replace)"
        assert ("Delayed" in files.tds()) is quirks.get("packages", True)
        for each in (rows, star, files):
            assert each.wrong() == []
            assert {job.outcome for job in jobs(each)} <= {Outcome.DONE}
            assert each.run().decision == "no change"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _IN_CI else pytest.mark.long) for name in SITES]
)
def test_what_a_trial_finds(tmp_path: Path, name: str):
    """Prevents: a trial reports wrong facts, or misses a fact that makes a refresh fail."""
    quirks, user, differences = SITES[name]
    with site_of(tmp_path, user, **quirks) as (sandbox, site):
        # A user who may not ask for jobs does not see that a job fails, and waits all this time.
        trial = tried(site, tmp_path, wait=20 if user == ADMIN else 8)
        assert left(site) == []
        refreshes(sandbox, tmp_path, user, **quirks)
    assert (trial.failed, trial.left, trial.waits) == ({}, [], None)
    assert [each.fact for each in trial.answers] == [*FACTS]
    found = {e.fact: e.detail for e in trial.answers if e.verdict is not Verdict.AS_ASSUMED}
    assert found.keys() == differences.keys(), found
    for fact, detail in differences.items():
        assert detail in found[fact]


@pytest.mark.slow
def test_trial_hardly_waits_for_a_gateway(tmp_path: Path):
    """Prevents: a trial waits in silence for ten minutes, where no time stamp shows its update."""
    steps, pauses = [""], list[float]()
    with site_of(tmp_path, ADMIN, updates_move_stamp="never") as (sandbox, site):

        def pause(seconds: float) -> None:
            if steps[-1] == "refresh after a lost answer":
                pauses.append(seconds)
                sandbox.wait_until_idle()
                sandbox.advance(seconds)
            else:
                time.sleep(min(seconds, 0.05))

        assert tried(site, tmp_path, wait=600, tell=steps.append, sleep=pause).failed == {}
    assert 0 < sum(pauses) < 120


@pytest.mark.slow
def test_usual_site(tmp_path: Path):
    """Prevents: a trial fails, leaves data sources behind, or does not record its facts."""
    with site_of(tmp_path, ADMIN) as (_, site):
        trial = tried(site, tmp_path)
        facts = record_of(site, tmp_path / "sites").facts
        assert left(site) == []
    assert {each.verdict for each in trial.answers} == {Verdict.AS_ASSUMED}
    learnt = {"replaces": True, "takes_bare_stars": True, "updates_move_stamp": True}
    learnt["orders_blocks"] = True
    assert facts.model_dump().items() >= learnt.items()
    assert facts.job_words.keys() == {"publish_datasource", "update_uploaded_file"}
    assert not [*(tmp_path / "trials").rglob("*.hyper")]


def test_project_that_is_not_there(tmp_path: Path):
    """Prevents: a trial publishes into a project that the user has not named."""
    with site_of(tmp_path, ADMIN) as (_, site):
        with pytest.raises(RefusedError, match="Nowhere"):
            try_out(
                site,
                hyper_process(),
                "Nowhere",
                folder=tmp_path,
                backups=tmp_path / "kept",
                wait=1,
                resume=False,
                tell=print,
            )
        with pytest.raises(RefusedError, match="leave out --resume"):
            tried(site, tmp_path, resume=True)


@pytest.mark.slow
def test_long_queue(tmp_path: Path):
    """Prevents: on a site with a long queue, each trial starts from the beginning."""
    steps: list[str] = []
    with site_of(tmp_path, ADMIN, job_delay=0) as (sandbox, site):

        def hold(step: str) -> None:
            steps.append(step)
            if step == "send again":
                held.enter()

        held = Held(sandbox)
        first = tried(site, tmp_path, wait=3, tell=hold)
        assert "start the trial again with --resume" in str(first.waits)
        held.leave()
        sandbox.wait_until_idle()
        again: list[str] = []
        second = tried(site, tmp_path, resume=True, tell=again.append)
        assert left(site) == []
    assert again[1] == "send again", "what was done is not done again"
    assert (second.failed, second.waits) == ({}, None)
    assert [each.fact for each in second.answers] == [*FACTS]


class Held:
    """Holds the jobs of a sandbox from `enter` to `leave`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._armed = sandbox.armed(HoldJobs())

    def enter(self) -> None:
        self._armed.__enter__()

    def leave(self) -> None:
        self._armed.__exit__(None, None, None)


KILLED = """
import os, sys, time
from pathlib import Path
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.trial.trial import try_out

url, folder, last, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def tell(step):
    if step == last:
        os.kill(os.getpid(), name)

with signed_in(url, site="", credentials=Password("admin", "admin")) as site:
    try_out(site, hyper_process(), "Default", folder=folder / "trials", backups=folder / "kept",
            wait=20, resume=False, tell=tell, sleep=lambda seconds: time.sleep(min(seconds, 0.02)))
"""


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(STEPS[2::5], marks=pytest.mark.long, id="some steps"),
        pytest.param(STEPS[1:], marks=pytest.mark.long, id="each step"),
    ],
)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_nothing_is_left_of_a_trial_that_was_ended(
    tmp_path: Path, end: signal.Signals, steps: Sequence[tuple[str, object]]
):
    """Prevents: a trial that was ended leaves data sources in the project for ever."""
    with site_of(tmp_path, ADMIN, job_delay=0.05) as (_, site):
        for step, _ in steps:
            command = [sys.executable, "-c", KILLED, site.url, str(tmp_path), step, str(int(end))]
            subprocess.run(command, check=False, capture_output=True, timeout=120)
            if end is signal.SIGINT:
                assert left(site) == []
        if end is signal.SIGKILL:
            assert left(site), "it was killed in the middle"
        tried(site, tmp_path)
        assert left(site) == []


@pytest.mark.slow
def test_only_what_a_trial_has_made_is_deleted(tmp_path: Path):
    """Prevents: a trial deletes a data source of another user that has a similar name."""
    with site_of(tmp_path, ADMIN, job_delay=0) as (sandbox, site):
        with session(sandbox, *ANN) as anns:
            theirs = ["tableau-pipeline trial 0123abcd site", "tableau-pipeline trial of mine"]
            for name in theirs:
                publish(anns, tmp_path, name)
        tried(site, tmp_path)
        assert sorted(left(site)) == sorted(theirs)


@pytest.mark.slow
def test_as_a_user_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: the documentation shows output that no command writes, or output shows a secret."""
    quirks: dict[str, Any] = {"updates_move_stamp": "late", "several_tables": "refused"}
    for name in [name for name in os.environ if re.match("TABLEAU_|PIPELINE_|DAGSTER_", name)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with running_sandbox(tmp_path / "sandbox", job_delay=0.3, **quirks) as sandbox:
        monkeypatch.setenv("TABLEAU_SERVER_URL", sandbox.url)
        monkeypatch.setenv("TABLEAU_TOKEN_NAME", sandbox.token_name)
        monkeypatch.setenv("TABLEAU_TOKEN_VALUE", sandbox.token_secret)
        with session(sandbox) as site:
            site.project("Playground", create=True)
        command = "doctor --trial Playground"
        output, errors = StringIO(), StringIO()
        with redirect_stdout(output), redirect_stderr(errors):
            assert run(shlex.split(command)) == 0
            assert run(["doctor", "--trial", "Elsewhere"]) == 1
    assert 'There is no project "Elsewhere" that this user may see' in errors.getvalue()
    shown = [line.rstrip() for line in (errors.getvalue() + output.getvalue()).splitlines()]
    documented = documented_transcript(f"tableau-pipeline {command}")
    assert [line for line in documented if line != "..." and line not in shown] == []
    assert sandbox.token_secret not in output.getvalue() + errors.getvalue()


def documented_transcript(command: str) -> list[str]:
    """Return the output of a command, as the documentation shows it."""
    blocks = page("how-to/first-contact.md").whole.blocks("console")
    text = next(each for each in blocks if each.startswith(f"$ {command}\n"))
    return text.strip().splitlines()[1:]


def test_facts_are_documented():
    """Prevents: the documentation lacks a fact, or explains a fact that no trial checks."""
    rows = page("how-to/first-contact.md").whole.rows()
    facts = {row["what it means"]: row["if these differ"].split(", ") for row in rows}
    listed = [name for names in facts.values() for name in names]
    assert sorted(listed) == sorted(FACTS)
    # The documentation must not call a difference harmless if the report warns of it.
    harmless = [name for name, fact in FACTS.items() if fact.if_different.startswith("None:")]
    assert sorted(facts["Nothing."]) == sorted(harmless)
    learnt = "Refreshes take this into account from now on."
    known = [name for name, fact in FACTS.items() if fact.if_different.endswith(learnt)]
    assert sorted(facts[learnt]) == sorted(known)
    for meaning in ("Each change is published in full.", "Declare one table for each data source."):
        same = [name for name, fact in FACTS.items() if fact.if_different == meaning]
        assert sorted(facts[meaning]) == sorted(same)
