"""A server between the pipeline and the sandbox, which answers chosen calls itself."""

import gzip
import html
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

# A function that writes the answer to a call.
Answer = Callable[["Call"], None]

_MEGABYTE = 2**20
# 2 GB of zeros.
BOMB = gzip.compress(bytes(16 * _MEGABYTE)) * 128
ENTITIES = b"""<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><tsResponse xmlns="http://tableau.com/api">&b;</tsResponse>"""
EMPTY = b'<tsResponse xmlns="http://tableau.com/api"/>'
PAGE = b"""<html><head><title>Sign in</title></head><body><form action="/login">
<input name="csrf" value="fr0m-the-page"/><input name="password"/></form></body></html>"""
_HOP_BY_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding"}


class Call(BaseHTTPRequestHandler):
    """One call. If `Front.answering` has set an answer to it, that answer replaces the real one."""

    protocol_version = "HTTP/1.1"
    # Answers are small and have two parts. Nagle's algorithm would delay the second part.
    disable_nagle_algorithm = True
    server: "Front"

    def handle_one_request(self) -> None:
        with suppress(OSError, ValueError):
            super().handle_one_request()

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0].partition("/api/")[2].partition("/")[2]
        for method, pattern, answer in self.server.armed:
            if re.fullmatch(method, self.command) and re.fullmatch(pattern, path):
                self.server.met += 1
                self.close_connection = True
                return answer(self)
        return self.pass_back(self.handed_on())

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_CONNECT = do_GET  # noqa: N815

    def begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        # Otherwise, the client would send its next call on a connection that is about to end.
        self.send_header("Connection", "close")
        self.end_headers()

    def whole(self, status: int, body: bytes, **headers: str) -> None:
        self.begin(status, Content_Length=str(len(body)), **headers)
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""

    def handed_on(self) -> requests.Response:
        """Pass the call on to the server behind this one; return that server's answer."""
        kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        return requests.request(
            self.command, self.server.behind + self.path, headers=kept, data=self.body, timeout=60,
            allow_redirects=False,
        )  # fmt: skip

    def pass_back(self, answer: requests.Response, *, share: float = 1) -> None:
        """Send an answer to the client, with the first `share` of its body (1: the whole body)."""
        self.send_response_only(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP_BY_HOP | {"content-encoding"}:
                self.send_header(name, value)
        length = answer.headers["Content-Length"] if self.command == "HEAD" else len(answer.content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(answer.content[: int(len(answer.content) * share)])


class Front(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, behind: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Call)
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.behind = behind
        self.met = 0
        self.armed: list[tuple[str, str, Answer]] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    @contextmanager
    def answering(self, method: str, pattern: str, answer: Answer) -> Generator[None]:
        """In the `with` block, answer calls whose method and path (after /api/VERSION/) match."""
        before, self.met = self.armed, 0
        self.armed = [(method, pattern, answer), *before]
        try:
            yield
        finally:
            self.armed = before


@contextmanager
def front_of(url: str, *, tls: ssl.SSLContext | None = None) -> Generator[Front]:
    """Run a `Front` in front of another server."""
    with Front(url, tls) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def listener() -> Generator[tuple[str, list[bytes]]]:
    """Run another host; yield its URL, and a list of everything that the host receives."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.settimeout(1)
                    with connection, suppress(OSError):
                        heard.append(connection.recv(65536))
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)


def redirect(status: int, to: str) -> Answer:
    """An answer that redirects each call to another host."""
    return lambda call: call.whole(status, b"", Location=f"{to}{call.path}")


def page(call: Call) -> None:
    """A proxy's sign-in form."""
    call.whole(200, PAGE, Content_Type="text/html")


def empty(call: Call) -> None:
    """A valid answer without content."""
    call.whole(200, EMPTY, Content_Type="application/xml")


def no_xml(call: Call) -> None:
    """JSON in a character set that does not exist."""
    call.whole(200, b'{"token": "0ther"}', Content_Type="application/json; charset=klingon")


def entities(call: Call) -> None:
    """XML entities that expand to a much longer text."""
    call.whole(200, ENTITIES, Content_Type="application/xml")


def refused_with_entities(call: Call) -> None:
    """XML entities that expand to a much longer text, with the status of an error."""
    call.whole(400, ENTITIES, Content_Type="application/xml")


def endless_list(call: Call) -> None:
    """A page without items, whose list seems to have many more pages."""
    pages = EMPTY.replace(
        b"/>", b'><pagination pageNumber="1" pageSize="1" totalAvailable="99999999"/></tsResponse>'
    )
    call.whole(200, pages, Content_Type="application/xml")


def other_clock(call: Call) -> None:
    """A date after the last year of Python's calendar."""
    call.whole(200, EMPTY, Date="Fri, 31 Dec 9999 23:59:59 -2300")


def nothing(call: Call) -> None:
    """An empty answer with the status of a success."""
    call.whole(200, b"", Date="tomorrow")


def echo(secrets: list[str]) -> Answer:
    """A long error that quotes the client's secrets."""

    def refusal(call: Call) -> None:
        said = html.escape(" ".join(secrets)) + "x" * _MEGABYTE
        body = f"""<tsResponse xmlns="http://tableau.com/api"><error code="400011">
            <summary>{said}</summary><detail>{said}</detail></error></tsResponse>"""
        call.whole(400, body.encode(), Content_Type="application/xml")

    return refusal


def echo_page(secrets: list[str]) -> Answer:
    """A page that quotes the client's secrets."""
    return lambda call: call.whole(200, " ".join(secrets).encode(), Content_Type="text/plain")


def bomb(call: Call) -> None:
    """A small answer that unpacks to 2 GB."""
    call.whole(200, BOMB, Content_Encoding="gzip", Content_Disposition='filename="a.tdsx"')


def endless(call: Call) -> None:
    """An answer that does not end."""
    call.begin(200, Content_Disposition='filename="a.tdsx"')
    _send(call, (b" " * _MEGABYTE for _ in range(2000)))


def endless_chunks(call: Call) -> None:
    """An answer in chunks that does not end."""
    call.begin(200, Transfer_Encoding="chunked", Content_Disposition='filename="a.tdsx"')
    chunk = b"100000\r\n" + b" " * _MEGABYTE + b"\r\n"
    _send(call, (chunk for _ in range(2000)))


def busy(call: Call) -> None:
    """An answer that does not end, from a server that asks the client to try again."""
    call.begin(503, Retry_After="0")
    _send(call, (b" " * _MEGABYTE for _ in range(2000)))


def slow(call: Call) -> None:
    """A body that comes byte by byte."""
    call.begin(200, Content_Disposition='filename="a.tdsx"')
    _send(call, (b" " for _ in range(2000)), pause=0.02)


def slow_headers(call: Call) -> None:
    """Headers that come byte by byte."""
    _send(call, [b"HTTP/1.1 200 OK\r\nX: "], pause=0)
    _send(call, (b"x" for _ in range(2000)), pause=0.02)


def cut_off(call: Call) -> None:
    """An answer that breaks off."""
    call.begin(200, Content_Length="1000", Content_Disposition='filename="a.tdsx"')
    call.wfile.write(EMPTY)


def _send(call: Call, pieces: Iterator[bytes] | list[bytes], *, pause: float = 0) -> None:
    for piece in pieces:
        call.wfile.write(piece)
        call.wfile.flush()
        time.sleep(pause)
