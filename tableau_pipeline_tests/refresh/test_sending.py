"""Requests that send rows: waits, kills, failures, timeouts, and changes by other users."""

import json
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome, PublishMode
from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.core.journal import Claim, ClaimRelease, History, Intent, Owner, Record
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import NotAcceptedError, RefreshError, RefusedError
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.jobs import Jobs
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.decide import Publish
from tableau_pipeline.refresh.preview import preview
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.publishing.conftest import hyper_file
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before, killed_for_real
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN, ANN
from tableau_pipeline_tests.refresh.support.pipeline import LOG, TIMEOUTS, WHOLE, Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy
from tableau_pipeline_tests.refresh.support.server_jobs import jobs, later, too_early
from tableau_pipeline_tests.refresh.support.shipping import refused
from tableau_pipeline_tests.refresh.support.states import NOON, checkpoint, table
from tableau_sandbox.faults import FailJob, HoldJobs, Refuse, SlowJob
from tableau_sandbox.testing import Sandbox

IMPATIENT = replace(TIMEOUTS, queue=0.2)
Before = Callable[[Pipeline], None]


def first(pipeline: Pipeline) -> None:
    """Leave the data source unpublished."""


def new_rows(pipeline: Pipeline) -> None:
    pipeline.run()
    rows = flights(9).to_pylist()
    rows[0]["delay"] = 99
    pipeline.model("flights", flights(9).from_pylist(rows[:1] + rows[3:], flights().schema))


def new_file(pipeline: Pipeline) -> None:
    pipeline.declare(**WHOLE)
    new_rows(pipeline)


def changed_rows(pipeline: Pipeline) -> None:
    pipeline.policy(Diff(("flight_id",)))
    new_rows(pipeline)


def assert_at_rest(pipeline: Pipeline) -> None:
    """Check that one data source has our name, tag and rows, and that a refresh changes nothing."""
    (item,) = pipeline.found()
    assert pipeline.wrong() == []
    assert pipeline.declaration.tag in item.tags
    report = pipeline.run()
    assert (report.decision, report.warnings) == ("no change", ())


