"""Answers, faults and malformed requests that the contract does not cover."""

import re
import socket
import zipfile
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.faults import Delay, Drop, ExpireSessions, Refuse
from tableau_sandbox.strict_json import JsonError, read_json
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import (
    TIMEOUT,
    call,
    code_of,
    multipart,
    publish,
    user,
    wrapped_extract,
    write_package,
)
from tableau_sandbox_tests.test_updates import JobFailed, finished, publish_job


def test_refresh(sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: clients fail because a new job has a progress, or notes follow the data source."""
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    answer = call(sandbox, "POST", f"sites/{{site}}/datasources/{item.id}/refresh", server=server)
    assert "progress" not in answer.text
    (luid,) = re.findall('<job id="([^"]+)"', answer.text)
    server.jobs.wait_for_job(luid, timeout=20)
    raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{luid}", server=server).text
    assert "progress=" in raw
    assert re.search("<extractRefreshJob><notes>[^<]+</notes><datasource id=", raw)


def test_no_answer_names_a_path(shared_server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: notes and refusals show paths of files on the machine."""
    broken, parquet = tmp_path / "broken.hyper", tmp_path / "broken.parquet"
    broken.write_bytes(one_row.read_bytes()[:50_000])
    parquet.write_bytes(b"PAR1")
    package = write_package(tmp_path / "p.tdsx", {"a.tds": "<datasource/>", "b.hyper": broken})
    for file in (broken, package, parquet):
        with pytest.raises(JobFailed) as caught:
            finished(shared_server, publish_job(shared_server, file, name="X"))
        (note,) = caught.value.job.status_notes
        with pytest.raises(tsc.ServerResponseError, match="400011") as refused:
            publish(shared_server, file, name="X")
        assert note["value"] == "400011"
        assert "/" not in note["text"] + refused.value.detail


@pytest.mark.parametrize(
    ("quirks", "codes"),
    [
        ({"pending_publish": "none"}, []),
        ({"pending_publish": "1"}, ["1"]),
        ({"early_finish_code": True}, ["0"]),
        ({"early_finish_code": True, "pending_publish": "1"}, ["1"]),
    ],
)
def test_finish_code_of_a_pending_publish(
    shared_sandbox: Sandbox,
    shared_server: tsc.Server,
    one_row: Path,
    quirks: dict[str, Any],
    codes: list[str],
):
    """Prevents: a client trusts the finish code of a job that has not ended."""
    with shared_sandbox.quirks(**quirks), shared_sandbox.held_jobs():
        job = publish_job(shared_server, one_row, name="Pending")
        path = f"sites/{{site}}/jobs/{job.id}"
        raw = call(shared_sandbox, "GET", path, server=shared_server).text
        assert re.findall('finishCode="(.)"', raw) == codes
    assert finished(shared_server, job).finish_code == 0


def test_download_without_the_extract(
    sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path
):
    """Prevents: a pipeline expects XML and not a .tdsx, or fails if data come before the .tds."""
    live = publish(server, one_row)
    extract = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row), name="Extract")

    def members(item: Any) -> list[str]:
        path = server.datasources.download(item.id, str(tmp_path / "bare"), include_extract=False)
        assert path.endswith("bare.tdsx")
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            return archive.namelist()

    assert members(live) == ["Flights.tds"]
    sandbox.set_quirks(download_without_extract="tdsx-with-data")
    assert members(live) == ["Data/Extracts/Flights.hyper", "Flights.tds"]
    assert members(extract) == ["Extract.tds"]


PUBLISHING: dict[str, Any] = {"method": "POST", "path": "sites/{site}/datasources"}
SERVER_ERROR = tsc.server.endpoint.exceptions.InternalServerError


def test_sessions_of_one_user_end(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a fault that ends the sessions of one user ends other users' sessions as well."""
    alice = user(sandbox, ALICE)
    armed = sandbox.control.add(ExpireSessions(user=ALICE.name))
    assert server.projects.get()[0]
    with pytest.raises(tsc.NotSignedInError):
        alice.projects.get()
    assert armed.fired == 1


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        pytest.param(Refuse(status=503, **PUBLISHING), SERVER_ERROR, 0, id="refused"),
        pytest.param(Drop(when="before", **PUBLISHING), requests.ConnectionError, 0, id="lost"),
        pytest.param(
            Drop(when="after", **PUBLISHING), requests.ConnectionError, 1, id="answer lost"
        ),
        pytest.param(Delay(seconds=1, **PUBLISHING), requests.Timeout, 1, id="late"),
    ],
)
def test_what_was_done_all_the_same(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, fault: Any, error: Any, done: int
):
    """Prevents: a client takes a lost answer for a lost request, or a lost request for done."""
    armed = sandbox.control.add(fault)
    server.add_http_options({"timeout": 0.5 if isinstance(fault, Delay) else 20})
    with pytest.raises(error):
        publish(server, one_row)
    server.add_http_options({"timeout": 20})
    deadline = monotonic() + 20  # the server may still publish when its client gives up
    while len(server.datasources.get()[0]) != done:
        assert monotonic() < deadline, f"{done} data sources should be published"
        sleep(0.05)
    assert armed.fired == 1
    publish(server, one_row, mode="Overwrite")


