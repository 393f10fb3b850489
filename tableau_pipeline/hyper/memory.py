"""How much memory hyperd may use."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tableauhyperapi import HyperException

from tableau_pipeline.errors import RefusedError

_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def limit_in_bytes(setting: str, *, root: Path = Path("/")) -> int:
    """Return a setting in bytes.

    Args:
        setting: an amount, "512m" or "4g"; or a share of the memory that this process may use,
            "50%".
        root: the folder with `proc` and `sys`.

    Raises:
        RefusedError: the setting is neither; the message names it.
    """
    amount = re.fullmatch(r"(\d+)\s*([kmgt])b?", setting.strip().lower())
    share = re.fullmatch(r"(\d+)\s*%", setting.strip())
    if amount and int(amount[1]):
        return int(amount[1]) * _UNITS[amount[2]]
    if share and 0 < int(share[1]) <= 100:
        return _available(root) * int(share[1]) // 100
    raise RefusedError(
        f'{setting!r} is no memory limit: name an amount such as "4g" or "512m", or a share such '
        'as "50%".'
    )


def is_out_of_memory(error: HyperException) -> bool:
    """Whether a statement needed more memory than hyperd may use."""
    return "memory limit" in str(error)


def _available(root: Path) -> int:
    """The memory of the machine, or of the container or control group if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    """The limits of the control groups of this process: Linux only, of both versions.

    The files are described in cgroups(7) and in the kernel's cgroup-v2.rst.
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
        group = folder / path.lstrip("/")
        # A limit of a group holds for those below it. A container may not see the upper ones, and
        # sees its own as the root.
        for each in (group, *group.parents):
            if each.is_relative_to(folder):
                yield from _limit(each / name)


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return
    if text.isdecimal():  # otherwise "max"
        yield int(text)
