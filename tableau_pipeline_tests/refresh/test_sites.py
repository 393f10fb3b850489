"""Refreshes on sites that behave as documented, in other observed ways, or with limits."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tableauserverclient as TSC

from tableau_pipeline.actions.batch import Batch, Delete, target
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import (
    BusyError,
    NoUpdatesError,
    RefreshError,
    RefusedError,
    UnknownOutcomeError,
)
from tableau_pipeline.publishing import rest
from tableau_pipeline.publishing.errors import update_refused
from tableau_pipeline.refresh import updates
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.refresh.updates import record_of
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import KilledError, killed_before
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.other_users import ANN
from tableau_pipeline_tests.refresh.support.pipeline import (
    STAR,
    TIMEOUTS,
    WHOLE,
    Pipeline,
    published_rows,
)
from tableau_pipeline_tests.refresh.support.proxies import At
from tableau_pipeline_tests.refresh.support.server_jobs import jobs, too_early
from tableau_sandbox.faults import Drop, FailJob, HoldJobs

IMPATIENT = replace(TIMEOUTS, queue=0.3, job=0.3, listing=0.3)
PATCH = {"method": "PATCH", "path": "sites/*/datasources/*/data"}
New = Callable[..., Pipeline]


def changes(pipeline: Pipeline, rows: int, **options: Any) -> Refreshed:
    """Give the model this number of rows, and refresh."""
    pipeline.model("flights", flights(rows))
    return pipeline.run(**options)


def facts(pipeline: Pipeline) -> Any:
    """Return the facts that are recorded about the site."""
    return record_of(pipeline.eyes, pipeline.folder / "sites").facts


def assert_at_rest(pipeline: Pipeline) -> None:
    assert pipeline.wrong() == []
    report = pipeline.run()
    assert (report.decision, report.warnings) == ("no change", ())


@pytest.mark.slow
def test_another_update_is_under_way(pipeline: Pipeline):
    """Prevents: a refresh fails during another user's update, and does not say what to do."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    (item,) = pipeline.found()
    theirs = Batch([Delete(target="Extract", where=target("flight_id") == 1)])
    with pipeline.sandbox.armed(HoldJobs()):
        job = pipeline.eyes.update(item.id, batch=theirs.json(), upload=None, request_id="theirs")
        with pytest.raises(BusyError, match=r"409094.*run again when that job has ended"):
            changes(pipeline, 9)
        assert [each.outcome for each in pipeline.journal.intents()] == [Outcome.REFUSED]
        pipeline.eyes.cancel(str(job))
    assert pipeline.run().decision == "update"
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_update_that_arrived_without_an_answer(new_pipeline: New):
    """Prevents: an update counts as refused while it still runs, and later undoes new rows."""
    pipeline = new_pipeline(on={"repeated_request": "conflict"})
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    unknown = pytest.raises(UnknownOutcomeError)
    with pipeline.sandbox.armed(Drop(**PATCH, when="after")), unknown:
        changes(pipeline, 9)
    assert [each.outcome for each in pipeline.journal.intents()] == [None]
    assert changes(pipeline, 10).decision.startswith("publish")
    assert_at_rest(pipeline)


REPLACES = {
    "before 2025.1": ({"rest_version": "3.24", "product_version": "2024.3.0"}, 0),
    "fails": ({"replace": "fails"}, 1),
    "unknown": ({"replace": "unknown"}, 1),
    "refused": ({"replace": "refused"}, 0),
}


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize(("on", "failing"), REPLACES.values(), ids=REPLACES)
def test_site_without_mode_replace(new_pipeline: New, on: dict[str, Any], failing: int):
    """Prevents: on a site without mode Replace, full publishes fail or drop users' fields."""
    pipeline = new_pipeline(on=on, **WHOLE)
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    before = len(jobs(pipeline))
    assert changes(pipeline, 9).decision == "publish (replace)"
    assert len(jobs(pipeline)) - before == failing + 1
    assert "Delayed" in pipeline.tds()
    assert_at_rest(pipeline)
    # The pipeline records the missing mode for the whole site, so no further job fails.
    other = new_pipeline(on=on, **WHOLE)
    other.run()
    before = len(jobs(other))
    assert changes(other, 9).decision == "publish (replace)"
    assert len(jobs(other)) - before == 1
    assert_at_rest(other)


def test_server_without_updates(new_pipeline: New):
    """Prevents: each refresh builds an update for a server that accepts no updates."""
    pipeline = new_pipeline(on={"rest_version": "3.11", "product_version": "2021.1.0"})
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    report = changes(pipeline, 9)
    assert report.decision == "publish (replace)"
    assert "the server has no data updates" in str(report.plan and report.plan.reason)
    assert_at_rest(pipeline)


