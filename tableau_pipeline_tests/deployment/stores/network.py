"""A network between a store and its clients, which loses what a test wants it to."""

import socket
import struct
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

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