@pytest.mark.slow
def test_killed_for_real(pipeline: Pipeline):
    """Prevents: the claim of a killed process blocks all later refreshes."""
    assert killed_for_real(pipeline, before="job") == -signal.SIGKILL
    assert [each.outcome for each in pipeline.journal.intents()] == [None]
    pipeline.run(around={"timeouts": replace(TIMEOUTS, claim=0)})
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("user", [ADMIN, ANN], ids=["admin", "ann"])
@pytest.mark.parametrize("step", ["update", "job"])
def test_nothing_is_sent_beside_a_job_that_may_run(
    new_pipeline: Callable[..., Pipeline], user: tuple[str, str], step: str
):
    """Prevents: a refresh sends new rows while an old job may run and replace the rows."""
    pipeline = new_pipeline(user=user, on={"job_access": "own-jobs"}, reconcile=None)
    changed_rows(pipeline)
    assert killed_before(pipeline, step)
    sent = len(jobs(pipeline))
    pipeline.model("flights", flights(10))
    if user == ANN:
        too_early(pipeline)
        later(pipeline)
    pipeline.run()
    assert len(jobs(pipeline)) == sent + 1
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("status", [401, 429])
@pytest.mark.parametrize("before", [changed_rows, new_file])
def test_request_that_a_server_has_not_accepted(
    new_pipeline: Callable[..., Pipeline], before: Before, status: int
):
    """Prevents: after a request that the server turned away, the next refresh waits for hours."""
    pipeline = new_pipeline(user=ANN, on={"job_access": "own-jobs"})
    before(pipeline)
    kind, path = ("PATCH", "/*/data") if before is changed_rows else ("POST", "")
    refuse = Refuse(
        method=kind, path=f"sites/*/datasources{path}", status=status, retry_after=999, times=None
    )
    with pipeline.sandbox.armed(refuse):
        refused(pipeline.run, f"{status}00", error=NotAcceptedError)
    assert [each.outcome for each in pipeline.journal.intents()] == [Outcome.REFUSED]
    pipeline.run()
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_store_that_loses_its_answer(new_pipeline: Callable[..., Pipeline]):
    """Prevents: after a request that was never sent, the next refresh waits for hours."""
    pipeline = new_pipeline(user=ANN, on={"job_access": "own-jobs"})
    changed_rows(pipeline)

    def lose() -> None:
        raise StoreError("no answer")

    around = {"around_journal": lambda journal: At(journal, "append", lose, when="after")}
    with pytest.raises(StoreError):
        pipeline.run(around=around)
    assert [each.outcome for each in pipeline.journal.intents()] == [Outcome.REFUSED]
    pipeline.run()
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("call", ["updated_at", "tag"])
@pytest.mark.parametrize("before", [changed_rows, new_file])
def test_refusal_of_a_later_request(pipeline: Pipeline, before: Before, call: str):
    """Prevents: an error after a request counts as a refusal, and the request is sent again."""
    before(pipeline)
    (item,) = pipeline.found()
    pipeline.eyes.untag(str(item.id), [pipeline.declaration.tag])
    sent = len(jobs(pipeline))

    def refuse() -> None:
        raise RefusedError("403004 Forbidden", code=Code.SERVER)

    around = {"around_server": lambda server: At(server, call, refuse)}
    with ExitStack() as held:
        if call == "updated_at":
            held.enter_context(pipeline.sandbox.held_jobs())
        error = refused(lambda: pipeline.run(around=around), "403004", error=RefreshError)
        assert not isinstance(error, RefusedError)
        assert len(jobs(pipeline)) == sent + 1
    pipeline.run()
    assert len(jobs(pipeline)) == sent + 1
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("user", [ADMIN, ANN], ids=["admin", "ann"])
def test_forgotten_job(new_pipeline: Callable[..., Pipeline], user: tuple[str, str]):
    """Prevents: a refresh waits for a job that has ended and that the server has removed."""
    pipeline = new_pipeline(user=user, on={"job_access": "own-jobs"})
    changed_rows(pipeline)
    assert killed_before(pipeline, "outcome")
    (left,) = pipeline.journal.intents()
    nowhere = "00000000-0000-0000-0000-000000000000"
    pipeline.journal.store(left.model_copy(update={"job_id": nowhere}))
    # The data source shows that a request took effect. Without a comparison of rows, only a full
    # publish is safe.
    assert pipeline.run().decision == "publish (replace)"
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("sent", [False, True])
def test_guards_compare_with_the_most_that_may_be_there(pipeline: Pipeline, *, sent: bool):
    """Prevents: a request that never took effect lowers the limit of a guard."""
    pipeline.model("flights", flights(100))
    pipeline.run()
    pipeline.model("flights", flights(60))
    assert killed_before(pipeline, "job" if sent else "update")
    pipeline.model("flights", flights(40))
    refused(pipeline.run, "40 rows where 100 are published")


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("step", ["update", "job", "outcome"])
def test_what_a_plan_says_after_a_kill(pipeline: Pipeline, step: str):
    """Prevents: a plan says that the server does not know a job, but did not ask the server."""
    changed_rows(pipeline)
    assert killed_before(pipeline, step)
    with session(pipeline.sandbox) as site:
        found = {
            look: [e.text for e in preview(pipeline.refresh(), each).notes if e.topic == "waits"]
            for look, each in (("site", site), ("offline", None))
        }
    if step == "outcome":
        # The server reports how the job ended.
        assert found["site"] == []
        assert "how that ended is not known here" in found["offline"][0]
        return
    for (message,) in found.values():
        assert "its update of " in message
        assert "was cut off before its job was known" in message


