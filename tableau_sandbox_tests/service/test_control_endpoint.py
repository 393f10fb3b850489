import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import tableauserverclient as tsc
from starlette.applications import Starlette

from tableau_sandbox.control import Control
from tableau_sandbox.http.app import build_app
from tableau_sandbox.options import Options
from tableau_sandbox.services import open_services
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.samples import TIMEOUT, code_of, signed_in

REFUSE = {"kind": "refuse", "status": 429, "method": "GET", "path": "sites/*/projects"}


def order(sandbox: Sandbox, method: str, path: str, **arguments: Any) -> requests.Response:
    url = f"{sandbox.url}/control{path}"
    return requests.request(method, url, timeout=TIMEOUT, **arguments)


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox]:
    """A sandbox that takes orders over HTTP."""
    with running_sandbox(tmp_path_factory.mktemp("controlled"), control=True) as sandbox:
        yield sandbox


def test_off_by_default(shared_sandbox: Sandbox):
    # Prevents: whoever reaches a sandbox can break it for others.
    assert code_of(order(shared_sandbox, "GET", "")) == "404003"
    assert code_of(order(shared_sandbox, "POST", "/faults", json=REFUSE)) == "404003"
    assert shared_sandbox.control.faults() == []


@pytest.mark.parametrize(
    ("peer", "status"),
    [("192.0.2.1", 403), ("2001:db8::1", 403), ("127.0.0.1", 200), ("::ffff:127.0.0.1", 200)],
)
def test_refused_to_other_machines(tmp_path: Path, peer: str, status: int):
    # Prevents: a sandbox that is open to a network takes orders from it.
    async def ask(app: Starlette) -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://sandbox") as client:
            return await client.get("/control", headers={"X-Forwarded-For": "127.0.0.1"})

    with open_services(Options(data_dir=tmp_path, control=True), Control()) as services:
        assert asyncio.run(ask(build_app(services))).status_code == status


def test_faults_over_http(controlled: Sandbox):
    # Prevents: tests in other processes or languages cannot use what tests in Python can.
    server = signed_in(controlled)
    armed = order(controlled, "POST", "/faults", json=REFUSE)
    assert armed.status_code == 201
    number = armed.json()["number"]
    with pytest.raises(tsc.ServerResponseError, match="429000"):
        server.projects.get()
    (listed,) = order(controlled, "GET", "").json()["faults"]
    assert listed == {**armed.json(), "seen": 1, "fired": 1}
    assert order(controlled, "DELETE", f"/faults/{number}").status_code == 204
    assert code_of(order(controlled, "DELETE", f"/faults/{number}")) == "404003"
    order(controlled, "POST", "/faults", json=REFUSE)
    assert order(controlled, "DELETE", "/faults").status_code == 204
    assert server.projects.get()[0]
    assert code_of(order(controlled, "GET", "/faults")) == "404003"


def test_clock_over_http(controlled: Sandbox):
    # Prevents: the clock stands still for those who ask over HTTP.
    server = signed_in(controlled)
    before = order(controlled, "GET", "").json()["now"]
    after = order(controlled, "POST", "/clock", json={"advance": 86400}).json()["now"]
    assert before[:10] < after[:10]
    with pytest.raises(tsc.NotSignedInError):
        server.projects.get()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/faults", b""),
        ("/faults", b"[" * 50_000),
        ("/faults", b" " * 70_000),
        ("/faults", b'{"kind": "none"}'),
        ("/faults", b'{"kind": "refuse", "status": 418}'),
        ("/faults", b'{"kind": "refuse", "status": 429, "route": "x"}'),
        ("/faults", b'{"kind": "refuse", "status": 429, "nth": 0}'),
        ("/faults", b'{"kind": "delay", "seconds": NaN}'),
        ("/faults", b'{"kind": "delay", "seconds": -1}'),
        ("/clock", b'{"advance": -1}'),
        ("/clock", b'{"advance": 1e300}'),
        ("/clock", b"{}"),
        ("/clock", b"\xff"),
    ],
)
def test_senseless_orders(controlled: Sandbox, path: str, body: bytes):
    # Prevents: a misspelt fault never strikes, and the test that ordered it passes.
    headers = {"Content-Type": "application/json"}
    assert code_of(order(controlled, "POST", path, data=body, headers=headers)) == "400000"
    assert controlled.control.faults() == []


@pytest.mark.parametrize("origins", [("{other}",), ("null",), ("{own}", "{other}"), ("{own}.x",)])
def test_orders_of_web_pages(controlled: Sandbox, origins: tuple[str, ...]):
    # Prevents: a page that a developer visits orders faults with a plain form, or, from another
    # port of this machine, where a proxy or a service worker lets its JSON through.
    url = f"{controlled.url}/control"
    others = {"own": controlled.url, "other": "http://localhost:3000"}
    headers = [("Origin", origin.format(**others)) for origin in origins]
    for method, path in (
        ("POST", "/faults"),
        ("DELETE", "/faults"),
        ("GET", ""),
        ("POST", "/clock"),
    ):
        answer = httpx.request(method, f"{url}{path}", headers=headers, json=REFUSE)
        assert answer.status_code == 403
        assert "another origin" in answer.text
    form = {"Content-Type": "text/plain"}
    assert code_of(order(controlled, "POST", "/faults", json=REFUSE, headers=form)) == "400000"
    assert controlled.control.faults() == []


def test_orders_of_its_own_origin(controlled: Sandbox):
    # Prevents: clients that always send their Origin, that of the sandbox, are refused.
    for own in (controlled.url, controlled.url.replace("127.0.0.1", "localhost")):
        assert order(controlled, "GET", "", headers={"Origin": own, "Host": own[7:]}).ok
