"""Time limits of requests. Their code uses internals of urllib3, so an upgrade may break it."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from tableau_pipeline.publishing import deadlines
from tableau_pipeline.publishing.errors import BadAnswerError
from tableau_pipeline.publishing.http import Wire, WireAdapter, rest_session
from tableau_pipeline.publishing.retries import RetryTimes

LOG = logging.getLogger(__name__)
XML = b'<tsResponse xmlns="http://tableau.com/api"><serverInfo/></tsResponse>'


class Answers(BaseHTTPRequestHandler):
    """Answers slowly, or refuses the first request, depending on the path."""

    def do_GET(self) -> None:
        if self.path.endswith("/slow"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(20):
                self.wfile.write(b"x")
                time.sleep(0.1)
        elif self.path.endswith("/stalls"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            time.sleep(0.8)
            self.wfile.write(b"x")
            time.sleep(5)
        elif self.path.endswith("/huge"):
            self.send_response(200)
            self.send_header("Content-Length", str(10**12))
            self.end_headers()
            time.sleep(5)
        elif self.path.endswith("/never"):
            time.sleep(1)
        elif self.path == "/busy":
            is_first = not self.server.asked  # ty: ignore
            self.server.asked.append(self.path)  # ty: ignore
            self.send_response(503 if is_first else 200)
            if is_first:
                self.send_header("Retry-After", "0")
                # Announce more bytes than follow, so that a client that reads all of them waits.
                self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(XML)
            if is_first:
                time.sleep(5)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(XML)

    do_POST = do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.asked = []  # ty: ignore
    server.daemon_threads, server.block_on_close = True, False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def session(url: str, **times: float) -> requests.Session:
    return rest_session(Wire(url, RetryTimes(backoff=0, **times), LOG), lambda *_, **__: None)


def test_connections_are_ours():
    """Prevents: urllib3 uses its own connections, which do not limit the time of a whole answer."""
    with serving() as url, session(url) as opened:
        assert opened.get(f"{url}/").status_code == 200
        manager = opened.get_adapter(url).poolmanager
        (key,) = manager.pools.keys()
        assert isinstance(manager.pools[key], deadlines.TimedPool)


@pytest.mark.parametrize("path", ["slow", "stalls"])
def test_a_whole_answer_has_a_time_limit(path: str):
    """Prevents: a server that sends one byte at a time keeps a request alive for ever."""
    with serving() as url, session(url, read=1) as opened:
        began = time.monotonic()
        with pytest.raises(BadAnswerError, match=r"took longer than 1 s"):
            opened.get(f"{url}/{path}")
        assert time.monotonic() - began < 1.6


def test_an_answer_that_is_announced_too_large():
    """Prevents: a refresh downloads gigabytes of an answer before it refuses the answer."""
    too_large = pytest.raises(BadAnswerError, match="the answer is larger than 8")
    with serving() as url, session(url, read=3) as opened, too_large:
        opened.get(f"{url}/huge")


def test_limit_of_downloads_ends_with_its_block():
    """Prevents: a large limit for one file also holds for later files."""
    before = deadlines.largest_body(is_file=True)
    with deadlines.downloads_up_to(10**12):
        assert deadlines.largest_body(is_file=True) == 10**12
        assert deadlines.largest_body(is_file=False) == before
    assert deadlines.largest_body(is_file=True) == before


@pytest.mark.parametrize(
    ("method", "path", "streams", "seconds"),
    [
        ("GET", "slow", False, 0.3),
        ("POST", "auth/slow", False, 0.3),
        ("GET", "slow", True, 0.6),
        ("PUT", "slow", False, 0.6),
        ("POST", "slow", False, 0.6),
    ],
)
def test_reading_requests_have_less_time(method: str, path: str, streams: bool, seconds: float):
    """Prevents: an upload ends at the shorter limit of a read, or a read gets the longer limit."""
    limit = f"took longer than {seconds:g} s"
    with (
        serving() as url,
        session(url, read=0.3, write=0.6) as opened,
        pytest.raises(BadAnswerError, match=limit),
    ):
        opened.request(method, f"{url}/{path}", stream=streams)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_never_answers(method: str):
    """Prevents: the error about a slow server is urllib3's message about pools and retries."""
    with (
        serving() as url,
        session(url, read=0.1, write=0.1) as opened,
        pytest.raises(BadAnswerError, match=r"took longer than 0\.1 s"),
    ):
        opened.request(method, f"{url}/never")


def test_a_query_that_is_posted_has_less_time():
    """Prevents: the pipeline waits for a count of rows as long as for an upload."""
    with serving() as url, session(url, read=0.3, write=0.6) as opened:
        rest = opened.get_adapter(url)
        query = WireAdapter(rest.wire, retry=rest.max_retries, is_rest=False)
        opened.mount(url, query)
        with pytest.raises(BadAnswerError, match=r"took longer than 0\.3 s"):
            opened.post(f"{url}/slow")


def test_a_whole_answer_through_a_proxy_has_a_time_limit():
    """Prevents: a proxy that sends one byte at a time keeps a request alive for ever."""
    with serving() as proxy, session("http://tableau.test", read=0.5) as opened:
        opened.proxies["http"] = proxy
        with pytest.raises(BadAnswerError, match=r"took longer than 0\.5 s"):
            opened.get("http://tableau.test/slow")


def test_a_refused_answer_is_not_read_to_its_end():
    """Prevents: urllib3 waits for the rest of a refused answer before its next attempt."""
    with serving() as url, session(url, read=3) as opened:
        began = time.monotonic()
        answer = opened.get(f"{url}/busy")
        assert time.monotonic() - began < 2
        (attempt,) = answer.raw.retries.history
        assert attempt.status == 503


def test_closed_connections():
    """Prevents: a session that has ended keeps its connections open."""
    with serving() as url:
        opened = session(url)
        opened.get(f"{url}/")
        manager = opened.get_adapter(url).poolmanager
        (key,) = manager.pools.keys()
        pool = manager.pools[key]
        opened.close()
        assert pool.pool is None


def test_time_to_connect(monkeypatch: pytest.MonkeyPatch):
    """Prevents: the pipeline waits for an absent host as long as for an upload."""
    monkeypatch.setattr(deadlines, "_CONNECT_SECONDS", 0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = []
        for _ in range(3):
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(address)
            waiting.append(other)
        began = time.monotonic()
        url = f"http://{address[0]}:{address[1]}"
        with session(url, read=60) as opened, pytest.raises(requests.ConnectionError):
            opened.get(f"{url}/")
        assert time.monotonic() - began < 10
        for other in waiting:
            other.close()
