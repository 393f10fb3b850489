"""Clients that begin a request and never end it."""

import socket
import ssl
import time
from collections.abc import Callable

import pytest

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT

HEAD = b"GET /api/3.27/serverInfo HTTP/1.1\r\nHost: localhost\r\n"


def connected(sandbox: Sandbox) -> socket.socket:
    address = "127.0.0.1", int(sandbox.url.rpartition(":")[2])
    client = socket.create_connection(address, timeout=TIMEOUT)
    if not sandbox.url.startswith("https"):
        return client
    context = ssl.create_default_context(cafile=sandbox.certificate)
    return context.wrap_socket(client, server_hostname="localhost")


def is_broken(client: socket.socket) -> bool:
    """Whether the other side hangs up without an answer."""
    try:
        return client.recv(1000) == b""
    except ConnectionError:
        return True


def trickle(client: socket.socket) -> None:
    """Send a byte of a head now and then, until that fails."""
    client.sendall(HEAD + b"X-Long: ")
    for _ in range(TIMEOUT * 10):
        client.sendall(b"x")
        time.sleep(0.1)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.slow
def test_heads_that_do_not_end(start_sandbox: Callable[..., Sandbox], tls: bool):
    """Prevents: connections that send nothing, or a byte now and then, stay open for ever."""
    sandbox = start_sandbox(header_seconds=1, tls=tls)
    silent, half, slow = (connected(sandbox) for _ in range(3))
    half.sendall(HEAD)
    started = time.monotonic()
    with pytest.raises(OSError, match=r"pipe|reset|EOF|closed"):
        trickle(slow)
    assert time.monotonic() - started > 0.9
    assert is_broken(silent)
    assert is_broken(half)


@pytest.mark.slow
def test_second_head_that_does_not_end(start_sandbox: Callable[..., Sandbox]):
    """Prevents: one whole request buys a connection any time for the next."""
    sandbox = start_sandbox(header_seconds=1)
    with connected(sandbox) as client:
        client.sendall(HEAD + b"\r\n")
        assert client.recv(10_000).startswith(b"HTTP/1.1 200")
        # In between, it may be idle for longer: clients that wait for a job are.
        time.sleep(1.5)
        client.sendall(HEAD)
        assert is_broken(client)


def test_slow_bodies_and_answers(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a slow upload is taken for a head that does not end."""
    sandbox = start_sandbox(header_seconds=0.5)
    with connected(sandbox) as client:
        client.sendall(
            b"POST /api/3.27/auth/signin HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n"
        )
        for _ in range(8):
            time.sleep(0.2)
            client.sendall(b"x")
        assert client.recv(1000).startswith(b"HTTP/1.1 400")
