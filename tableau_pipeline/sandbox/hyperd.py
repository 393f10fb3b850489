"""Run hyperd on files that may crash it."""

import threading
from collections.abc import Callable
from typing import TypeVar

from tableauhyperapi import HyperException, HyperProcess

from tableau_pipeline.hyper.process import hyper_process

Result = TypeVar("Result")
_second_attempt = threading.Lock()


class UnreadableFileError(ValueError):
    """hyperd cannot process a file; the message states why."""


def with_hyperd(work: Callable[[HyperProcess], Result]) -> Result:
    """Return the result of some work with hyperd; repeat it if hyperd crashes meanwhile.

    A damaged file can crash hyperd, and with it all work in progress. Second attempts run one at a
    time, so that the damaged file does not also spoil those of the others.

    Raises:
        UnreadableFileError: hyperd fails, crashes again, or finds invalid names and values.
    """
    try:
        return _at_most_twice(work)
    except HyperException as error:
        raise UnreadableFileError(error.main_message) from error
    except ValueError as error:
        # An error of the Hyper API, such as text that is not UTF-8.
        raise UnreadableFileError(f"The file is damaged: {error}") from error


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
