"""How long a refresh waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a refresh waits, in seconds.

    Attributes:
        claim: for another refresh of the same data source to end.
        job: for a job of the server to end, from its start.
        queue: for a job of the server to start.
        timestamp: until an update shows in the time stamp of the data source.
        first_poll: between two looks at a job; the pause grows up to `longest_poll`.
    """

    claim: float = 3600
    job: float = 7200
    queue: float = 7200
    timestamp: float = 5
    first_poll: float = 2
    longest_poll: float = 60
