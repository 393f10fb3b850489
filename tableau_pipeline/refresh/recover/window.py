"""Whether what a data source shows after a change of ours is our own doing."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tableau_pipeline.core.checkpoint import Habits
from tableau_pipeline.core.server import Job

# Seconds: a site that moves its time stamps later than this after a job is not believed.
_LONGEST_LAG = 30.0

# The time stamp and the newest revision of a data source, as `RemoteDatasource.stamp`.
Stamp = tuple[datetime, int | None]


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a change of ours took effect, by the server's clock."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, job: Job | None) -> "Window | None":
        """From the start of a job to its end; None if the server does not tell."""
        if job and job.completed_at and (start := job.started_at or job.created_at):
            return cls(start, job.completed_at)
        return None

    def covers(self, stamp: datetime, *, lag: float) -> bool:
        """Whether a time stamp, which counts whole seconds, falls into it."""
        start = self.start.replace(microsecond=0)
        return start <= stamp <= self.end + timedelta(seconds=lag)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of ours, and what the server showed of it.

    Attributes:
        before: the stamp of the data source right before it; None if it was created.
        after: the stamp that it has now.
        revisions: how many it may make; several where that is not known yet.
        seen: time stamps that the data source had meanwhile.
    """

    window: Window | None
    before: Stamp | None
    after: Stamp
    revisions: Collection[int]
    seen: Iterable[datetime] = ()

    def unexplained(self, habits: Habits) -> str | None:
        """What of it was not us, as far as the server tells; None if all of it was."""
        before = self.before[0] if self.before else None
        for stamp in dict.fromkeys([*self.seen, self.after[0]]):
            if stamp == before:
                continue
            says = f"the server says that it was updated at {stamp:%Y-%m-%d %H:%M:%S} UTC"
            if self.window is None:
                return f"{says}, and that was not this pipeline, as far as its records tell"
            if not self.window.covers(stamp, lag=habits.lag):
                start, end = self.window.start, self.window.end
                return f"{says}, and our change took effect from {start:%H:%M:%S} to {end:%H:%M:%S}"
        if (made := self.made) is not None and made not in self.revisions:
            return f"somebody else published: it has {made} new revisions"
        return None

    @property
    def made(self) -> int | None:
        """The revisions that were made meanwhile; None where they cannot be counted."""
        before = self.before[1] if self.before else 0
        return None if before is None or self.after[1] is None else self.after[1] - before

    def learnt(self, habits: Habits, *, is_update: bool) -> Habits:
        """What the site has shown by a change that is known to be ours alone."""
        moved = self.before is None or self.after[0] != self.before[0]
        lag = habits.lag
        if self.window and moved:
            late = (self.after[0] - self.window.end).total_seconds()
            lag = min(max(lag, late), _LONGEST_LAG)
        if not is_update:
            return habits.model_copy(update={"lag": lag})
        made = habits.update_revisions if self.made is None else self.made
        return Habits(moves_timestamp=moved, update_revisions=made, lag=lag)


def revisions_of(habits: Habits, *, is_update: bool) -> Collection[int]:
    """How many revisions a change of ours may make: a publish one, an update as is usual there."""
    return (1,) if not is_update else (habits.update_revisions or 0,)
