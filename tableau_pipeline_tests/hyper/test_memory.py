import os
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.process import limit_in_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
V2 = "0::/user.slice/job\n"
V1 = "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n"


@pytest.mark.parametrize(
    ("setting", "limit"),
    [("4g", 4 * 2**30), ("512m", 512 * 2**20), ("1 GB", 2**30), ("64kb", 2**16)],
)
def test_amounts(setting: str, limit: int):
    """Prevents: a limit of another size than the one that was set."""
    assert limit_in_bytes(setting) == limit


@pytest.mark.parametrize("setting", ["", "4", "0g", "0%", "101%", "four", "-1g", "1.5g"])
def test_what_is_no_limit(setting: str):
    """Prevents: a mistyped limit that is ignored, or shown by hyperd in words of its own."""
    with pytest.raises(RefusedError, match=r"is no memory limit: name an amount such as \"4g\""):
        limit_in_bytes(setting)


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        (V2, {"user.slice/job/memory.max": "1000"}, 1000),
        (V2, {"user.slice/job/memory.max": "max", "user.slice/memory.max": "900"}, 900),
        (V2, {"memory.max": "800"}, 800),  # as a container sees its own
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
    """Prevents: a container that is killed, since hyperd took its share of the whole machine."""
    if groups:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert limit_in_bytes("100%", root=tmp_path) == least
    assert limit_in_bytes("50%", root=tmp_path) == least // 2
