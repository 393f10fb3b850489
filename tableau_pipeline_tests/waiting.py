"""Waiting for what takes its time, but not for ever."""

import time
from collections.abc import Callable
from typing import Any


def until(found: Callable[[], Any], *, seconds: float, what: str) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, what
        time.sleep(0.3)
    return answer
