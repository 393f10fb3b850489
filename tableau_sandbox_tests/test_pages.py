"""The web pages of the sandbox, their protection, and control of the sandbox over HTTP."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.control import Control
from tableau_sandbox.http.app import build_app
from tableau_sandbox.options import Options
from tableau_sandbox.services import open_services
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    TIMEOUT,
    code_of,
    publish,
    signed_in,
    write_hyper,
    write_package,
)


def test_people_can_look(sandbox: Sandbox, server: tsc.Server, tmp_path: Path):
    """Prevents: a link to a data source leads nowhere, or its page runs scripts in the data."""
    assert "Nothing is published here yet." in requests.get(sandbox.url, timeout=TIMEOUT).text
    assert requests.get(f"{sandbox.url}/datasources/x", timeout=TIMEOUT).status_code == 404
    query = (
        "SELECT i AS id, '<script>' AS note, NULL AS nothing FROM generate_series(1, 25) AS g(i)"
    )
    item = publish(server, write_hyper(tmp_path / "x.hyper", query), name="<b>bold</b>")
    overview = requests.get(sandbox.url, timeout=TIMEOUT).text
    assert "&lt;b&gt;bold&lt;/b&gt;" in overview
    assert "Extract (25 rows)" in overview
    page = requests.get(item.webpage_url, timeout=TIMEOUT)
    assert page.status_code == 200
    assert "Extract.Extract: 25 rows" in page.text
    assert (page.text.count("&lt;script&gt;"), page.text.count(">NULL<")) == (10, 10)
    assert "<script>" not in page.text + overview


TDS = """<datasource version='18.1'>
  <connection class='hyper' dbname='Data/e.hyper' />
  <column caption='Margin' datatype='real' default-format='p0.0%' name='[c]'
    role='measure'><calculation formula='1 + 1' /></column>
  <column caption='Orders' datatype='table' role='measure'
    name='[__tableau_internal_object_id__].[orders_1]' />
  <folders-common><folder name='Money' role='measures'><folder-item name='[c]' type='field' />
  </folder></folders-common>
