import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from filelock import FileLock

from tableau_pipeline.core.checkpoint import Intent
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.limits import Limits
from tableau_pipeline.refresh.plan import NoChange, Options, Publish
from tableau_pipeline.refresh.step import Report
from tableau_pipeline_tests.refresh.journals import RememberingJournal
from tableau_pipeline_tests.refresh.pipeline import Pipeline


class SlowJournal(RememberingJournal):
    """Waits at its first intent until it is told to go on: then its refresh is in full swing."""

    def __init__(self, behind: RememberingJournal) -> None:
        super().__init__(behind.path)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def record(self, intent: Intent) -> None:
        self.reached.set()
        assert self.go_on.wait(30)
        super().record(intent)

    def wait_for(self, refresh: Future[Report]) -> None:
        """Until the refresh has come so far."""
        while not self.reached.wait(0.01):
            assert not refresh.done(), refresh.result()


def run(pipeline: Pipeline, journal: RememberingJournal) -> Report:
    """A refresh whose state nobody keeps yet."""
    return pipeline.refresh(around_journal=lambda _: journal).run(Options())


def test_second_waits_for_the_first(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: two refreshes of one data source publish at once, and the older rows win."""
    caplog.set_level(logging.INFO)
    slow = SlowJournal(pipeline.journal)
    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(run, pipeline, slow)
        slow.wait_for(first)
        second = executor.submit(run, pipeline, pipeline.journal)
        while "Another refresh of nyc_flights is running" not in caplog.text:
            assert not second.done()
        assert len(pipeline.extract_files()) == 1
        slow.go_on.set()
        plans = [first.result(30).plan, second.result(30).plan]
    assert isinstance(plans[0], Publish)
    # Although nobody kept the first one's state yet: Dagster does so after the lock is free.
    assert isinstance(plans[1], NoChange)
    assert pipeline.wrong() == []
    assert len(pipeline.found()) == 1


def test_started_at_the_same_time(pipeline: Pipeline):
    """Prevents: two triggers at the same time cost two uploads, or make two data sources."""
    with ThreadPoolExecutor(2) as executor:
        both = list(executor.map(lambda _: pipeline.run(), range(2)))
    assert {type(report.plan) for report in both} == {Publish, NoChange}
    assert pipeline.wrong() == []
    assert len(pipeline.found()) == 1
    assert isinstance(pipeline.run().plan, NoChange)


def test_hanging_run_is_told(pipeline: Pipeline):
    """Prevents: a refresh waits for ever behind one that hangs, and nobody is told."""
    path = pipeline.folder / "locks" / "nyc_flights.lock"
    path.parent.mkdir(parents=True)
    with FileLock(path), pytest.raises(RefreshError) as caught:
        pipeline.run(around={"limits": Limits(lock=0.2, job=1)})
    for part in ("nyc_flights", str(path), "hanging run"):
        assert part in str(caught.value)
    pipeline.run()
    assert pipeline.wrong() == []


@pytest.mark.parametrize("key", ["other", "nyc_flights/eu"])
def test_other_data_sources_do_not_wait(new_pipeline: Callable[..., Pipeline], key: str):
    """Prevents: all data sources queue up behind the largest."""
    one, other = new_pipeline(), new_pipeline(key=key)
    slow = SlowJournal(one.journal)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(run, one, slow)
        try:
            slow.wait_for(waiting)
            other.run(around={"limits": Limits(lock=0, job=30)})
        finally:
            slow.go_on.set()
        waiting.result(30)
    assert (one.wrong(), other.wrong()) == ([], [])


def test_failed_refresh_lets_go_of_the_lock(pipeline: Pipeline):
    """Prevents: one refused refresh blocks all later ones until the process ends."""
    rows, pipeline.models["flights"] = pipeline.models["flights"], ()
    with pytest.raises(RefreshError):
        pipeline.run()
    pipeline.models["flights"] = rows
    pipeline.run(around={"limits": Limits(lock=0, job=30)})
