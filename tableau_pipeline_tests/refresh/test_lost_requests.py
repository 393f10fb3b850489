"""Waits for requests that an earlier refresh has lost, and that may still reach the server."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from tableau_pipeline.core.drift import Job, Timeouts
from tableau_pipeline.errors import RefreshError, UnreachableError
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.shipping import refused
from tableau_pipeline_tests.refresh.test_sending import (
    Before,
    assert_at_rest,
    changed_rows,
    new_file,
)
from tableau_sandbox.faults import FailJob


class Gateway(Proxy):
    """Holds a request that updates or publishes, and gives up before it hands it on."""

    def __init__(self, behind: Any, held: list[Callable[[Any], object]]) -> None:
        super().__init__(behind)
        self._held = held

    def update(self, *args: Any, **more: Any) -> None:
        self._hold(lambda site: site.update(*args, **more))

    def publish(self, *args: Any, **more: Any) -> None:
        self._hold(lambda site: site.publish(*args, **more))

    def _hold(self, call: Callable[[Any], object]) -> None:
        self._held.append(call)
        raise UnreachableError("the gateway gave up")


@pytest.mark.slow
@pytest.mark.parametrize("before", [changed_rows, new_file])
def test_request_that_a_gateway_hands_on_late(pipeline: Pipeline, before: Before):
    """Prevents: a request that a gateway holds for minutes undoes the refresh after it, where the
    user may list jobs and its job is not in the list yet."""
    before(pipeline)
    held: list[Callable[[Any], object]] = []
    around: dict[str, Any] = {"around_server": lambda server: Gateway(server, held)}
    refused(lambda: pipeline.run(around=around), "the gateway gave up", error=RefreshError)
    pipeline.model("flights", flights(9))
    late = pipeline.sandbox.now() + timedelta(minutes=5)

    def hand_on() -> None:
        while held:
            with session(pipeline.sandbox) as site:
                held.pop()(site)
        pipeline.sandbox.wait_until_idle()

    def sleep(seconds: float) -> None:
        # Jobs end at once, so that only waits for the gateway take minutes.
        pipeline.sandbox.wait_until_idle()
        pipeline.sandbox.advance(seconds)
        if pipeline.sandbox.now() >= late:
            hand_on()

    pipeline.run(around={"timeouts": Timeouts(), "sleep": sleep})
    hand_on()
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_request_that_a_gateway_hands_on_while_jobs_are_listed(pipeline: Pipeline):
    """Prevents: a request that a gateway hands on in time undoes the refresh after it, as the list
    of jobs was read before, and the time only afterwards."""
    new_file(pipeline)
    held: list[Callable[[Any], object]] = []
    around: dict[str, Any] = {"around_server": lambda server: Gateway(server, held)}
    refused(lambda: pipeline.run(around=around), "the gateway gave up", error=RefreshError)
    pipeline.model("flights", flights(9))

    class SlowList(Proxy):
        def jobs(self, **more: Any) -> Sequence[Job] | None:
            listed = self.behind.jobs(**more)
            while held:
                with session(pipeline.sandbox) as site:
                    held.pop()(site)
                pipeline.sandbox.advance(700)
                # The answer with a later page of the list has a later time.
                assert self.behind.may_read_jobs()
            return listed

        def before(self, name: str, args: Sequence[Any]) -> None:
            assert name != "upload" or is_over, "sent beside the late request"

    is_over, waiting = False, ExitStack()

    def sleep(seconds: float) -> None:
        nonlocal is_over
        if held:
            pipeline.sandbox.advance(seconds)
            return
        waiting.close()
        pipeline.sandbox.wait_until_idle()
        is_over = True

    around = {"around_server": SlowList, "sleep": sleep}
    with waiting:
        waiting.enter_context(pipeline.sandbox.held_jobs())
        pipeline.run(around=around | {"timeouts": Timeouts(timestamp=0)})
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_request_that_the_server_has_accepted(pipeline: Pipeline):
    """Prevents: a refresh waits for ten minutes for a request whose job the server had named."""
    changed_rows(pipeline)
    with pipeline.sandbox.armed(FailJob()):
        assert killed_before(pipeline, "outcome")
    # Another user refreshes now, and the server no longer knows the job.
    nowhere = "00000000-0000-0000-0000-000000000000"
    (left,) = pipeline.journal.intents()
    pipeline.journal.store(left.model_copy(update={"job_id": nowhere, "user": nowhere}))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        pipeline.sandbox.wait_until_idle()
        pipeline.sandbox.advance(seconds)

    pipeline.run(around={"timeouts": Timeouts(timestamp=0), "sleep": sleep})
    assert sum(pauses) < 60
    assert_at_rest(pipeline)
