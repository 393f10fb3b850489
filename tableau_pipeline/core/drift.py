"""The state of data sources and jobs on the server, and the detection of drift.

Drift is a change by another user. The detection uses the time stamp of the data source, and the
window of each of our changes: the time in which the change took effect. An update is late if the
server sets the time stamp only after the end of the window, as some sites do.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from tableau_pipeline.core.checkpoint import Outcome, Window
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.outcome import Distrust, Doubt

# The longest time, in seconds, from the end of our job to the time stamp that the server sets
# because of the job. A later time stamp comes from another user.
LONGEST_LAG = 30.0

JobKind = Literal["update", "publish"]
# The time stamp and the newest revision of a data source, as in `RemoteDatasource.stamp`.
Stamp = tuple[datetime, int | None]


@dataclass(frozen=True, slots=True)
class RemoteDatasource:
    """A published data source as the server reports it.

    Attributes:
        revision: the number of the newest revision; None if the site keeps no revisions, or this
            user may not see revisions.
        published: a phrase with the publisher and the time of the newest revision; None if unknown.
        publisher_id: the LUID of the newest revision's publisher; None if unknown.
        megabytes: the size of the file in units of 2^20 bytes, rounded; None if not reported.
        link: the URL of the data source's page.
        certification: the note of the certification; None if the data source is not certified.
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
    publisher_id: str | None = None
    description: str = ""
    certification: str | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The asset keys in the tags. Pipelines publish the data source under these keys."""
        return _after(TAG_PREFIX, self.tags)

    @property
    def instances(self) -> frozenset[str]:
        """The deployments in the tags. These deployments publish the data source."""
        return _after(INSTANCE_TAG_PREFIX, self.tags)

    @property
    def stamp(self) -> Stamp:
        """The time stamp and the newest revision, which reveal changes by other users."""
        return self.updated_at, self.revision


def other_instance(remote: RemoteDatasource, tags: frozenset[str]) -> str | None:
    """Return the tag of another deployment on a data source; None without such a tag.

    Args:
        tags: the tags of this deployment, see `core.identity.tags_of`.
    """
    others = {tag for tag in remote.tags if tag.startswith(INSTANCE_TAG_PREFIX)} - tags
    return min(others, default=None)


def other_key(remote: RemoteDatasource, tags: frozenset[str]) -> str | None:
    """Return another key under which this deployment publishes the data source; otherwise None."""
    if other_instance(remote, tags) or not tags & remote.tags:
        return None
    return min(remote.keys - _after(TAG_PREFIX, tags), default=None)


def _after(prefix: str, tags: Iterable[str]) -> frozenset[str]:
    return frozenset(tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the server. `outcome` is None while the job waits or runs.

    Attributes:
        kind: the kind of job; None if the job was looked up by id, or if the server's list of jobs
            gives a kind that we do not know.
        notes: the server's message about the job; "" without a message.
        created_at, started_at, completed_at: times by the server's clock.
        datasource: the LUID of the data source; None if the server does not name it.
    """

    id: str
    outcome: Outcome | None
    kind: JobKind | None = None
    notes: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    datasource: str | None = None

    @property
    def window(self) -> Window | None:
        """The time from the job's start to its end; None if the server did not report the times."""
        if self.completed_at and (start := self.started_at or self.created_at):
            return Window(start, self.completed_at)
        return None


