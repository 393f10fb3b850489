"""Run work in a fresh Python process, which has a memory and a JVM of its own."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_fresh_process(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call `work` in a fresh Python process, and return its result once the process has ended."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def peak_memory(pid: int | None = None) -> int:
    """Return the most bytes of memory that a process ever held; by default, this process.

    Raises:
        FileNotFoundError: `pid` is given, but the system is not Linux.
    """
    status = Path(f"/proc/{pid or 'self'}/status")
    if pid or status.exists():
        # On Linux, `getrusage` would return at least the peak memory of the parent process.
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    return getrusage(RUSAGE_SELF).ru_maxrss
