"""A process that ends right before any of its steps, as after a SIGKILL."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

from tableau_pipeline.core.journal import History, Intent, Record
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy


class KilledError(BaseException):
    """The process is killed. No `except Exception` catches this error."""


class CrashPoint:
    """Ends the process before one of its steps. Only steps have effects outside of the process.

    The steps are "claim", "upload", "intent", "publish" or "update", "job", "outcome", "tag",
    "closing" and so on, or "look" for a look at a job.
    """

    def __init__(self, before: str, nth: int = 1) -> None:
        """End the process before the `nth` step with the name `before`."""
        self._before, self._left = before, nth

    def reach(self, step: str) -> None:
        """Note that a step is about to begin, and end the process if the crash point is reached."""
        self._left -= step == self._before
        if self._left <= 0:
            self.die()

    def die(self) -> None:
        """End the process, as far as its own code can tell."""
        raise KilledError


class Crashing(Proxy):
    """A journal or a server that may end the process at each call."""

    def __init__(self, behind: Any, crash: CrashPoint) -> None:
        super().__init__(behind)
        self._crash = crash

    def before(self, name: str, args: Sequence[Any]) -> None:
        step = {"job": "look"}.get(name, name)
        if name == "create":
            step = _record_name(args[0])
        self._crash.reach(step)

    def append(self, make: Callable[[History], Record], *, after: History) -> History:
        """Store a record as `StoredJournal` does, but through this proxy: each call is a step."""
        journal: Any = self
        return StoredJournal.append(journal, make, after=after)


def _record_name(record: Record) -> str:
    if not isinstance(record, Intent):
        return record.kind
    return "outcome" if record.outcome else "job" if record.job_id else "intent"


def killed_before(pipeline: Pipeline, step: str, *accept: Accept, nth: int = 1) -> bool:
    """Refresh, and die before the `nth` step of a name; False if there is no such step.

    Args:
        step: a step that `CrashPoint` names, or another call of the server.
    """
    crash = CrashPoint(step, nth)
    setup = pipeline.refresh(
        around_journal=lambda journal: Crashing(journal, crash),
        around_server=lambda server: Crashing(server, crash),
    )
    try:
        refresh(setup, Options(accept=frozenset(accept)))
    except KilledError:
        return True
    return False


class RealCrashPoint(CrashPoint):
    """Ends the process for good."""

    def die(self) -> None:
        """Kill the process at once, without any clean-up."""
        os.kill(os.getpid(), signal.SIGKILL)


def killed_for_real(pipeline: Pipeline, *, before: str) -> int | None:
    """Refresh in another process, which SIGKILL ends before a step; return its exit code."""
    sandbox: Any = pipeline.sandbox
    sandbox = SimpleNamespace(url=sandbox.url, user=sandbox.user, password=sandbox.password)
    nobody: Any = None
    doomed = replace(pipeline, sandbox=sandbox, eyes=nobody)
    process = get_context("spawn").Process(target=_refresh_until_killed, args=(doomed, before))
    process.start()
    process.join(60)
    return process.exitcode


def _refresh_until_killed(pipeline: Pipeline, before: str) -> None:
    crash = RealCrashPoint(before)
    refresh(
        pipeline.refresh(
            around_journal=lambda journal: Crashing(journal, crash),
            around_server=lambda server: Crashing(server, crash),
        ),
        Options(),
    )
