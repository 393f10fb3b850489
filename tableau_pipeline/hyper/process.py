"""hyperd, the database engine behind `.hyper` files: one hyperd for each Python process."""

import atexit
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from tableauhyperapi import Connection, CreateMode, HyperException, HyperProcess, Telemetry

from tableau_pipeline.errors import SettingError

# With 16 MiB, hyperd cannot sort 200,000 short texts.
_LEAST_MEMORY = 32 * 2**20
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def limit_in_bytes(setting: str, *, root: Path = Path("/")) -> int:
    """Return a setting in bytes.

    Args:
        setting: an amount, "512m" or "4g"; or a share of the memory that this process may use,
            "50%".
        root: the folder with `proc` and `sys`.

    Raises:
        RefusedError: the setting is neither, or too little; the message names it.
    """
    amount = re.fullmatch(r"(\d+)\s*([kmgt])b?", setting.strip().lower())
    share = re.fullmatch(r"(\d+)\s*%", setting.strip())
    if amount and (memory := int(amount[1]) * _UNITS[amount[2]]):
        if memory < _LEAST_MEMORY:
            raise SettingError(
                f"A memory limit of {setting!r} is too little for hyperd: name 32m or more.",
            )
        return memory
    if share and 0 < int(share[1]) <= 100:
        # The memory of the machine, or of the container or control group if that is less.
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min([machine, *_group_limits(root)]) * int(share[1]) // 100
    raise SettingError(
        f'{setting!r} is no memory limit: name an amount such as "4g" or "512m", or a share such '
        'as "50%".',
    )


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the memory limits, in bytes, of this process's control groups of versions 1 and 2.

    There are none outside of Linux. The files are described in cgroups(7) and in the kernel's
    cgroup-v2.rst.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            folder, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        own_group = folder / path.lstrip("/")
        # A limit of a group also holds for the groups below it. A container may see its own group
        # as the root, and none above it.
        for group in (own_group, *own_group.parents):
            if group.is_relative_to(folder):
                with suppress(OSError):
                    text = (group / name).read_text().strip()
                    if text.isdecimal():  # otherwise "max"
                        yield int(text)


USER_AGENT = f"tableau_pipeline/{version('tableau_pipeline')}"


class Hyperd(HyperProcess):
    """A hyperd that closes with its last user, so no thread can close it while another uses it.

    This also releases a dead process without the warning that it should have been closed.

    Attributes:
        memory: the bytes that it may use.
    """

    def __init__(self, *, memory: int, telemetry: bool) -> None:
        self.memory = memory
        super().__init__(
            Telemetry.SEND_USAGE_DATA_TO_TABLEAU
            if telemetry
            else Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU,
            user_agent=USER_AGENT,
            parameters={
                # Without this, hyperd writes hyperd.log, with SQL, into the working directory.
                "log_config": "",
                "memory_limit": f"{memory // 2**20}m",
            },
        )

    def __del__(self) -> None:
        self.close()


_lock = threading.Lock()
_running: dict[tuple[str, bool], Hyperd] = {}


def hyper_process(*, memory_limit: str = "50%", telemetry: bool = False) -> Hyperd:
    """Return the hyperd of this Python process; it is started when first needed.

    Starting one takes about 0.1 s, and each may use all its memory, so the process shares one. A
    damaged file can crash it. Therefore call this before each piece of work: after a crash it
    returns a new one. A call takes about 1 ms.

    Args:
        memory_limit: the memory for hyperd, such as "4g", or a share of what this process may use,
            "50%". hyperd's own default is 80 % of the machine's, too much next to a JVM.
        telemetry: send usage data to Tableau.

    Raises:
        RefusedError: `memory_limit` is neither.
    """
    key = (memory_limit, telemetry)
    # Checked without the lock, because a busy hyperd takes longer to answer.
    process = _running.get(key)
    if process is not None and _is_running(process):
        return process
    with _lock:
        # If not, another thread has already started a new one.
        if _running.get(key) is process:
            _running[key] = Hyperd(memory=limit_in_bytes(memory_limit), telemetry=telemetry)
        return _running[key]


def _is_running(process: HyperProcess) -> bool:
    """Whether a hyperd still runs; its own `is_open` shows only whether we have closed it."""
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
    """Connect to hyperd, and to the file at `path`, in UTC.

    Without this setting, casts between instants and wall clock times use the machine's zone.
    """
    return Connection(hyper.endpoint, path, create_mode, parameters={"timezone": "UTC"})


@atexit.register
def _close() -> None:
    for process in _running.values():
        process.close()
