"""Control a running sandbox: arm faults, and move the clock."""

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar
from urllib.parse import unquote

from tableau_sandbox.clock import Clock, system_clock
from tableau_sandbox.faults import (
    CallFault,
    FailJob,
    Fault,
    HoldJobs,
    JobFault,
    SlowJob,
)
from tableau_sandbox.store.records import Datasource, Job

Peer = tuple[str, int]
_F = TypeVar("_F")


@dataclass
class Armed:
    """An armed fault.

    Attributes:
        number: the number by which a user clears the fault.
        fault: the fault.
        seen: the number of calls or jobs that the fault could have hit.
        fired: the number of calls or jobs that the fault has hit.
        earlier: for a fault that serves stale rows, each data source as it was before its last
            change, by LUID.
    """

    number: int
    fault: Fault
    seen: int = 0
    fired: int = 0
    earlier: dict[str, Datasource] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)

    def match(self, counted: CallFault | JobFault) -> bool:
        """Count one more call or job; return whether the fault hits it."""
        self.seen += 1
        last = None if counted.times is None else counted.nth + counted.times - 1
        hit = counted.nth <= self.seen and (last is None or self.seen <= last)
        self.fired += hit
        return hit

    def holds(self, job: Job) -> bool:
        """Whether this fault holds a queued job; count each held job only once."""
        if not isinstance(self.fault, HoldJobs) or self.fault.job_kind not in (None, job.kind):
            return False
        if job.luid not in self._held:
            self._held.add(job.luid)
            self.seen += 1
            self.fired += 1
        return True


def path_matches(pattern: str, raw_path: bytes) -> bool:
    """Whether a path under `/api/{version}/` matches the pattern of a fault."""
    if pattern == "**":
        return True
    path = raw_path.decode("ascii", "replace").removeprefix("/api").strip("/")
    # Split the path while it is still encoded, because a decoded name may contain a slash.
    segments = [unquote(segment) for segment in path.split("/")[1:]]
    expected = pattern.strip("/").split("/")
    return len(expected) == len(segments) and all(
        part == "*" or part.startswith("{") or part == segment
        for part, segment in zip(expected, segments, strict=True)
    )


def _no_connections(peer: Peer) -> None:
    raise RuntimeError(f"no server is running, so there is no connection to {peer}")


class Control:
    """The faults and the clock of one sandbox. Any thread may call the methods.

    The clock starts `offset` seconds ahead of the given clock, or behind it if `offset` is
    negative.

    Attributes:
        hang_up: breaks the connections of a peer; the server with the connections sets this.
    """

    def __init__(
        self, clock: Clock = system_clock, faults: Iterable[Fault] = (), *, offset: float = 0
    ):
        self.hang_up: Callable[[Peer], None] = _no_connections
        self._clock = clock
        self._ahead = timedelta(seconds=offset)
        self._lock = threading.Lock()
        self._armed: list[Armed] = []
        self._last_number = 0
        for fault in faults:
            self.add(fault)

    def now(self) -> datetime:
        """Return the current time of the sandbox."""
        with self._lock:
            return self._clock() + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the clock ahead.

        Raises:
            ValueError: the clock would move back, or beyond the supported dates.
        """
        with self._lock:
            try:
                ahead = self._ahead + timedelta(seconds=seconds)
                # If the new time is not a valid date, this raises OverflowError.
                self._clock() + ahead
            except OverflowError as error:
                raise ValueError(f"the clock cannot move by {seconds} seconds") from error
            if seconds < 0:
                raise ValueError("the clock can only move ahead")
            self._ahead = ahead

    def add(self, fault: Fault) -> Armed:
        """Arm a fault."""
        with self._lock:
            self._last_number += 1
            armed = Armed(self._last_number, fault)
            self._armed.append(armed)
        return armed

    def faults(self) -> list[Armed]:
        """Return all faults that have not been cleared, with used-up faults, oldest first."""
        with self._lock:
            return list(self._armed)

    def is_armed(self, kind: type[Fault]) -> bool:
        """Whether a fault of this kind has been armed and not cleared."""
        with self._lock:
            return any(isinstance(armed.fault, kind) for armed in self._armed)

    def clear(self, number: int | None = None) -> bool:
        """Clear one fault, or all faults; return False if no fault has this number."""
        with self._lock:
            kept = [armed for armed in self._armed if number not in (None, armed.number)]
            found = number is None or len(kept) < len(self._armed)
            self._armed = kept
        return found

    def hits_on_call(self, method: str, raw_path: bytes) -> list[Fault]:
        """Count this call, and return the faults that hit it."""
        with self._lock:
            return [
                armed.fault
                for armed, fault in self._of(CallFault)
                if fault.method in ("*", method)
                and path_matches(fault.path, raw_path)
                and armed.match(fault)
            ]

    def choose_job(self, queued: Sequence[Job], order: str = "fifo") -> Job | None:
        """Choose the queued job that runs next; return None if faults hold all jobs.

        Args:
            queued: the queued jobs, oldest first.
            order: "fifo" for the oldest job, "any" for a random job.
        """
        ready = [job for job in queued if not self.holds(job)]
        if not ready:
            return None
        return ready[0] if order == "fifo" else random.choice(ready)  # noqa: S311

    def holds(self, job: Job) -> bool:
        """Whether a fault holds this queued job."""
        with self._lock:
            held = [armed for armed in self._armed if armed.holds(job)]
        return bool(held)

    def hits_on_job(self, job: Job) -> tuple[float, FailJob | None]:
        """Count this job; return the additional seconds that it takes, and its failure or None."""
        with self._lock:
            hits = [
                armed.fault
                for armed, fault in self._of(JobFault)
                if fault.job_kind in (None, job.kind) and armed.match(fault)
            ]
        seconds = sum(hit.seconds for hit in hits if isinstance(hit, SlowJob))
        failures = (hit for hit in hits if isinstance(hit, FailJob))
        return seconds, next(failures, None)

    def _of(self, kind: type[_F]) -> list[tuple[Armed, _F]]:
        return [(armed, armed.fault) for armed in self._armed if isinstance(armed.fault, kind)]