def test_faults_meet_and_clear(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a cleared fault still fires, or a fault does not count its hits."""
    late = sandbox.control.add(Delay(seconds=0.1, times=None))
    refused = sandbox.control.add(Refuse(status=503, times=None))
    assert call(sandbox, "GET", "serverInfo").status_code == 503
    assert (late.fired, refused.fired) == (1, 1)
    assert sandbox.control.clear(refused.number)
    assert not sandbox.control.clear(refused.number)
    assert server.projects.get()[0]
    assert [armed.fired for armed in sandbox.control.faults()] == [2]
    sandbox.control.clear()
    assert sandbox.control.faults() == []
    server.projects.get()
    assert late.fired == 2


ENTITY = (
    '<?xml version="1.0"?><!DOCTYPE t [<!ENTITY who "admin">]><tsRequest>'
    '<credentials name="&who;" password="&who;"><site contentUrl=""/></credentials></tsRequest>'
)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<tsRequest/>", b"<other><credentials/></other>", b"\x00\xff\xfe", ENTITY.encode()),
        b'{"credentials": {"name": "admin", "password": "admin", "site": {"contentUrl": ""}}}',
        b'<?xml version="1.0" encoding="no-such"?><tsRequest/>',
        b"<tsRequest>" + b"<a>" * 10_000,
        b"<tsRequest>" + b" " * (1 << 20) + b"</tsRequest>",
    ],
)
def test_malformed_xml(shared_sandbox: Sandbox, body: bytes):
    """Prevents: a broken or hostile body stops the sandbox, or passes for a sign-in."""
    assert code_of(call(shared_sandbox, "POST", "auth/signin", data=body)) == "400000"


PAYLOAD = ("request_payload", "", '<tsRequest><datasource name="X"/></tsRequest>')
FILE = ("tableau_datasource", "x.hyper", b"x")
WHOLE = multipart(PAYLOAD, FILE)[0]
KIND = "multipart/mixed; boundary=b"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        *((KIND, body) for body in (b"", WHOLE[:-7], WHOLE[:40], b"--b\r\n\r\nx\r\n--b--\r\n")),
        (KIND, b"--b\r\nno header\r\n\r\nx\r\n--b--\r\n"),
        *((f"multipart/mixed; boundary={name}", WHOLE) for name in ("other", "b" * 1000)),
        *((kind, WHOLE) for kind in ("", "multipart/mixed", "multipart/form-data; boundary=b")),
        ("text/xml", PAYLOAD[2].encode()),
        (KIND, multipart(PAYLOAD, PAYLOAD, FILE)[0]),
        (KIND, multipart(FILE)[0]),
        (KIND, multipart(PAYLOAD, FILE, ("else", "", "x"))[0]),
        (KIND, multipart(("request_payload", "", "x" * (2 << 20)))[0]),
    ],
)
def test_malformed_multipart(
    shared_sandbox: Sandbox, shared_server: tsc.Server, content_type: str, body: bytes
):
    """Prevents: a broken request publishes half of an upload, or leaves a file on the disk."""
    path, headers = "sites/{site}/datasources?overwrite=true", {"Content-Type": content_type}
    response = call(shared_sandbox, "POST", path, server=shared_server, data=body, headers=headers)
    assert code_of(response) == "400000"
    assert list((shared_sandbox.data_dir / "incoming").iterdir()) == []


def test_refusal_waits_for_a_client_that_still_sends(shared_sandbox: Sandbox):
    """Prevents: an ended session shows as a broken connection, which clients retry for ever."""
    with connected(shared_sandbox) as client:
        client.sendall(request_head("any", "a|b|c", length=len(WHOLE)) + WHOLE[:50])
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(TIMEOUT)
        client.sendall(WHOLE[50:])
        assert client.recv(1000).startswith(b"HTTP/1.1 401")


def test_client_that_hangs_up(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: an interrupted upload is published, or leaves a file on the disk."""
    with connected(sandbox) as client:
        head = request_head(str(server.site_id), str(server.auth_token), length=100_000)
        client.sendall(head + WHOLE)
    assert publish(server, one_row).name == "Flights"
    assert [item.name for item in server.datasources.get()[0]] == ["Flights"]
    assert list((sandbox.data_dir / "incoming").iterdir()) == []


def connected(sandbox: Sandbox) -> socket.socket:
    address = urlsplit(sandbox.url)
    return socket.create_connection((address.hostname, address.port), timeout=TIMEOUT)


def request_head(site: str, token: str, *, length: int) -> bytes:
    """Return the head of a request to publish `WHOLE`."""
    return (
        f"POST /api/3.27/sites/{site}/datasources?overwrite=true HTTP/1.1\r\n"
        f"Host: x\r\nX-Tableau-Auth: {token}\r\nContent-Length: {length}\r\n"
        f"Content-Type: {KIND}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        *(("api/2.4/serverInfo", ""), ("api/2.0/serverinfo", ""), ("api/3.27/SERVERINFO", "")),
        # Clients send these paths if the address of the server ends with a slash.
        *(("/api/2.4/serverInfo", ""), ("//api/3.27/serverinfo", "")),
        *(("api/3.28/serverInfo", "404003"), ("api/1.9/serverInfo", "404003")),
        *(("api/x/serverInfo", "404003"), ("api/3.27", "404003"), ("api/serverInfo", "404003")),
        ("api/3.27/metadata/graphql", "404003"),
    ],
)
def test_versions_in_the_path(shared_sandbox: Sandbox, path: str, code: str):
    """Prevents: a client finds no server, or gets a version that does not exist."""
    response = requests.get(f"{shared_sandbox.url}/{path}", timeout=TIMEOUT)
    assert ("<restApiVersion>3.27</restApiVersion>" in response.text) == (not code)
    assert not code or code_of(response) == code


