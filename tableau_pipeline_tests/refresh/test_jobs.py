"""Files that are too large for one request: they go in blocks, and the server goes on as a job."""

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.limits import Limits
from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox
from tableau_pipeline_tests.refresh.crashes import killed_after
from tableau_pipeline_tests.refresh.models import flights
from tableau_pipeline_tests.refresh.pipeline import WHOLE, Pipeline, declared, session
from tableau_pipeline_tests.refresh.test_crash import MOST_CALLS, first, new_rows, settled

SLOW = 0.4


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gigabytes."""
    monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", "0")
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")


@pytest.fixture(scope="module")
def slow_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox, None, None]:
    """A server that takes its time for each job."""
    with running_sandbox(tmp_path_factory.mktemp("slow"), job_delay=SLOW) as sandbox:
        yield sandbox


@pytest.fixture
def slow(
    slow_sandbox: Sandbox, tmp_path: Path, quick_looks: None
) -> Generator[Pipeline, None, None]:
    """A data source on it, not published yet."""
    with session(slow_sandbox) as eyes:
        made = Pipeline(slow_sandbox, eyes, tmp_path, declared(f"Slow {uuid4().hex[:8]}"))
        made.model("flights", flights())
        yield made


def recover(pipeline: Pipeline) -> None:
    """Refresh; a job of which we know nothing may land just now, which the next run settles."""
    try:
        pipeline.run()
    except RefreshError as error:
        told = str(error)
    else:
        return
    assert "already exists" in told or "was changed on the server while" in told
    pipeline.run()


def new_file(pipeline: Pipeline) -> None:
    pipeline.declare(**WHOLE)
    new_rows(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("before", [first, new_file])
def test_killed_at_any_moment(
    new_pipeline: Callable[..., Pipeline], before: Callable[[Pipeline], None]
):
    """Prevents: a run that is killed while the server works leaves old rows or two copies."""
    traces = []
    for calls in range(1, MOST_CALLS):
        pipeline = new_pipeline(key=f"large_{calls}")
        before(pipeline)
        fuse = killed_after(pipeline, calls)
        if fuse is None:
            break
        traces.append([name for name in fuse.trace if name != "job"])
        recover(pipeline)
        settled(pipeline)
    assert ["record", "publish", "record"] in traces
    assert traces[-1][:5] == ["record", "publish", "record", "find_by_name", "record"]


@pytest.mark.parametrize("calls", [2, 3], ids=["job unknown", "job known"])
@pytest.mark.parametrize(
    "before", [first, pytest.param(new_file, marks=pytest.mark.slow), new_rows]
)
def test_job_that_still_runs_at_the_next_start(
    slow: Pipeline, calls: int, before: Callable[[Pipeline], None]
):
    """Prevents: a late job of a killed run puts its old rows over newer ones."""
    before(slow)
    assert killed_after(slow, calls)
    slow.model("flights", flights(10))
    recover(slow)
    settled(slow)


def test_known_job_is_waited_for(slow: Pipeline):
    """Prevents: a second copy of a file is sent while the server still works on the first."""
    assert killed_after(slow, 3)
    (left,) = slow.journal.intents()
    assert (left.outcome, left.job_id is None) == (None, False)
    started = time.monotonic()
    slow.run()
    assert time.monotonic() - started > SLOW / 2
    outcomes = {each.request_id: each.outcome for each in slow.journal.all_intents()}
    assert outcomes[left.request_id] is Outcome.DONE


@pytest.mark.parametrize("before", [first, new_file, new_rows])
def test_job_that_takes_too_long_is_cancelled(slow: Pipeline, before: Callable[[Pipeline], None]):
    """Prevents: a cancelled job passes for done, or for one that may still take effect."""
    before(slow)
    with pytest.raises(RefreshError) as caught:
        slow.run(around={"limits": Limits(lock=30, job=SLOW / 4)})
    (left,) = slow.journal.intents()
    assert left.outcome is Outcome.CANCELLED
    for part in (f"job {left.job_id}", "cancelled", "what it held before", "sends it again"):
        assert part in str(caught.value)
    assert "interrupted" not in slow.decide()
    slow.run()
    settled(slow)


class Stubborn:
    """A server that ends no job: it belongs to another user, or is too far on."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def cancel(self, job_id: str) -> bool:
        return False


@pytest.mark.parametrize("before", [first, new_file, new_rows])
def test_time_out_leaves_the_intent_open(slow: Pipeline, before: Callable[[Pipeline], None]):
    """Prevents: a job that takes longer than we wait is taken for failed, or for done."""
    before(slow)
    impatient = {"limits": Limits(lock=30, job=SLOW / 10), "around_server": Stubborn}
    with pytest.raises(RefreshError) as caught:
        slow.run(around=impatient)
    (left,) = slow.journal.intents()
    assert left.outcome is None
    for part in (f"Job {left.job_id}", "not finished", "next run", "Jobs page"):
        assert part in str(caught.value)
    assert left.payload is not None
    assert left.payload.exists()
    with pytest.raises(RefreshError, match=f"Job {left.job_id}"):
        slow.run(around=impatient)
    assert [each.request_id for each in slow.journal.intents()] == [left.request_id]
    slow.run()
    settled(slow)


@pytest.mark.parametrize("before", [new_file, new_rows])
def test_cancelled_job(slow: Pipeline, before: Callable[[Pipeline], None]):
    """Prevents: a job that somebody cancelled on the server passes for done, or blocks for ever."""
    before(slow)
    assert killed_after(slow, 3)
    (left,) = slow.journal.intents()
    with session(slow.sandbox) as site:
        site.tsc.jobs.cancel(left.job_id)
    report = slow.run()
    assert report.plan is not None
    assert "new content" in report.plan.reason
    settled(slow)


def test_failed_job_is_told_with_its_notes(slow: Pipeline):
    """Prevents: a failed job looks like a success, or says nothing of why."""
    assert killed_after(slow, 2)  # a create that is on its way, and of which we know nothing
    rival = Pipeline(slow.sandbox, slow.eyes, slow.folder, declared(slow.name, key="rival"))
    rival.model("flights", flights(5))
    with pytest.raises(RefreshError) as caught:
        rival.run()
    for part in (f'Publishing "{slow.name}"', "failed", "already exists", "what it held before"):
        assert part in str(caught.value)
    assert [each.outcome for each in rival.journal.intents()] == [Outcome.FAILED]
    slow.run()
    settled(slow)
