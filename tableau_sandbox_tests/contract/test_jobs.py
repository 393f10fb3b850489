"""Jobs: what their records say while they wait and when they have ended."""

import pytest

from tableau_sandbox_tests.contract.answer import attribute
from tableau_sandbox_tests.contract.sources import (
    MIGRATION_SDK,
    NOBODY,
    REFERENCE,
    SCHEMA,
    TSC,
    UPDATE_GUIDE,
    fact,
)
from tableau_sandbox_tests.contract.workspace import ROWS, Workspace

_JOB = "GET sites/{site}/jobs/{job}"
# The last of as many jobs still waits when it is cancelled.
_QUEUE = 8
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}


@fact(_JOB, TSC)
def test_unfinished_job(workspace: Workspace):
    """A job that has just been queued has neither a finishCode nor a completedAt."""
    answer = workspace.publish(workspace.new_name(), query="asJob=true").succeeds(202)
    job = answer.element("job")
    assert (job.get("finishCode"), job.get("completedAt")) == (None, None)
    assert attribute(job, "progress") == "0"
    attribute(job, "createdAt")


@fact(_JOB, TSC)
def test_finished_job(workspace: Workspace):
    """A job that has succeeded has the progress 100, the finishCode 0 and its times in order."""
    target = workspace.published()
    job = workspace.finished(workspace.update(target, [_CLEAR]))
    assert (job.get("progress"), job.get("finishCode")) == ("100", "0")
    times = [attribute(job, name) for name in ("createdAt", "startedAt", "completedAt")]
    assert times == sorted(times), times


@fact(_JOB, SCHEMA)
def test_finished_update_names_its_target(workspace: Workspace):
    """The job of an update names its data source and connection."""
    target = workspace.published()
    job = workspace.finished(workspace.update(target, [_CLEAR]))
    datasource = job.find("updateUploadedFileJob/datasource")
    assert (None if datasource is None else datasource.get("id")) == target.luid
    assert job.findtext("updateUploadedFileJob/connectionLuid")


@fact("PUT sites/{site}/jobs/{job}", REFERENCE)
def test_cancelled_too_late(workspace: Workspace):
    """A job that is complete cannot be cancelled: 403091."""
    job = workspace.finished(workspace.publish(workspace.new_name(), query="asJob=true"))
    workspace.ask("PUT", f"jobs/{attribute(job, 'id')}").is_refused("403091")


@fact("GET sites/{site}/jobs", NOBODY)
def test_kind_of_an_update_in_the_list(workspace: Workspace):
    """The list of jobs calls an update update_uploaded_file."""
    job = workspace.finished(workspace.update(workspace.published(), [_CLEAR]))
    since = attribute(job, "createdAt")
    answer = workspace.ask("GET", f"jobs?filter=createdAt:gte:{since}&pageSize=1000")
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    found = answer.succeeds(200).elements("backgroundJobs/backgroundJob")
    kinds = [item.get("jobType") for item in found if item.get("id") == job.get("id")]
    assert kinds == ["update_uploaded_file"]


@fact("PUT sites/{site}/jobs/{job}", UPDATE_GUIDE)
def test_cancelled_update(workspace: Workspace):
    """A queued update is cancelled with 200 or 204, has the finishCode 2 and no effect."""
    targets = [workspace.published() for _ in range(_QUEUE)]
    queued = [attribute(workspace.update(each, [_CLEAR]).element("job"), "id") for each in targets]
    answer = workspace.ask("PUT", f"jobs/{queued[-1]}")
    if answer.status == 403:
        pytest.skip("the job was too fast")
    assert answer.status in (200, 204), answer
    assert attribute(workspace.wait(queued[-1]), "finishCode") == "2"
    assert workspace.rows(targets[-1]) == [*ROWS]


@fact(_JOB, MIGRATION_SDK)
def test_notes_of_a_failed_publish(workspace: Workspace):
    """A failed publish has the finishCode 1, and a note with the code of its error."""
    answer = workspace.publish(workspace.new_name(), b"this is no .hyper file", query="asJob=true")
    job = workspace.finished(answer)
    assert attribute(job, "finishCode") == "1"
    notes = [note.get("type") for note in job.findall("statusNotes/statusNote")]
    assert "errorCode" in notes, notes


@fact(_JOB, SCHEMA)
def test_order_in_a_job(workspace: Workspace):
    """The job of a failed update names its data source, its connection and then its notes."""
    batch = {"action": "delete", "target-table": "NoSuchTable", "condition": True}
    job = workspace.finished(workspace.update(workspace.shared, [batch]))
    children = job.find("updateUploadedFileJob")
    assert ([] if children is None else [each.tag for each in children]) == [
        "datasource",
        "connectionLuid",
        "notes",
    ]


@fact("GET sites/{site}/jobs", SCHEMA)
def test_record_of_a_listed_job(workspace: Workspace):
    """The list of jobs has their status, times, priority and kind."""
    job = workspace.finished(workspace.update(workspace.published(), [_CLEAR]))
    since = attribute(job, "createdAt")
    answer = workspace.ask("GET", f"jobs?filter=createdAt:gte:{since}&pageSize=1000")
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    listed = answer.succeeds(200).elements("backgroundJobs/backgroundJob")
    (found,) = [item for item in listed if item.get("id") == job.get("id")]
    assert attribute(found, "status") == "Success"
    for name in ("createdAt", "startedAt", "endedAt", "priority", "jobType"):
        attribute(found, name)


@fact(_JOB, NOBODY)
def test_job_in_json(workspace: Workspace):
    """In JSON, the progress and the finishCode of a job are strings."""
    luid = attribute(workspace.finished(workspace.update(workspace.published(), [_CLEAR])), "id")
    answer = workspace.ask("GET", f"jobs/{luid}", headers={"Accept": "application/json"})
    job = answer.succeeds(200).json().get("job", {})
    assert (job.get("progress"), job.get("finishCode")) == ("100", "0")
