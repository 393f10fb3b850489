"""Work in a process of its own, which shares neither its memory nor its JVM."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_fresh_process(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """What `work` returns, from a new Python process that has ended by then."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def peak_memory(pid: int | None = None) -> int:
    """The most bytes that a process, or else this one, ever held in memory.

    Raises:
        FileNotFoundError: of other processes, only Linux tells.
    """
    status = Path(f"/proc/{pid or 'self'}/status")
    if pid or status.exists():
        # On Linux, `getrusage` begins with what the parent held.
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    return getrusage(RUSAGE_SELF).ru_maxrss
