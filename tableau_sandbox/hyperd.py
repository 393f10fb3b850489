"""hyperd, the database engine behind `.hyper` files, on files that may crash it."""

import atexit
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tableauhyperapi import Connection, CreateMode, HyperException, HyperProcess, Telemetry

Result = TypeVar("Result")
_starting, _second_attempt = threading.Lock(), threading.Lock()
_PARAMETERS = {
    # Without it, hyperd writes hyperd.log into the working directory.
    "log_config": "",
    # Its default is 80 % of the machine's memory. Larger statements spill.
    "memory_limit": "2g",
}


class _Hyperd(HyperProcess):
    """A hyperd that closes once no thread uses it, so that no thread closes it for another."""

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
    """Return the hyperd of this Python process, which starts when it is first needed.

    After a crash, this returns a new one.
    """
    global _running
    # Checked without the lock, because a busy hyperd takes longer to answer.
    found = _running
    if found is not None and _answers(found):
        return found
    with _starting:
        # Otherwise another thread has already started a new one.
        if _running is found or _running is None:
            _running = _Hyperd()
        return _running


def _answers(process: HyperProcess) -> bool:
    """Whether it still runs; its own `is_open` shows only whether we have closed it."""
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
    """Connect to hyperd, and to the file at `path`, in UTC rather than in the machine's zone."""
    return Connection(hyper.endpoint, path, create_mode, parameters={"timezone": "UTC"})


def string_literal(text: str) -> str:
    """Return a text as a string literal of SQL.

    `tableauhyperapi.escape_string_literal` writes a control character as up to three octal digits;
    a digit that follows it becomes a part of it.
    """
    quoted = text.replace("'", "''")
    if "\0" not in text:
        return f"'{quoted}'"
    # hyperd reads U+0000 only as an escape.
    escaped = quoted.replace("\\", "\\\\").replace("\0", "\\000")
    return f"E'{escaped}'"


class UnreadableFileError(ValueError):
    """hyperd cannot process a file; the message states why."""


def with_hyperd(work: Callable[[HyperProcess], Result], *files: Path) -> Result:
    """Return the result of some work with hyperd; repeat it if hyperd crashes meanwhile.

    A damaged file can crash hyperd, and with it all work in progress. Second attempts run one at a
    time, so that the damaged file does not spoil the second attempts of others, too.

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
    """Return a message for clients without the paths of these files, which mean nothing to them."""
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
