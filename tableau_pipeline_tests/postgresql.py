"""A PostgreSQL server of a test's own, from Debian's package (`make test-all` installs it)."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from tempfile import mkdtemp

from tableau_pipeline_tests.waiting import until

USER, PASSWORD = "pipeline", "a password of the test's"


@dataclass(frozen=True)
class PostgreSQL:
    """A server on 127.0.0.1 with one database, `postgres`."""

    port: int
    programs: Path

    @property
    def variables(self) -> dict[str, str]:
        """Those by which deploy/dagster.yaml finds it."""
        return {
            "DAGSTER_POSTGRES_HOST": "127.0.0.1",
            "DAGSTER_POSTGRES_PORT": str(self.port),
            "DAGSTER_POSTGRES_USER": USER,
            "DAGSTER_POSTGRES_PASSWORD": PASSWORD,
            "DAGSTER_POSTGRES_DB": "postgres",
        }

    def run(self, sql: str) -> str:
        """What `psql` prints, without headings."""
        command = [self.programs / "psql", "--no-psqlrc", "-XAt", "-v", "ON_ERROR_STOP=1"]
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"]
        done = subprocess.run(
            [*map(str, command), *where, "-c", sql],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()


@contextmanager
def running_postgresql() -> Generator[PostgreSQL]:
    """Start one; as the user `postgres` where we are root, as whom it refuses to run."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"))
    folder = Path(mkdtemp(prefix="postgresql-"))
    password = folder / "password"
    password.write_text(PASSWORD)
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        for path in (folder, password):
            shutil.chown(path, user)
    data = folder / "data"
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "-E", "UTF8",
         f"--pwfile={password}", "--no-sync"],
        user=user, cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", folder],
            user=user, cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        server = PostgreSQL(port, programs)
        until(
            lambda: _answers(server),
            seconds=30,
            what="PostgreSQL should answer",
            log=folder / "log",
        )
        yield server
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder)


def _answers(server: PostgreSQL) -> bool:
    try:
        return server.run("SELECT 1") == "1"
    except subprocess.CalledProcessError:
        return False
