"""What a server reports of data sources and jobs, and whether a change is our own, or drift.

Drift is the work of another user.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.outcome import Distrust, Doubt

JobKind = Literal["update", "publish"]
# The time stamp and the newest revision of a data source, as in `RemoteDatasource.stamp`.
Stamp = tuple[datetime, int | None]


@dataclass(frozen=True, slots=True)
class RemoteDatasource:
    """A published data source as the server reports it.

    Attributes:
        revision: the number of the newest revision; None if the site keeps none, or this user
            may not see them.
        published: who published that revision, and when, in words; None like `revision`.
        megabytes: size of the file in units of 2^20 bytes, rounded; None if not reported.
        link: the URL of its page.
        certification: the note of its certification; None if it is not certified.
    """

    luid: str
    name: str
    project_id: str
    owner_id: str
    created_at: datetime
    updated_at: datetime
    revision: int | None
    megabytes: int | None
    tags: frozenset[str]
    link: str | None
    published: str | None = None
    description: str = ""
    certification: str | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the pipelines that publish it, by its tags."""
        return _after(TAG_PREFIX, self.tags)

    @property
    def instances(self) -> frozenset[str]:
        """The deployments that publish it, by its tags."""
        return _after(INSTANCE_TAG_PREFIX, self.tags)

    @property
    def stamp(self) -> Stamp:
        """The values that show a change by another user, as far as the server reports it."""
        return self.updated_at, self.revision

    @property
    def state(self) -> tuple[object, ...]:
        """The values that show whether another user changed, renamed or moved it."""
        return self.luid, self.name, self.project_id, self.stamp


def other_instance(remote: RemoteDatasource, tags: frozenset[str]) -> str | None:
    """Return the tag of another deployment that publishes a data source; None if none does.

    Args:
        tags: ours, see `core.declaration.tags_of`.
    """
    others = {tag for tag in remote.tags if tag.startswith(INSTANCE_TAG_PREFIX)} - tags
    return min(others, default=None)


def other_key(remote: RemoteDatasource, tags: frozenset[str]) -> str | None:
    """Return another key of this deployment that publishes it; None if none does."""
    if other_instance(remote, tags) or not tags & remote.tags:
        return None
    return min(remote.keys - _after(TAG_PREFIX, tags), default=None)


def _after(prefix: str, tags: Iterable[str]) -> frozenset[str]:
    return frozenset(tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the server; `outcome` is None while it waits or runs.

    Attributes:
        kind: None for a job that was requested by its id, or is listed under an unknown word.
        notes: the server's own message about the job; it may be empty.
        created_at: by the server's clock, like `started_at` and `completed_at`.
        datasource: the LUID of the data source, if the server names it.
    """

    id: str
    outcome: Outcome | None
    kind: JobKind | None = None
    notes: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    datasource: str | None = None


class NoJob(StrEnum):
    """Why a server tells nothing of a job.

    GONE: it no longer knows it; servers remove finished jobs, some of them at once. HIDDEN: this
    user may not ask; Tableau's reference names administrators alone.
    """

    GONE = "gone"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a refresh waits, in seconds.

    Attributes:
        claim: for another refresh of the same data source to end.
        job: for a job of the server to end, from its start.
        queue: for a job of the server to start.
        timestamp: until an update shows in the time stamp of the data source.
        listing: until the server's lists show what was just created.
        first_poll: between the first looks at a job, as most are short; the pause grows up to
            `longest_poll`.
    """

    claim: float = 3600
    job: float = 7200
    queue: float = 7200
    timestamp: float = 5
    listing: float = 60
    first_poll: float = 0.25
    longest_poll: float = 60


# Seconds. A time stamp that moves later than this after a job is not taken for the job's own.
LONGEST_LAG = 30.0


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a change of ours took effect, by the server's clock."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, job: Job) -> "Window | None":
        """The time from the start of a job to its end; None if the server does not show it."""
        if job.completed_at and (start := job.started_at or job.created_at):
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
        lag: the seconds by which the time stamp may follow the window at most.
        seen: time stamps that the data source had meanwhile.
        published: who published the newest revision, and when, in words.
    """

    window: Window | None
    before: Stamp | None
    after: Stamp
    revisions: Collection[int | None]
    lag: float = 0
    seen: Iterable[datetime] = ()
    published: str | None = None

    @classmethod
    def since(cls, record: Checkpoint, after: RemoteDatasource) -> "Change":
        """The change since a record after which we have sent nothing."""
        before = (record.updated_at, record.revision) if record.updated_at else None
        window = Window(*record.late_window) if record.late_window else None
        # Every new revision is another user's.
        return cls(
            window, before, after.stamp, revisions=(0,), lag=LONGEST_LAG, published=after.published
        )

    @property
    def unexplained(self) -> Distrust | None:
        """The part of the change that was not ours, as far as the server shows; None if all was."""
        why = self._unexplained
        return Distrust(Doubt.OTHERS, why) if why else None

    @property
    def _unexplained(self) -> str | None:
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
            if not self.window.covers(stamp, lag=self.lag):
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

    @property
    def lateness(self) -> float | None:
        """The seconds by which the time stamps follow our change; None if another user moved one.

        Whoever moves one soon after us is not told from a site that is late.
        """
        ours = replace(self, revisions=(self.made,), lag=LONGEST_LAG)
        if self.window is None or ours.unexplained:
            return None
        return max((self.after[0] - self.window.end).total_seconds(), 0)
