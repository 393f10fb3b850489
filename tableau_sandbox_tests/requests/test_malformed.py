"""Requests that no good client sends: each gets a clear refusal, never an error of the sandbox."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    TIMEOUT,
    call,
    code_of,
    multipart,
    publish,
    send_parts,
)

ENTITY = (
    '<?xml version="1.0"?><!DOCTYPE t [<!ENTITY who "admin">]><tsRequest>'
    '<credentials name="&who;" password="&who;"><site contentUrl=""/></credentials></tsRequest>'
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<tsRequest>",
        b"<tsRequest/>",
        b"<other><credentials/></other>",
        b'{"credentials": {}}',
        b"\x00\xff\xfe",
        b'<?xml version="1.0" encoding="no-such"?><tsRequest/>',
        ENTITY.encode(),
        b"<tsRequest>" + b"<a>" * 10_000,
        b"<tsRequest>" + b" " * (1 << 20) + b"</tsRequest>",
    ],
)
def test_malformed_xml(shared_sandbox: Sandbox, body: bytes):
    # Prevents: a broken or hostile body brings the sandbox down, or passes for a wrong password.
    response = call(shared_sandbox, "POST", "auth/signin", data=body)
    assert code_of(response) == "400000"


PAYLOAD = ("request_payload", "", '<tsRequest><datasource name="X"/></tsRequest>')
FILE = ("tableau_datasource", "x.hyper", b"x")
WHOLE = multipart(PAYLOAD, FILE)[0]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/mixed; boundary=b", b""),
        ("multipart/mixed; boundary=b", WHOLE[:-7]),
        ("multipart/mixed; boundary=b", WHOLE[:40]),
        ("multipart/mixed; boundary=other", WHOLE),
        ("multipart/mixed; boundary=" + "b" * 1000, WHOLE),
        ("multipart/mixed", WHOLE),
        ("multipart/form-data; boundary=b", WHOLE),
        ("multipart/mixed; boundary=b", multipart(PAYLOAD, PAYLOAD, FILE)[0]),
        ("text/xml", PAYLOAD[2].encode()),
        ("", WHOLE),
        ("multipart/mixed; boundary=b", multipart(PAYLOAD)[0]),
        ("multipart/mixed; boundary=b", multipart(FILE)[0]),
        ("multipart/mixed; boundary=b", multipart(PAYLOAD, FILE, ("else", "", "x"))[0]),
        ("multipart/mixed; boundary=b", multipart(("request_payload", "", "x" * (2 << 20)))[0]),
        ("multipart/mixed; boundary=b", b"--b\r\nno header\r\n\r\nx\r\n--b--\r\n"),
        ("multipart/mixed; boundary=b", b"--b\r\n\r\nx\r\n--b--\r\n"),
    ],
)
def test_malformed_multipart(
    shared_sandbox: Sandbox, shared_server: tsc.Server, content_type: str, body: bytes
):
    # Prevents: half an upload is published, or stays on the disk.
    path, headers = "sites/{site}/datasources?overwrite=true", {"Content-Type": content_type}
    response = call(shared_sandbox, "POST", path, server=shared_server, data=body, headers=headers)
    assert code_of(response) == "400000"
    assert list((shared_sandbox.data_dir / "incoming").iterdir()) == []


@pytest.mark.parametrize(
    "body",
    [
        "<tsRequest><datasource/></tsRequest>",
        '<tsRequest><datasource name="  "/></tsRequest>',
        f'<tsRequest><datasource name="{"x" * 256}"/></tsRequest>',
        '<tsRequest><datasource name="x" useRemoteQueryAgent="perhaps"/></tsRequest>',
    ],
)
def test_senseless_publish(shared_sandbox: Sandbox, shared_server: tsc.Server, body: str):
    # Prevents: a data source without a usable name.
    parts = ("request_payload", "", body), FILE
    path = "sites/{site}/datasources"
    response = send_parts(shared_sandbox, shared_server, "POST", path, *parts)
    assert code_of(response) == "400000"


def test_refusal_waits_for_a_client_that_still_sends(shared_sandbox: Sandbox):
    # Prevents: an ended session shows as a broken connection, which clients retry for ever.
    head = request_head("any", "a|b|c", length=len(WHOLE))
    with connected(shared_sandbox) as client:
        client.sendall(head + WHOLE[:50])
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(TIMEOUT)
        client.sendall(WHOLE[50:])
        assert client.recv(1000).startswith(b"HTTP/1.1 401")


def test_client_that_hangs_up(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: an upload that breaks off is published, or stays on the disk.
    assert server.site_id is not None
    assert server.auth_token is not None
    with connected(sandbox) as client:
        client.sendall(request_head(server.site_id, server.auth_token, length=100_000) + WHOLE)
    assert publish(server, one_row).name == "Flights"
    assert [item.name for item in server.datasources.get()[0]] == ["Flights"]
    assert list((sandbox.data_dir / "incoming").iterdir()) == []


def connected(sandbox: Sandbox) -> socket.socket:
    address = urlsplit(sandbox.url)
    return socket.create_connection((address.hostname, address.port), timeout=TIMEOUT)


def request_head(site: str, token: str, *, length: int) -> bytes:
    """The beginning of a request to publish `WHOLE`."""
    return (
        f"POST /api/3.27/sites/{site}/datasources?overwrite=true HTTP/1.1\r\n"
        f"Host: x\r\nX-Tableau-Auth: {token}\r\nContent-Length: {length}\r\n"
        "Content-Type: multipart/mixed; boundary=b\r\n\r\n"
    ).encode()


def test_paths_are_only_keys(shared_sandbox: Sandbox):
    # Prevents: a path that climbs out of the API reads files.
    for path in ("sites/..%2F..%2Fetc/projects", "../../sandbox.sqlite", "sites/%00/projects"):
        response = call(shared_sandbox, "GET", path, headers={"X-Tableau-Auth": "x"})
        assert response.status_code in (401, 404)


def test_upgrade_to_a_web_socket(shared_sandbox: Sandbox):
    # Prevents: a request that asks for another protocol fails inside the sandbox.
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    assert call(shared_sandbox, "GET", "serverInfo", headers=headers).status_code == 200
