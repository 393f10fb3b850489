import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tableauhyperapi import Connection, HyperProcess

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.process import hyper_process, limit_in_bytes
from tableau_pipeline_tests.hyper.samples import kill, process_id

KILLED = "import os; os.kill(int(process.endpoint.connection_descriptor.rpartition('.')[2]), 9)"


def asked_at_once(**settings: Any) -> list[HyperProcess]:
    """The hyperds that eight threads get."""
    with ThreadPoolExecutor(8) as executor:
        return list(executor.map(lambda _: hyper_process(**settings), range(8)))


def test_one_process_is_shared(hyper: HyperProcess) -> None:
    """Prevents: each refresh starts a hyperd, and each hyperd may take half of the memory."""
    assert all(process is hyper for process in asked_at_once())


@pytest.mark.parametrize("end", [kill, HyperProcess.close])
def test_a_dead_process_is_replaced(end: Callable[[HyperProcess], object]) -> None:
    """Prevents: a Python process never recovers from a hyperd that died or was shut down."""
    first = hyper_process(memory_limit="650m")
    process = process_id(first)
    end(first)
    second, *others = asked_at_once(memory_limit="650m")
    try:
        assert second is not first
        assert all(process is second for process in others)
        with Connection(second.endpoint) as connection:
            assert connection.execute_scalar_query("SELECT 1") == 1
        del first
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    finally:
        second.close()


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", KILLED, "import os; os._exit(4)"])
@pytest.mark.slow
def test_nothing_is_left_behind(ending: str, tmp_path: Path) -> None:
    """Prevents: hyperd leaves a log in the user's folder, or outlives its Python process."""
    script = (
        "from tableauhyperapi import Connection\n"
        "from tableau_pipeline.hyper.process import hyper_process\n"
        "process = hyper_process()\n"
        "with Connection(process.endpoint) as connection:\n"
        "    print(connection.execute_scalar_query('SELECT 1'), flush=True)\n"
    )
    # hyperd inherits the pipes, so `run` returns only when hyperd has ended, too.
    done = subprocess.run(
        [sys.executable, "-c", script + ending],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert list(tmp_path.iterdir()) == []


MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
V2 = "0::/user.slice/job\n"
V1 = "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n"


@pytest.mark.parametrize(
    ("setting", "limit"),
    [("4g", 4 * 2**30), ("512m", 512 * 2**20), ("1 GB", 2**30), ("65536kb", 2**26)],
)
def test_amounts(setting: str, limit: int):
    """Prevents: hyperd gets another memory limit than the setting says."""
    assert limit_in_bytes(setting) == limit


@pytest.mark.parametrize("setting", ["", "4", "0g", "0%", "101%", "four", "-1g", "1.5g"])
def test_what_is_no_limit(setting: str):
    """Prevents: a mistyped limit is ignored, or leads to an error in hyperd's own words."""
    with pytest.raises(RefusedError, match=r"is no memory limit: name an amount such as \"4g\""):
        limit_in_bytes(setting)


@pytest.mark.parametrize("setting", ["100k", "31m"])
def test_too_little(setting: str):
    """Prevents: hyperd gets a limit of almost no memory, and fails at each refresh."""
    with pytest.raises(RefusedError, match=f"'{setting}' is too little for hyperd: name 32m or"):
        limit_in_bytes(setting)


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        (V2, {"user.slice/job/memory.max": "1000"}, 1000),
        (V2, {"user.slice/job/memory.max": "max", "user.slice/memory.max": "900"}, 900),
        (V2, {"memory.max": "800"}, 800),  # the group as its container sees it
        (V2, {"user.slice/job/memory.max": "max"}, MACHINE),
        (V1, {"memory/docker/abc/memory.limit_in_bytes": "700"}, 700),
        (V1, {"memory/memory.limit_in_bytes": "600"}, 600),
        (V1, {"memory/docker/abc/memory.limit_in_bytes": str(2**63 - 4096)}, MACHINE),
        (None, {}, MACHINE),
    ],
)
def test_limits_of_control_groups(
    tmp_path: Path, groups: str | None, limits: dict[str, str], least: int
):
    """Prevents: a container is killed because hyperd's limit is a share of the machine's memory."""
    if groups:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert limit_in_bytes("100%", root=tmp_path) == least
    assert limit_in_bytes("50%", root=tmp_path) == least // 2
