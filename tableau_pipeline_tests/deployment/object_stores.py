"""Servers of object stores on this machine, and a network that loses chosen requests."""

import base64
import hashlib
import hmac
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self

import httpx

from tableau_pipeline.objects.stores import store_at
from tableau_pipeline_tests.dagster_servers import free_port, stop, until
from tableau_pipeline_tests.environments import go_program, node_program
from tableau_pipeline_tests.publishing.hostile import Call, front_of

BUCKET = "lake"


class ObjectServer(ABC):
    """A server of one bucket.

    Attributes:
        url: the URL of the bucket.
        variables: environment variables of the server process.
        outlives_a_kill: whether confirmed objects are still there after a kill and a new start.
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
        """The environment variables of clients that reach the server through this port."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The environment variables of clients that reach the server at its own port."""
        return self.settings_at(self.port)

    def start(self) -> None:
        """Start the server on its existing objects, and wait until it answers."""
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
        """Run the server during the block; forget all stores that this process has opened."""
        # The buckets of different servers may have the same URL, so a cached store may be
        # the wrong one.
        store_at.cache_clear()
        try:
            self.start()
            yield self
        finally:
            self.stop()
            store_at.cache_clear()

    def kill(self) -> None:
        """End the server as a loss of power would."""
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
    """An S3 server of one bucket. Confirmed objects survive the end of the server."""

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


# The account and the key of every emulator, as Azure documents them.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class AzureServer(ObjectServer):
    """An Azure server of one container."""

    url = f"abfss://{BUCKET}@{AZURE_ACCOUNT}.dfs.core.windows.net"
    # The server writes its list of blobs only every few seconds, so a kill loses the newest blobs.
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
        """Start the server, wait until it answers, and create the container."""
        super().start()
        date, version = formatdate(usegmt=True), "2021-08-06"
        text = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n"
            f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
        )
        digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
        created = httpx.put(
            f"http://127.0.0.1:{self.port}/{AZURE_ACCOUNT}/{BUCKET}",
            params={"restype": "container"},
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )
        assert created.status_code == 201, created.text


class GcsServer(ObjectServer):
    """A GCS server of one bucket. Confirmed objects survive the end of the server."""

    url = f"gs://{BUCKET}"

    def command(self) -> Sequence[str | Path]:
        program = "tableau_pipeline_tests.deployment.gcs"
        return [sys.executable, "-m", program, str(self.port), "buckets"]

    def settings_at(self, port: int) -> Mapping[str, str]:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


# After this time, the clients of these tests have given up.
_LATE_SECONDS = 1.5


class Fault(StrEnum):
    """What happens to a request.

    LOST: the request does not arrive.
    UNANSWERED: the request arrives, but the connection is reset before the answer.
    CUT: half of the answer arrives.
    LATE: the request arrives after its sender has given up.
    """

    LOST = "lost"
    UNANSWERED = "unanswered"
    CUT = "cut"
    LATE = "late"


class Network:
    """Passes requests on to a server of this machine.

    Attributes:
        port: the port at which clients find the server.
        fault: returns the fault for a method and a path; a test may replace it at any time.
        requests: the methods and paths of all requests.
    """

    port: int

    def __init__(self, behind: int) -> None:
        self.fault: Callable[[str, str], Fault | None] = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self._late: list[threading.Timer] = []
        self._behind = f"http://127.0.0.1:{behind}"

    @contextmanager
    def running(self) -> Generator["Network"]:
        with front_of(self._behind) as front, front.answering(".*", ".*", self._pass_on):
            self.port = front.server_port
            yield self

    def _pass_on(self, call: Call) -> None:
        self.requests.append((call.command, call.path))
        fault = self.fault(call.command, call.path)
        if fault is Fault.LATE:
            self._late.append(threading.Timer(_LATE_SECONDS, call.handed_on))
            self._late[-1].start()
        elif fault is not Fault.LOST:
            answer = call.handed_on()
            if fault is Fault.UNANSWERED:
                # After an orderly end, clients believe that the request was not processed. So reset
                # the connection.
                no_time = struct.pack("ii", 1, 0)
                call.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_time)
                for each in (call.rfile, call.wfile, call.connection):
                    each.close()
            else:
                call.close_connection = fault is Fault.CUT
                call.pass_back(answer, share=0.5 if fault is Fault.CUT else 1)

    def down_after(self, count: int, fault: Fault = Fault.LOST) -> None:
        """Pass on the next `count` requests; then apply the fault to each request."""
        last = len(self.requests) + count
        self.fault = lambda method, path: fault if len(self.requests) > last else None

    def up(self) -> None:
        """Pass on all requests from now on."""
        self.fault = lambda method, path: None

    def settle(self) -> None:
        """Wait until all late requests have arrived."""
        for sending in self._late:
            sending.join()
