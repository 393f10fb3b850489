import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import SignIn


def message_of(sign_in: SignIn, url: str) -> str:
    with pytest.raises(RefreshError) as caught, sign_in(url=url):
        pass
    assert not isinstance(caught.value, RefusedError)
    return str(caught.value)


@contextmanager
def web_server(status: int, body: bytes, content_type: str) -> Generator[str]:
    """Some web server: every answer of it is the same."""
    with (
        hostile.front_of("") as front,
        front.answering(
            ".*", ".*", lambda call: call.whole(status, body, Content_Type=content_type)
        ),
    ):
        yield front.url


def test_nothing_listens(sign_in: SignIn):
    """Prevents: a forgotten sandbox shows as a traceback of the HTTP library."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        message = message_of(sign_in, url)
    for part in ("Signing in", url, "tableau-sandbox", "TABLEAU_SERVER_URL"):
        assert part in message


def test_unknown_host(sign_in: SignIn):
    """Prevents: a misspelt address shows as a traceback of the HTTP library."""
    message = message_of(sign_in, "http://tableau.invalid")
    for part in ("http://tableau.invalid", "TABLEAU_SERVER_URL"):
        assert part in message


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (200, b"<html><body>Welcome", "text/html"),
        (200, b'{"ok": true}', "application/json"),
        (404, b"404 page not found", "text/plain"),
        (401, b"<html><body>Proxy sign-in</body></html>", "text/html"),
        (405, b"", "text/plain"),
    ],
)
def test_other_web_server(sign_in: SignIn, status: int, body: bytes, content_type: str):
    """Prevents: an address that leads elsewhere shows as an error of an XML parser."""
    with web_server(status, body, content_type) as url:
        message = message_of(sign_in, url)
    for part in ("Signing in", url, "TABLEAU_SERVER_URL"):
        assert part in message


def test_proxy_that_lets_nothing_large_through(sign_in: SignIn):
    # Prevents: a proxy's limit on the size of requests passes for the wrong address.
    body = b"<html><title>413 Request Entity Too Large</title></html>"
    expected = pytest.raises(RefusedError, match="TSC_CHUNK_SIZE_MB")
    with web_server(413, body, "text/html") as url, expected, sign_in(url=url):
        pass
