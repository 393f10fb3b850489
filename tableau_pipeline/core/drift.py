"""The state of data sources and jobs on the server, and whether a change is ours or drift.

Drift is a change by another user.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from tableau_pipeline.core.checkpoint import Outcome, Window
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.outcome import Distrust, Doubt

# In seconds. If a time stamp moves later than this after our job, attribute it to another user.
LONGEST_LAG = 30.0

JobKind = Literal["update", "publish"]
# The time stamp and the newest revision of a data source, as in `RemoteDatasource.stamp`.
Stamp = tuple[datetime, int | None]


@dataclass(frozen=True, slots=True)
class RemoteDatasource:
    """A published data source as the server reports it.

    Attributes:
        revision: the number of the newest revision; None if the site keeps no revisions, or this
            user may not see them.
        published: a phrase that says who published the newest revision, and when; None if this is
            unknown.
        publisher_id: the LUID of that user; None if it is unknown.
        megabytes: size of the file in units of 2^20 bytes, rounded; None if not reported.
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
        """The asset keys in its tags: pipelines publish the data source under these keys."""
        return _after(TAG_PREFIX, self.tags)

    @property
    def instances(self) -> frozenset[str]:
        """The deployments that publish the data source, as its tags state them."""
        return _after(INSTANCE_TAG_PREFIX, self.tags)

    @property
    def stamp(self) -> Stamp:
        """The time stamp and newest revision, which show whether another user changed it."""
        return self.updated_at, self.revision


def other_instance(remote: RemoteDatasource, tags: frozenset[str]) -> str | None:
    """Return the tag of another deployment that publishes a data source; None if none does.

    Args:
        tags: the tags of this deployment, see `core.identity.tags_of`.
    """
    others = {tag for tag in remote.tags if tag.startswith(INSTANCE_TAG_PREFIX)} - tags
    return min(others, default=None)


def other_key(remote: RemoteDatasource, tags: frozenset[str]) -> str | None:
    """Return another key under which this deployment publishes it; None if there is no other."""
    if other_instance(remote, tags) or not tags & remote.tags:
        return None
    return min(remote.keys - _after(TAG_PREFIX, tags), default=None)


def _after(prefix: str, tags: Iterable[str]) -> frozenset[str]:
    return frozenset(tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the server; `outcome` is None while the job waits or runs.

    Attributes:
        kind: None if the job was looked up by its id, or is listed under an unknown kind.
        notes: the server's message about the job; may be empty.
        created_at, started_at, completed_at: times of the server's clock.
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

    @property
    def window(self) -> Window | None:
        """When the job took effect: from its start to its end; None if these are not reported."""
        if self.completed_at and (start := self.started_at or self.created_at):
            return Window(start, self.completed_at)
        return None


class NoJob(StrEnum):
    """Why a server does not show a job.

    GONE: the server no longer knows the job; servers remove finished jobs, in some cases at once.
    HIDDEN: this user may not query jobs; according to Tableau's reference, only administrators may.
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
        timestamp: the longest wait until the data source shows the effect of a job that is gone.
        listing: the longest wait until the server's lists show a data source that was just created.
        first_poll: the first pause; it is short because most jobs are short.
        longest_poll: the pause up to which later pauses grow.
    """

    claim: float = 3600
    job: float = 7200
    queue: float = 7200
    timestamp: float = LONGEST_LAG
    listing: float = 60
    first_poll: float = 0.25
    longest_poll: float = 60


def is_late(stamp: datetime, late: Iterable[Window]) -> bool:
    """Whether one of our updates may have set this time stamp after the end of its job."""
    return any(window.covers(stamp, lag=LONGEST_LAG) for window in late)


def is_unchanged(
    before: RemoteDatasource, now: RemoteDatasource | None, *, late: Collection[Window]
) -> bool:
    """Whether a data source is as it was, apart from the time stamps of our own late updates."""
    return (
        now is not None
        and (now.luid, now.name, now.project_id) == (before.luid, before.name, before.project_id)
        and Change.since(before.stamp, now, late=late).unexplained is None
    )


def still_late(
    late: Iterable[Window], *, now: datetime, came: datetime | None = None
) -> tuple[Window, ...]:
    """Return the updates of ours whose time stamps may still come.

    Args:
        came: a new time stamp, if there is one. It counts for the first update that explains it.
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
        window: when our change took effect; None if that is unknown, or if we changed nothing.
        before: the stamp of the data source right before the change; None if the change created
            the data source.
        after: the current stamp of the data source.
        revisions: the numbers of new revisions that our change can explain.
        lag: the most seconds by which the time stamp may follow the end of the window.
        seen: time stamps that the data source had between `before` and `after`.
        late: the windows of our earlier updates whose time stamps may come only now.
        published: a phrase that says who published the newest revision, and when.
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
        """Return the change since a moment after which we have sent nothing."""
        # We have published nothing since, so every new revision is another user's.
        return cls(None, before, after.stamp, revisions=(0,), late=late, published=after.published)

    @property
    def unexplained(self) -> Distrust | None:
        """How the traces show a change by another user; None if our change explains them all."""
        detail = self._unexplained
        return Distrust(Doubt.OTHERS, detail) if detail else None

    @property
    def _unexplained(self) -> str | None:
        is_theirs = self.made is not None and self.made not in self.revisions
        user = f" ({self.published})" if is_theirs and self.published else ""
        before = self.before[0] if self.before else None
        # Check each stamp, as our change may have overwritten the stamp of another user's change.
        for stamp in dict.fromkeys([*self.seen, self.after[0]]):
            if stamp == before or is_late(stamp, self.late):
                continue
            words = f"the server says that it was updated at {stamp:%Y-%m-%d %H:%M:%S} UTC"
            if self.window is None:
                return f"{words}{user}, and that was not this pipeline, as far as its records show"
            if not self.window.covers(stamp, lag=self.lag):
                start, end = f"{self.window.start:%H:%M:%S}", f"{self.window.end:%H:%M:%S}"
                return f"{words}{user}, and our change took effect from {start} to {end}"
        # A publish by another user in the same second has the same stamp, but adds a revision.
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

        If another user moves the time stamp soon after our change, this looks like a late site.
        """
        ours = replace(self, revisions=(self.made,), lag=LONGEST_LAG)
        if self.window is None or ours.unexplained:
            return None
        return max((self.after[0] - self.window.end).total_seconds(), 0)
