"""A sandbox that is killed in the middle of publishes and updates, again and again."""

import random
import sqlite3
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.services import DATABASE_FILE
from tableau_sandbox.testing import running_sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in, write_hyper
from tableau_sandbox_tests.service.command import started_sandbox
from tableau_sandbox_tests.updates.test_update_data import APPEND, CLEAR, finished, update

ROWS, KILLS = 50_000, 60
SUMMARY = 'SELECT MIN(version), MAX(version), COUNT(*) FROM "Extract"."Extract"'


@dataclass
class Client:
    """Replaces all rows by a later version, in one way after the other, until that breaks off."""

    folder: Path
    begun: int = 0
    answered: int = 0
    job: str | None = None

    def run(self, server: tsc.Server) -> None:
        with suppress(requests.RequestException):
            while True:
                self.begun += 1
                # More than a MB, so that a kill can come in the middle of anything.
                file = write_hyper(
                    self.folder / "next.hyper",
                    f"SELECT CAST(i AS BIGINT) * 1000003 % 15485863 AS a, {self.begun} AS version,"
                    f" CAST(i AS FLOAT) / 7 AS b FROM generate_series(1, {ROWS}) AS g(i)",
                )
                self.replace(server, file)
                self.answered = self.begun

    def replace(self, server: tsc.Server, file: Path) -> None:
        if self.begun % 3 == 1:
            publish(server, file, mode="Overwrite")
            return
        (item,) = server.datasources.filter(name="Flights")
        if self.begun % 3 == 2:
            item = tsc.DatasourceItem(item.project_id, name="Flights")
            job = server.datasources.publish(item, file, "Overwrite", as_job=True)
        else:
            job = update(server, item, CLEAR, APPEND, payload=file)
        self.job = job.id
        assert finished(server, job).finish_code == 0

    def check(self, server: tsc.Server, context: str) -> None:
        """What was answered is there, or what was begun after it; no job goes on for ever."""
        (item,) = server.datasources.filter(name="Flights")
        ((oldest, newest, rows),) = rows_on_server(server, item.id, SUMMARY)
        assert (oldest, rows) == (newest, ROWS), context
        assert newest in (self.answered, self.begun), context
        jobs = {job.id: job.status for job in server.jobs.filter()}
        assert set(jobs.values()) <= {"Success", "Failed"}, context
        assert self.job is None or self.job in jobs, context
        self.answered = self.begun = newest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a crash loses what was answered, leaves half of it, or jobs that never end."""
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    seed = random.randrange(1 << 30)
    chance, client, data_dir = random.Random(seed), Client(tmp_path), tmp_path / "data"
    for kill in range(KILLS):
        # Every other time, TSC sends the file in blocks.
        monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", str(1 if kill % 2 else 64))
        with started_sandbox(data_dir, "--kept-revisions", "1") as (process, url):
            server = signed_in(url)
            if client.begun:
                client.check(server, f"kill {kill}, seed {seed}")
            sender = threading.Thread(target=client.run, args=(server,))
            sender.start()
            while not client.answered:
                sender.join(0.01)
            sender.join(chance.uniform(0.01, 0.6))
            process.kill()
            sender.join()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with running_sandbox(data_dir, clock=lambda: tomorrow) as sandbox:
        client.check(signed_in(sandbox), f"seed {seed}")
        assert len(list((data_dir / "content").iterdir())) == 1
        assert list((data_dir / "incoming").iterdir()) == []
        # A day later, no upload session lasts.
        assert list((data_dir / "uploads").iterdir()) == []
        with closing(sqlite3.connect(data_dir / DATABASE_FILE)) as database:
            assert database.execute("SELECT COUNT(*) FROM upload").fetchone() == (0,)