class NoJob(StrEnum):
    """Why a server does not show a job.

    GONE: the server has removed the job, as some servers do right after its end.

    HIDDEN: this user may not query jobs. By Tableau's reference, only administrators may query
    jobs.
    """

    GONE = "gone"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits of a refresh, and its pauses between queries of a job, in seconds.

    Attributes:
        claim: the longest wait until another refresh of the same data source ends.
        job: the longest wait from the start of a job of the server to its end.
        queue: the longest wait until a job of the server starts.
        arrival: if the answer to a request was lost: the longest time that a gateway may hold the
            request until the server queues a job for it.
        timestamp: the longest wait until the data source shows the effect of a job that is gone.
        listing: the longest wait until the server's lists show a new data source.
        first_poll: the first pause, which is short, because most jobs are short.
        longest_poll: the longest pause. Pauses grow up to this length.
    """

    claim: float = 3600
    job: float = 7200
    queue: float = 7200
    arrival: float = 600
    timestamp: float = LONGEST_LAG
    listing: float = 60
    first_poll: float = 0.25
    longest_poll: float = 60


def is_late(stamp: datetime, late: Iterable[Window]) -> bool:
    """Whether one of our updates, whose windows are in `late`, may explain this time stamp."""
    return any(window.covers(stamp, lag=LONGEST_LAG) for window in late)


def is_unchanged(
    before: RemoteDatasource, now: RemoteDatasource | None, *, late: Collection[Window]
) -> bool:
    """Whether a data source is unchanged. Time stamps that late updates explain do not count."""
    return (
        now is not None
        and (now.luid, now.name, now.project_id) == (before.luid, before.name, before.project_id)
        and Change.since(before.stamp, now, late=late).unexplained is None
    )


def still_late(
    late: Iterable[Window], *, now: datetime, came: datetime | None = None
) -> tuple[Window, ...]:
    """Return the windows of our updates that may still change the time stamp.

    Args:
        came: a new time stamp; None if there is no new time stamp. The result leaves out the first
            update that explains `came`, because this update will not change the time stamp again.
    """
    waiting = [window for window in late if now <= window.end + timedelta(seconds=LONGEST_LAG)]
    for number, window in enumerate(waiting):
        if came and window.covers(came, lag=LONGEST_LAG):
            return tuple(waiting[:number] + waiting[number + 1 :])
    return tuple(waiting)


@dataclass(frozen=True, slots=True)
class Change:
    """Our change of a data source, and the traces that the server shows.

    Attributes:
        window: when our change took effect; None if the time is unknown, or if we changed nothing.
        before: the stamp of the data source right before the change; None if the change created
            the data source.
        after: the current stamp of the data source.
        revisions: the numbers of new revisions that our change can explain.
        lag: the most seconds from the end of the window to a time stamp that our change explains.
        seen: time stamps that the data source had between `before` and `after`.
        late: the windows of our earlier updates that may change the time stamp only now.
        published: as in `RemoteDatasource`.
    """

    window: Window | None
    before: Stamp | None
    after: Stamp
    revisions: Collection[int | None]
    lag: float = 0
    seen: Iterable[datetime] = ()
    late: Collection[Window] = ()
    published: str | None = None

    @classmethod
    def since(
        cls, before: Stamp | None, after: RemoteDatasource, *, late: Collection[Window]
    ) -> "Change":
        """Return the change since `before`. We must have sent nothing since then."""
        # We have published nothing since `before`, so another user made every new revision.
        return cls(None, before, after.stamp, revisions=(0,), late=late, published=after.published)

    @property
    def unexplained(self) -> Distrust | None:
        """The trace of a change by another user; None if our change explains all traces."""
        detail = self._unexplained
        return Distrust(Doubt.OTHERS, detail) if detail else None

    @property
    def _unexplained(self) -> str | None:
        is_theirs = self.made is not None and self.made not in self.revisions
        user = f" ({self.published})" if is_theirs and self.published else ""
        before = self.before[0] if self.before else None
        # Check each time stamp, because a later change may have overwritten another user's time
        # stamp.
        for stamp in dict.fromkeys([*self.seen, self.after[0]]):
            if stamp == before or is_late(stamp, self.late):
                continue
            words = f"the server says that it was updated at {stamp:%Y-%m-%d %H:%M:%S} UTC"
            if self.window is None:
                return f"{words}{user}, but the records of this pipeline show no update then"
            if not self.window.covers(stamp, lag=self.lag):
                start, end = f"{self.window.start:%H:%M:%S}", f"{self.window.end:%H:%M:%S}"
                return f"{words}{user}, but our change took effect between {start} and {end}"
        # A publish by another user in the same second as our change leaves no other time stamp, but
        # the publish adds a revision.
        if is_theirs:
            return f"another user published: the data source has {self.made} new revisions{user}"
        return None

    @property
    def made(self) -> int | None:
        """The number of new revisions; None if revisions cannot be counted."""
        # A data source that we have just created had no earlier revision.
        before = self.before[1] if self.before else 0
        return None if before is None or self.after[1] is None else self.after[1] - before

    @property
    def lateness(self) -> float | None:
        """The seconds from our change to the time stamp; None if our change cannot explain it.

        If another user changes the data source soon after our change, the result is too large: it
        is the time until the change by the other user.
        """
        ours = replace(self, revisions=(self.made,), lag=LONGEST_LAG)
        if self.window is None or ours.unexplained:
            return None
        return max((self.after[0] - self.window.end).total_seconds(), 0)
