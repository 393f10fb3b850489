"""Connections on which the head of a request does not arrive; uvicorn would wait for ever."""

from collections.abc import Iterable
from typing import Any


class StalledConnections:
    """Finds the connections that wait for the head of a request for more than some seconds.

    Between two requests, a connection is idle, and uvicorn's own timeout applies, until the first
    byte of the next one.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._waiting_since: dict[tuple[Any, Any], float] = {}

    def find(self, connections: Iterable[Any], *, now: float) -> list[Any]:
        """Return the stalled ones.

        Args:
            connections: all open connections of uvicorn; those that are no longer among them are
                forgotten.
            now: seconds of any clock that runs evenly.
        """
        # With each request, a connection gets another cycle, and its time starts again.
        waiting = [
            (connection, cycle)
            for connection in connections
            if _waits_for_head(connection, cycle := getattr(connection, "cycle", None))
        ]
        self._waiting_since = {key: self._waiting_since.get(key, now) for key in waiting}
        return [
            connection
            for (connection, _), since in self._waiting_since.items()
            if now - since > self._seconds
        ]


def _waits_for_head(connection: Any, cycle: Any) -> bool:
    is_idle = getattr(connection, "timeout_keep_alive_task", None) is not None
    return not is_idle and (cycle is None or cycle.response_complete)
