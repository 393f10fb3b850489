"""Measure the time in which a process only waits for a server."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest.mock import patch

from requests.adapters import HTTPAdapter

_R = TypeVar("_R")


@dataclass
class Waits:
    """The seconds of requests with a file, of all other requests, and of pauses (`time.sleep`)."""

    uplink: float = 0
    answers: float = 0
    pauses: float = 0


@contextmanager
def waits() -> Generator[Waits]:
    """Yield the waits of this process, which grow while the context lasts."""
    found = Waits()
    send, sleep = HTTPAdapter.send, time.sleep

    def timed_send(adapter: HTTPAdapter, request: Any, **options: Any) -> Any:
        kind = "uplink" if _has_a_file(request) else "answers"
        return _timed(found, kind, lambda: send(adapter, request, **options))

    def timed_sleep(seconds: float) -> None:
        _timed(found, "pauses", lambda: sleep(seconds))

    with patch.object(HTTPAdapter, "send", timed_send), patch.object(time, "sleep", timed_sleep):
        yield found


def _has_a_file(request: Any) -> bool:
    return request.headers.get("Content-Type", "").startswith("multipart/mixed")


def _timed(found: Waits, kind: str, work: Callable[[], _R]) -> _R:
    started = time.perf_counter()
    try:
        return work()
    finally:
        setattr(found, kind, getattr(found, kind) + time.perf_counter() - started)
