"""Measure the processor time and memory of a process with its descendants, such as hyperd."""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import psutil


@dataclass
class Peak:
    """The highest number of bytes that was measured. Shared memory counts once for each process."""

    bytes: int = 0


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and its descendants, running or ended."""
    return sum(_seconds_of_each(pid).values())


def processor_seconds_of(work: Callable[[], object]) -> float:
    """Do some work; return the processor seconds of this process and its descendants meanwhile.

    Compare each process with itself, instead of the sums before and after: Spark ends Python
    workers that were idle for a minute, and then no process counts their seconds.
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
    """Measure the memory of a process and its descendants five times a second."""
    return watched(lambda: _resident(pid), every=0.2)


@contextmanager
def watched(measure: Callable[[], int], *, every: float) -> Generator[Peak]:
    """Call `measure` at intervals of `every` seconds, and keep the highest number of bytes."""
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
    """Return a process and its running descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]