</datasource>"""


def test_sites_as_trees(new_server: NewServer, tmp_path: Path, one_row: Path):
    """Prevents: pages do not show places, revisions, failed jobs, captions or certifications."""
    sandbox, server = new_server(sites=("second",))
    outer = server.projects.create(tsc.ProjectItem("Outer"))
    inner = server.projects.create(tsc.ProjectItem("Inner", parent_id=outer.id))
    item = tsc.DatasourceItem(inner.id, name="Deep")
    package = write_package(tmp_path / "p.tdsx", {"e.tds": TDS, "Data/e.hyper": one_row})
    for file in (one_row, package):
        published = server.datasources.publish(item, file, "Overwrite")
    published.certified, published.certification_note = True, "Checked by Ada"
    server.datasources.update(published)
    broken = tmp_path / "broken.hyper"
    broken.write_bytes(b"broken")
    job = server.datasources.publish(item, broken, "Overwrite", as_job=True)
    with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException):
        server.jobs.wait_for_job(job, timeout=20)
    overview = requests.get(sandbox.url, timeout=TIMEOUT).text
    found = [overview.index(f">{name}<") for name in ("Default", "Outer", "Inner", "Deep")]
    assert found == sorted(found)
    assert "Site second" in overview
    assert "There was a problem publishing the file &#39;Deep.hyper&#39;" in overview
    page = requests.get(str(published.webpage_url), timeout=TIMEOUT)
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    shown = ("2 (current)", "Outer / Inner", "Checked by Ada", " UTC<")
    fields = ("Margin", "measure", "p0.0%", "Money", "1 + 1")
    permissions = ("All Users", "Allow", "Read, Connect")
    shown += tuple(f"<td>{each}" for each in (*fields, *permissions))
    assert [part for part in shown if part not in page.text] == []
    assert "internal_object_id" not in page.text


PATHS = ("/", "/datasources/x", "/control", "/control/faults")


def status(sandbox: Sandbox, path: str, host: str, **headers: str) -> int:
    url = f"{sandbox.url}{path}"
    return requests.get(url, headers={"Host": host, **headers}, timeout=TIMEOUT).status_code


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("127.0.0.1@evil.example", "localhost:80:80", "192.0.2.1", "[2001:db8::1]", "0.0.0.0", ""),
        *("localhost]", "[localhost", "127.0.0.1:x", "[::1]1", "::1]:80"),
    ],
)
def test_other_names_are_refused(shared_sandbox: Sandbox, host: str):
    """Prevents: a foreign web page reads the rows of a developer, or arms faults."""
    assert [status(shared_sandbox, path, host) for path in PATHS] == [403] * 4


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8765", "[::1]"])
def test_own_names(shared_sandbox: Sandbox, host: str):
    """Prevents: no page opens by another name of the machine, or by a forwarded port."""
    assert [status(shared_sandbox, path, host) for path in PATHS] == [200, 404, 404, 404]


@pytest.mark.parametrize(
    ("marks", "by_any_name"),
    [({}, 200), ({"Origin": "http://x.test"}, 403), ({"Sec-Fetch-Site": "same-origin"}, 403)],
)
def test_calls_of_the_api(shared_sandbox: Sandbox, marks: dict[str, str], by_any_name: int):
    """Prevents: a web page signs in with the documented password, or containers cannot connect."""
    for host, expected in (("x.test", by_any_name), ("localhost", 200)):
        assert status(shared_sandbox, "/api/3.27/serverInfo", host, **marks) == expected


@pytest.mark.parametrize("hosts", [(), ("localhost", "localhost"), ("localhost", "evil.example")])
def test_not_one_name(shared_sandbox: Sandbox, hosts: tuple[str, ...]):
    """Prevents: a client avoids the check of host names by sending no host name, or two."""
    port = int(shared_sandbox.url.rpartition(":")[2])
    lines = ["GET / HTTP/1.0", *(f"Host: {host}" for host in hosts), "", ""]
    with closing(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)) as client:
        client.sendall("\r\n".join(lines).encode())
        assert client.recv(100).split()[1] == b"403"


def test_names_that_were_allowed(tmp_path: Path):
    """Prevents: a sandbox with a host name of its own shows no pages."""
    with running_sandbox(tmp_path, allowed_hosts=("Tableau.test", "fe80::1")) as sandbox:
        for host, expected in (("tableau.test:80", 200), ("[FE80::1]", 200), ("other.test", 403)):
            assert status(sandbox, "/", host) == expected


def seen_from(peer: str, path: str, data_dir: Path, **options: Any) -> httpx.Response:
    """Return the answer of a sandbox to a request from the address `peer`."""

    async def ask() -> httpx.Response:
        with open_services(Options(data_dir=data_dir, **options), Control()) as services:
            transport = httpx.ASGITransport(build_app(services), client=(peer, 1))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.get(path, headers={"X-Forwarded-For": "127.0.0.1"})

    return asyncio.run(ask())


def test_rows_are_for_the_own_machine(new_server: NewServer, one_row: Path):
    """Prevents: all users of a network read rows on the pages, which need no sign-in."""
    sandbox, server = new_server()
    path = f"/datasources/{publish(server, one_row).id}"
    sandbox.stop()
    for peer, shown in (("192.0.2.1", False), ("127.0.0.1", True)):
        page = seen_from(peer, path, sandbox.data_dir).text
        assert "Extract.Extract: 1 row" in page
        assert ("<td>one</td>" in page, "own machine only" in page) == (shown, not shown)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [("192.0.2.1", 403), ("2001:db8::1", 403), ("127.0.0.1", 200), ("::ffff:127.0.0.1", 200)],
)
def test_orders_of_other_machines(tmp_path: Path, peer: str, expected: int):
    """Prevents: other machines control a sandbox that is open to a network."""
    assert seen_from(peer, "/control", tmp_path, control=True).status_code == expected


REFUSE = {"kind": "refuse", "status": 429, "method": "GET", "path": "sites/*/projects"}


def order(sandbox: Sandbox, method: str, path: str, **arguments: Any) -> requests.Response:
    url = f"{sandbox.url}/control{path}"
    return requests.request(method, url, timeout=TIMEOUT, **arguments)


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox]:
    """Yield a sandbox that can be controlled over HTTP."""
    with running_sandbox(tmp_path_factory.mktemp("controlled"), control=True) as sandbox:
        yield sandbox


def test_off_by_default(shared_sandbox: Sandbox):
    """Prevents: every client of a sandbox can arm faults that hit other clients."""
    assert code_of(order(shared_sandbox, "GET", "")) == "404003"
    assert code_of(order(shared_sandbox, "POST", "/faults", json=REFUSE)) == "404003"
    assert shared_sandbox.control.faults() == []


def test_faults_over_http(controlled: Sandbox):
    """Prevents: tests in other processes or languages cannot arm faults."""
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
    """Prevents: clients cannot move the clock of a sandbox over HTTP."""
    server = signed_in(controlled)
    before = order(controlled, "GET", "").json()["now"]
    after = order(controlled, "POST", "/clock", json={"advance": 86400}).json()["now"]
    assert before[:10] < after[:10]
    with pytest.raises(tsc.NotSignedInError):
        server.projects.get()


FAULTS = (
    *(b"", b"[" * 50_000, b" " * 70_000, b'{"kind": "none"}'),
    b'{"kind": "refuse", "status": 418}',
    b'{"kind": "refuse", "status": 429, "route": "x"}',
    b'{"kind": "refuse", "status": 429, "nth": 0}',
    *(b'{"kind": "delay", "seconds": NaN}', b'{"kind": "delay", "seconds": -1}'),
)
CLOCKS = (b'{"advance": -1}', b'{"advance": 1e300}', b"{}", b"\xff")


@pytest.mark.parametrize(
    ("path", "body"),
    [*(("/faults", body) for body in FAULTS), *(("/clock", body) for body in CLOCKS)],
)
def test_senseless_orders(controlled: Sandbox, path: str, body: bytes):
    """Prevents: the sandbox accepts a misspelt fault, which never fires, and a test passes."""
    headers = {"Content-Type": "application/json"}
    assert code_of(order(controlled, "POST", path, data=body, headers=headers)) == "400000"
    assert controlled.control.faults() == []


@pytest.mark.parametrize("origins", [("{other}",), ("null",), ("{own}", "{other}"), ("{own}.x",)])
def test_orders_of_web_pages(controlled: Sandbox, origins: tuple[str, ...]):
    """Prevents: a web page that a developer visits arms faults, by a form or from another port."""
    others = {"own": controlled.url, "other": "http://localhost:3000"}
    headers = [("Origin", origin.format(**others)) for origin in origins]
    with httpx.Client(base_url=f"{controlled.url}/control", headers=headers) as client:
        for request in ("POST /faults", "DELETE /faults", "GET ", "POST /clock"):
            answer = client.request(*request.split(" "), json=REFUSE)
            assert answer.status_code == 403
            assert "another origin" in answer.text
    form = {"Content-Type": "text/plain"}
    assert code_of(order(controlled, "POST", "/faults", json=REFUSE, headers=form)) == "400000"
    assert controlled.control.faults() == []


def test_orders_of_its_own_origin(controlled: Sandbox):
    """Prevents: the sandbox refuses clients that send its own address as their Origin."""
    for own in (controlled.url, controlled.url.replace("127.0.0.1", "localhost")):
        assert order(controlled, "GET", "", headers={"Origin": own, "Host": own[7:]}).ok
