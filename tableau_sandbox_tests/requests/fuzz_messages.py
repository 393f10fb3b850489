"""Requests as bytes on a socket: no library repairs what a test has broken."""

import re
import socket
from dataclasses import dataclass, replace
from http.client import HTTPException, HTTPResponse
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from uuid import uuid4

import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    default_project,
    multipart,
    publish,
    signed_in,
)

PATIENCE = 20
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT")
XML = "text/xml"


@dataclass(frozen=True)
class Message:
    """A request, as it goes over the wire.

    Attributes:
        length: what it says of its body's length; None is the truth.
    """

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
        self._sandbox = sandbox
        self._file = file
        self.heal()
        with TemporaryDirectory() as folder:
            path = self.server.datasources.download(str(self.datasource), f"{folder}/package")
            self._package = Path(path).read_bytes()

    def heal(self) -> None:
        """A new session, and a data source, project, upload session and job that exist."""
        auth = tsc.TableauAuth(self._sandbox.user, self._sandbox.password)
        self.server = signed_in(self._sandbox, auth)
        self.upload = self.server.fileuploads.initiate()
        project = self.server.projects.filter(name="Fuzz", top_level_project=True)
        self.project = (project[0] if project else self._new_project()).id
        item = publish(self.server, self._file, name="Fuzz", mode="Overwrite")
        self.datasource = item.id
        self.server.datasources.populate_connections(item)
        self.connection = item.connections[0].id
        self.server.datasources.add_tags(item, ["a"])
        job = tsc.DatasourceItem(default_project(self.server), name="By job")
        self.job = self.server.datasources.publish(job, self._file, "Overwrite", as_job=True).id

    def _new_project(self) -> tsc.ProjectItem:
        return self.server.projects.create(tsc.ProjectItem("Fuzz"))

    def families(self) -> dict[str, list[Message]]:
        """Good requests, by the part of the API that they belong to."""
        return (
            self._site_families()
            | self._datasource_families()
            | self._publishing_families()
            | {"json": self._json()}
        )

    def _site_families(self) -> dict[str, list[Message]]:
        site = f"sites/{self.server.site_id}"
        return {
            "auth": [
                self.xml("POST", "auth/signin", _credentials('name="admin" password="admin"')),
                self.xml("POST", "auth/signin", _credentials(_TOKEN)),
                self.xml("POST", "auth/switchSite", '<site contentUrl="second"/>'),
                self.message("POST", "auth/signout"),
                self.message("GET", "serverInfo"),
            ],
            "projects": [
                self.message("GET", "sites?pageSize=5&pageNumber=1"),
                self.message("GET", f"{site}?key=name"),
                self.message("GET", f"{site}/users/{self.server.user_id}"),
                self.xml("POST", f"{site}/projects", '<project name="P" description="d"/>'),
                self.xml("PUT", f"{site}/projects/{self.project}", '<project name="Fuzz"/>'),
                self.message("DELETE", f"{site}/projects/{self.project}"),
            ],
            "jobs": [
                self.message("GET", f"{site}/jobs?filter=status:eq:Success"),
                self.message("GET", f"{site}/jobs/{self.job}"),
                self.message("PUT", f"{site}/jobs/{self.job}"),
            ],
            "pages": [
                replace(self.message("GET", ""), target="/"),
                replace(self.message("GET", ""), target=f"/datasources/{self.datasource}"),
                replace(self.message("POST", ""), target="/control/faults", body=b"{}"),
            ],
            "queries": [
                self.message("GET", f"{site}/datasources?filter=name:eq:Fuzz,tags:in:[a,b]"),
                self.message("GET", f"{site}/projects?sort=name:asc&pageSize=10&pageNumber=1"),
                self.message("GET", f"{site}/jobs?filter=createdAt:gt:2001-01-01T00:00:00Z"),
                self.message("GET", f"{site}/users?fields=_all_"),
            ],
        }

    def _datasource_families(self) -> dict[str, list[Message]]:
        one = f"sites/{self.server.site_id}/datasources/{self.datasource}"
        return {
            "datasources": [
                self.message("GET", one),
                self.message("GET", f"{one}/content?includeExtract=False"),
                self.message("GET", f"{one}/connections"),
                self.xml("PUT", one, '<datasource name="New" isCertified="true"/>'),
                self.message("DELETE", one),
            ],
            "revisions": [
                self.message("GET", f"{one}/revisions?pageSize=2"),
                self.message("GET", f"{one}/revisions/1/content?includeExtract=False"),
                self.xml("POST", f"{one}/refresh", '<extractRefresh incremental="true"/>'),
                self.xml(
                    "PUT",
                    f"{one}/connections/{self.connection}",
                    '<connection serverAddress="x" serverPort="1" userName="u" password="p"/>',
                ),
            ],
            "tags": [
                self.xml("PUT", f"{one}/tags", '<tags><tag label="a"/><tag label="b c"/></tags>'),
                self.message("DELETE", f"{one}/tags/a"),
            ],
        }

    def _publishing_families(self) -> dict[str, list[Message]]:
        site = f"sites/{self.server.site_id}"
        one = f"{site}/datasources/{self.datasource}"
        upload = f"{site}/fileUploads/{self.upload}"
        session = f"uploadSessionId={self.upload}&datasourceType=hyper&overwrite=true"
        source = f'<datasource name="Fuzz"><project id="{self.project}"/></datasource>'
        request = ("request_payload", "", f"<tsRequest>{source}</tsRequest>")
        file = ("tableau_datasource", "x.hyper", self._file.read_bytes())
        package = ("tableau_datasource", "x.tdsx", self._package)
        block = multipart(("request_payload", "", ""), ("tableau_file", "file", b"block"))
        return {
            "publish": [
                self.parts("POST", f"{site}/datasources?overwrite=true", multipart(request, file)),
                self.parts("POST", f"{site}/datasources?asJob=true", multipart(request, file)),
                self.parts("POST", f"{site}/datasources?{session}", multipart(request)),
            ],
            "files": [
                self.parts("POST", f"{site}/datasources?overwrite=true", multipart(request, file)),
                self.parts(
                    "POST", f"{site}/datasources?overwrite=true", multipart(request, package)
                ),
            ],
            "uploads": [
                self.message("POST", f"{site}/fileUploads"),
                self.parts("PUT", upload, block),
                self.parts("PUT", f"{upload}?sequenceID=7", block),
            ],
            "updates": [
                self.batch(f"{one}/data", _DELETE),
                self.batch(f"{one}/connections/{self.connection}/data", _NESTED),
                self.batch(f"{one}/data?uploadSessionId={self.upload}", _UPSERT),
            ],
        }

    def _json(self) -> list[Message]:
        site = f"sites/{self.server.site_id}"
        one = f"{site}/datasources/{self.datasource}"
        source = {"datasource": {"name": "Fuzz", "project": {"id": self.project}}}
        file = ("tableau_datasource", "x.hyper", self._file.read_bytes())
        publish = multipart(("request_payload", "", dumps(source)), file)
        tags = {"tags": {"tag": [{"label": "a"}, {"label": "b c"}]}}
        connection = {"connection": {"serverAddress": "x", "serverPort": 1, "password": "p"}}
        many = {"connectionLUIDs": {"connectionLUID": [self.connection]}, **connection}
        query = {"query": "{workbooks {name}}", "variables": {"a": [1]}}
        return [
            self.json("POST", "auth/signin", {"credentials": _SIGN_IN}),
            self.json("POST", "auth/switchSite", {"site": {"contentUrl": "second"}}),
            self.json("POST", f"{site}/projects", {"project": {"name": "P", "description": "d"}}),
            self.json("PUT", f"{site}/projects/{self.project}", {"project": {"name": "Fuzz"}}),
            self.json("PUT", one, {"datasource": {"name": "New", "isCertified": True}}),
            self.json("PUT", f"{one}/tags", tags),
            self.json("PUT", f"{one}/connections/{self.connection}", connection),
            self.json("PUT", f"{one}/connections", many),
            self.json("POST", f"{one}/refresh", {}),
            self.parts("POST", f"{site}/datasources?overwrite=true", publish),
            replace(self.json("POST", "", query), target="/api/metadata/graphql"),
        ]

    def message(self, method: str, path: str) -> Message:
        target = f"/api/3.27/{path}"
        return Message(method, target, headers=(("X-Tableau-Auth", str(self.server.auth_token)),))

    def xml(self, method: str, path: str, child: str) -> Message:
        message = self.message(method, path).with_header("Content-Type", XML)
        return replace(message, body=f"<tsRequest>{child}</tsRequest>".encode())

    def json(self, method: str, path: str, value: object) -> Message:
        message = self.message(method, path).with_header("Content-Type", "application/json")
        accepting = message.with_header("Accept", "application/json")
        return replace(accepting, body=dumps(value).encode())

    def batch(self, path: str, actions: str) -> Message:
        message = self.message("PATCH", path).with_header("Content-Type", "application/json")
        body = f'{{"actions":[{actions}]}}'.encode()
        return replace(message.with_header("RequestID", str(uuid4())), body=body)

    def parts(self, method: str, path: str, body: tuple[bytes, str]) -> Message:
        content, content_type = body
        message = self.message(method, path).with_header("Content-Type", content_type)
        return replace(message, body=content)


_DELETE = (
    '{"action":"delete","target-table":"Extract","condition":'
    '{"op":"lt","target-col":"id","const":{"type":"integer","v":"5"}}}'
)
_NESTED = (
    '{"action":"delete","target-schema":"Extract","target-table":"Extract","condition":'
    '{"op":"and","args":[{"op":"or","args":[{"op":"has","target-col":"name",'
    '"const":{"type":"string","v":"o"}},{"op":"is","target-col":"id",'
    '"const":{"type":"string","v":null}}]},{"op":"neq","target-col":"id",'
    '"const":{"type":"double","v":1.5}}]}}'
)
_UPSERT = (
    '{"action":"upsert","target-table":"Extract","source-table":"rows","condition":'
    '{"op":"eq","target-col":"id","source-col":"id"}}'
)
_SIGN_IN = {
    "name": "admin",
    "password": "admin",
    "site": {"contentUrl": ""},
    "user": {"id": None},
}
_TOKEN = 'personalAccessTokenName="pipeline" personalAccessTokenSecret="pipeline-secret"'


def _credentials(attributes: str) -> str:
    return f'<credentials {attributes}><site contentUrl=""/></credentials>'
