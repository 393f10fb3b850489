"""A sandbox that is killed in the middle of publishes and updates, again and again."""

import random
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.services import DATABASE_FILE
from tableau_sandbox.testing import running_sandbox
from tableau_sandbox_tests.jobs.test_jobs import publish_job
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in, write_hyper
from tableau_sandbox_tests.service.command import started_sandbox
from tableau_sandbox_tests.updates.test_update_data import APPEND, CLEAR, update

ROWS, FEW_ROWS = 100_000, 20_000
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
def test_kill_in_a_publish(tmp_path: Path, versions: list[Path], monkeypatch: pytest.MonkeyPatch):
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
        assert len(rows) == FEW_ROWS


def versioned(path: Path, version: int) -> Path:
    return write_hyper(
        path, f"SELECT i, {version} AS v FROM generate_series(1, {FEW_ROWS}) AS g(i)"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_in_an_update(tmp_path: Path):
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
