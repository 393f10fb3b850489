"""Servers of object stores on this machine, and a network that loses what a test wants."""

import base64
import hashlib
import hmac
import os
import socket
import struct
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import httpx

from tableau_pipeline_tests.dagster_servers import stop
from tableau_pipeline_tests.environments import go_program, node_program
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


_GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_USER, SECRET = "somebody", "a secret of the test's"


class S3Server(ObjectServer):
    """A server of one bucket. What it has confirmed outlives it."""

    url = f"s3://{BUCKET}"
    variables: ClassVar[Mapping[str, str]] = {"ROOT_ACCESS_KEY": _USER, "ROOT_SECRET_KEY": SECRET}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "buckets" / BUCKET).mkdir(parents=True)

    def command(self) -> Sequence[str | Path]:
        return [go_program(_GATEWAY), "--port", f"127.0.0.1:{self.port}", "posix", "buckets"]

    def settings_at(self, port: int) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": _USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }


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


# Those of every emulator, as Azure documents them.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzureServer(ObjectServer):
    """A server of one container."""

    url = f"abfss://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net"
    # It writes its list of blobs every few seconds.
    outlives_a_kill = False

    def command(self) -> Sequence[str | Path]:
        *node, program = node_program("azurite@3.37.0")
        return [
            *node, f"{program}-blob", "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
            "--location", "buckets", "--disableTelemetry", "--skipApiVersionCheck", "--silent",
        ]  # fmt: skip

    def settings_at(self, port: int) -> Mapping[str, str]:
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        }

    def start(self) -> None:
        """Start it, wait until it answers, and create the container."""
        super().start()
        date, version = formatdate(usegmt=True), "2021-08-06"
        text = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n"
            f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
        )
        digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
        created = httpx.put(
            f"http://127.0.0.1:{self.port}/{_ACCOUNT}/{BUCKET}",
            params={"restype": "container"},
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )
        assert created.status_code == 201, created.text


# Longer than clients of these tests take until they give up.
_LATE_SECONDS = 1.5


class Fault(StrEnum):
    """What becomes of a request.

    LOST: it does not arrive.
    UNANSWERED: it arrives, but its answer does not, as the connection is reset.
    CUT: half of its answer arrives.
    LATE: it arrives when its sender has given up.
    """

    LOST = "lost"
    UNANSWERED = "unanswered"
    CUT = "cut"
    LATE = "late"


class Answer(NamedTuple):
    """An answer of a server."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class PassingOn(BaseHTTPRequestHandler):
    """Passes each request on to a server of this machine."""

    protocol_version = "HTTP/1.1"
    # Answers are small and in two parts, of which the second would wait for the first.
    disable_nagle_algorithm = True

    def pass_on(self, behind: int, fault: Fault | None = None) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = None if fault is Fault.LOST else self.answer(behind, body)
        if answer is None or fault is Fault.UNANSWERED:
            self._break_off(reset=fault is Fault.UNANSWERED)
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            # Whether a connection stays is between two neighbours.
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = len(answer.content)
        if self.command == "HEAD":
            length = int(answer.headers.get("Content-Length", 0))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if fault is Fault.CUT:
            self.close_connection = True
            length //= 2
        self.wfile.write(answer.content[:length])

    def send_late(self, behind: int) -> threading.Timer:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sending = threading.Timer(_LATE_SECONDS, self.answer, (behind, body))
        sending.start()
        self._break_off(reset=False)
        return sending

    def answer(self, behind: int, body: bytes) -> Answer | None:
        """What the server answers; None if it does not."""
        connection = HTTPConnection("127.0.0.1", behind, timeout=60)
        try:
            # Signatures hold the host that the client has asked for.
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    def _break_off(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            # Clients take an orderly end for a request that was not dealt with.
            no_time = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_time)
            for each in (self.rfile, self.wfile, self.connection):
                each.close()

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


class Network:
    """Hands on the requests to a server of this machine.

    Attributes:
        port: where clients find the server.
        fault: what becomes of a request, by its method and path; it may change at any time.
        requests: those that clients have sent.
    """

    def __init__(self, behind: int) -> None:
        self.fault: Callable[[str, str], Fault | None] = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self._late: list[threading.Timer] = []
        network = self

        class Handler(PassingOn):
            def send_on(self) -> None:
                network.requests.append((self.command, self.path))
                fault = network.fault(self.command, self.path)
                if fault is Fault.LATE:
                    network._late.append(self.send_late(behind))
                else:
                    self.pass_on(behind, fault)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = send_on  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    @contextmanager
    def running(self) -> Generator["Network"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def down_after(self, count: int, fault: Fault = Fault.LOST) -> None:
        """Pass on the next requests, so many; then lose everything, or what the fault says."""
        last = len(self.requests) + count
        self.fault = lambda method, path: fault if len(self.requests) > last else None

    def up(self) -> None:
        """Lose nothing from now on."""
        self.fault = lambda method, path: None

    def settle(self) -> None:
        """Wait until what is late has arrived."""
        for sending in self._late:
            sending.join()
