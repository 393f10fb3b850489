"""A project to write to: what facts create in it, and how it is removed again."""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from urllib.parse import quote
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from requests import RequestException

from tableau_sandbox_tests.contract.answer import Answer, attribute
from tableau_sandbox_tests.contract.files import Part, multipart, packaged_hyper, rows_file, rows_of
from tableau_sandbox_tests.contract.session import Session

ROWS: tuple[tuple[int | None, str | None], ...] = ((1, "one"), (2, "two"))
_JOB_SECONDS = 600
_LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Published:
    """A data source that a fact has published."""

    luid: str
    name: str

    @property
    def path(self) -> str:
        """Its path below the site."""
        return f"datasources/{self.luid}"


class UnknownProjectError(LookupError):
    """The site has no such project, or several."""


class LeftBehindError(Exception):
    """The message names what could not be removed."""


class Workspace:
    """A project of a site, in which facts publish under names of their own.

    Attributes:
        session: the session.
        project: the LUID of the project.
    """

    def __init__(
        self,
        session: Session,
        project: str,
        *,
        pass_a_second: Callable[[], None] = lambda: time.sleep(1.1),
    ):
        """Look for the project.

        Args:
            session: the session.
            project: the name of the project.
            pass_a_second: returns when the clock of the server is in the next second.

        Raises:
            UnknownProjectError: there is none of this name, or several.
        """
        self.session = session
        path = f"projects?filter=name:eq:{quote(project, safe='')}"
        found = session.ask("GET", path).succeeds(200).elements("projects/project")
        if len(found) != 1:
            raise UnknownProjectError(f"{len(found)} projects are called '{project}'")
        self.project = attribute(found[0], "id")
        self.pass_a_second = pass_a_second
        self._mark = f"verify-{secrets.token_hex(4)}"
        self._names: list[str] = []
        self._datasources: list[str] = []
        self._projects: list[str] = []
        self._jobs: list[str] = []

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove everything; see `clear`."""
        self.clear()

    def clear(self) -> None:
        """Remove everything that facts have created, known by its unique names.

        Raises:
            LeftBehindError: something is still there.
        """
        try:
            # The last fact may have ended the session, or its hours may be over.
            self.session.sign_in()
        except (AssertionError, RequestException) as error:
            raise LeftBehindError(f"{self._mark}*") from error
        left = [job for job in [*self._jobs] if not _succeeds(self._end, job)]
        # By their names as well: a job names nothing, and the answer to a publish may get lost.
        left += [name for name in self._names if not _succeeds(self._delete_named, name)]
        # Inner projects come first.
        created = [f"datasources/{luid}" for luid in self._datasources]
        created += [f"projects/{luid}" for luid in reversed(self._projects)]
        left += [path for path in created if not _succeeds(self._delete, path)]
        if left:
            raise LeftBehindError(", ".join(left))

    def _end(self, job: str) -> None:
        """Cancel a job, or wait for its end: it could publish after the removal."""
        self.session.ask("PUT", f"jobs/{job}")
        self.wait(job)

    def _delete_named(self, name: str) -> None:
        path = f"datasources?filter=name:eq:{quote(name, safe='')}"
        found = self.session.ask("GET", path).succeeds(200).elements("datasources/datasource")
        for item in found:
            self._delete(f"datasources/{attribute(item, 'id')}")

    def _delete(self, path: str) -> None:
        answer = self.session.ask("DELETE", path)
        assert answer.status in (204, 404), answer

    def new_name(self, suffix: str = "") -> str:
        """Return a name that nothing on the site has yet; what gets it is removed in the end."""
        name = f"{self._mark}-{len(self._names)}{suffix}"
        self._names.append(name)
        return name

    def new_project(self, name: str = "") -> str:
        """Create a project in the project; return its LUID."""
        answer = self.ask("POST", "projects", self.project_request(name or self.new_name()))
        return attribute(answer.succeeds(201).element("project"), "id")

    def project_request(self, name: str) -> str:
        """Return the request for a project in the project."""
        parent = f"parentProjectId={quoteattr(self.project)}"
        return f"<tsRequest><project name={quoteattr(name)} {parent}/></tsRequest>"

    def ask(
        self,
        method: str,
        path: str,
        body: str | bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request to a path of the site; remember what it creates."""
        answer = self.session.ask(method, path, body, headers=headers)
        if method == "POST" and answer.status == 201:
            self._projects += [attribute(item, "id") for item in answer.elements("project")]
            self._datasources += [attribute(item, "id") for item in answer.elements("datasource")]
        if answer.status == 202:
            self._jobs += [attribute(item, "id") for item in answer.elements("job")]
        return answer

    def send_parts(self, method: str, path: str, *parts: Part, kind: str = "mixed") -> Answer:
        """Send a multipart request."""
        body, headers = multipart(*parts, kind=kind)
        return self.ask(method, path, body, headers=headers)

    def request(self, name: str, *, project: str = "") -> str:
        """Return the request to publish a data source of this name."""
        project_id = quoteattr(project or self.project)
        return (
            f"<tsRequest><datasource name={quoteattr(name)}><project id={project_id}/>"
            "</datasource></tsRequest>"
        )

    def publish(
        self, name: str, file: bytes | None = None, *, query: str = "", suffix: str = "hyper"
    ) -> Answer:
        """Publish a file in one request, by default one with the first rows."""
        content = rows_file(*ROWS) if file is None else file
        return self.send_parts(
            "POST",
            f"datasources?{query}",
            ("request_payload", "", self.request(name)),
            ("tableau_datasource", f"file.{suffix}", content),
        )

    def published(self, file: bytes | None = None, *, suffix: str = "hyper") -> Published:
        """Publish a new data source."""
        name = self.new_name()
        answer = self.publish(name, file, suffix=suffix).succeeds(201)
        return Published(attribute(answer.element("datasource"), "id"), name)

    @cached_property
    def shared(self) -> Published:
        """A data source with the first rows, for facts that leave it as it is."""
        return self.published()

    def upload(self, *blocks: bytes) -> str:
        """Upload a file in blocks; return the identifier of its session."""
        answer = self.ask("POST", "fileUploads").succeeds(201)
        session = attribute(answer.element("fileUpload"), "uploadSessionId")
        for block in blocks:
            self.append_block(session, block).succeeds(200)
        return session

    def append_block(self, session: str, block: bytes) -> Answer:
        """Append a block to an upload."""
        parts = ("request_payload", "", ""), ("tableau_file", "file", block)
        return self.send_parts("PUT", f"fileUploads/{session}", *parts)

    def update(
        self,
        target: Published,
        actions: Sequence[Mapping[str, object]],
        payload: bytes | None = None,
        *,
        request_id: str = "",
        connection: str = "",
    ) -> Answer:
        """Send an action batch, with the file that its actions name."""
        session = "" if payload is None else f"?uploadSessionId={self.upload(payload)}"
        between = f"/connections/{connection}" if connection else ""
        path = f"{target.path}{between}/data{session}"
        return self.send_batch(path, actions, request_id=request_id)

    def send_batch(
        self, path: str, actions: Sequence[Mapping[str, object]], *, request_id: str = ""
    ) -> Answer:
        """Send an action batch to a path, by default with a request id of its own."""
        headers = {
            "Content-Type": "application/json",
            "RequestID": request_id or secrets.token_hex(16),
        }
        return self.ask("PATCH", path, json.dumps({"actions": actions}), headers=headers)

    def wait(self, job: str) -> Element:
        """Return a job when it is complete."""
        deadline, pause = time.monotonic() + _JOB_SECONDS, 0.01
        while time.monotonic() < deadline:
            found = self.session.ask("GET", f"jobs/{job}").succeeds(200).element("job")
            if found.get("completedAt"):
                if job in self._jobs:
                    self._jobs.remove(job)
                return found
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        raise AssertionError(f"the job does not end within {_JOB_SECONDS} seconds")

    def finished(self, answer: Answer) -> Element:
        """Return the complete job of a request that was accepted."""
        return self.wait(attribute(answer.succeeds(202).element("job"), "id"))

    def rows(self, target: Published) -> list[tuple]:
        """Return the rows of a data source, as a download has them."""
        content = self.session.ask("GET", f"{target.path}/content").succeeds(200).content
        return rows_of(packaged_hyper(content)[1])


def _succeeds(removal: Callable[[str], None], item: str) -> bool:
    try:
        removal(item)
    except (AssertionError, RequestException):
        return False
    return True
