"""Requests that no good client sends: each gets a clear refusal, never an error of the sandbox."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT, call, code_of, multipart, publish

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
    """Prevents: a broken or hostile body brings the sandbox down, or passes for a password."""
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
    """Prevents: half an upload is published, or stays on the disk."""
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
    """Prevents: an upload that breaks off is published, or stays on the disk."""
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
    """The beginning of a request to publish `WHOLE`."""
    return (
        f"POST /api/3.27/sites/{site}/datasources?overwrite=true HTTP/1.1\r\n"
        f"Host: x\r\nX-Tableau-Auth: {token}\r\nContent-Length: {length}\r\n"
        f"Content-Type: {KIND}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        *(("api/2.4/serverInfo", ""), ("api/2.0/serverinfo", ""), ("api/3.27/SERVERINFO", "")),
        # A client whose user ends the address of the server with a slash.
        *(("/api/2.4/serverInfo", ""), ("//api/3.27/serverinfo", "")),
        *(("api/3.28/serverInfo", "404003"), ("api/1.9/serverInfo", "404003")),
        *(("api/x/serverInfo", "404003"), ("api/3.27", "404003"), ("api/serverInfo", "404003")),
        ("api/3.27/metadata/graphql", "404003"),
    ],
)
def test_versions_in_the_path(shared_sandbox: Sandbox, path: str, code: str):
    """Prevents: a client finds no server, or is served a version that does not exist."""
    response = requests.get(f"{shared_sandbox.url}/{path}", timeout=TIMEOUT)
    assert ("<restApiVersion>3.27</restApiVersion>" in response.text) == (not code)
    assert not code or code_of(response) == code
