"""What a server reports of data sources and jobs, and how long a refresh waits for it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tableau_pipeline.core.checkpoint import Outcome

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
    def stamp(self) -> Stamp:
        """The values that show a change by another user, as far as the server reports it."""
        return self.updated_at, self.revision

    @property
    def state(self) -> tuple[object, ...]:
        """The values that show whether another user changed, renamed or moved it."""
        return self.luid, self.name, self.project_id, self.stamp


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the server; `outcome` is None while it waits or runs.

    Attributes:
        kind: None for a job that was requested by its id.
        notes: the server's own message about the job; it may be empty.
        created_at: by the server's clock, like `started_at` and `completed_at`.
    """

    id: str
    outcome: Outcome | None
    kind: Literal["update", "publish"] | None = None
    notes: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a refresh waits, in seconds.

    Attributes:
        claim: for another refresh of the same data source to end.
        job: for a job of the server to end, from its start.
        queue: for a job of the server to start.
        timestamp: until an update shows in the time stamp of the data source.
        first_poll: between the first looks at a job, as most are short; the pause grows up to
            `longest_poll`.
    """

    claim: float = 3600
    job: float = 7200
    queue: float = 7200
    timestamp: float = 5
    first_poll: float = 0.25
    longest_poll: float = 60
