import random
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.services import DATABASE_FILE
from tableau_sandbox.testing import running_sandbox
from tableau_sandbox_tests.jobs.test_jobs import publish_job
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in, write_hyper
from tableau_sandbox_tests.service.command import started_sandbox

ROWS = 100_000
SUMMARY = 'SELECT MIN(version), MAX(version), COUNT(*) FROM "Extract"."Extract"'

KILLS = 50


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of more than a MB, so that a kill can come in the middle of anything."""
    folder = tmp_path_factory.mktemp("versions")
    return [
        write_hyper(
            folder / f"{version}.hyper",
            f"SELECT CAST(i AS BIGINT) * 1000003 % 15485863 AS a, {version} AS version,"
            f" CAST(i AS DOUBLE PRECISION) / 7 AS b FROM generate_series(1, {ROWS}) AS g(i)",
        )
        for version in range(3)
    ]


@dataclass
class Publisher:
    """Publishes one version after the other, until the sandbox is killed."""

    server: tsc.Server
    versions: list[Path]
    begun: int = 0
    answered: int = 0
    jobs: list[str | None] = field(default_factory=list)

    def run(self) -> None:
        try:
            for number in count():
                self.begun = number % len(self.versions)
                publish(self.server, self.versions[self.begun], mode="Overwrite")
                self.answered = self.begun
                self.jobs.append(publish_job(self.server, self.versions[0], name="By job").id)
        except requests.RequestException:
            return


@pytest.mark.slow
def test_kill_leaves_the_last_committed_state(
    tmp_path: Path, versions: list[Path], monkeypatch: pytest.MonkeyPatch
):
    # Prevents: a crash loses what was published, leaves half of it, or jobs that never end.
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    with started_sandbox(tmp_path / "data", "--kept-revisions", "1") as (process, url):
        publisher = Publisher(signed_in(url), versions)
        publish(publisher.server, versions[0])
        process.kill()
    for kill in range(KILLS):
        # Every other time, TSC sends the file in blocks.
        monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", str(1 if kill % 2 else 64))
        with started_sandbox(tmp_path / "data", "--kept-revisions", "1") as (process, url):
            server = signed_in(url)
            check_state(server, publisher, f"kill {kill}, seed {seed}")
            publisher = Publisher(server, versions, begun=publisher.begun)
            publisher.answered = published_version(server)
            thread = threading.Thread(target=publisher.run)
            thread.start()
            thread.join(chance.uniform(0.01, 0.4))
            process.kill()
            thread.join()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with running_sandbox(tmp_path / "data", clock=lambda: tomorrow) as sandbox:
        server = signed_in(sandbox)
        check_state(server, publisher, f"seed {seed}")
        check_nothing_is_left_behind(tmp_path / "data", server)


def published_version(server: tsc.Server) -> int:
    (item,) = server.datasources.filter(name="Flights")
    ((oldest, newest, rows),) = rows_on_server(server, item.id, SUMMARY)
    assert (oldest, rows) == (newest, ROWS)
    return newest


def check_state(server: tsc.Server, publisher: Publisher, context: str) -> None:
    """What was answered is there, or what was begun after it; no job goes on for ever."""
    assert published_version(server) in (publisher.answered, publisher.begun), context
    jobs = {job.id: job.status for job in server.jobs.filter()}
    assert set(jobs.values()) <= {"Success", "Failed"}, context
    assert set(publisher.jobs) <= set(jobs), context


def check_nothing_is_left_behind(data_dir: Path, server: tsc.Server) -> None:
    stored = {item.name for item in server.datasources.get()[0]}
    assert len(list((data_dir / "content").iterdir())) == len(stored)
    assert list((data_dir / "incoming").iterdir()) == []
    # A day later, no upload session lasts.
    assert list((data_dir / "uploads").iterdir()) == []
    with closing(sqlite3.connect(data_dir / DATABASE_FILE)) as database:
        assert database.execute("SELECT COUNT(*) FROM upload").fetchone() == (0,)
