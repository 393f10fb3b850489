"""Work with hyperd on files that may be too much for it."""

import threading
from collections.abc import Callable
from typing import TypeVar

from tableauhyperapi import HyperException, HyperProcess

from tableau_pipeline.hyper.process import hyper_process

Result = TypeVar("Result")
_second_attempt = threading.Lock()


class UnreadableFileError(ValueError):
    """hyperd cannot do with a file what was asked of it; the message says why."""


def with_hyperd(work: Callable[[HyperProcess], Result]) -> Result:
    """What some work with hyperd comes to; begun anew if hyperd dies meanwhile.

    A damaged file can crash hyperd, and with it the work of everyone. Second attempts come one at
    a time, so that the file that is to blame does not spoil those of the others as well.

    Raises:
        UnreadableFileError: hyperd fails, or dies again, or finds names and values that are none.
    """
    try:
        return _at_most_twice(work)
    except HyperException as error:
        raise UnreadableFileError(error.main_message) from error
    except ValueError as error:
        # Of the Hyper API: text that is no UTF-8, for instance.
        raise UnreadableFileError(f"The file is damaged: {error}") from error


def _at_most_twice(work: Callable[[HyperProcess], Result]) -> Result:
    hyper = hyper_process()
    try:
        return work(hyper)
    except Exception:
        if hyper_process() is hyper:
            raise
    with _second_attempt:
        return work(hyper_process())
