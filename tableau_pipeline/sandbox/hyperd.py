"""Run hyperd on files that may crash it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tableauhyperapi import HyperException, HyperProcess

from tableau_pipeline.hyper.process import hyper_process

Result = TypeVar("Result")
_second_attempt = threading.Lock()


class UnreadableFileError(ValueError):
    """hyperd cannot process a file; the message states why."""


def with_hyperd(work: Callable[[HyperProcess], Result], *files: Path) -> Result:
    """Return the result of some work with hyperd; repeat it if hyperd crashes meanwhile.

    A damaged file can crash hyperd, and with it all work in progress. Second attempts run one at a
    time, so that the damaged file does not also spoil those of the others.

    Args:
        work: is called with a running hyperd.
        *files: the files of the sandbox that it uses; errors do not contain their paths.

    Raises:
        UnreadableFileError: hyperd fails, crashes again, or finds invalid names and values.
    """
    try:
        return _at_most_twice(work)
    except HyperException as error:
        message = without_paths(str(error.main_message), *files)
        raise UnreadableFileError(message) from error
    except ValueError as error:
        # An error of the Hyper API, such as text that is not UTF-8.
        raise UnreadableFileError(f"The file is damaged: {error}") from error


def without_paths(message: str, *files: Path) -> str:
    """Return a message for clients without the paths of these files, which tell them nothing."""
    for file in files:
        message = message.replace(str(file), "that was uploaded")
    return message


def _at_most_twice(work: Callable[[HyperProcess], Result]) -> Result:
    hyper = hyper_process()
    try:
        return work(hyper)
    except Exception:
        # A new process shows that the old one crashed. Any other error would only occur again.
        if hyper_process() is hyper:
            raise
    with _second_attempt:
        return work(hyper_process())
