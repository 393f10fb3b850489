import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tableau_pipeline_tests.cluster.deployment import alone, can_be_hidden
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.deployment.object_stores import BUCKET, SECRET
from tableau_pipeline_tests.postgresql import PASSWORD
from tableau_sandbox.testing import Sandbox


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_story_on_two_hosts(tmp_path: Path):
    """Prevents: hosts that need each other's disks, or a disk of Spark's; logs that stay on a host;
    a secret in a log; processes that outlive the command."""
    folder = tmp_path / "cluster"
    done = subprocess.run(
        [sys.executable, "-m", "tableau_pipeline_tests.cluster", "--folder", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr[-5000:]
    assert sum(line.endswith(" equal") for line in done.stdout.splitlines()) == 8
    runs = re.findall(
        r"  (\w{8})  (host-\w) +app-\S+ of (host-\w) +worker-1 and worker-2 +(\S+) +(\S+) ",
        done.stdout,
    )
    assert [(where, whose) for _, where, whose, _, _ in runs] == [
        (host, host) for host in ("host-a", "host-b", "host-a", "host-b")
    ]
    assert all(float(read) > 1 and float(written) > 1 for *_, read, written in runs)
    logs = (folder / "s3" / "buckets" / BUCKET).glob("compute-logs/storage/*/compute_logs/*.err")
    assert {log.parts[-3][:8] for log in logs} == {run for run, *_ in runs}
    assert list(_with_secrets(folder)) == []
    assert list(_still_running(folder)) == []


@pytest.mark.skipif(not can_be_hidden(), reason="mount namespaces are not allowed here")
def test_disks_are_apart(tmp_path: Path):
    """Prevents: a host that reads the disk of another one, which goes unnoticed on one machine."""
    mine, other = (tmp_path / name for name in ("mine", "other"))
    for disk in (mine, other):
        disk.mkdir()
        (disk / f"{disk.name}.txt").touch()
    command = [*alone(mine), "ls", str(mine), str(other)]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "mine.txt" in seen
    assert "other.txt" not in seen
    assert (other / "other.txt").exists()


def _with_secrets(folder: Path) -> Iterator[Path]:
    secrets = [secret.encode() for secret in (PASSWORD, SECRET, Sandbox.token_secret)]
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            if any(secret in content for secret in secrets):
                yield file


def _still_running(folder: Path) -> Iterator[list[str]]:
    for process in psutil.process_iter(["cmdline", "environ"]):
        told = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
        if any(str(folder) in text for text in told):
            yield process.info["cmdline"]