def test_values():
    """Prevents: a whole number loses digits, or a byte order mark breaks a request."""
    body = '\ufeff{"a": [9007199254740993, 0.1, true, null, "é𝄞"]}'.encode()
    assert read_json(body) == {"a": [9007199254740993, 0.1, True, None, "é𝄞"]}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", '{"a": 1}'.encode("utf-16"), b"1 2"),
        *(b'{"a": 1, "a": 1}', b'[{"a": {}, "a": {}}]'),
        *(b"[NaN]", b"[-Infinity]", b"[1e999]", b"[-1e999]"),
        *(b"1e99999999999999999999", b"1" * 5000, b"0." + b"1" * 5000),
        *(rb'"\u0000"', rb'["\ud800"]', rb'{"\udfff": 1}', rb'[{"a": ["\u0000"]}]'),
        *(b"[" * 251 + b"]" * 251, b"[" * 100_000, b'{"a":' * 100_000),
    ],
    ids=lambda body: repr(body[:20]),
)
def test_refusals(body: bytes):
    """Prevents: the sandbox accepts JSON that is ambiguous or not valid."""
    with pytest.raises(JsonError):
        read_json(body)


def test_life_of_a_warning(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a pipeline's warning stays for ever, removes other warnings or is not visible."""
    item = publish(server, one_row)
    stale = tsc.DQWItem("STALE", "Not refreshed", active=True, severe=True)
    server.datasources.add_dqw(item, tsc.DQWItem("SENSITIVE_DATA", "Salaries"))
    (added,) = server.datasources.add_dqw(item, stale)
    with pytest.raises(tsc.ServerResponseError, match="409004"):
        server.datasources.add_dqw(item, stale)
    page = requests.get(str(item.webpage_url), timeout=TIMEOUT).text
    assert "Not refreshed" in page
    path = f"sites/{{site}}/dataQualityWarnings/{added.id}"
    for status in (204, 404):
        assert call(sandbox, "DELETE", path, server=server).status_code == status
    server.datasources.populate_dqw(item)
    (left,) = item.dqws
    assert (left.warning_type, left.message, left.severe) == ("SENSITIVE_DATA", "Salaries", False)


def test_who_may_warn(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: the sandbox accepts warnings without the license or the right to add them.

    A client cannot predict either refusal from its other rights.
    """
    item, alice = publish(server, one_row), user(sandbox, ALICE)
    with pytest.raises(tsc.ServerResponseError, match="403004"):
        alice.datasources.add_dqw(item, tsc.DQWItem("STALE"))
    with pytest.raises(tsc.ServerResponseError, match="400000"):
        server.datasources.add_dqw(item, tsc.DQWItem("ROTTEN"))
    with sandbox.quirks(data_management=False):
        server.datasources.populate_dqw(item)
        with pytest.raises(tsc.ServerResponseError, match="403157"):
            server.datasources.add_dqw(item, tsc.DQWItem("STALE"))
        with pytest.raises(tsc.ServerResponseError, match="403157"):
            _ = item.dqws
