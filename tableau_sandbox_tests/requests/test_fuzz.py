"""Hostile requests by the thousand: none breaks the sandbox, hangs it, or climbs out of it.

Their framing is sound, which is the business of the web server, and all the rest is not.
"""

import random
import re
import string
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from urllib.parse import quote, urlsplit
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
    user,
)

PATIENCE = 20
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT")


@dataclass(frozen=True)
class Message:
    method: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_header(self, name: str, value: str) -> "Message":
        return replace(self, headers={**self.headers, name: value})


def status_of(sandbox: Sandbox, message: Message) -> int:
    """The status of the answer, which there must be."""
    with closing(HTTPConnection(urlsplit(sandbox.url).netloc, timeout=PATIENCE)) as client:
        client.putrequest(message.method, message.target, skip_host="Host" in message.headers)
        for name, value in message.headers.items():
            client.putheader(name, value.encode("latin-1"))
        client.putheader("Content-Length", str(len(message.body)))
        client.endheaders(message.body)
        answer = client.getresponse()
        answer.read()
        return answer.status


_TOKEN = 'personalAccessTokenName="pipeline" personalAccessTokenSecret="pipeline-secret"'
_BATCH = b'{"actions":[{"target-table":"Extract","action":%s}]}'
_COLUMN = b'"target-col":"id"'
_RULE = (
    '<permissions><granteeCapabilities><user id="{user}"/><capabilities><capability name="Read"'
    ' mode="Allow"/></capabilities></granteeCapabilities></permissions>'
)
# Bodies by the ends of their methods and paths: of XML the element, of JSON bytes.
_GOOD: dict[str, tuple[str | bytes, ...]] = {
    "POST auth/signin": ('<credentials name="a" password="b"/>', f"<credentials {_TOKEN}/>"),
    "POST projects": ('<project name="P" description="d"/>',),
    "PUT {project}": ('<project description="else"/>',),
    "PUT {datasource}": ('<datasource isCertified="true"/>',),
    "POST graphql": (b'{"query": "{workbooks {name}}"}',),
    "PUT tags": ('<tags><tag label="a"/><tag label="b c"/></tags>',),
    "PUT {connection}": ('<connection serverAddress="x" serverPort="1" userName="u"/>',),
    "POST refresh": ('<extractRefresh incremental="true"/>',),
    "PUT permissions": (_RULE,),
    "PUT permissions/datasources": (_RULE,),
    "PATCH data": (
        _BATCH % (b'"delete","condition":{"op":"and","args":[{"op":"lt",%s,"const":{"type":'
                  b'"integer","v":"5"}},{"op":"not","arg":{"op":"has","target-col":"name",'
                  b'"const":{"type":"string","v":null}}}]}' % _COLUMN),
        _BATCH % (b'"upsert","source-table":"rows","condition":{"op":"eq",%s,"source-col":"id"}'
                  % _COLUMN),
    ),
}  # fmt: skip


class World:
    """What the requests of a fuzz run are about: it heals whatever they break."""

    def __init__(self, sandbox: Sandbox, file: Path):
        self._sandbox, self._file = sandbox, file
        self.heal()

    def heal(self) -> None:
        """A new session, and a data source, project, upload session and job that exist."""
        server = self.server = signed_in(self._sandbox)
        found = server.projects.filter(name="Fuzz", top_level_project=True)
        project = found[0] if found else server.projects.create(tsc.ProjectItem("Fuzz"))
        item = publish(server, self._file, name="Fuzz", mode="Overwrite")
        server.datasources.populate_connections(item)
        server.datasources.add_tags(item, ["a"])
        queued = tsc.DatasourceItem(default_project(server), name="By job")
        job = server.datasources.publish(queued, self._file, "Overwrite", as_job=True)
        self.known: dict[str, str] = {
            "site": str(server.site_id),
            "user": str(server.user_id),
            "project": str(project.id),
            "datasource": item.id,
            "connection": item.connections[0].id,
            "upload": server.fileuploads.initiate(),
            "job": job.id,
            "revision": "1",
            "label": "a",
            "grantees": "users",
            "grantee": str(server.user_id),
            "capability": "Read",
            "mode": "Allow",
        }

    def messages(self) -> list[Message]:
        """A good request for each method of the API, several for some, and for the pages."""
        pages = ("/", f"/datasources/{self.known['datasource']}", "/control/faults")
        made = [Message("GET", page) for page in pages]
        for route in API_ROUTES:
            path = route.pattern if route.versioned else f"../{route.pattern}"
            target = f"/api/3.27/{path.format_map(self.known)}"
            token = str(self.server.auth_token)
            headers = {"X-Tableau-Auth": token, "RequestID": str(uuid4())}
            message = Message(route.method, target, headers=headers)
            bodies = self._bodies(route.method, route.pattern)
            made += [
                replace(message.with_header("Content-Type", kind), body=body)
                for body, kind in bodies
            ] or [message]
        return made

    def _bodies(self, method: str, pattern: str) -> list[tuple[bytes, str]]:
        if f"{method} {pattern}" == "POST sites/{site}/datasources":
            source = f'<datasource name="Fuzz"><project id="{self.known["project"]}"/></datasource>'
            request = ("request_payload", "", f"<tsRequest>{source}</tsRequest>")
            return [multipart(request, ("tableau_datasource", "x.hyper", self._file.read_bytes()))]
        if (method, pattern) == ("PUT", "sites/{site}/fileUploads/{upload}"):
            return [multipart(("request_payload", "", ""), ("tableau_file", "file", b"block"))]
        return [
            (body, "application/json")
            if isinstance(body, bytes)
            else (f"<tsRequest>{body.format_map(self.known)}</tsRequest>".encode(), "text/xml")
            for end, bodies in _GOOD.items()
            if f"{method} {pattern}".startswith(end.split()[0]) and pattern.endswith(end.split()[1])
            for body in bodies
        ]