SITES: dict[str, dict[str, Any]] = {
    "late": {"updates_move_stamp": "late", "late_stamp_seconds": 0.3},
    "stays": {"updates_move_stamp": "never"},
    "after the job": {"job_stamps": "after"},
    "updates make revisions": {"update_revisions": True},
    "tags move stamps": {"tags_move_stamp": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("on", SITES.values(), ids=SITES)
def test_updates_go_on_whatever_a_site_shows_of_them(
    new_pipeline: Callable[..., Pipeline], on: dict[str, Any]
):
    """Prevents: on some sites, every refresh publishes the whole file instead of an update."""
    pipeline = new_pipeline(on=on, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    for rows in range(8, 11):
        pipeline.model("flights", flights(rows))
        report = pipeline.run()
    assert report.decision == "update"
    assert pipeline.wrong() == []


def left(refresh: int, **versions: int) -> Checkpoint:
    """Return the checkpoint of a refresh, with these versions of models."""
    tables = {model: table(model=model, version=number) for model, number in versions.items()}
    return checkpoint(refresh=refresh, tables=tables)


def intent(refresh: int, **more: object) -> Intent:
    usual = {"refresh": refresh, "step": 1, "request_id": f"{refresh}", "recorded_at": NOON}
    usual |= {"run_id": f"run {refresh}", "mode": PublishMode.REPLACE, "name": "Sales"}
    usual |= {"project_id": "project-1", "luid": "luid-1", "target": left(refresh, orders=refresh)}
    return Intent.model_validate(usual | more)


def history_of(*records: Record) -> History:
    """Return the history of these records, in this order."""
    return reduce(History.after, records, History())


@pytest.mark.parametrize("outcome", [None, *Outcome], ids=str)
def test_versions_that_may_be_published(outcome: Outcome | None):
    """Prevents: the removal of old snapshots deletes a version that the next update needs."""
    claim = Claim(refresh=1, owner=Owner(run_id="run 1"))
    base = ClaimRelease(refresh=1, claim=claim.id, checkpoint=left(1, orders=1, items=1))
    history = history_of(claim, base, intent(2, outcome=outcome))
    landed = outcome in (None, Outcome.DONE, Outcome.LOST)
    versions = {("orders", 1), ("items", 1)} | ({("orders", 2)} if landed else set())
    assert history.versions == versions
    published = [history.published_version(model) for model in ("orders", "items", "notes")]
    assert published == [2 if landed else 1, 1, None]


def test_newest_of_several_versions():
    """Prevents: a history names an older version than the version that was sent last."""
    lost = intent(2, target=left(2, orders=9), outcome=Outcome.LOST)
    history = history_of(intent(3, target=left(3, orders=7)), lost, intent(4, target=None))
    assert history.published_version("orders") == 7


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("killed", [False, True])
def test_failed_update_is_followed_by_the_whole_file(pipeline: Pipeline, *, killed: bool):
    """Prevents: an update that fails on the server is sent again and again."""
    changed_rows(pipeline)
    with pipeline.sandbox.armed(FailJob(notes="Out of memory.")):
        if killed:
            assert killed_before(pipeline, "look")
            pipeline.sandbox.wait_until_idle()
        else:
            actions = "Its actions were: 1. delete Extract.Extract; 2. insert Extract.Extract. "
            refused(pipeline.run, "failed. Out of memory.", actions, error=RefreshError)
    why = "full publish: the last update failed on the server (Out of memory.)"
    assert why in pipeline.decide()
    assert pipeline.run().plan == Publish(PublishMode.REPLACE, why)
    assert_at_rest(pipeline)
    pipeline.model("flights", flights(10))
    assert pipeline.run().decision == "update"


@pytest.mark.slow
@pytest.mark.parametrize("before", [new_file, first])
def test_job_that_takes_too_long_is_cancelled(pipeline: Pipeline, before: Before):
    """Prevents: a cancelled job counts as done, or as a job that may still take effect."""
    before(pipeline)
    parts = ("cancelled", "has not changed", "sends it again")
    with pipeline.sandbox.held_jobs():
        message = refused(
            lambda: pipeline.run(around={"timeouts": IMPATIENT}), *parts, error=RefreshError
        )
    (left,) = pipeline.journal.intents()
    assert left.outcome is Outcome.CANCELLED
    assert f"job {left.job_id}" in str(message)
    assert "interrupted" not in pipeline.decide()
    pipeline.run()
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_failed_job_is_told_with_its_notes(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a failed job looks like a success, or the message does not give the reason."""
    on = {"taken_name": "at-request"}
    pipeline = new_pipeline(on=on)
    rival = new_pipeline(pipeline.name, on=on, key="rival")
    control = pipeline.sandbox.control
    held = control.add(HoldJobs())
    assert killed_before(pipeline, "job")  # the job of the create is still queued

    def releasing(server: Any) -> At:
        return At(server, "publish", lambda: control.clear(held.number), when="after")

    parts = (f'Publishing "{rival.name}"', "failed", "already exists", "has not changed")
    refused(lambda: rival.run(around={"around_server": releasing}), *parts, error=RefreshError)
    assert [each.outcome for each in rival.journal.intents()] == [Outcome.FAILED]
    pipeline.run()
    assert_at_rest(pipeline)


def meddled(
    pipeline: Pipeline, moment: str, happens: Callable[[], object], *, times: int = 1
) -> Refreshed:
    """Refresh; call `happens` after the upload ("uploaded") or the end of the job ("ended")."""

    class Meddled(Proxy):
        left = times

        def after(self, name: str, answer: object) -> None:
            is_ended = name == "job" and getattr(answer, "outcome", None)
            if self.left and moment == ("ended" if is_ended else f"{name}ed"):
                self.left -= 1
                happens()

    return pipeline.run(around={"around_server": Meddled})


def publishes(pipeline: Pipeline) -> Callable[[], object]:
    """Return a function that publishes other rows as another user."""
    return lambda: other_users.publishes(pipeline, flights(3), user=ADMIN)


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("before", "moment", "on"),
    [
        pytest.param(changed_rows, "uploaded", {}, id="before"),
        pytest.param(new_file, "ended", {}, id="after"),
        # Only the revisions show the publish of the other user.
        pytest.param(changed_rows, "ended", {"stamps_within_second": "shared"}, id="same second"),
    ],
)
def test_another_user_publishes_meanwhile(
    new_pipeline: Callable[..., Pipeline], before: Before, moment: str, on: dict[str, Any]
):
    """Prevents: another user publishes during a refresh, and later refreshes keep their rows."""
    pipeline = new_pipeline(on=on, reconcile=None)
    before(pipeline)
    assert isinstance(meddled(pipeline, moment, publishes(pipeline)).plan, Publish)
    pipeline.run()
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_another_user_publishes_again_and_again(pipeline: Pipeline):
    """Prevents: a refresh never ends because another user publishes again and again."""
    changed_rows(pipeline)
    began = len(jobs(pipeline))
    report = meddled(pipeline, "ended", publishes(pipeline), times=99)
    assert len(jobs(pipeline)) == began + 2
    assert report.warnings
    # The summary names the other user.
    for part in ("to be compared by the next refresh", 'was published by "admin" at 20'):
        assert part in report.summary
    assert isinstance(pipeline.run().plan, Publish)
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_another_user_describes_it_meanwhile(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a description that an analyst edits makes a refresh publish the whole file."""
    pipeline = new_pipeline(reconcile=Reconcile())
    changed_rows(pipeline)
    report = meddled(pipeline, "ended", lambda: other_users.describes(pipeline))
    assert report.decision == "update"
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_what_was_seen_meanwhile_is_remembered(new_pipeline: Callable[..., Pipeline]):
    """Prevents: after a failed publish, rows of another user pass for ours."""
    pipeline = new_pipeline(on={"revisions": False})
    changed_rows(pipeline)
    held = ExitStack()
    looks: list[str] = []

    class Server(Proxy):
        """Hold our job until the other user has published, and afterwards refuse our publish."""

        def job(self, luid: str) -> Any:
            if not looks:
                publishes(pipeline)()
            if len(looks) == 1:
                # Our job needs a later time stamp than the other user's publish. Time stamps have
                # whole seconds, and may be a second ahead.
                pipeline.sandbox.advance(3)
                held.close()
            looks.append(luid)
            return self.behind.job(luid)

        def publish(self, *_: Any, **__: Any) -> Any:
            raise RefusedError("no whole files today")

    with held:
        held.enter_context(pipeline.sandbox.held_jobs())
        around: dict[str, Any] = {"around_server": Server}
        parts = ("The update took effect. After that,", "no whole files today")
        refused(lambda: pipeline.run(around=around), *parts, error=RefreshError)
    assert "the server says that it was updated at" in pipeline.run().plan.reason
    assert_at_rest(pipeline)


TABLE = {"target-schema": "Extract", "target-table": "Extract"}
CLEAR = json.dumps({"actions": [{"action": "delete", **TABLE, "condition": True}]})


@pytest.fixture
def send(eyes: TableauSite, tmp_path: Path) -> Callable[[], str]:
    """Return a function that starts a job, which clears a data source, and returns the job's ID."""
    name, project = f"Sales {uuid4().hex[:8]}", eyes.project("Default", create=False)
    upload = eyes.upload(hyper_file(tmp_path, pa.table({"number": range(5)})))
    job = eyes.publish(upload, name=name, project_id=project, mode=PublishMode.CREATE)
    assert Jobs(eyes, Timeouts(first_poll=0.02), sleep, LOG).wait(job)
    luid = eyes.find_by_name(name, project_id=project).luid
    return lambda: eyes.update(luid, batch=CLEAR, upload=None, request_id=str(uuid4()))


class Waiting(Proxy):
    """A site on which a wait for a job moves the sandbox's clock instead of sleeping.

    Attributes:
        looks: for each request for a job, the seconds of simulated sleep before the request.
        slept: the total seconds of simulated sleep.
    """

    def __init__(self, sandbox: Sandbox, site: TableauSite) -> None:
        super().__init__(site)
        self._sandbox, self.slept = sandbox, 0.0
        self.looks: list[float] = []

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "job":
            self.looks.append(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._sandbox.advance(seconds)

    def wait(self, job_id: str, /, **timeouts: float) -> Any:
        site: Any = self
        return Jobs(site, Timeouts(**timeouts), self.sleep, LOG).wait(job_id)


@pytest.fixture
def waiting(sandbox: Sandbox, eyes: TableauSite) -> Waiting:
    return Waiting(sandbox, eyes)


def test_job_that_takes_too_long_to_start(
    waiting: Waiting, sandbox: Sandbox, send: Callable[[], str], caplog: pytest.LogCaptureFixture
):
    """Prevents: a refresh asks for a job too often or too rarely, or waits for ever."""
    caplog.set_level(logging.INFO, LOG.name)
    with sandbox.armed(HoldJobs()):
        job = send()
        status = waiting.wait(job, queue=1000, job=10)
    assert waiting.looks[:3] == [0, 0.25, 0.625]
    later = [at for at in waiting.looks if at >= 4]
    pauses = [second - first for first, second in pairwise(later)][:-2]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60
    assert all(second - first >= 1 for first, second in pairwise(later)), "also near the end"
    assert len(waiting.looks) < 35
    assert f"Waiting for job {job} on the server (in the queue)" in str(caplog.messages)
    note = "It was cancelled because it did not start within 1000 s (queue_timeout)."
    assert (status.outcome, status.notes) == (Outcome.CANCELLED, note)
    assert waiting.slept == pytest.approx(1000, abs=5)
    assert waiting.job(job).outcome is Outcome.CANCELLED, "it never takes effect"


def test_job_that_runs_too_long_is_cancelled(
    waiting: Waiting, sandbox: Sandbox, send: Callable[[], str]
):
    """Prevents: a refresh waits for a running job longer than `job_timeout`."""
    with sandbox.armed(SlowJob(seconds=1000)):
        job = send()
        sandbox.wait_until_running()
        status = waiting.wait(job, queue=1000, job=100)
    assert status.outcome is Outcome.CANCELLED
    assert "did not finish within 100 s (job_timeout)" in status.notes
    assert waiting.slept == pytest.approx(100, abs=5)
    # Let the time of the job pass, so that the sandbox starts its next job.
    sandbox.advance(1000)


def test_job_that_ends_at_the_last_moment(
    eyes: TableauSite, sandbox: Sandbox, send: Callable[[], str]
):
    """Prevents: a job ends while a refresh cancels it, and the update counts as cancelled."""
    held = sandbox.control.add(HoldJobs())
    job = send()

    class TooLate(Waiting):
        def cancel(self, job_id: str) -> bool:
            sandbox.control.clear(held.number)
            sandbox.wait_until_idle()
            return eyes.cancel(job_id)

    assert TooLate(sandbox, eyes).wait(job, queue=5).outcome is Outcome.DONE