HIDDEN = ["administrators", "session-lost"]


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("access", HIDDEN)
def test_jobs_for_administrators_only(
    new_pipeline: New, caplog: pytest.LogCaptureFixture, access: str
):
    """Prevents: no refresh succeeds for a user who may not ask for jobs."""
    on = {"job_access": access}
    pipeline = new_pipeline(on=on, user=ANN, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    with caplog.at_level(logging.WARNING):
        pipeline.run()
        report = changes(pipeline, 9)
    assert caplog.text.count("This user may not ask for jobs of the server") == 1
    assert "signing in again" not in caplog.text, "the session is alive"
    # This user sees the end of an update only by a time stamp. Until an update has moved a time
    # stamp on this site, a refresh publishes the file instead.
    assert report.decision == "publish (replace)"
    assert "this user may not ask for jobs" in str(report.plan and report.plan.reason)
    assert_at_rest_with(pipeline, "this user")
    admins = new_pipeline(on=on)
    admins.policy(Diff(("flight_id",)))
    admins.run()
    assert changes(admins, 9).decision == "update"
    assert changes(pipeline, 10).decision == "update"
    assert pipeline.wrong() == []


def assert_at_rest_with(pipeline: Pipeline, warning: str) -> None:
    assert pipeline.wrong() == []
    assert pipeline.run().decision == "no change", warning


def killed_while_it_waits(seconds: float) -> None:
    raise KilledError


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("is_update", [False, True])
def test_hidden_job_that_waits(new_pipeline: New, *, is_update: bool):
    """Prevents: a queued job counts as failed, and its old rows overwrite newer rows."""
    pipeline = new_pipeline(on={"job_access": "administrators"}, user=ANN, reconcile=Reconcile())
    pipeline.declare(**({} if is_update else WHOLE))
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    record_of(pipeline.eyes, pipeline.folder / "sites").learn(updates_move_stamp=True)
    with pipeline.sandbox.armed(HoldJobs()):
        pipeline.model("flights", flights(9))
        with pytest.raises(KilledError):
            pipeline.run(around={"sleep": killed_while_it_waits})
        assert [each.outcome for each in pipeline.journal.intents()] == [None]
        # A new tag also moves the time stamp, so the time stamp does not show the end of our job.
        other_users.tags(pipeline, "urgent")
        too_early(pipeline)
    pipeline.sandbox.wait_until_idle()
    sent = len(jobs(pipeline))
    assert pipeline.run().decision == "no change"
    assert len(jobs(pipeline)) == sent
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_hidden_job_that_never_shows(new_pipeline: New):
    """Prevents: each run waits for hours for a failed job, which its user may not see."""
    pipeline = new_pipeline(on={"job_access": "administrators"}, user=ANN, **WHOLE)
    pipeline.run()
    # Assume that an administrator's session has recorded that the site knows mode Replace.
    record_of(pipeline.eyes, pipeline.folder / "sites").learn(replaces=True)
    pipeline.model("flights", flights(9))
    with pipeline.sandbox.armed(FailJob()):
        report = pipeline.run(around={"timeouts": IMPATIENT})
    assert report.decision == "publish (replace)"
    assert pipeline.wrong() == []
    assert facts(pipeline).replaces is False
    assert pipeline.run().decision == "no change"


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("stamps", ["at-once", "never"])
def test_jobs_that_are_gone_at_once(
    new_pipeline: New, stamps: str, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: on sites that remove ended jobs, each refresh fails or publishes everything."""
    # With this limit, the next refresh no longer waits for the time stamp.
    monkeypatch.setattr(updates, "LONGEST_LAG", -2.0)
    on = {"finished_jobs": "gone", "updates_move_stamp": stamps}
    pipeline = new_pipeline(on=on, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    decisions = [pipeline.run().decision, *(changes(pipeline, n).decision for n in (9, 10, 11))]
    later = "update" if stamps == "at-once" else "publish (replace)"
    assert decisions == ["publish (create)", "update", later, later]
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_a_late_time_stamp_is_no_stamp_that_stays(new_pipeline: New):
    """Prevents: after a late time stamp, every refresh publishes the whole file."""
    late = {"updates_move_stamp": "late", "late_stamp_seconds": 6}
    pipeline = new_pipeline(on={"finished_jobs": "gone", **late}, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    assert pipeline.run().decision == "publish (create)"
    assert changes(pipeline, 9).decision == "update"
    assert facts(pipeline).updates_move_stamp is None
    sleep(7)
    assert [changes(pipeline, n).decision for n in (10, 11)] == ["update", "update"]
    assert facts(pipeline).updates_move_stamp is True
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_a_failed_update_tells_nothing_of_time_stamps(new_pipeline: New):
    """Prevents: after a failed update without a job, every refresh publishes the whole file."""
    pipeline = new_pipeline(on={"finished_jobs": "gone"}, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    pipeline.model("flights", flights(9))
    with pipeline.sandbox.armed(FailJob(job_kind="update_uploaded_file")):
        assert pipeline.run().decision == "publish (replace)"
    assert [changes(pipeline, n).decision for n in (10, 11)] == ["update", "update"]
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_revision_of_another_user_is_not_our_publish(new_pipeline: New):
    """Prevents: a refresh takes another user's revision for the end of its own publish."""
    on = {"job_access": "administrators", "update_revisions": True}
    pipeline = new_pipeline(on=on, user=ANN, **WHOLE)
    pipeline.run()
    pipeline.model("flights", flights(9))
    fault = pipeline.sandbox.control.add(HoldJobs(job_kind="publish_datasource"))
    (item,) = pipeline.found()
    looks: list[float] = []

    def goes_on(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            other_users.deletes_a_flight(pipeline.sandbox, str(item.id))
        elif len(looks) > 3:
            pipeline.sandbox.control.clear(fault.number)
        sleep(seconds)

    pipeline.run(full=True, around={"sleep": goes_on})
    assert len(looks) > 3
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_time_stamp_that_may_be_another_users(new_pipeline: New):
    """Prevents: rows of another user pass for ours without a warning, where jobs and revisions are
    hidden and no rows are compared, so that only the time stamp speaks for our publish."""
    on = {"job_access": "administrators", "revisions": False}
    pipeline = new_pipeline(on=on, user=ANN, **WHOLE)
    assert pipeline.run().warnings == ()
    pipeline.model("flights", flights(9))
    fault = pipeline.sandbox.control.add(FailJob(job_kind="publish_datasource"))

    def goes_on(seconds: float) -> None:
        if fault.fired and pipeline.wrong():
            other_users.publishes(pipeline, flights(9).slice(1))
        sleep(seconds)

    report = pipeline.run(full=True, around={"sleep": goes_on})
    assert any("only the time stamp says that it took effect" in w for w in report.warnings)
    # Compared rows leave no doubt.
    pipeline.declare(reconcile=Reconcile())
    assert "only the time stamp" not in str(changes(pipeline, 10).warnings)


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_publish_between_two_requests(new_pipeline: New, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a refresh takes its own time stamp for another user's, and publishes twice.

    The publish takes effect between the requests for the time stamp and for the revision. The time
    stamps are ahead of the clock.
    """
    pipeline = new_pipeline(on={"job_access": "administrators"}, user=ANN, **WHOLE)
    pipeline.run()
    pipeline.model("flights", flights(9))
    (item,) = pipeline.found()
    for _ in range(4):
        # Each deletion moves the time stamp by a second.
        other_users.deletes_a_flight(pipeline.sandbox, str(item.id))
    fault = pipeline.sandbox.control.add(HoldJobs(job_kind="publish_datasource"))
    list_revisions, waits = rest.list_revisions, list[float]()

    def listed(server: TSC.Server, luid: str) -> Any:
        if waits and pipeline.sandbox.control.faults():
            pipeline.sandbox.control.clear(fault.number)
            pipeline.sandbox.wait_until_idle()
        return list_revisions(server, luid)

    monkeypatch.setattr(rest, "list_revisions", listed)
    pipeline.run(full=True, around={"sleep": waits.append})
    assert not pipeline.sandbox.control.faults()
    assert len(list_revisions(pipeline.eyes.tsc, str(item.id))) == 2
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_renamed_while_a_publish_waits(new_pipeline: New):
    """Prevents: a user renames a data source during a publish, and a copy gets the rows."""
    pipeline = new_pipeline(on={"revisions": False, "replace": "unknown"}, **WHOLE)
    pipeline.run()
    pipeline.model("flights", flights(9))
    fault = pipeline.sandbox.control.add(HoldJobs(job_kind="publish_datasource"))
    (item,) = pipeline.found()

    def goes_on(seconds: float) -> None:
        if pipeline.sandbox.control.faults():
            other_users.changes(pipeline, name=f"{pipeline.name} aside")
            pipeline.sandbox.control.clear(fault.number)
        sleep(seconds)

    report = pipeline.run(full=True, around={"sleep": goes_on})
    assert pipeline.wrong_at(str(item.id)) == []
    assert any("there may be a second data source" in text for text in report.warnings)
    assert pipeline.run().decision == "no change"


@pytest.mark.slow
def test_jobs_without_titles(new_pipeline: New):
    """Prevents: where jobs have no titles, a queued publish overwrites newer rows."""
    pipeline = new_pipeline(on={"job_titles": False}, **WHOLE)
    pipeline.run()
    pipeline.model("flights", flights(9))
    with pipeline.sandbox.armed(HoldJobs()):
        assert killed_before(pipeline, "job")
        pipeline.model("flights", flights(10))
        with pytest.raises(UnknownOutcomeError, match="nothing is sent before"):
            pipeline.run()
    pipeline.sandbox.wait_until_idle()
    # No listed job is unfinished, so the refresh may send its request.
    pipeline.run()
    assert_at_rest(pipeline)


def test_jobs_listed_in_other_words(new_pipeline: New):
    """Prevents: where jobs are of unknown kinds, a queued publish overwrites newer rows."""
    pipeline = new_pipeline(on={"job_words": "unknown"}, **WHOLE)
    fault = pipeline.sandbox.control.add(HoldJobs())
    assert killed_before(pipeline, "job")

    listed: list[int] = []

    def goes_on(seconds: float) -> None:
        since = datetime.now(UTC) - timedelta(days=1)
        listed.append(len(pipeline.eyes.jobs(name=pipeline.name, since=since) or ()))
        sleep(seconds)
        pipeline.sandbox.control.clear(fault.number)

    pipeline.model("flights", flights(10))
    pipeline.run(around={"sleep": goes_on})
    # The refresh waited for the job of unknown kind before it sent a request.
    assert listed[0] == 1
    assert_at_rest(pipeline)


def test_words_of_jobs_are_learnt(new_pipeline: New):
    """Prevents: a refresh does not learn how a site names jobs, and cannot find its own job."""
    pipeline = new_pipeline(on={"job_words": "unknown"})
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    changes(pipeline, 9)
    assert set(facts(pipeline).job_words.values()) == {"publish", "update"}


@pytest.mark.slow
def test_large_package_without_extract(new_pipeline: New, caplog: pytest.LogCaptureFixture):
    """Prevents: a refresh cannot read metadata in a large package, which includes the rows."""
    pipeline = new_pipeline(on={"download_without_extract": "tdsx-with-data"})
    chance = np.random.default_rng(1)
    rows = pa.table({"flight_id": pa.array(range(2_300_000)), "delay": chance.random(2_300_000)})
    pipeline.model("flights", rows)
    pipeline.run()
    (item,) = pipeline.found()
    assert item.size is None or item.size > 16
    caplog.set_level(logging.INFO, "tableau_sandbox.requests")
    assert pipeline.run(full=True).decision == "publish (replace)"
    caplog.clear()
    # A refresh does not read unchanged metadata again.
    assert pipeline.run().decision == "no change"
    caplog.clear()
    assert pipeline.run().decision == "no change"
    assert "/content" not in str([each.args for each in caplog.records])


def test_lists_that_lag_behind(new_pipeline: New):
    """Prevents: a first refresh fails because lists do not show the new data source yet."""
    pipeline = new_pipeline(on={"index_lag_seconds": 1.5}, project="Lagging", create_project=True)
    assert pipeline.run().decision == "publish (create)"
    pipeline.sandbox.advance(2)
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_updates_for_owners_only(new_pipeline: New, caplog: pytest.LogCaptureFixture):
    """Prevents: each update of another owner's data source fails, and no message says why."""
    on = {"job_access": "own-jobs"}
    pipeline = new_pipeline(on=on, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    other_users.may_write(pipeline, "ann")
    pipeline.user = ANN
    sent = len(jobs(pipeline))
    report = changes(pipeline, 9)
    assert report.decision == "publish (replace)"
    (warning,) = report.warnings
    assert "Only the owner of a data source may update it" in warning
    assert "declare `owner`" in warning
    caplog.set_level(logging.INFO, "tableau_sandbox.requests")
    report = changes(pipeline, 10)
    assert "updates of it were refused" in str(report.plan and report.plan.reason)
    assert "PATCH" not in str([each.args for each in caplog.records])
    assert len(jobs(pipeline)) == sent + 2
    assert_at_rest_with(pipeline, "owner")
    # The pipeline has recorded the rule for the site, so another data source needs no failed
    # update.
    other = new_pipeline(on=on, reconcile=Reconcile())
    other.policy(Diff(("flight_id",)))
    other.run()
    other_users.may_write(other, "ann")
    other.user = ANN
    caplog.clear()
    report = changes(other, 9)
    assert "another user owns it" in str(report.plan and report.plan.reason)
    assert "PATCH" not in str([each.args for each in caplog.records])
    assert_at_rest_with(other, "owner")
    # The owner changes, and the pipeline does not notice. After a week, it tries an update again.
    other_users.gives(pipeline, "ann")
    pipeline.model("flights", flights(11))
    next_week = datetime.now(UTC) + timedelta(days=8)
    assert pipeline.run(around={"now": next_week}).decision == "update"
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_several_tables_in_a_bare_file(new_pipeline: New):
    """Prevents: a server refuses a .hyper file of several tables, so no star can be published."""
    on = {"several_tables": "refused"}
    star = new_pipeline(on=on, tables=("flights", "airlines"), relationships=STAR)
    star.model("airlines", airlines())
    assert star.run().decision == "publish (create)"
    assert star.wrong() == []
    assert facts(star).takes_bare_stars is False
    changes(star, 9)
    assert_at_rest(star)
    other = new_pipeline(on=on, tables=("flights", "airlines"), relationships=STAR)
    other.model("airlines", airlines())
    other.run()
    assert len(jobs(other)) == 1
    assert_at_rest(other)


def test_name_that_is_taken_meanwhile(pipeline: Pipeline):
    """Prevents: a job fails because the name is taken, and the message does not say so."""
    around = {
        "around_server": lambda server: At(
            server, "publish", lambda: other_users.publishes(pipeline, flights(3))
        )
    }
    with pytest.raises(RefusedError, match="adopt: true"):
        pipeline.run(around=around)
    (item,) = pipeline.found()
    assert published_rows(pipeline.eyes, str(item.id)).num_rows == 3


@pytest.mark.slow
def test_update_without_an_answer_where_no_jobs_are_listed(new_pipeline: New):
    """Prevents: after a lost answer, a user who may not list jobs waits for hours."""
    on = {"job_access": "own-jobs", "repeated_request": "conflict"}
    pipeline = new_pipeline(on=on, user=ANN, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    with pipeline.sandbox.armed(Drop(**PATCH, when="after")), pytest.raises(UnknownOutcomeError):
        changes(pipeline, 9)
    pipeline.sandbox.wait_until_idle()
    assert pipeline.run().decision == "no change"
    assert_at_rest(pipeline)
    # A queued update does not show on the data source yet, so the next refresh must wait.
    drop = Drop(**PATCH, when="after")
    with pipeline.sandbox.armed(HoldJobs()), pipeline.sandbox.armed(drop):
        with pytest.raises(RefreshError):
            changes(pipeline, 10)
        too_early(pipeline)


@pytest.mark.slow
def test_what_one_data_source_shows_of_a_site(new_pipeline: New):
    """Prevents: each data source of a site has to learn again how updates behave."""
    on = {"update_revisions": True}
    first, second = new_pipeline(on=on), new_pipeline(on=on)
    for pipeline in (first, second):
        pipeline.policy(Diff(("flight_id",)))
        pipeline.run()
    changes(first, 9)
    assert changes(first, 10).warnings == ()
    assert facts(first).update_revisions == 1
    assert changes(second, 9).warnings == ()
    assert changes(second, 10).decision == "update"
    assert_at_rest(second)


def test_another_release_of_the_server(new_pipeline: New):
    """Prevents: a pipeline trusts recorded facts about a server after an upgrade."""
    pipeline = new_pipeline()
    pipeline.run()
    record = record_of(pipeline.eyes, pipeline.folder / "sites")
    record.learn(updates_move_stamp=False)
    assert record.facts.release == pipeline.eyes.release
    upgraded = replace(pipeline.eyes, release="Tableau 2031.1 (1), REST 9.9")
    assert record_of(upgraded, pipeline.folder / "sites").facts.updates_move_stamp is None


@pytest.mark.parametrize(("code", "lacks_right"), [("403004", True), ("404008", False)])
def test_why_an_update_is_refused(code: str, *, lacks_right: bool):
    """Prevents: after one refused update, refreshes send all data sources of others in full."""
    error = TSC.ServerResponseError(code, "Refused", "It is not possible")
    refused = update_refused(error, "a1b2", lambda text: text)
    assert isinstance(refused, NoUpdatesError)
    assert refused.lacks_right is lacks_right
