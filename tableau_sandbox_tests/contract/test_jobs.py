"""Jobs: what their records say while they wait and when they have ended."""

import pytest

from tableau_sandbox_tests.contract.answer import Answer
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


def _cleared(workspace: Workspace) -> Answer:
    """Return the job of an update of a new data source."""
    return workspace.finished(workspace.update(workspace.published(), [_CLEAR]))


@fact(_JOB, TSC)
def test_unfinished_job(workspace: Workspace):
    """A job that has just been queued has neither a finishCode nor a completedAt."""
    answer = workspace.publish(workspace.new_name(), query="asJob=true").succeeds(202)
    assert (answer.get("job@finishCode"), answer.get("job@completedAt")) == (None, None)
    assert answer["job@progress"] == "0"
    assert answer["job@createdAt"]


@fact(_JOB, TSC)
def test_finished_job(workspace: Workspace):
    """A job that has succeeded has the progress 100, the finishCode 0 and its times in order."""
    job = _cleared(workspace)
    assert (job["job@progress"], job["job@finishCode"]) == ("100", "0")
    times = [job[f"job@{name}"] for name in ("createdAt", "startedAt", "completedAt")]
    assert times == sorted(times)


@fact(_JOB, SCHEMA)
def test_finished_update_names_its_target(workspace: Workspace):
    """The job of an update names its data source and connection."""
    target = workspace.published()
    job = workspace.finished(workspace.update(target, [_CLEAR]))
    assert job["job/updateUploadedFileJob/datasource@id"] == target.luid
    assert job["job/updateUploadedFileJob/connectionLuid"]


@fact(_JOB, SCHEMA)
def test_order_in_a_job(workspace: Workspace):
    """The job of a failed update names its data source, its connection and then its notes."""
    batch = [_CLEAR | {"target-table": "NoSuchTable"}]
    job = workspace.finished(workspace.update(workspace.shared, batch))
    children = [each.tag for each in job.element("job/updateUploadedFileJob")]
    assert children == ["datasource", "connectionLuid", "notes"]


@fact(_JOB, MIGRATION_SDK)
def test_notes_of_a_failed_publish(workspace: Workspace):
    """A failed publish has the finishCode 1, and a note with the code of its error."""
    answer = workspace.publish(workspace.new_name(), b"this is no .hyper file", query="asJob=true")
    job = workspace.finished(answer)
    assert job["job@finishCode"] == "1"
    assert "errorCode" in job.all("job/statusNotes/statusNote@type")


@fact("PUT sites/{site}/jobs/{job}", REFERENCE)
def test_cancelled_too_late(workspace: Workspace):
    """A job that is complete cannot be cancelled: 403091."""
    job = workspace.finished(workspace.publish(workspace.new_name(), query="asJob=true"))
    workspace.send(f"PUT jobs/{job['job@id']}").is_refused("403091")


@fact("PUT sites/{site}/jobs/{job}", UPDATE_GUIDE)
def test_cancelled_update(workspace: Workspace):
    """A queued update is cancelled with 200 or 204, has the finishCode 2 and no effect."""
    targets = [workspace.published() for _ in range(_QUEUE)]
    *_, last = [workspace.update(each, [_CLEAR]).succeeds(202)["job@id"] for each in targets]
    answer = workspace.send(f"PUT jobs/{last}")
    if answer.status == 403:
        pytest.skip("the job was too fast")
    answer.succeeds(200, 204)
    assert workspace.wait(last)["job@finishCode"] == "2"
    assert workspace.rows(targets[-1]) == [*ROWS]


def _listed(workspace: Workspace) -> dict[str, str]:
    """Return what the list of jobs says of an update."""
    job = _cleared(workspace)
    since = job["job@createdAt"]
    answer = workspace.send(f"GET jobs?filter=createdAt:gte:{since}&pageSize=1000")
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    path = f"backgroundJobs/backgroundJob[@id='{job['job@id']}']"
    return answer.succeeds().element(path).attrib


@fact("GET sites/{site}/jobs", NOBODY)
def test_kind_of_an_update_in_the_list(workspace: Workspace):
    """The list of jobs calls an update update_uploaded_file."""
    assert _listed(workspace)["jobType"] == "update_uploaded_file"


@fact("GET sites/{site}/jobs", SCHEMA)
def test_record_of_a_listed_job(workspace: Workspace):
    """The list of jobs has their status, times, priority and kind."""
    listed = _listed(workspace)
    assert listed["status"] == "Success"
    assert {"createdAt", "startedAt", "endedAt", "priority", "jobType"} <= set(listed)
