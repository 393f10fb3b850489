"""Hostile requests by the thousand: none breaks the sandbox, hangs it, or climbs out of it.

They go over the wire as bytes: no library repairs what a test has broken.
"""

import random
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import tableauserverclient as tsc

from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import VIEWER
from tableau_sandbox_tests.samples import (
    default_project,
    multipart,
    publish,
    rows_on_server,
    signed_in,
)

PATIENCE = 20
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT")


@dataclass(frozen=True)
class Message:
    """A request; `length` is what it says of its body's length, and None the truth."""

    method: str
    target: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    length: str | None = None

    @property
    def is_http(self) -> bool:
        """Whether a server must answer: it knows the verb, and can tell where the request ends."""
        names = [name for name, _ in self.headers]
        values = "".join(value for _, value in self.headers)
        return (
            self.method in METHODS
            and self.length is None
            and not {"Transfer-Encoding", "Bad Name"}.intersection(names)
            and re.search(r"[\x00-\x20\x7f-\xff]", self.target) is None
            and re.search(r"[\x00-\x1f\x7f]", values) is None
            and len(self.target) < 50_000
        )

    def with_header(self, name: str, value: str) -> "Message":
        kept = tuple(header for header in self.headers if header[0] != name)
        return replace(self, headers=(*kept, (name, value)))

    def written(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", "Connection: close"]
        if not any(name == "Host" for name, _ in self.headers):
            lines.append("Host: sandbox")
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines.append(f"Content-Length: {len(self.body) if self.length is None else self.length}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


def status_of(sandbox: Sandbox, message: Message) -> int | None:
    """The status of the answer; None if it hangs up on what is not HTTP."""
    address = urlsplit(sandbox.url)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as client:
        try:
            client.sendall(message.written())
            if not message.is_http:
                client.shutdown(socket.SHUT_WR)
            answer = HTTPResponse(client, method=message.method)
            answer.begin()
            answer.read()
        except (ConnectionError, HTTPException, OSError) as error:
            if message.is_http or isinstance(error, TimeoutError):
                raise
            return None
        return answer.status


class World:
    """What the requests of a fuzz run are about: it heals whatever they break."""

    def __init__(self, sandbox: Sandbox, file: Path):
        self._sandbox, self._file = sandbox, file
        self.heal()
        with TemporaryDirectory() as folder:
            path = self.server.datasources.download(self.known["datasource"], f"{folder}/package")
            self._package = Path(path).read_bytes()

    def heal(self) -> None:
        """A new session, and a data source, project, upload session and job that exist."""
        self.server = signed_in(self._sandbox)
        found = self.server.projects.filter(name="Fuzz", top_level_project=True)
        project = found[0] if found else self.server.projects.create(tsc.ProjectItem("Fuzz"))
        item = publish(self.server, self._file, name="Fuzz", mode="Overwrite")
        self.server.datasources.populate_connections(item)
        self.server.datasources.add_tags(item, ["a"])
        queued = tsc.DatasourceItem(default_project(self.server), name="By job")
        job = self.server.datasources.publish(queued, self._file, "Overwrite", as_job=True)
        self.known: dict[str, str] = {
            "site": str(self.server.site_id),
            "user": str(self.server.user_id),
            "project": str(project.id),
            "datasource": item.id,
            "connection": item.connections[0].id,
            "upload": self.server.fileuploads.initiate(),
            "job": job.id,
            "revision": "1",
            "label": "a",
            "grantees": "users",
            "capability": "Read",
            "grantee": str(self.server.user_id),
            "mode": "Allow",
        }

    def messages(self) -> list[Message]:
        """A good request for each method of the API, several for some, and for the pages."""
        pages = ("/", f"/datasources/{self.known['datasource']}", "/control/faults")
        made = [replace(self.message("GET", ""), target=page) for page in pages]
        for route in API_ROUTES:
            path = route.pattern if route.versioned else f"../{route.pattern}"
            message = self.message(route.method, path.format_map(self.known))
            bodies = self._bodies(route.method, route.pattern)
            made += [self.with_body(message, body) for body in bodies] or [message]
        return made

    def _bodies(self, method: str, pattern: str) -> list[bytes | str | tuple[bytes, str]]:
        source = f'<datasource name="Fuzz"><project id="{self.known["project"]}"/></datasource>'
        request = ("request_payload", "", f"<tsRequest>{source}</tsRequest>")
        file = ("tableau_datasource", "x.hyper", self._file.read_bytes())
        package = ("tableau_datasource", "x.tdsx", self._package)
        rule = f'<user id="{self.known["user"]}"/><capabilities><capability name="Read"'
        known = {
            "POST auth/signin": ['<credentials name="admin" password="admin"/>', _TOKEN],
            "POST sites/{site}/projects": ['<project name="P" description="d"/>'],
            "PUT sites/{site}/projects/{project}": ['<project description="else"/>'],
            "POST sites/{site}/datasources": [
                multipart(request, file),
                multipart(request, package),
            ],
            "PUT sites/{site}/datasources/{datasource}": ['<datasource isCertified="true"/>'],
            "PUT sites/{site}/fileUploads/{upload}": [
                multipart(("request_payload", "", ""), ("tableau_file", "file", b"block"))
            ],
            "POST metadata/graphql": [b'{"query": "{workbooks {name}}"}'],
        }
        by_end = {
            "tags": ['<tags><tag label="a"/><tag label="b c"/></tags>'],
            "{connection}": ['<connection serverAddress="x" serverPort="1" userName="u"/>'],
            "refresh": ['<extractRefresh incremental="true"/>'],
            "data": [_BATCH % _DELETE, _BATCH % _NESTED, _BATCH % _UPSERT],
        }
        if method == "PUT" and pattern.endswith(("permissions", "permissions/datasources")):
            rules = (
                f"<granteeCapabilities>{rule} mode='Allow'/></capabilities></granteeCapabilities>"
            )
            return [f"<permissions>{rules}</permissions>"]
        if method == "GET":
            return []
        return known.get(f"{method} {pattern}") or by_end.get(pattern.rpartition("/")[2], [])

    def message(self, method: str, path: str) -> Message:
        headers = (("X-Tableau-Auth", str(self.server.auth_token)), ("RequestID", str(uuid4())))
        return Message(method, f"/api/3.27/{path}", headers=headers)

    def with_body(self, message: Message, body: bytes | str | tuple[bytes, str]) -> Message:
        if isinstance(body, str):
            body = f"<tsRequest>{body}</tsRequest>".encode(), "text/xml"
        content, kind = body if isinstance(body, tuple) else (body, "application/json")
        return replace(message.with_header("Content-Type", kind), body=content)


_TOKEN = (
    '<credentials personalAccessTokenName="pipeline" personalAccessTokenSecret="pipeline-secret">'
    '<site contentUrl=""/></credentials>'
)
_BATCH = b'{"actions":[{"target-table":"Extract",%s}]}'
_DELETE = (
    b'"action":"delete","condition":{"op":"lt","target-col":"id",'
    b'"const":{"type":"integer","v":"5"}}'
)
_NESTED = (
    b'"action":"delete","target-schema":"Extract","condition":{"op":"and","args":[{"op":"is",'
    b'"target-col":"id","const":{"type":"string","v":null}},{"op":"not","arg":{"op":"has",'
    b'"target-col":"name","const":{"type":"string","v":"o"}}}]}'
)
_UPSERT = (
    b'"action":"upsert","source-table":"rows","condition":'
    b'{"op":"eq","target-col":"id","source-col":"id"}'
)
_PARTS = (
    *("..", ".", "", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..%5c", "%00", "%ff%fe", "%zz", "%"),
    *("../../sandbox.sqlite", "%2Fetc%2Fpasswd", "a" * 5000, "{site}", "*", "'", '"', "%0d%0a"),
    *("\xe4", "%F0%9F%98%80", "-1", "1:x-0:0", "null", "%27%20OR%201=1", "sites", "\x7f"),
)
_QUERIES = (
    *("filter=name:in:[", "filter=" + "," * 20_000, "filter=:::", "filter=name:eq:%00", "filter=a"),
    *("sort=" + "name:asc," * 3_000, "sort=,,:", "pageSize=999999999", "pageNumber=1e9", "&&==&"),
    *("pageNumber=" + "9" * 5_000, "pageNumber=%C2%B2", "%zz=%zz", "includeExtract=perhaps"),
    *("sequenceID=-1", "sequenceID=99999", "asJob=true", "overwrite=true", "append=true"),
    *("uploadSessionId=../../x", "datasourceType=../x", "datasourceType=tdsx", "=" * 70_000),
    *("filter=" + "[" * 20_000, "filter=" + "]," * 10_000, "filter=name:in:" + "[,[" * 7_000),
)
_HEADERS = (
    *(("X-Tableau-Auth", value) for value in ("", "a|b|c", "\xe4\xff", "x" * 9_000, "\x00", "|||")),
    *(("Host", value) for value in ("", "[", "[::1", "a:b:c", "\xff", "x" * 2_000, "a/../b?#")),
    *(("Content-Type", value) for value in ("", "multipart/mixed", "x" * 9_000)),
    *(("Content-Type", f"multipart/mixed; boundary={b}") for b in ('"', "", "b" * 80, "\xe4", "=")),
    ("Content-Type", "multipart/mixed; boundary*=utf-16''%ff%fe"),
    *(("Transfer-Encoding", value) for value in ("chunked", "gzip, chunked")),
    *(("Content-Encoding", "gzip"), ("Expect", "100-continue"), ("Upgrade", "websocket")),
    *(("Range", "bytes=5-1"), ("X-Forwarded-For", "\x01"), ("Bad Name", "x"), ("RequestID", "")),
)
_BODIES = (
    *(b"", b"<", b"\x00" * 100, b"\xff\xfe<\x00", b"{}", b"[" * 100_000, b'{"a":' * 50_000),
    b"<tsRequest>" + b"<a>" * 100_000 + b"</a>" * 100_000 + b"</tsRequest>",
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><x>&b;</x>',
    b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><tsRequest>&f;</tsRequest>',
    *(
        b'<?xml version="1.0" encoding="%s"?><tsRequest/>' % e
        for e in (b"utf-16", b"utf-7", b"idna")
    ),
    '<?xml version="1.0"?><tsRequest/>'.encode("utf-16"),
    b"<tsRequest><datasource name='" + b"x" * 900_000 + b"'/></tsRequest>",
    b"<tsRequest><tags>" + b"<tag label='x y'/>" * 20_000 + b"</tags></tsRequest>",
    b"<tsRequest><project name='../../../escaped'/></tsRequest>",
    b"<tsRequest><datasource name='../../../escaped&#10;x: y&#13;'/></tsRequest>",
    b"<tsRequest><tags><tag label='../..'/><tag label='&#x10FFFF;'/></tags></tsRequest>",
    b"<tsRequest><?pi x?><!-- <datasource/> --><datasource name='\xff'/></tsRequest>",
)
_WORDS = (
    *(b"../../x", b"\x00", b"&#0;", b"'", b'"', b"%00", b"\xff", b"<", b"]]>", b"9" * 400, b"&x;"),
    *(b"null", b"[]", b"{}", b"1e999", b"NaN", b"\\ud800", b"true", b"-1", b"x" * 5_000),
)


def spoil(message: Message, chance: Random) -> Message:
    """The request with one to three things wrong."""
    for _ in range(chance.randint(1, 3)):
        message = chance.choice((_spoil_head, _spoil_body, _spoil_body))(message, chance)
    return message


def _spoil_head(message: Message, chance: Random) -> Message:
    path, mark, query = message.target.partition("?")
    parts = path.split("/") if "/" in path else ["", path]
    place = chance.randrange(1, len(parts))
    match chance.randrange(8):
        case 0:
            odd = (*METHODS, "FOO", "get", "", "G\x00T", "X" * 5000)
            return replace(message, method=chance.choice(odd))
        case 1:
            lengths = ("0", "5", "-1", "99999", "1e3", "", "9" * 30, "+3", "0x10")
            return replace(message, length=chance.choice(lengths))
        case 2:
            return replace(message, headers=())
        case 3 | 4:
            return message.with_header(*chance.choice(_HEADERS))
        case 5 | 6:
            return replace(message, target=f"{path}?{chance.choice(_QUERIES)}&{query}")
        case _:
            parts[place : place + chance.randint(0, 2)] = [chance.choice(_PARTS)]
            return replace(message, target="/".join(parts) + mark + query)


def _spoil_body(message: Message, chance: Random) -> Message:
    body, other = message.body, chance.choice(_BODIES)
    # Most of what is read, rather than stored, stands at the beginning.
    place = chance.randrange(min(len(body), 600) + 1)
    noise = chance.choice((*_WORDS, chance.randbytes(chance.randint(1, 300))))
    begin, skipped = chance.randrange(len(body) + 1), chance.choice((0, 1, 30, 2_000))
    values = list(re.finditer(rb'"[^"<>]*"', body[:2_000]))
    match chance.randrange(9):
        case 0:
            return replace(message, body=other)
        case 1:
            changed = re.sub(b"<tsRequest>.*</tsRequest>", lambda _: other, body)
            return replace(message, body=changed)
        case 2 | 3 if values:
            found, quoted = chance.choice(values), chance.choice((noise, b'"' + noise + b'"'))
            return replace(message, body=body[: found.start()] + quoted + body[found.end() :])
        case 4:
            return replace(message, body=body[:begin] + body[begin + skipped :])
        case 5:
            many = b"--b\r\n\r\n" * 5_000, b"--b\r\n" + b"X: y\r\n" * 5_000 + b"\r\n", body
            long = b"--b\r\nContent-Disposition: name=" + b"x;" * 50_000 + b"\r\n\r\n"
            return replace(message, body=chance.choice((*many, long)) + body)
        case 6 | 7:
            # Other bytes anywhere, which is mostly within a file.
            damaged = bytearray(body)
            for _ in range(chance.randint(1, 20) if body else 0):
                damaged[chance.randrange(len(body))] = chance.randrange(256)
            return replace(message, body=bytes(damaged))
        case _:
            return replace(message, body=body[:place] + noise + body[place + skipped :])


@pytest.mark.parametrize("count", [800, pytest.param(10_000, marks=pytest.mark.slow)])
def test_spoilt_requests(
    start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path, count: int
):
    """Prevents: a request that no client should send stops the sandbox, or writes elsewhere."""
    sandbox = start_sandbox()
    seed = random.randrange(1 << 30)
    chance = Random(seed)
    world = World(sandbox, one_row)
    for number in range(count):
        if number and number % 50 == 0:
            world.heal()
        message = spoil(chance.choice(world.messages()), chance)
        context = f"seed {seed}, number {number}: {message.written()[:2000]}"
        try:
            status = status_of(sandbox, message)
        except (OSError, HTTPException) as error:
            pytest.fail(f"no answer, {error!r}, {context}")
        assert status is None or status < 500, f"{status}, {context}"
    world.heal()
    item = publish(world.server, one_row, name="Last")
    assert rows_on_server(world.server, item.id) == [[1, "one"]]
    assert [path.name for path in tmp_path.iterdir()] == [sandbox.data_dir.name]
    folders = {"content", "incoming", "uploads"}
    files = {"sandbox.lock", *(f"sandbox.sqlite{end}" for end in ("", "-shm", "-wal"))}
    assert {path.name for path in sandbox.data_dir.iterdir()} <= folders | files
    assert all(path.is_file() for name in folders for path in (sandbox.data_dir / name).iterdir())


@pytest.mark.parametrize("who", ["nobody", "a viewer"])
def test_those_without_rights_change_nothing(
    start_sandbox: Callable[..., Sandbox], one_row: Path, who: str
):
    """Prevents: a call that forgets to ask who makes it."""
    sandbox = start_sandbox(users=(VIEWER,))
    world = World(sandbox, one_row)
    sandbox.wait_until_idle()

    def everything() -> list[str]:
        server = world.server
        (item,) = server.datasources.filter(name="Fuzz")
        server.datasources.populate_permissions(item)
        server.datasources.populate_connections(item)
        server.projects.populate_permissions(project := server.projects.get()[0][0])
        counted = len(server.jobs.get()[0]), len(server.datasources.get()[0])
        shown = (vars(item), vars(project), counted, rows_on_server(server, item.id))
        return [re.sub(r"<bound.*?>|0x\w+", "", repr(each)) for each in shown]

    before, viewer = everything(), signed_in(sandbox, tsc.TableauAuth(VIEWER.name, VIEWER.password))
    token = str(viewer.auth_token) if who == "a viewer" else "a|b|c"
    for message in world.messages():
        if message.method != "GET" and not message.target.partition("auth/")[1]:
            status = status_of(sandbox, message.with_header("X-Tableau-Auth", token))
            allowed = who == "a viewer" and "graphql" in message.target
            assert status is not None
            assert allowed or 400 <= status < 500, f"{status}: {message.method} {message.target}"
    assert everything() == before
