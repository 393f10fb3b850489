"""Answers about single jobs, modelled on public recordings."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.errors import RefreshError
from tableau_pipeline_tests.publishing.recorded.support import Server, error, xml

JOB = "777bf7c4-421d-4b2c-a518-11b90187c545"
UPDATED = (
    '<updateUploadedFileJob><datasource id="03b9" name="World Indicators"/>'
    "<connectionLuid>c569</connectionLuid></updateUploadedFileJob>"
)
ENDED = 'completedAt="2021-10-05T18:53:35Z"'
END = datetime(2021, 10, 5, 18, 53, 35, tzinfo=UTC)
DONE, FAILED, CANCELLED = Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED
NOTES = "<extractRefreshJob><notes>{}</notes></extractRefreshJob>"
NOTE = '<statusNotes><statusNote type="{}" value="{}" text="{}"/></statusNotes>'


def job(about: str, body: str = UPDATED) -> str:
    """A job with the attributes that all jobs have, in an arbitrary order."""
    return (
        f'<job id="{JOB}" mode="Asynchronous" type="UpdateUploadedFile" priority="50"'
        f' createdAt="2021-10-05T18:53:34Z" {about}>{body}</job>'
    )


CASES: dict[str, tuple[str, Outcome | None, str]] = {
    # TSC, job_get_by_id_inprogress.xml.
    "it runs": (job('progress="0" startedAt="2021-10-05T18:53:34Z"'), None, ""),
    # TSC, datasource_publish_async.xml: a finish code before the job has ended.
    "a code while it waits": (job('progress="0" finishCode="1"', ""), None, ""),
    "a code while it runs": (job('progress="50" finishCode="0"'), None, ""),
    # TSC, job_get_by_id.xml and job_get_by_id_failed.xml.
    "done": (job(f'progress="100" {ENDED} finishCode="0"'), DONE, ""),
    "failed without a reason": (job(f'progress="100" {ENDED} finishCode="1"'), FAILED, ""),
    # REST reference, Query Job.
    "cancelled": (job(f'progress="100" {ENDED} finishCode="2"'), CANCELLED, ""),
    # TSC, job_get_by_id_completed.xml: finish code 3, a note in the job, and a status note with a
    # count.
    "completed": (
        job(
            f'progress="100" {ENDED} finishCode="3"',
            NOTES.format("Job detail notes")
            + NOTE.format("CountOfUsersAddedToGroup", 5, "Users were added."),
        ),
        DONE,
        "Job detail notes Users were added.",
    ),
    # TSC, job_get_by_id_failed_workbook.xml.
    "failed with notes": (
        job(f'{ENDED} finishCode="1"', NOTES.format("Login failed.")),
        FAILED,
        "Login failed.",
    ),
    "empty notes": (job(f'{ENDED} finishCode="1"', "<notes/><statusNotes/>"), FAILED, ""),
    # Migration SDK, JobsApiClient: a note of type errorCode means failure, in upper or lower case.
    "an error with the code of success": (
        job(f'{ENDED} finishCode="0"', NOTE.format("errorCode", "4", "No fact table.")),
        FAILED,
        "No fact table.",
    ),
    "an error without a text": (
        job(f'{ENDED} finishCode="0"', NOTE.format("ErrorCode", "400", "")), FAILED, "400"
    ),
    "an error of what was cancelled": (
        job(f'{ENDED} finishCode="2"', NOTE.format("errorCode", "4", "Stopped.")),
        CANCELLED,
        "Stopped.",
    ),
    # Migration SDK, JobsApiClient: full progress means that the job is over.
    "no end, but all of it is done": (job('progress="100" finishCode="0"'), DONE, ""),
    "no end, and nothing more to come": (job('progress="100" finishCode="1"'), FAILED, ""),
    "progress without a code": (job('progress="100"'), None, ""),
    # Unknown codes, and an end without a code.
    "another code": (job(f'{ENDED} finishCode="7"'), FAILED, ""),
    "a word for a code": (job(f'{ENDED} finishCode="Success"'), FAILED, ""),
    "an end without a code": (job(ENDED), FAILED, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_job(server: Server, case: str):
    """Prevents: a failed job passes for done, or the pipeline waits for a job that has ended."""
    body, outcome, notes = CASES[case]
    with server.saying("GET", f"sites/[^/]+/jobs/{JOB}", xml(body)):
        found: Any = server.site.job(JOB)
    assert (found.id, found.outcome, found.notes) == (JOB, outcome, notes)
    assert found.created_at == END.replace(second=34)


@pytest.mark.parametrize(
    ("written", "end"),
    [
        ("2021-10-05T18:53:35Z", END),
        ("2021-10-05T18:53:35.25Z", END.replace(microsecond=250_000)),
        ("2021-10-05T18:53:35.123456789Z", END.replace(microsecond=123_456)),
        ("2021-10-05T20:53:35+02:00", END),
    ],
)
def test_end_of_a_job(server: Server, written: str, end: datetime):
    """Prevents: a fraction of a second in a job's end makes the pipeline wait until the timeout."""
    with server.saying(
        "GET", f"sites/[^/]+/jobs/{JOB}", xml(job(f'completedAt="{written}" finishCode="0"'))
    ):
        found: Any = server.site.job(JOB)
    assert (found.outcome, found.completed_at) == (DONE, end)


@pytest.mark.parametrize(
    "written", ["", "yesterday", "2021-10-05T18:53:35", "9999-12-31T23:59:59-23:00"]
)
def test_time_that_is_none(server: Server, written: str):
    """Prevents: a time that is invalid or has no zone ends in an error of a library."""
    with server.saying("GET", f"sites/[^/]+/jobs/{JOB}", xml(job(f'completedAt="{written}"'))):
        found: Any = server.site.job(JOB)
    assert (found.outcome, found.completed_at) == (None, None)


def test_error_about_a_job(server: Server):
    """Prevents: an error of the server passes for a job that is gone."""
    with (
        server.saying("GET", f"sites/[^/]+/jobs/{JOB}", error(400, "400003")),
        pytest.raises(RefreshError, match="400003"),
    ):
        server.site.job(JOB)
