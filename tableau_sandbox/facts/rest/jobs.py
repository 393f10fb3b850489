"""Jobs: what their records say while they wait and when they have ended."""

from tableau_sandbox.facts.answer import NotShown, attribute, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import (
    MIGRATION_SDK,
    NOBODY,
    REFERENCE,
    SCHEMA,
    TSC,
    UPDATE_GUIDE,
)

_JOB = "GET sites/{site}/jobs/{job}"
# The last of as many jobs still waits when it is cancelled.
_QUEUE = 8
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}


@writes(_JOB, TSC)
def unfinished_job(play: Playground) -> None:
    """A job that has just been queued has neither a finishCode nor a completedAt."""
    answer = play.publish(play.new_name(), query="asJob=true").succeeds(202)
    job = answer.element("job")
    expect((None, None), (job.get("finishCode"), job.get("completedAt")))
    expect("0", attribute(job, "progress"))
    attribute(job, "createdAt")


@writes(_JOB, TSC)
def finished_job(play: Playground) -> None:
    """A job that has succeeded has the progress 100, the finishCode 0 and its times in order."""
    target = play.published()
    job = play.finished(play.update(target, [_CLEAR]))
    expect(("100", "0"), (job.get("progress"), job.get("finishCode")))
    times = [attribute(job, name) for name in ("createdAt", "startedAt", "completedAt")]
    expect_that(times == sorted(times), "createdAt, startedAt, completedAt in order", times)


@writes(_JOB, SCHEMA)
def finished_update_names_its_target(play: Playground) -> None:
    """The job of an update names its data source and connection."""
    target = play.published()
    job = play.finished(play.update(target, [_CLEAR]))
    datasource = job.find("updateUploadedFileJob/datasource")
    expect(target.luid, None if datasource is None else datasource.get("id"))
    expect_that(job.findtext("updateUploadedFileJob/connectionLuid"), "a connectionLuid", "none")


@writes("PUT sites/{site}/jobs/{job}", REFERENCE)
def cancelled_too_late(play: Playground) -> None:
    """A job that is complete cannot be cancelled: 403091."""
    job = play.finished(play.publish(play.new_name(), query="asJob=true"))
    play.ask("PUT", f"jobs/{attribute(job, 'id')}").is_refused("403091")


@writes("GET sites/{site}/jobs", NOBODY)
def kind_of_an_update_in_the_list(play: Playground) -> None:
    """The list of jobs calls an update update_uploaded_file."""
    job = play.finished(play.update(play.published(), [_CLEAR]))
    since = attribute(job, "createdAt")
    answer = play.ask("GET", f"jobs?filter=createdAt:gte:{since}&pageSize=1000")
    if answer.status == 403:
        raise NotShown("the user is no administrator")
    found = answer.succeeds(200).elements("backgroundJobs/backgroundJob")
    kinds = [item.get("jobType") for item in found if item.get("id") == job.get("id")]
    expect(["update_uploaded_file"], kinds)


@writes("PUT sites/{site}/jobs/{job}", UPDATE_GUIDE)
def cancelled_update(play: Playground) -> None:
    """A queued update is cancelled with 200 or 204, has the finishCode 2 and no effect."""
    targets = [play.published() for _ in range(_QUEUE)]
    queued = [attribute(play.update(each, [_CLEAR]).element("job"), "id") for each in targets]
    answer = play.ask("PUT", f"jobs/{queued[-1]}")
    if answer.status == 403:
        raise NotShown("the job was too fast")
    expect_that(answer.status in (200, 204), "200 or 204", answer)
    expect("2", attribute(play.wait(queued[-1]), "finishCode"))
    expect([*ROWS], play.rows(targets[-1]))


@writes(_JOB, MIGRATION_SDK)
def notes_of_a_failed_publish(play: Playground) -> None:
    """A failed publish has the finishCode 1, and a note with the code of its error."""
    answer = play.publish(play.new_name(), b"this is no .hyper file", query="asJob=true")
    job = play.finished(answer)
    expect("1", attribute(job, "finishCode"))
    notes = [note.get("type") for note in job.findall("statusNotes/statusNote")]
    expect_that("errorCode" in notes, "a note of the type errorCode", notes)


@writes(_JOB, SCHEMA)
def order_in_a_job(play: Playground) -> None:
    """The job of a failed update names its data source, its connection and then its notes."""
    batch = {"action": "delete", "target-table": "NoSuchTable", "condition": True}
    job = play.finished(play.update(play.shared, [batch]))
    children = job.find("updateUploadedFileJob")
    expect(
        ["datasource", "connectionLuid", "notes"],
        [] if children is None else [each.tag for each in children],
    )


@writes("GET sites/{site}/jobs", SCHEMA)
def record_of_a_listed_job(play: Playground) -> None:
    """The list of jobs has their status, times, priority and kind."""
    job = play.finished(play.update(play.published(), [_CLEAR]))
    since = attribute(job, "createdAt")
    answer = play.ask("GET", f"jobs?filter=createdAt:gte:{since}&pageSize=1000")
    if answer.status == 403:
        raise NotShown("the user is no administrator")
    listed = answer.succeeds(200).elements("backgroundJobs/backgroundJob")
    (found,) = [item for item in listed if item.get("id") == job.get("id")]
    expect("Success", attribute(found, "status"))
    for name in ("createdAt", "startedAt", "endedAt", "priority", "jobType"):
        attribute(found, name)


@writes(_JOB, NOBODY)
def job_in_json(play: Playground) -> None:
    """In JSON, the progress and the finishCode of a job are strings."""
    luid = attribute(play.finished(play.update(play.published(), [_CLEAR])), "id")
    answer = play.ask("GET", f"jobs/{luid}", headers={"Accept": "application/json"})
    job = answer.succeeds(200).json().get("job", {})
    expect(("100", "0"), (job.get("progress"), job.get("finishCode")))
