"""Pages that let their own name point to the sandbox (DNS rebinding) must not read it."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import requests
from starlette.applications import Starlette

from tableau_sandbox.control import Control
from tableau_sandbox.http.app import build_app
from tableau_sandbox.options import Options
from tableau_sandbox.services import open_services
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.samples import TIMEOUT, publish, signed_in

PATHS = ("/", "/datasources/x", "/control", "/control/faults")


def status(sandbox: Sandbox, path: str, host: str) -> int:
    url = f"{sandbox.url}{path}"
    return requests.get(url, headers={"Host": host}, timeout=TIMEOUT).status_code


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("127.0.0.1@evil.example", "localhost:80:80", "192.0.2.1", "[2001:db8::1]", "0.0.0.0", ""),
        *("localhost]", "[localhost", "127.0.0.1:x", "[::1]1", "::1]:80"),
    ],
)
def test_other_names_are_refused(shared_sandbox: Sandbox, host: str):
    """Prevents: a web page reads the rows that a developer works with, or orders faults."""
    assert [status(shared_sandbox, path, host) for path in PATHS] == [403] * 4


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8765", "[::1]"])
def test_own_names(shared_sandbox: Sandbox, host: str):
    """Prevents: people cannot look, by another name of their machine or by a forwarded port."""
    assert [status(shared_sandbox, path, host) for path in PATHS] == [200, 404, 404, 404]


@pytest.mark.parametrize(
    ("marks", "by_any_name"),
    [({}, 200), ({"Origin": "http://x.test"}, 403), ({"Sec-Fetch-Site": "same-origin"}, 403)],
)
def test_calls_of_the_api(shared_sandbox: Sandbox, marks: dict[str, str], by_any_name: int):
    """Prevents: a web page signs in with the documented password, or containers do not get in."""
    url = f"{shared_sandbox.url}/api/3.27/serverInfo"
    for host, expected in (("x.test", by_any_name), ("localhost", 200)):
        headers = {"Host": host, **marks}
        assert requests.get(url, headers=headers, timeout=TIMEOUT).status_code == expected


@pytest.mark.parametrize("hosts", [(), ("localhost", "localhost"), ("localhost", "evil.example")])
def test_not_one_name(shared_sandbox: Sandbox, hosts: tuple[str, ...]):
    """Prevents: whoever sends no name, or a second one, gets around the check."""
    port = int(shared_sandbox.url.rpartition(":")[2])
    lines = ["GET / HTTP/1.0", *(f"Host: {host}" for host in hosts), "", ""]
    with closing(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)) as client:
        client.sendall("\r\n".join(lines).encode())
        assert client.recv(100).split()[1] == b"403"


def test_names_that_were_allowed(tmp_path: Path):
    """Prevents: a sandbox behind a name of one's own has no pages."""
    with running_sandbox(tmp_path, allowed_hosts=("Tableau.test", "fe80::1")) as sandbox:
        assert status(sandbox, "/", "tableau.test:80") == 200
        assert status(sandbox, "/", "[FE80::1]") == 200
        assert status(sandbox, "/", "other.test") == 403


@pytest.mark.parametrize(("peer", "shown"), [("192.0.2.1", False), ("127.0.0.1", True)])
def test_rows_are_for_the_own_machine(
    start_sandbox: Callable[..., Sandbox], one_row: Path, peer: str, shown: bool
):
    """Prevents: everybody in a network reads rows on the pages, which need no sign-in."""
    sandbox = start_sandbox()
    luid = publish(signed_in(sandbox), one_row).id
    sandbox.stop()

    async def ask(app: Starlette) -> str:
        transport = httpx.ASGITransport(app, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.get(f"/datasources/{luid}")).text

    with open_services(Options(data_dir=sandbox.data_dir), Control()) as services:
        page = asyncio.run(ask(build_app(services)))
    assert "Extract.Extract: 1 row" in page
    assert ("<td>one</td>" in page, "own machine only" in page) == (shown, not shown)
