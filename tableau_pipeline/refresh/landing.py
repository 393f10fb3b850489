"""Whether a time stamp of the data source is our own doing."""

from dataclasses import dataclass
from datetime import datetime

from tableau_pipeline.core.server import JobStatus


@dataclass(frozen=True, slots=True)
class Landing:
    """When the server carried out a sending of ours, by its own clock.

    Attributes:
        start: of the job, and `end`: what happened to the data source then was this.
        before: the time stamps that the data source may have had before it, by our records.
        seen: the one that it had before we asked for the job, or for the last time.
    """

    start: datetime
    end: datetime
    before: frozenset[datetime]
    seen: datetime | None

    @classmethod
    def of(
        cls, status: JobStatus | None, *, before: frozenset[datetime], seen: datetime | None
    ) -> "Landing | None":
        """None if the server does not tell when the job ran."""
        if status and status.created_at and status.completed_at:
            return cls(status.created_at, status.completed_at, before, seen)
        return None

    def explains(self, stamp: datetime) -> bool:
        """Whether nobody else has touched the data source, as far as time stamps can tell.

        What came after the job is not ours, nor what came before it: then it changed the work of
        others.
        """
        # Some servers leave the time stamp alone.
        if stamp in self.before:
            return True
        if self.seen in self.before:
            return self.start <= stamp <= self.end
        # Of the second in which it was sent, nobody knows what came first.
        return stamp == self.seen and self.start < stamp <= self.end
