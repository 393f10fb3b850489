"""What became of an update whose refresh was killed, on all kinds of servers."""

from collections.abc import Callable
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.limits import Limits
from tableau_pipeline.sandbox.control.faults import Drop, FailJob, HoldJobs
from tableau_pipeline.sandbox.open_questions import RepeatedRequest, UpdatedAt
from tableau_pipeline_tests.publishing.conftest import armed
from tableau_pipeline_tests.refresh import analyst
from tableau_pipeline_tests.refresh.analyst import ANN
from tableau_pipeline_tests.refresh.crashes import killed_after
from tableau_pipeline_tests.refresh.models import flights
from tableau_pipeline_tests.refresh.pipeline import Pipeline
from tableau_pipeline_tests.refresh.server_jobs import hours_later, jobs, too_early
from tableau_pipeline_tests.refresh.test_crash import changed_rows, settled

ADMIN = ("", "")
KINDS = [
    *({"repeated_request": repeated, "updated_at": stamp}
      for repeated in RepeatedRequest
      for stamp in (UpdatedAt.MOVES, UpdatedAt.STAYS)),
    {"updated_at": UpdatedAt.MOVES_LATE},
]  # fmt: skip
DATA = "sites/*/datasources/*/data"
SECRETIVE = (RepeatedRequest.EMPTY_JOB, RepeatedRequest.CONFLICT)


@pytest.mark.parametrize("user", [ADMIN, ANN], ids=["admin", "ann"])
@pytest.mark.parametrize("on", KINDS, ids=lambda on: "-".join(on.values()))
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_killed_on_all_kinds_of_servers(
    new_pipeline: Callable[..., Pipeline], on: dict[str, Any], user: tuple[str, str], calls: int
):
    """Prevents: on some server, a killed update is lost, or undoes what came after it."""
    pipeline = new_pipeline(on=on, user=user)
    changed_rows(pipeline)
    assert killed_after(pipeline, calls)
    pipeline.model("flights", flights(10))
    if user == ANN and calls == 2 and on.get("repeated_request") in SECRETIVE:
        too_early(pipeline)
        hours_later(pipeline)
    pipeline.run()
    settled(pipeline)


@pytest.mark.parametrize("user", [ADMIN, ANN], ids=["admin", "ann"])
@pytest.mark.parametrize("stamp", [UpdatedAt.MOVES, UpdatedAt.STAYS])
def test_lost_payload(
    new_pipeline: Callable[..., Pipeline], stamp: UpdatedAt, user: tuple[str, str]
):
    """Prevents: an update that cannot be sent again passes for one that never ran."""
    pipeline = new_pipeline(on={"updated_at": stamp}, user=user)
    changed_rows(pipeline)
    assert killed_after(pipeline, 2)
    (left,) = pipeline.journal.intents()
    assert left.payload is not None
    left.payload.unlink()
    pipeline.model("flights", flights(10))
    if user == ANN:
        too_early(pipeline)
        hours_later(pipeline)
    pipeline.run()
    settled(pipeline)


def test_job_of_a_renamed_data_source_is_waited_for(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a job that goes by another name is overlooked, and runs after the next one."""
    pipeline = new_pipeline(on={"repeated_request": RepeatedRequest.EMPTY_JOB})
    changed_rows(pipeline)
    old, new = pipeline.name, f"{pipeline.name} better"
    analyst.changes(pipeline, name=new)
    with armed(pipeline.sandbox, HoldJobs()):
        assert killed_after(pipeline, 2)
        pipeline.declare(name=new)
        (held,) = jobs(pipeline)
        pipeline.declare(name=old)
        with pytest.raises(RefreshError):
            pipeline.run(around={"limits": Limits(lock=30, job=0.2, stamp=0)})
    found = pipeline.eyes.job(held.id)
    assert found is not None
    assert found.outcome in (Outcome.FAILED, Outcome.CANCELLED)


def test_answer_to_a_second_try_is_lost_too(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a job that a later try began is thought to be over, as the first one would be."""
    pipeline = new_pipeline(on={"repeated_request": RepeatedRequest.EMPTY_JOB}, user=ANN)
    changed_rows(pipeline)
    assert killed_after(pipeline, 1)
    hours_later(pipeline)
    lost = Drop(method="PATCH", path=DATA, when="after")
    with armed(pipeline.sandbox, lost), pytest.raises(RefreshError, match="broke off"):
        pipeline.run()
    too_early(pipeline)
    hours_later(pipeline)
    pipeline.run()
    settled(pipeline)


@pytest.mark.parametrize("repeated", SECRETIVE)
def test_one_of_several_jobs(new_pipeline: Callable[..., Pipeline], repeated: RepeatedRequest):
    """Prevents: the outcome of an earlier update is taken for that of the interrupted one."""
    pipeline = new_pipeline(on={"repeated_request": repeated})
    pipeline.run()
    changed_rows(pipeline)
    pipeline.run()
    pipeline.model("flights", flights(10))
    with armed(pipeline.sandbox, FailJob()):
        assert killed_after(pipeline, 2)
        (left,) = pipeline.journal.intents()
        pipeline.run()
    records = [
        each for each in pipeline.journal.all_intents() if each.request_id == left.request_id
    ]
    assert {each.outcome for each in records} == {None}
    settled(pipeline)
