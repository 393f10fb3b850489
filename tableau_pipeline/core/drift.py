"""The state of data sources and jobs on the server, and whether a change is ours or drift.

Drift is a change by another user.
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
        published: who published that revision, and when, in words; None where `revision` is.
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
        """The asset keys under which pipelines publish it, from its tags."""
        return _after(TAG_PREFIX, self.tags)

    @property
    def instances(self) -> frozenset[str]:
        """The deployments that publish it, from its tags."""
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
    """Return another asset key under which this deployment publishes it; None if none does."""
    if other_instance(remote, tags) or not tags & remote.tags:
        return None
    return min(remote.keys - _after(TAG_PREFIX, tags), default=None)


def _after(prefix: str, tags: Iterable[str]) -> frozenset[str]:
    return frozenset(tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the server; `outcome` is None while it waits or runs.

    Attributes:
        kind: None if the job was requested by its id, or is listed under an unknown kind.
        notes: the server's message about the job; may be empty.
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
    """Why a server does not show a job.

    GONE: it no longer knows the job; servers remove finished jobs, some of them at once. HIDDEN:
    this user may not query jobs; Tableau's reference permits it to administrators only.
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
        timestamp: for the time stamp of the data source to show an update.
        listing: for the server's lists to show a data source that was just created.
        first_poll: between the first queries of a job, as most are short; the pause grows up to
            `longest_poll`.
    """

    claim: float = 3600
    job: float = 7200
    queue: float = 7200
    timestamp: float = 5
    listing: float = 60
    first_poll: float = 0.25
    longest_poll: float = 60


# In seconds. A time stamp that moves more than this after our job is attributed to someone else.
LONGEST_LAG = 30.0


@dataclass(frozen=True, slots=True)
class Window:
    """The time window in which our change took effect, by the server's clock."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, job: Job) -> "Window | None":
        """Return the window from the start of a job to its end; None if the server hides them."""
        if job.completed_at and (start := job.started_at or job.created_at):
            return cls(start, job.completed_at)
        return None

    def covers(self, stamp: datetime, *, lag: float) -> bool:
        """Whether a time stamp, in whole seconds, falls into the window plus `lag` seconds."""
        start = self.start.replace(microsecond=0)
        return start <= stamp <= self.end + timedelta(seconds=lag)


@dataclass(frozen=True, slots=True)
class Change:
    """Our change of a data source, and its traces on the server.

    Attributes:
        window: when the change took effect; None if that is unknown, or we changed nothing.
        before: the stamp of the data source right before the change; None if it was created.
        after: its current stamp.
        revisions: how many revisions our change may have made.
        lag: the most seconds by which the time stamp may follow the window.
        seen: time stamps that the data source had between the two.
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
        """Return the change since a checkpoint after which we have sent nothing."""
        before = (record.updated_at, record.revision) if record.updated_at else None
        window = Window(*record.late_window) if record.late_window else None
        # We have published nothing since, so every new revision is another user's.
        return cls(
            window, before, after.stamp, revisions=(0,), lag=LONGEST_LAG, published=after.published
        )

    @property
    def unexplained(self) -> Distrust | None:
        """Why part of the change is another user's, by the server's traces; None if all is ours."""
        detail = self._unexplained
        return Distrust(Doubt.OTHERS, detail) if detail else None

    @property
    def _unexplained(self) -> str | None:
        is_theirs = self.made is not None and self.made not in self.revisions
        user = f" ({self.published})" if is_theirs and self.published else ""
        before = self.before[0] if self.before else None
        # Check each stamp, as our own may have overwritten an earlier one of another user.
        for stamp in dict.fromkeys([*self.seen, self.after[0]]):
            if stamp == before:
                continue
            words = f"the server says that it was updated at {stamp:%Y-%m-%d %H:%M:%S} UTC"
            if self.window is None:
                return f"{words}{user}, and that was not this pipeline, as far as its records show"
            if not self.window.covers(stamp, lag=self.lag):
                start, end = f"{self.window.start:%H:%M:%S}", f"{self.window.end:%H:%M:%S}"
                return f"{words}{user}, and our change took effect from {start} to {end}"
        # A publish within the same second as our job shares its stamp, but adds a revision.
        if is_theirs:
            return f"another user published: it has {self.made} new revisions{user}"
        return None

    @property
    def made(self) -> int | None:
        """The number of new revisions; None if they cannot be counted."""
        # A data source that we have just created had no revision before.
        before = self.before[1] if self.before else 0
        return None if before is None or self.after[1] is None else self.after[1] - before

    @property
    def lateness(self) -> float | None:
        """The seconds by which the time stamp follows our change; None if another user moved it.

        A user who moves it soon after us cannot be distinguished from a site that is late.
        """
        ours = replace(self, revisions=(self.made,), lag=LONGEST_LAG)
        if self.window is None or ours.unexplained:
            return None
        return max((self.after[0] - self.window.end).total_seconds(), 0)
