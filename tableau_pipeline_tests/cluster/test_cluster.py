import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.deployment.object_stores import BUCKET, SECRET
from tableau_pipeline_tests.postgresql import PASSWORD
from tableau_sandbox.testing import Sandbox


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_story_on_two_hosts(tmp_path: Path):
    """Prevents: a host needs another host's disk, a log shows a secret, or a process never ends."""
    folder = tmp_path / "cluster"
    done = subprocess.run(
        [sys.executable, "-m", "tableau_pipeline_tests.cluster", "--folder", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr[-5000:]
    assert sum(line.endswith(" equal") for line in done.stdout.splitlines()) == 8
    runs = re.findall(
        r"  (\w{8}) on (host-\w): app-\S+ of (host-\w) on worker-1 and worker-2$", done.stdout, re.M
    )
    assert [(where, whose) for _, where, whose in runs] == [
        (host, host) for host in ("host-a", "host-b", "host-a", "host-b")
    ]
    assert [*(folder / "s3" / "buckets" / BUCKET / "pipeline").rglob("*.parquet")]
    logs = (folder / "s3" / "buckets" / BUCKET).glob("compute-logs/storage/*/compute_logs/*.err")
    assert {log.parts[-3][:8] for log in logs} == {run for run, *_ in runs}
    assert list(_with_secrets(folder)) == []
    assert list(_still_running(folder)) == []


def _with_secrets(folder: Path) -> Iterator[Path]:
    secrets = [secret.encode() for secret in (PASSWORD, SECRET, Sandbox.token_secret)]
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            if any(secret in content for secret in secrets):
                yield file


def _still_running(folder: Path) -> Iterator[list[str]]:
    for process in psutil.process_iter(["cmdline", "environ"]):
        settings = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
        if any(str(folder) in text for text in settings):
            yield process.info["cmdline"]
