"""PostgreSQL servers for single tests. `make test-all` installs Debian's package of PostgreSQL."""

import os
import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from tableau_pipeline_tests.dagster_servers import free_port, until

USER, PASSWORD = "pipeline", "a password of the test's"


class PostgreSQL:
    """A server on 127.0.0.1 with one database, `postgres`. Committed data outlive the server.

    Attributes:
        port: the port of the server, which stays the same after a restart.
        settings: the environment variables by which `deploy/dagster.yaml` finds the server.
    """

    def __init__(self, folder: Path) -> None:
        """Make the server's files in an empty folder that the user `postgres` can reach."""
        self._programs = max(Path("/usr/lib/postgresql").glob("*/bin"))
        self._folder = folder
        # PostgreSQL refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        self._process: subprocess.Popen | None = None
        password = folder / "password"
        password.write_text(PASSWORD)
        if self._user:
            for path in (folder, password):
                shutil.chown(path, self._user)
        subprocess.run(
            [self._programs / "initdb", "-D", folder / "data", "-U", USER, "-A", "scram-sha-256",
             "-E", "UTF8", f"--pwfile={password}", "--no-sync"],
            user=self._user, cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        self.port = free_port()
        self.settings: Mapping[str, str] = {
            "DAGSTER_POSTGRES_HOST": "127.0.0.1",
            "DAGSTER_POSTGRES_PORT": str(self.port),
            "DAGSTER_POSTGRES_USER": USER,
            "DAGSTER_POSTGRES_PASSWORD": PASSWORD,
            "DAGSTER_POSTGRES_DB": "postgres",
        }

    def start(self) -> None:
        """Start the server on its existing data, and wait until it answers."""
        log = self._folder / "log"
        with log.open("a") as output:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", "-h", "127.0.0.1",
                 "-p", str(self.port), "-k", self._folder],
                user=self._user, cwd=self._folder, stdout=output, stderr=output,
            )  # fmt: skip
        until(self._answers, seconds=60, what="PostgreSQL should answer", log=log)

    def kill(self) -> None:
        """Kill the server as a loss of power would. Its child processes notice, and end as well."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(30)

    def run(self, sql: str) -> str:
        """Run SQL; return what `psql` prints, without headings."""
        command = [self._programs / "psql", "--no-psqlrc", "-XAt", "-v", "ON_ERROR_STOP=1"]
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"]
        done = subprocess.run(
            [*map(str, command), *where, "-c", sql],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def _answers(self) -> bool:
        try:
            return self.run("SELECT 1") == "1"
        except subprocess.CalledProcessError:
            return False


@contextmanager
def running_postgresql() -> Generator[PostgreSQL]:
    """Run a server until the `with` block ends."""
    folder = Path(mkdtemp(prefix="postgresql-"))
    try:
        server = PostgreSQL(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
