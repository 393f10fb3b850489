"""Servers of object stores on this machine."""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

import httpx

from tableau_pipeline_tests.dagster_servers import stop
from tableau_pipeline_tests.ports import free_port
from tableau_pipeline_tests.waiting import until

BUCKET = "lake"


class ObjectServer(ABC):
    """A server of one bucket.

    Attributes:
        url: of the bucket.
        variables: those of the server itself.
        outlives_a_kill: whether what it has confirmed is there if it starts again.
    """

    url: str
    variables: ClassVar[Mapping[str, str]] = {}
    outlives_a_kill = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.port = free_port()
        self._process: subprocess.Popen | None = None

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The program and its arguments."""

    @abstractmethod
    def settings_at(self, port: int) -> Mapping[str, str]:
        """The variables by which clients find it, at its own port or at one that leads to it."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The variables by which clients find it."""
        return self.settings_at(self.port)

    def start(self) -> None:
        """Start it, on the objects that are there, and wait until it answers."""
        log = self.folder / "log"
        with log.open("a") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={**os.environ, **self.variables},
                start_new_session=True,
            )
        until(self._answers, seconds=60, what="the object store does not answer", log=log)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run it for as long as the block runs."""
        try:
            self.start()
            yield self
        finally:
            self.stop()

    def kill(self) -> None:
        """End it as a loss of power would."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            stop(self._process)

    def _answers(self) -> bool:
        try:
            httpx.get(f"http://127.0.0.1:{self.port}/", timeout=5)
        except httpx.TransportError:
            return False
        return True
