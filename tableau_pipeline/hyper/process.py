"""hyperd, the database engine behind `.hyper` files: one process of it for each Python process."""

import atexit
import threading
from importlib.metadata import version
from pathlib import Path

from tableauhyperapi import Connection, CreateMode, HyperException, HyperProcess, Telemetry

USER_AGENT = f"tableau_pipeline/{version('tableau_pipeline')}"


class _Hyperd(HyperProcess):
    """Closed by the last one that holds it: what a thread still uses must not be freed by another.

    That frees a dead one without the warning that it ought to have been closed.
    """

    def __del__(self) -> None:
        self.close()


_lock = threading.Lock()
_running: dict[tuple[str, bool], _Hyperd] = {}


def hyper_process(*, memory_limit: str = "50%", telemetry: bool = False) -> HyperProcess:
    """The running hyperd of this Python process; started when first asked for, ended with it.

    Starting one takes about 0.1 s, and each may use its whole `memory_limit`: sharing saves both.
    A damaged file can be the death of it, so ask anew before each piece of work: whoever asks
    after its end gets another one. Asking takes about 1 ms.

    Args:
        memory_limit: what hyperd may take, as "4g" or as a share of the machine's memory, "50%".
            hyperd's own default is 80 %, too much beside a JVM.
        telemetry: send usage data to Tableau.
    """
    key = (memory_limit, telemetry)
    # Without the lock: one that is busy takes longer to answer.
    process = _running.get(key)
    if process is not None and _answers(process):
        return process
    with _lock:
        # Otherwise another thread has come first.
        if _running.get(key) is process:
            _running[key] = _Hyperd(
                Telemetry.SEND_USAGE_DATA_TO_TABLEAU
                if telemetry
                else Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU,
                user_agent=USER_AGENT,
                # Without log_config, hyperd writes hyperd.log into the working directory.
                parameters={"log_config": "", "memory_limit": memory_limit},
            )
        return _running[key]


def _answers(process: HyperProcess) -> bool:
    """Whether it lives; its own `is_open` tells only whether we have closed it."""
    if not process.is_open:
        return False
    try:
        Connection(process.endpoint).close()
    except HyperException:
        return False
    return True


def connect(
    hyper: HyperProcess, path: Path | str | None = None, create_mode: CreateMode = CreateMode.NONE
) -> Connection:
    """A connection to hyperd, and to the file at `path`, in UTC.

    Without that setting, casts between instants and wall clocks follow the zone of the machine.
    """
    return Connection(hyper.endpoint, path, create_mode, parameters={"timezone": "UTC"})


@atexit.register
def _close() -> None:
    for process in _running.values():
        process.close()
