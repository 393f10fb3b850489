"""What became of a sending whose refresh was killed, on all kinds of servers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.plan import NoChange, Publish, Update
from tableau_pipeline_tests.refresh.recover.test_crash import assert_recovered, changed_rows
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ANN
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, Pipeline
from tableau_pipeline_tests.refresh.support.server_jobs import jobs, later, too_early
from tableau_sandbox.faults import FailJob

ADMIN = ("", "")
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "stays": {"updates_move_stamp": "never"},
    "stays, no revisions": {"updates_move_stamp": "never", "revisions": False},
    "late": {"updates_move_stamp": "late", "late_stamp_seconds": 0.3},
    "after the job": {"job_stamps": "after"},
    "updates make revisions": {"update_revisions": True},
    "tags move stamps": {"tags_move_stamp": True},
}
QUICK = ("usual", "after the job")


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("user", [ADMIN, ANN], ids=["admin", "ann"])
@pytest.mark.parametrize(
    "on",
    [
        pytest.param(on, id=kind, marks=() if kind in QUICK else pytest.mark.slow)
        for kind, on in KINDS.items()
    ],
)
@pytest.mark.parametrize("step", ["update", "job", "outcome"])
def test_killed_on_all_kinds_of_servers(
    new_pipeline: Callable[..., Pipeline], on: dict[str, Any], user: tuple[str, str], step: str
):
    """Prevents: on some server, a killed update is lost, or undoes what came after it."""
    # What late stamps leave in doubt, the rows have to tell.
    is_late = "job_stamps" in on or "late_stamp_seconds" in on
    reconcile = Reconcile() if is_late else None
    pipeline = new_pipeline(on=on, user=user, reconcile=reconcile)
    changed_rows(pipeline)
    assert killed_before(pipeline, step)
    sent = len(jobs(pipeline))
    pipeline.model("flights", flights(10))
    if user == ANN and step != "outcome":
        too_early(pipeline)
        later(pipeline)
    pipeline.run(around={"timeouts": replace(TIMEOUTS, timestamp=5 if is_late else 0)})
    assert len(jobs(pipeline)) == sent + 1
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("offset", [-300, 300], ids=["behind", "ahead"])
@pytest.mark.slow
def test_clock_of_the_server_is_another(new_pipeline: Callable[..., Pipeline], offset: int):
    """Prevents: our clock hides a job that may still run, or makes us wait for nothing."""
    pipeline = new_pipeline(on={"clock_offset": offset})
    changed_rows(pipeline)
    with pipeline.sandbox.held_jobs():
        assert killed_before(pipeline, "job")
        pipeline.model("flights", flights(10))
        with pytest.raises(RefreshError, match="did not start within"):
            pipeline.run(around={"timeouts": replace(TIMEOUTS, queue=0.2)})
        assert len(jobs(pipeline)) == 3, "the open one, which was cancelled, and a new one"
        assert {each.outcome for each in jobs(pipeline)[:2]} == {Outcome.CANCELLED}
    pipeline.run()
    assert_recovered(pipeline)


@pytest.mark.slow
def test_job_of_a_renamed_data_source_is_waited_for(pipeline: Pipeline):
    """Prevents: a job that goes by another name is overlooked, and runs after the next one."""
    changed_rows(pipeline)
    with pipeline.sandbox.held_jobs():
        assert killed_before(pipeline, "job")
        (held, _) = jobs(pipeline)
        other_users.changes(pipeline, name=f"{pipeline.name} better")
        with pytest.raises(RefreshError):
            pipeline.run(around={"timeouts": replace(TIMEOUTS, queue=0.2)})
    found = pipeline.eyes.job(held.id)
    assert found is not None
    assert found.outcome is Outcome.CANCELLED


def test_outcome_of_another_job_is_not_taken(pipeline: Pipeline):
    """Prevents: the outcome of some other job passes for that of the interrupted update."""
    changed_rows(pipeline)
    with pipeline.sandbox.armed(FailJob()):
        assert killed_before(pipeline, "job")
        pipeline.sandbox.wait_until_idle()
    (left,) = pipeline.journal.intents()
    pipeline.run()
    outcomes = [e.outcome for e in pipeline.journal.sendings() if e.request_id == left.request_id]
    assert outcomes == [Outcome.LOST]
    assert_recovered(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("user", [ADMIN, ANN], ids=["admin", "ann"])
def test_forgotten_job(new_pipeline: Callable[..., Pipeline], user: tuple[str, str]):
    """Prevents: a job that the server does not tell of is waited for without end."""
    pipeline = new_pipeline(user=user)
    changed_rows(pipeline)
    assert killed_before(pipeline, "outcome")
    (left,) = pipeline.journal.intents()
    nowhere = "00000000-0000-0000-0000-000000000000"
    pipeline.journal.append(left.model_copy(update={"job_id": nowhere}))
    if user == ANN:
        too_early(pipeline)
        later(pipeline)
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert "interrupted, and what it left is not known" in report.plan.reason
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("step", ["upload", "update", "job", "outcome"])
@pytest.mark.slow
def test_refused_run_after_a_killed_one(pipeline: Pipeline, step: str):
    """Prevents: the bad rows of a killed run are sent by the next one, which is refused."""
    changed_rows(pipeline)
    assert killed_before(pipeline, step)
    sent = len(jobs(pipeline))
    pipeline.model("flights", flights(1))
    for _ in range(2):
        with pytest.raises(RefusedError, match="max_shrink"):
            pipeline.run()
    assert len(jobs(pipeline)) == sent
    pipeline.model("flights", flights(8))
    pipeline.run()
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("sent", [False, True])
def test_guards_compare_with_the_most_that_may_be_there(pipeline: Pipeline, *, sent: bool):
    """Prevents: a sending that never landed lowers the bar for the next one."""
    pipeline.model("flights", flights(100))
    pipeline.run()
    pipeline.model("flights", flights(60))
    assert killed_before(pipeline, "job" if sent else "update")
    pipeline.model("flights", flights(40))
    with pytest.raises(RefusedError, match="40 rows where 100 are published"):
        pipeline.run()


def test_dry_run_recovers_nothing(pipeline: Pipeline):
    """Prevents: somebody looks at the plan, and what was open passes for recovered."""
    changed_rows(pipeline)
    assert killed_before(pipeline, "job")
    before = pipeline.journal.records()
    assert "what it left is not known" in pipeline.decide()
    assert pipeline.journal.records() == before


@pytest.mark.slow
def test_update_goes_on_after_a_killed_one(pipeline: Pipeline):
    """Prevents: what landed while nobody looked costs a whole file."""
    changed_rows(pipeline)
    pipeline.declare(rebase=1000)
    assert killed_before(pipeline, "closing")
    assert isinstance(pipeline.run().plan, NoChange)
    pipeline.model("flights", flights(10))
    assert killed_before(pipeline, "outcome")
    pipeline.model("flights", flights(11))
    assert isinstance(pipeline.run().plan, Update)
    assert_recovered(pipeline)
