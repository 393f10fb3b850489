"""An S3 server on this machine, whose objects are files."""

import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from obstore.exceptions import BaseError
from obstore.store import S3Store

from tableau_pipeline_tests.dagster_servers import free_port, stop
from tableau_pipeline_tests.environments import go_program
from tableau_pipeline_tests.waiting import until

BUCKET = "lake"
_PROGRAM = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


class S3Server:
    """A server of one bucket. What it has confirmed outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "buckets" / BUCKET).mkdir(parents=True)
        self._program = go_program(_PROGRAM)
        self._port = free_port()
        self._process: subprocess.Popen | None = None
        self.settings: Mapping[str, str] = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "a secret of the test's",
        }

    def start(self) -> None:
        """Start it, on the objects that are there, and wait until it answers."""
        log = self.folder / "log"
        with log.open("a") as output:
            self._process = subprocess.Popen(
                [self._program, "--port", f"127.0.0.1:{self._port}", "posix", "buckets"],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={
                    **os.environ,
                    "ROOT_ACCESS_KEY": self.settings["AWS_ACCESS_KEY_ID"],
                    "ROOT_SECRET_KEY": self.settings["AWS_SECRET_ACCESS_KEY"],
                },
                start_new_session=True,
            )
        until(self._answers, seconds=60, what="the S3 server does not answer", log=log)

    def kill(self) -> None:
        """End it as a loss of power would."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            stop(self._process)

    def _answers(self) -> bool:
        store = S3Store(
            BUCKET, config=self.settings, client_options={"allow_http": True, "timeout": "5s"}
        )
        try:
            store.list_with_delimiter()
        except BaseError:
            return False
        return True


@contextmanager
def s3_server(folder: Path) -> Generator[Mapping[str, str]]:
    """Run one.

    Yields:
        the variables by which its clients find it.
    """
    server = S3Server(folder / "s3")
    try:
        server.start()
        yield server.settings
    finally:
        server.stop()
