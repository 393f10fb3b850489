"""A process that ends between any two instructions, as after a SIGKILL."""

import os
import signal
from dataclasses import replace
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

from tableau_pipeline.refresh.plan import Accept, Options
from tableau_pipeline_tests.refresh.pipeline import Pipeline


class KilledError(BaseException):
    """No `except Exception` stops it; nothing is recorded on the way out."""


class Fuse:
    """Ends the process before the n-th call to the outside, counted from the first intent on.

    What comes before the first intent has no effect that could be lost.

    Attributes:
        trace: the calls that were made.
    """

    def __init__(self, calls: int) -> None:
        self._left = calls
        self.trace: list[str] = []

    def burn(self, name: str) -> None:
        """Count a call that is about to be made."""
        if not self.trace and name != "record":
            return
        if self.trace[-1:] == [name] == ["job"]:
            # How often one has to ask is a matter of chance.
            return
        if self._left == 0:
            self.die()
        self._left -= 1
        self.trace.append(name)

    def die(self) -> None:
        """End the process, as far as its own code can tell."""
        raise KilledError(" ".join(self.trace))


class Mortal:
    """Stands in front of a journal or a server, and burns the fuse at each call."""

    def __init__(self, behind: Any, fuse: Fuse) -> None:
        self._behind = behind
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._fuse.burn(name)
            return found(*args, **kwargs)

        return call


def killed_after(pipeline: Pipeline, calls: int, *accept: Accept) -> Fuse | None:
    """Refresh, and die after so many calls, or before the state is kept if there are fewer.

    Returns:
        The burnt fuse; None if the refresh came to its end before that last moment.
    """
    fuse = Fuse(calls)
    refresh = pipeline.refresh(
        around_journal=lambda journal: Mortal(journal, fuse),
        around_server=lambda server: Mortal(server, fuse),
    )
    try:
        refresh.run(Options(accept=frozenset(accept)))
    except KilledError:
        return fuse
    return None if calls > len(fuse.trace) else fuse


class RealFuse(Fuse):
    """Ends the process for good."""

    def die(self) -> None:
        """Leave no time for anything."""
        os.kill(os.getpid(), signal.SIGKILL)


def killed_for_real(pipeline: Pipeline, calls: int) -> int | None:
    """Refresh in a process of its own that SIGKILL ends after so many calls; its exit code."""
    sandbox: Any = pipeline.sandbox
    sandbox = SimpleNamespace(url=sandbox.url, user=sandbox.user, password=sandbox.password)
    nobody: Any = None
    doomed = replace(pipeline, sandbox=sandbox, eyes=nobody)
    process = get_context("spawn").Process(target=_refresh_until_killed, args=(doomed, calls))
    process.start()
    process.join(60)
    return process.exitcode


def _refresh_until_killed(pipeline: Pipeline, calls: int) -> None:
    fuse = RealFuse(calls)
    pipeline.refresh(
        around_journal=lambda journal: Mortal(journal, fuse),
        around_server=lambda server: Mortal(server, fuse),
    ).run(Options())
