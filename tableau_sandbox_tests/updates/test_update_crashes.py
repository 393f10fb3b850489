import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import running_sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in, write_hyper
from tableau_sandbox_tests.service.command import started_sandbox
from tableau_sandbox_tests.updates.test_update_data import APPEND, CLEAR, update

ROWS = 20_000

KILLS = 50


@dataclass
class Updates:
    """A data source whose rows all have one version, and the jobs that were to change it."""

    server: tsc.Server
    luid: str
    folder: Path
    latest: int = 0
    versions: dict[Any, int] = field(default_factory=dict)

    def send_until_it_dies(self) -> None:
        try:
            while True:
                self.latest += 1
                payload = versioned(self.folder / "payload.hyper", self.latest)
                job = update(self.server, self.luid, CLEAR, APPEND, payload=payload)
                self.versions[job.id] = self.latest
        except requests.RequestException:
            return

    def check(self) -> None:
        jobs = list(self.server.jobs.filter())
        assert {job.status for job in jobs} <= {"Success", "Failed"}
        # Of each life of the sandbox, the client may have missed the answer to the last request.
        effective = [
            self.versions.setdefault(job.id, self.latest) for job in jobs if job.status == "Success"
        ]
        rows = rows_on_server(self.server, self.luid)
        assert {version for _, version in rows} == {max(effective, default=0)}
        assert len(rows) == ROWS


def versioned(path: Path, version: int) -> Path:
    return write_hyper(path, f"SELECT i, {version} AS v FROM generate_series(1, {ROWS}) AS g(i)")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_leaves_the_last_committed_state(tmp_path: Path):
    # Prevents: a crash leaves half an update, or one that its job does not tell of, or no data.
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown if the test fails
    chance = random.Random(seed)
    updates = None
    for _ in range(KILLS):
        with started_sandbox(tmp_path / "data") as (process, url):
            server = signed_in(url)
            if updates is None:
                luid = publish(server, versioned(tmp_path / "first.hyper", 0)).id
                updates = Updates(server, luid, tmp_path)
            updates.server = server
            updates.check()
            sender = threading.Thread(target=updates.send_until_it_dies)
            sender.start()
            sender.join(chance.uniform(0.2, 0.7))
            process.kill()
            sender.join()
    assert updates is not None
    with running_sandbox(tmp_path / "data") as sandbox:
        updates.server = signed_in(sandbox)
        updates.check()
        # As it was published, for its revision, and as it is now.
        assert len(list((sandbox.data_dir / "content").iterdir())) <= 2
        assert list((sandbox.data_dir / "incoming").iterdir()) == []
