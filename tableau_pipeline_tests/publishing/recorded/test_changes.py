"""Answers to uploads, publishes and updates, and lists of jobs, modelled on public recordings."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.drift import Job
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline_tests.publishing.conftest import CLEAR, fresh
from tableau_pipeline_tests.publishing.hostile import Call
from tableau_pipeline_tests.publishing.recorded.support import (
    ITEM,
    LUID,
    Server,
    error,
    page,
    raw,
    xml,
)

SOURCES, JOBS = "sites/[^/]+/datasources", "sites/[^/]+/jobs"
# TSC, datasource_publish_async.xml and datasource_data_update.xml.
JOB = (
    '<job id="9a37" mode="Asynchronous" type="PublishDatasource" progress="0"'
    ' createdAt="2018-06-30T00:54:54Z" finishCode="1"/>'
)
UPDATE = (
    '<job id="5c0b" mode="Asynchronous" type="UpdateUploadedFile" createdAt="2021-09-18T09:40:12Z">'
    f'<updateUploadedFileJob><datasource id="{LUID}" name="x"/><connectionLuid>7eca'
    "</connectionLuid></updateUploadedFileJob></job>"
)
# TSC, datasource_publish.xml: a publish without a job.
PUBLISHED = f'<datasource id="{LUID}" name="Sales" type="dataengine"><project id="1"/></datasource>'


def answered(status: int, body: str) -> Any:
    """Answers with a `tsResponse` around the body."""
    whole = f'<tsResponse xmlns="http://tableau.com/api">{body}</tsResponse>'
    return raw(whole.encode(), status=status)


def publish(server: Server, answer: Any) -> str:
    with server.saying("POST", SOURCES, answer):
        return server.site.publish("1:2", name="Sales", project_id="1", mode=PublishMode.CREATE)


def update(server: Server, answer: Any) -> str | None:
    with server.saying("PATCH", f"{ITEM}/data", answer):
        return server.site.update(LUID, batch=CLEAR, upload=None, request_id=fresh())


@pytest.mark.parametrize("status", [200, 201, 202])
def test_publish(server: Server, status: int):
    """Prevents: a publish that the server has accepted passes for a refused publish."""
    assert publish(server, answered(status, JOB)) == "9a37"


@pytest.mark.parametrize("body", [PUBLISHED, "", "<job/>"])
def test_publish_without_a_job(server: Server, body: str):
    """Prevents: a publish passes for refused or for done because the answer names no job."""
    with pytest.raises(RefreshError, match="named no job") as caught:
        publish(server, answered(201, body))
    assert not isinstance(caught.value, RefusedError)


@pytest.mark.parametrize("body", [b'{"job": {"id": "1"}}', b"<html/>"])
def test_publish_answered_by_something_else(server: Server, body: bytes):
    """Prevents: a gateway's page passes for an accepted or a refused publish."""
    with pytest.raises(RefreshError, match="does not answer like a Tableau Server") as caught:
        publish(server, raw(body, status=201))
    assert not isinstance(caught.value, RefusedError)


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        (answered(202, UPDATE), "5c0b"),
        (answered(200, UPDATE.replace("UpdateUploadedFile", "updateUploadedFile")), "5c0b"),
        (answered(202, '<job id="1" new="2"><news/></job>'), "1"),
        # The answer names no job, so a refresh finds out later what has happened.
        (answered(202, ""), None),
        (answered(202, "<job/>"), None),
    ],
)
def test_update(server: Server, answer: Any, job: str | None):
    """Prevents: an update that the server has accepted passes for a refused update."""
    assert update(server, answer) == job


@pytest.mark.parametrize("body", [b'{"job": {"id": "1"}}', b"<html/>", b"OK"])
def test_update_answered_by_something_else(server: Server, body: bytes):
    """Prevents: a gateway's page passes for an accepted or a refused update."""
    with pytest.raises(RefreshError, match="does not answer like a Tableau Server") as caught:
        update(server, raw(body, status=200))
    assert not isinstance(caught.value, RefusedError)


def test_upload(server: Server, tmp_path: Path):
    """Prevents: every upload fails because the server's answers have more fields than the id."""
    file = tmp_path / "a.hyper"
    file.write_bytes(b"rows")
    # TSC, fileupload_initialize.xml and fileupload_append.xml.
    begun = xml('<fileUpload uploadSessionId="7720:4170" fileSize="0" new="1"/>')
    more = xml('<fileUpload uploadSessionId="7720:4170" fileSize="1"><news/></fileUpload>')
    bodies: list[bytes] = []

    def respond(call: Call) -> None:
        bodies.append(call.body)
        more(call)

    with (
        server.saying("POST", "sites/[^/]+/fileUploads", begun),
        server.saying("PUT", "sites/[^/]+/fileUploads/7720:4170", respond),
    ):
        assert server.site.upload(file) == "7720:4170"
    (body,) = bodies
    assert b"rows" in body


LISTED = (
    '<backgroundJob id="{}" status="{}" createdAt="2018-05-22T13:00:29Z" priority="50"'
    ' jobType="{}" {}/>'
)


def listed(server: Server, *items: str) -> Sequence[Job] | None:
    since = datetime(2018, 1, 1, tzinfo=UTC)
    with server.saying("GET", JOBS, page("backgroundJobs", *items)):
        return server.site.jobs(name="Sales", since=since)


def test_jobs(server: Server):
    """Prevents: a job that may change the data source is overlooked, or an unrelated job counts."""
    ended = 'startedAt="2018-05-22T13:00:37Z" endedAt="2018-05-22T13:00:45Z" title="{}"'
    found = listed(
        server,
        # TSC, job_get.xml; REST reference, Query Jobs.
        LISTED.format("1", "Success", "refresh_extracts", ended.format("Sales")),
        LISTED.format("2", "Success", "publish_datasource", ended.format("sales")),
        LISTED.format("3", "Failed", "update_uploaded_file", ended.format("Sales") + ' new="1"'),
        LISTED.format("4", "Cancelled", "updateUploadedFile", ended.format("Sales")),
        LISTED.format("5", "InProgress", "UpdateUploadedFile", 'title="Sales" subtitle="x"'),
        LISTED.format("6", "Pending", "PublishDatasource", 'title="Sales"'),
        LISTED.format("7", "SentToBridge", "publish_datasource", 'title="Sales"'),
        LISTED.format("8", "Success", "publish_datasource", ended.format("Others")),
        LISTED.format("9", "Success", "run_flow", ended.format("Sales")),
    )
    assert {each.id: (each.kind, each.outcome) for each in found or ()} == {
        "2": ("publish", Outcome.DONE),
        "3": ("update", Outcome.FAILED),
        "4": ("update", Outcome.CANCELLED),
        "5": ("update", None),
        "6": ("publish", None),
        "7": ("publish", None),
    }


@pytest.mark.parametrize(("status", "code"), [(403, "403004"), (401, "401002")])
def test_jobs_that_may_not_be_listed(server: Server, status: int, code: str):
    """Prevents: a refusal to list jobs passes for an empty list of jobs."""
    with server.saying("GET", JOBS, error(status, code)):
        assert server.site.jobs(name="Sales", since=datetime(2018, 1, 1, tzinfo=UTC)) is None
