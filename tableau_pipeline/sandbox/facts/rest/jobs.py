"""Jobs: what their records say while they wait and when they have ended."""

from tableau_pipeline.sandbox.facts.answer import NotShown, attribute, expect, expect_that
from tableau_pipeline.sandbox.facts.fact import writes
from tableau_pipeline.sandbox.facts.playground import Playground
from tableau_pipeline.sandbox.facts.sources import NOBODY, REFERENCE, SCHEMA, TSC

_JOB = "GET sites/{site}/jobs/{job}"
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
