"""Start hyperd, the database engine for `.hyper` files, once for each Python process."""

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

# hyperd needs 32 MiB: with 16 MiB, it cannot sort 200,000 short texts.
_LEAST_MEMORY = 32 * 2**20
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def limit_in_bytes(setting: str, *, root: Path = Path("/")) -> int:
    """Return a memory limit in bytes.

    Args:
        setting: an amount such as "512m" or "4g", or a share of the memory that this process may
            use, such as "50%".
        root: the folder with the folders `proc` and `sys`.

    Raises:
        RefusedError: `setting` is neither an amount nor a share, or is too little for hyperd.
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
        # Apply the share to the memory of the machine, or to the limit of a control group if that
        # is smaller. Containers have such limits.
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min([machine, *_group_limits(root)]) * int(share[1]) // 100
    raise SettingError(
        f'{setting!r} is no memory limit: name an amount such as "4g" or "512m", or a share such '
        'as "50%".',
    )


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the memory limits, in bytes, of this process's control groups of versions 1 and 2.

    Only Linux has control groups. For their files, see cgroups(7) and the kernel's cgroup-v2.rst.
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
        # The limit of a group also applies to its subgroups, so read the parents of our group as
        # well. A container may see its own group as the root, without parents.
        for group in (own_group, *own_group.parents):
            if group.is_relative_to(folder):
                with suppress(OSError):
                    text = (group / name).read_text().strip()
                    if text.isdecimal():  # otherwise "max"
                        yield int(text)


USER_AGENT = f"tableau_pipeline/{version('tableau_pipeline')}"


class Hyperd(HyperProcess):
    """A hyperd that closes when no object refers to it any more.

    So no thread can close hyperd while another thread uses it. When a crashed hyperd is replaced,
    no warning about an unclosed process appears.

    Attributes:
        memory: the memory that this hyperd may use, in bytes.
    """

    def __init__(self, *, memory: int, telemetry: bool) -> None:
        self.memory = memory
        super().__init__(
            Telemetry.SEND_USAGE_DATA_TO_TABLEAU
            if telemetry
            else Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU,
            user_agent=USER_AGENT,
            parameters={
                # Turn off logging: by default, hyperd writes hyperd.log, with SQL, into the working
                # directory.
                "log_config": "",
                "memory_limit": f"{memory // 2**20}m",
            },
        )

    def __del__(self) -> None:
        self.close()


_lock = threading.Lock()
_running: dict[tuple[str, bool], Hyperd] = {}


def hyper_process(*, memory_limit: str = "50%", telemetry: bool = False) -> Hyperd:
    """Return this process's hyperd with the given settings; start it if it is not running.

    All threads share this hyperd: each start takes about 0.1 s, and each hyperd may use memory up
    to its limit. A damaged file can crash hyperd. After a crash, this function starts a new hyperd,
    so call it before each piece of work. A call takes about 1 ms.

    Args:
        memory_limit: an amount of memory such as "4g", or a share of the memory that this process
            may use, such as "50%". hyperd's own default is 80 % of the machine's memory, which
            leaves too little for a JVM.
        telemetry: whether to send usage data to Tableau.

    Raises:
        RefusedError: `memory_limit` is neither an amount nor a share, or is too little.
    """
    key = (memory_limit, telemetry)
    # Check hyperd before taking the lock. A busy hyperd answers slowly, and meanwhile other threads
    # would wait for the lock.
    process = _running.get(key)
    if process is not None and _is_running(process):
        return process
    with _lock:
        # Start a hyperd only if the entry is unchanged. If the entry has changed, another thread
        # has started a hyperd.
        if _running.get(key) is process:
            _running[key] = Hyperd(memory=limit_in_bytes(memory_limit), telemetry=telemetry)
        return _running[key]


def _is_running(process: HyperProcess) -> bool:
    """Whether a hyperd still runs. Connect to find out: after a crash, `is_open` is still true."""
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
    """Connect to hyperd and to the file at `path`, if given; use UTC as the time zone.

    By default, hyperd would use the machine's zone for casts between instants and wall clock times.
    """
    return Connection(hyper.endpoint, path, create_mode, parameters={"timezone": "UTC"})


@atexit.register
def _close() -> None:
    for process in _running.values():
        process.close()
