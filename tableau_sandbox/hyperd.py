"""Run hyperd, the database engine of `.hyper` files, on files that may crash it."""

import atexit
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tableauhyperapi import Connection, CreateMode, HyperException, HyperProcess, Telemetry

Result = TypeVar("Result")
_starting, _second_attempt = threading.Lock(), threading.Lock()
_PARAMETERS = {
    # By default, hyperd writes hyperd.log into the working directory.
    "log_config": "",
    # The default limit is 80 % of the machine's memory. A statement that needs more than the limit
    # spills to the disk.
    "memory_limit": "2g",
}


class _Hyperd(HyperProcess):
    """A hyperd that closes when the last thread drops it, so that no thread closes it too early."""

    def __init__(self) -> None:
        super().__init__(
            Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU,
            user_agent="tableau_sandbox",
            parameters=_PARAMETERS,
        )

    def __del__(self) -> None:
        self.close()


_running: _Hyperd | None = None


def hyper_process() -> HyperProcess:
    """Return the running hyperd of this Python process; start hyperd if necessary.

    After a crash, this starts a new hyperd.
    """
    global _running
    # Check without the lock, because a busy hyperd takes long to answer.
    found = _running
    if found is not None and _answers(found):
        return found
    with _starting:
        # If the condition is false, another thread has already started a new hyperd.
        if _running is found or _running is None:
            _running = _Hyperd()
        return _running


def _answers(process: HyperProcess) -> bool:
    """Whether hyperd still runs; `is_open` shows only whether this process has closed it."""
    if not process.is_open:
        return False
    try:
        Connection(process.endpoint).close()
    except HyperException:
        return False
    return True


@atexit.register
def _close() -> None:
    if _running is not None:
        _running.close()


def connect(
    hyper: HyperProcess, path: Path | str | None = None, create_mode: CreateMode = CreateMode.NONE
) -> Connection:
    """Connect to hyperd, and to the file at `path`, with UTC as the time zone."""
    return Connection(hyper.endpoint, path, create_mode, parameters={"timezone": "UTC"})


def string_literal(text: str) -> str:
    """Return a text as a string literal of SQL.

    `tableauhyperapi.escape_string_literal` is not safe here: it writes a control character as one
    to three octal digits, and a digit that follows becomes a part of the escape.
    """
    quoted = text.replace("'", "''")
    if "\0" not in text:
        return f"'{quoted}'"
    # hyperd reads U+0000 only as an escape.
    escaped = quoted.replace("\\", "\\\\").replace("\0", "\\000")
    return f"E'{escaped}'"


class UnreadableFileError(ValueError):
    """hyperd cannot process a file; the message states the reason."""


def with_hyperd(work: Callable[[HyperProcess], Result], *files: Path) -> Result:
    """Return the result of `work`; if hyperd crashes during the work, repeat the work once.

    A damaged file can crash hyperd, and a crash ends all work in progress. Second attempts run one
    at a time, so that a damaged file spoils only its own second attempt.

    Args:
        work: is called with a running hyperd.
        *files: the files of the sandbox that `work` uses; errors omit their paths.

    Raises:
        UnreadableFileError: hyperd fails, crashes again, or finds invalid names or values.
    """
    try:
        return _at_most_twice(work)
    except HyperException as error:
        message = without_paths(str(error.main_message), *files)
        raise UnreadableFileError(message) from error
    except ValueError as error:
        # The Hyper API raises this error, for example for text that is not UTF-8.
        raise UnreadableFileError(f"The file is damaged: {error}") from error


def without_paths(message: str, *files: Path) -> str:
    """Return a message for clients, without the paths of these files, which clients do not know."""
    for file in files:
        message = message.replace(str(file), "that was uploaded")
    return message


def _at_most_twice(work: Callable[[HyperProcess], Result]) -> Result:
    hyper = hyper_process()
    try:
        return work(hyper)
    except Exception:
        # A new process shows that the old process crashed. After any other error, a repetition
        # would fail too.
        if hyper_process() is hyper:
            raise
    with _second_attempt:
        return work(hyper_process())
