"""What became of a sending whose refresh was killed."""

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tableau_pipeline.core.declaration import Diff, Reconcile
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import NoChange, Publish, UpdateTables
from tableau_pipeline_tests.refresh.support.crashes import (
    killed_before,
    killed_for_real,
)
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ANN
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, WHOLE, Pipeline
from tableau_pipeline_tests.refresh.support.server_jobs import jobs, later, too_early

ADMIN = ("", "")


def first(pipeline: Pipeline) -> None:
    """Nothing is published yet."""


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


def assert_recovered(pipeline: Pipeline) -> None:
    """The one data source of our name is ours, holds the snapshots, and nothing is left to do."""
    (item,) = pipeline.found()
    assert pipeline.wrong() == []
    assert pipeline.declaration.tag in item.tags
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_killed_for_real(pipeline: Pipeline):
    """Prevents: a process that is gone keeps the lock or the claim, which ours only let go of."""
    assert killed_for_real(pipeline, before="job") == -signal.SIGKILL
    (left,) = pipeline.journal.intents()
    assert left.outcome is None
    pipeline.run(around={"timeouts": replace(TIMEOUTS, claim=0)})
    assert_recovered(pipeline)


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("user", [ADMIN, ANN], ids=["admin", "ann"])
@pytest.mark.parametrize("step", ["update", "job"])
def test_nothing_is_sent_beside_a_job_that_may_run(
    new_pipeline: Callable[..., Pipeline], user: tuple[str, str], step: str
):
    """Prevents: a killed update undoes what came after it, where its user may not list jobs."""
    pipeline = new_pipeline(user=user, reconcile=None)
    changed_rows(pipeline)
    assert killed_before(pipeline, step)
    sent = len(jobs(pipeline))
    pipeline.model("flights", flights(10))
    if user == ANN:
        too_early(pipeline)
        later(pipeline)
    pipeline.run()
    assert len(jobs(pipeline)) == sent + 1
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


SITES: dict[str, dict[str, Any]] = {
    "late": {"updates_move_stamp": "late", "late_stamp_seconds": 0.3},
    "stays": {"updates_move_stamp": "never"},
    "after the job": {"job_stamps": "after"},
    "updates make revisions": {"update_revisions": True},
    "tags move stamps": {"tags_move_stamp": True},
}


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("on", SITES.values(), ids=SITES)
def test_updates_go_on_whatever_a_site_shows_of_them(
    new_pipeline: Callable[..., Pipeline], on: dict[str, Any]
):
    """Prevents: each refresh of a site costs a whole file, or time, for what it never does."""
    pipeline = new_pipeline(on=on, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    for rows in range(8, 12):
        pipeline.model("flights", flights(rows))
        report = pipeline.run(around={"timeouts": replace(TIMEOUTS, timestamp=2)})
    assert isinstance(report.plan, UpdateTables)
    assert pipeline.wrong() == []
