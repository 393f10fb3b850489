"""A project to write to: the items that facts create there, and their removal."""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any
from urllib.parse import quote
from uuid import uuid4
from xml.sax.saxutils import quoteattr

import pytest
from requests import RequestException

from tableau_sandbox_tests.contract.files import Part, multipart, packaged_hyper, rows_file, rows_of
from tableau_sandbox_tests.contract.session import Answer, Conversation, OtherSession, Session

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
        """The path of the data source below the site."""
        return f"datasources/{self.luid}"


class LeftBehindError(Exception):
    """Some items could not be removed; the message names them."""


class Workspace(Conversation):
    """A project in which facts create items under unique names.

    Requests may name the LUIDs {project}, {folder} (a new project) and {user}, the paths {shared}
    and {new} of data sources, and a new {name}.

    Attributes:
        session: the session of the user who checks the facts.
        project: the LUID of the project.
        pass_a_second: waits until the clock of the server is in the next second.
    """

    def __init__(self, session: Session, project: str, pass_a_second: Callable[[], None]):
        """Look for the project.

        Raises:
            LookupError: if no project has this name, or several projects have it.
        """
        self.session, self.pass_a_second = session, pass_a_second
        path = f"projects?filter=name:eq:{quote(project, safe='')}"
        found = session.ask("GET", path).succeeds().all("projects/project@id")
        if len(found) != 1:
            raise LookupError(f"{len(found)} projects are called '{project}'")
        self.project = str(found[0])
        self._mark = f"verify-{secrets.token_hex(4)}"
        self._names: list[str] = []
        # The paths of created items; the content of a project comes before the project.
        self._created: list[str] = []
        self._jobs: list[str] = []
        self.values = {
            "nothing": lambda: str(uuid4()),
            "project": lambda: self.project,
            "folder": self.new_project,
            "user": lambda: self.session.user,
            "shared": lambda: self.shared.path,
            "new": lambda: self.published().path,
            "name": self.new_name,
        }

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove all items that facts have created, and no others: the names are unique.

        Raises:
            LeftBehindError: if an item is still there.
        """
        try:
            # The session may have expired, or the last fact may have ended it.
            self.session.sign_in()
        except (AssertionError, RequestException) as refusal:
            raise LeftBehindError(f"{self._mark}*") from refusal
        left = [job for job in [*self._jobs] if not _succeeds(self._end, job)]
        # Remove data sources by name as well: jobs and lost answers give no LUIDs.
        left += [name for name in self._names if not _succeeds(self._delete_named, name)]
        left += [path for path in self._created if not _succeeds(self._delete, path)]
        if left:
            raise LeftBehindError(", ".join(left))

    def _end(self, job: str) -> None:
        """Cancel a job and wait for its end; otherwise it could publish after the removal."""
        self.session.ask("PUT", f"jobs/{job}")
        self.wait(job)

    def _delete_named(self, name: str) -> None:
        path = f"datasources?filter=name:eq:{quote(name, safe='')}"
        for luid in self.session.ask("GET", path).succeeds().all("datasources/datasource@id"):
            self._delete(f"datasources/{luid}")

    def _delete(self, path: str) -> None:
        self.session.ask("DELETE", path).succeeds(204, 404)

    def new_name(self, suffix: str = "") -> str:
        """Return a unique name; a data source with this name is removed at the end."""
        self._names.append(f"{self._mark}-{len(self._names)}{suffix}")
        return self._names[-1]

    def new_project(self) -> str:
        """Create a project inside the project; return the LUID of the new project."""
        request = "POST projects <project name='{name}' parentProjectId='{project}'/>"
        return self.send(request).succeeds(201)["project@id"]

    def ask(self, method: str, path: str, body: str | bytes = b"", **options: Any) -> Answer:
        """Send a request to a path of the site, and remember the items that it creates."""
        answer = self.session.ask(method, path, body, **options)
        if method == "POST" and answer.status == 201:
            for kind in ("project", "datasource"):
                self._created[:0] = [f"{kind}s/{luid}" for luid in answer.all(f"{kind}@id")]
        if answer.status == 202:
            self._jobs += [luid for luid in answer.all("job@id") if luid]
        return answer

    def send_parts(self, request: str, *parts: Part, kind: str = "mixed") -> Answer:
        """Send a multipart request to a method and a path."""
        body, headers = multipart(*parts, kind=kind)
        method, path = request.split(" ")
        return self.ask(method, path, body, headers=headers)

    def request(self, name: str, *, project: str = "") -> Part:
        """Return the part of a publish request that names the data source and its project."""
        within = f"<project id={quoteattr(project or self.project)}/>"
        element = f"<datasource name={quoteattr(name)}>{within}</datasource>"
        return "request_payload", "", f"<tsRequest>{element}</tsRequest>"

    def publish(
        self,
        name: str = "",
        file: bytes | None = None,
        *,
        query: str = "",
        suffix: str = "hyper",
        project: str = "",
        upload: str = "",
        by: OtherSession | None = None,
    ) -> Answer:
        """Publish an upload or a file; the defaults are a file with `ROWS` and a new name."""
        if "asJob" in query:
            self._needs_jobs()
        parts = [self.request(name or self.new_name(), project=project)]
        if upload:
            query = f"uploadSessionId={upload}&{query or 'datasourceType=hyper'}"
        else:
            content = rows_file(*ROWS) if file is None else file
            parts.append(("tableau_datasource", f"f.{suffix}", content))
        body, headers = multipart(*parts)
        return (by or self).ask("POST", f"datasources?{query}", body, headers=headers)

    def published(self, file: bytes | None = None, **options: Any) -> Published:
        """Publish a new data source, and return its LUID and its name."""
        name = self.new_name()
        return Published(self.publish(name, file, **options).succeeds(201)["datasource@id"], name)

    @cached_property
    def shared(self) -> Published:
        """A data source with `ROWS`, for facts that do not change it."""
        return self.published()

    def upload(self, *blocks: bytes) -> str:
        """Upload a file in blocks; return the identifier of the upload."""
        session = self.send("POST fileUploads").succeeds(201)["fileUpload@uploadSessionId"]
        for block in blocks:
            self.append_block(session, block).succeeds()
        return session

    def append_block(self, session: str, block: bytes) -> Answer:
        """Append a block to an upload."""
        parts = ("request_payload", "", ""), ("tableau_file", "file", block)
        return self.send_parts(f"PUT fileUploads/{session}", *parts)

    def update(
        self,
        target: Published,
        actions: Sequence[Mapping[str, object]],
        payload: bytes | None = None,
        *,
        upload: str = "",
        request_id: str = "",
        connection: str = "",
        by: OtherSession | None = None,
    ) -> Answer:
        """Send an action batch, with an upload or with a payload that the actions name."""
        self._needs_jobs()
        if payload is not None:
            upload = self.upload(payload)
        between = f"/connections/{connection}" if connection else ""
        path = f"{target.path}{between}/data{upload and '?uploadSessionId='}{upload}"
        headers = {"RequestID": request_id or secrets.token_hex(16)}
        headers["Content-Type"] = "application/json"
        return (by or self).ask("PATCH", path, json.dumps({"actions": actions}), headers=headers)

    def _needs_jobs(self) -> None:
        """Skip the fact if the user may not ask for jobs and cancel them."""
        if self._answer_about_jobs.status == 403:
            pytest.skip("the user is no administrator, and may not ask for jobs")

    @cached_property
    def _answer_about_jobs(self) -> Answer:
        return self.session.ask("GET", f"jobs/{uuid4()}")

    def wait(self, job: str) -> Answer:
        """Wait for the end of a job, and return the job."""
        deadline, pause = time.monotonic() + _JOB_SECONDS, 0.01
        while time.monotonic() < deadline:
            answer = self.session.ask("GET", f"jobs/{job}").succeeds()
            if answer.get("job@completedAt"):
                self._jobs = [each for each in self._jobs if each != job]
                return answer
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        raise AssertionError(f"the job does not end within {_JOB_SECONDS} seconds")

    def finished(self, answer: Answer) -> Answer:
        """Wait for the end of an accepted request's job, and return the job."""
        return self.wait(answer.succeeds(202)["job@id"])

    def record(self, target: Published) -> Answer:
        """Return the record of a data source."""
        return self.ask("GET", target.path).succeeds()

    def rows(self, target: Published, *, of: str = "", table: str = "") -> list[tuple]:
        """Return the rows of a data source, or `of` one of its revisions, from a download."""
        content = self.ask("GET", f"{target.path}{of}/content").succeeds().content
        return rows_of(packaged_hyper(content)[1], table)


def _succeeds(removal: Callable[[str], None], item: str) -> bool:
    try:
        removal(item)
    except (AssertionError, RequestException):
        return False
    return True
