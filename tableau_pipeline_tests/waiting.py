"""Waiting for what takes its time, but not for ever."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def until(found: Callable[[], Any], *, seconds: float, what: str, log: Path | None = None) -> Any:
    """The first answer that is not empty; without one, an error that shows the end of the log."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}\n{log.read_text()[-5000:] if log else ''}")
        time.sleep(0.3)
    return answer
