"""Whether a change of a data source is our own, or drift: the work of another user."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tableau_pipeline.core.checkpoint import Checkpoint, SiteBehaviour
from tableau_pipeline.core.server import Job, RemoteDatasource, Stamp

# Seconds. A time stamp that moves later than this after a job is not taken for the job's own.
_LONGEST_LAG = 30.0


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a change of ours took effect, by the server's clock."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, job: Job | None) -> "Window | None":
        """The time from the start of a job to its end; None if the server does not show it."""
        if job and job.completed_at and (start := job.started_at or job.created_at):
            return cls(start, job.completed_at)
        return None

    def covers(self, stamp: datetime, *, lag: float) -> bool:
        """Whether a time stamp, in whole seconds, falls into the window."""
        start = self.start.replace(microsecond=0)
        return start <= stamp <= self.end + timedelta(seconds=lag)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of ours, and what the server showed of it.

    Attributes:
        before: the stamp of the data source right before the change; None if it was created.
        after: its current stamp.
        revisions: the possible numbers of revisions that the change made.
        seen: time stamps that the data source had meanwhile.
        published: who published the newest revision, and when, in words.
    """

    window: Window | None
    before: Stamp | None
    after: Stamp
    revisions: Collection[int]
    seen: Iterable[datetime] = ()
    published: str | None = None

    @classmethod
    def since(cls, record: Checkpoint, after: RemoteDatasource) -> "Change":
        """The change since a record after which we have sent nothing."""
        before = (record.updated_at, record.revision) if record.updated_at else None
        # Every new revision is another user's.
        return cls(None, before, after.stamp, revisions=(0,), published=after.published)

    def unexplained(self, behaviour: SiteBehaviour) -> str | None:
        """The part of the change that was not ours, as far as the server shows; None if all was."""
        is_theirs = self.made is not None and self.made not in self.revisions
        by = f" ({self.published})" if is_theirs and self.published else ""
        before = self.before[0] if self.before else None
        # Each stamp counts, as our own may have covered one that another user left before it.
        for stamp in dict.fromkeys([*self.seen, self.after[0]]):
            if stamp == before:
                continue
            shown = f"the server says that it was updated at {stamp:%Y-%m-%d %H:%M:%S} UTC"
            if self.window is None:
                return f"{shown}{by}, and that was not this pipeline, as far as its records show"
            if not self.window.covers(stamp, lag=behaviour.lag):
                start, end = f"{self.window.start:%H:%M:%S}", f"{self.window.end:%H:%M:%S}"
                return f"{shown}{by}, and our change took effect from {start} to {end}"
        # A publish in the second of our job shares its stamp, but shows as one more revision.
        if is_theirs:
            return f"another user published: it has {self.made} new revisions{by}"
        return None

    @property
    def made(self) -> int | None:
        """The number of revisions that were made meanwhile; None if they cannot be counted."""
        # What we have just created had no revision before.
        before = self.before[1] if self.before else 0
        return None if before is None or self.after[1] is None else self.after[1] - before

    def learnt(self, behaviour: SiteBehaviour, *, is_update: bool) -> SiteBehaviour:
        """What the change shows about the site's behaviour; the change must be ours alone."""
        moved = self.before is None or self.after[0] != self.before[0]
        lag = behaviour.lag
        if self.window and moved:
            late = (self.after[0] - self.window.end).total_seconds()
            lag = min(max(lag, late), _LONGEST_LAG)
        # Every publish moves the stamp and makes a revision, which says nothing about updates.
        if not is_update:
            return behaviour.model_copy(update={"lag": lag})
        # Revisions that are hidden for now do not disprove what they showed before. Of several, all
        # but one are another user's, even if the rows turned out to be ours.
        is_clear = self.made in (0, 1)
        made = self.made if is_clear else behaviour.update_revisions
        update = {"moves_timestamp": moved, "update_revisions": made, "lag": lag}
        return behaviour.model_copy(update=update)


def revisions_of(behaviour: SiteBehaviour, *, is_update: bool) -> Collection[int]:
    """The possible numbers of revisions of a change: 1 for a publish, the site's for an update."""
    return (1,) if not is_update else (behaviour.update_revisions or 0,)
