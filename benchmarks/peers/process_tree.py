"""What a process and all that it started take of the machine: its JVM, workers and hyperd."""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import psutil


@dataclass
class Peak:
    """The most bytes that were found; memory that processes share counts for each of them."""

    bytes: int = 0


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and of all that it started, ended ones included."""
    return sum(_seconds_of_each(pid).values())


def processor_seconds_of(work: Callable[[], object]) -> float:
    """Do some work; return the processor seconds that this process and all that it started took.

    Spark ends Python workers that were idle for a minute, and nothing counts their seconds any
    more. So compare each process with itself, instead of the sums before and after.
    """
    before = _seconds_of_each(os.getpid())
    work()
    after = _seconds_of_each(os.getpid())
    return sum(seconds - before.get(process, 0) for process, seconds in after.items())


def _seconds_of_each(pid: int) -> dict[psutil.Process, float]:
    found = {}
    for process in processes(pid):
        with suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            found[process] = used.user + used.system + used.children_user + used.children_system
    return found


def watched_memory(pid: int) -> AbstractContextManager[Peak]:
    """Look at the memory of all its processes five times a second."""
    return watched(lambda: _resident(pid), every=0.2)


@contextmanager
def watched(measure: Callable[[], int], *, every: float) -> Generator[Peak]:
    """Measure bytes every so many seconds, and keep the highest number."""
    peak, done = Peak(), threading.Event()

    def look() -> None:
        while not done.wait(every):
            peak.bytes = max(peak.bytes, measure())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _resident(pid: int) -> int:
    total = 0
    for process in processes(pid):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def processes(pid: int) -> list[psutil.Process]:
    """A process, and all that it started and that have not ended."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]