# What stands in a path, a query, a header or a body, where it should not.
_HOSTILE = (
    *(b"", b"..", b"%", b"'", b'"', b"\xe4", b"%00", b"%zz", b"%ff%fe", b"%0d%0a", b":::", b"-1"),
    *(b"%2e%2e%2f%2e%2e%2fetc%2fpasswd", b"..%5c..%5c", b"../../sandbox.sqlite", b"9" * 400),
    *(b"1e400", b"NaN", b"100-continue", b"multipart/mixed; boundary*=utf-16''%ff", b"name:in:["),
    *(b",[" * 4_000, b"[" * 100_000, b'{"a":' * 50_000, b"<a>" * 100_000, b"--b\r\n" * 5_000),
    b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><tsRequest>&f;</tsRequest>',
    *(b'<?xml version="1.0" encoding="%s"?><tsRequest/>' % e for e in (b"utf-16", b"utf-7")),
    b"<tsRequest><datasource name='../../../escaped&#10;x: y&#13;'/></tsRequest>",
)
_HEADERS = ("X-Tableau-Auth", "Host", "Content-Type", "Content-Encoding", "Expect", "RequestID")
_PARAMETERS = ("filter", "sort", "pageSize", "includeExtract", "sequenceID", "asJob", "%zz")


def spoil(message: Message, chance: Random) -> Message:
    """The request with one more thing wrong."""
    noise = chance.choice((*_HOSTILE, chance.randbytes(chance.randint(1, 300))))
    encoded, body = quote(noise[:9_000], safe=string.punctuation), message.body
    path, mark, query = message.target.partition("?")
    kind = chance.randrange(8)
    if kind == 0:
        return replace(message, method=chance.choice(METHODS), headers={})
    if kind == 1:
        value = re.sub(rb"[\x00-\x1f\x7f]", b"", noise[:9_000]).decode("latin-1")
        return message.with_header(chance.choice(_HEADERS), value)
    if kind == 2:
        return replace(message, target=f"{path}?{chance.choice(_PARAMETERS)}={encoded}&{query}")
    if kind == 3:
        parts = path.split("/")
        at = chance.randrange(1, len(parts))
        parts[at : at + chance.randint(0, 2)] = [encoded]
        return replace(message, target="/".join(parts) + mark + query)
    # Most of what is read, rather than stored, stands at the beginning; values are in quotes.
    values = [found.span() for found in re.finditer(rb'(?<=")[^"<>]*(?=")', body[:2_000])]
    begin = chance.randrange(min(len(body), chance.choice((600, 100_000))) + 1)
    places = [*values, (begin, begin + chance.choice((0, 1, 30, 2_000)))]
    begin, end = chance.choice(places)
    return replace(message, body=body[:begin] + noise + body[end:])


@pytest.mark.parametrize("count", [800, pytest.param(10_000, marks=pytest.mark.slow)])
def test_spoilt_requests(
    start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path, count: int
):
    """Prevents: a request that no client should send stops the sandbox, or writes elsewhere."""
    sandbox, seed = start_sandbox(), random.randrange(1 << 30)
    chance, world = Random(seed), World(sandbox, one_row)
    for number in range(count):
        if number and number % 50 == 0:
            world.heal()
        message = chance.choice(world.messages())
        for _ in range(chance.randint(1, 3)):
            message = spoil(message, chance)
        context = f"seed {seed}, number {number}: {repr(message)[:2000]}"
        try:
            status = status_of(sandbox, message)
        except (OSError, HTTPException) as error:
            pytest.fail(f"no answer, {error!r}, {context}")
        assert status < 500, f"{status}, {context}"
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

    before = everything()
    token = str(user(sandbox, VIEWER).auth_token) if who == "a viewer" else "a|b|c"
    for message in world.messages():
        if message.method != "GET" and not message.target.partition("auth/")[1]:
            status = status_of(sandbox, message.with_header("X-Tableau-Auth", token))
            allowed = who == "a viewer" and "graphql" in message.target
            assert allowed or 400 <= status < 500, f"{status}: {message.method} {message.target}"
    assert everything() == before
