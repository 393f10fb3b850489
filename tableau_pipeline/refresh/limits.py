"""How long a refresh waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a refresh waits, in seconds.

    Attributes:
        lock: for another refresh of the same data source.
        job: for a job of the server.
        stamp: until an update shows in the time stamp of the data source.
    """

    lock: float = 3600
    job: float = 7200
    stamp: float = 5
