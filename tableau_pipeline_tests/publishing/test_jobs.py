"""Jobs of the server, and the times of its schedules."""

from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
import requests

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.publishing.rest import cron_of
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import (
    VIEWER,
    Shop,
    SignIn,
    finished,
    forbid,
    hooked,
    send,
)
from tableau_sandbox.faults import HoldJobs, Refuse
from tableau_sandbox.testing import Sandbox

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NOWHERE = "00000000-0000-0000-0000-000000000000"


def test_job_tells_when(shop: Shop):
    # Prevents: nobody can tell whether a job ended before or after a change on the server.
    before = datetime.now(UTC) - timedelta(seconds=1)
    job = shop.update()
    finished(shop.site, job)
    status = shop.site.job(job)
    assert status
    assert status.created_at
    assert status.started_at
    assert status.completed_at
    assert before <= status.created_at <= status.started_at <= status.completed_at
    # The change has a stamp of its own, a second after that of the publish at the latest, and the
    # job does not end before it.
    assert status.completed_at <= datetime.now(UTC) + timedelta(seconds=1)


def test_code_without_an_end(shop: Shop):
    # Prevents: a server that shows a code before the end makes a waiting job pass for done.
    def with_code(response: requests.Response, **_: object) -> None:
        response._content = response.content.replace(b"<job ", b'<job finishCode="0" ')

    with shop.sandbox.armed(HoldJobs()):
        job = shop.update()
        with hooked(shop.site, with_code):
            status = shop.site.job(job)
    assert status
    assert status.created_at
    assert (status.outcome, status.completed_at) == (None, None)


def test_job_that_the_server_hides(shop: Shop):
    # Prevents: a job of the user before stops all refreshes, since ours may not see it.
    job = shop.update()
    with hooked(shop.site, lambda response, **_: forbid(response, b"403004")):
        assert shop.site.job(job) is None


def test_jobs_of_a_name(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path, tmp_path: Path
):
    # Prevents: a job that may still change the data source is overlooked, or another one counted.
    awkward = f"R&D, {name}"
    broken = tmp_path / "broken.hyper"
    broken.write_bytes(b"no database")
    failed = send(tableau, broken, name=awkward, project_id=default)
    done = send(tableau, small, name=awkward, project_id=default)
    elsewhere = send(tableau, small, name=name, project_id=default)
    for job in (failed, done, elsewhere):
        finished(tableau, job)
    found = tableau.find_by_name(awkward, project_id=default)
    assert found
    with sandbox.armed(HoldJobs()):
        waiting = Shop(tableau, sandbox, found, small).update()
        jobs = tableau.jobs(name=awkward.upper(), since=LONG_AGO)
        assert jobs is not None
        assert {(job.id, job.kind, job.outcome) for job in jobs} == {
            (failed, "publish", Outcome.FAILED),
            (done, "publish", Outcome.DONE),
            (waiting, "update", None),
        }
        assert all(job.created_at.tzinfo for job in jobs)
    later = datetime.now(UTC) + timedelta(minutes=1)
    assert tableau.jobs(name=awkward, since=later) == []


def test_user_who_may_not_list_jobs(sign_in: SignIn):
    # Prevents: not to be allowed to look passes for "there are none", or fails the refresh.
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer:
        assert viewer.jobs(name="Sales", since=LONG_AGO) is None


def test_credentials_that_do_not_allow_it(shop: Shop):
    # Prevents: a connected app that may not list or cancel jobs can refresh nothing at all.
    with shop.sandbox.armed(Refuse(method="GET", path="sites/*/jobs", status=401, times=None)):
        assert shop.site.jobs(name=shop.sales.name, since=LONG_AGO) is None
    cancelling = Refuse(method="PUT", path="sites/*/jobs/*", status=401, times=None)
    with shop.sandbox.armed(HoldJobs()), shop.sandbox.armed(cancelling):
        assert not shop.site.cancel(shop.update())


def test_unknown_job_is_not_cancelled(tableau: TableauSite):
    # Prevents: a job that the server forgot, whatever it did, passes for one without effect.
    assert not tableau.cancel(NOWHERE)


def test_job_of_somebody_else_is_not_cancelled(shop: Shop, sign_in: SignIn):
    # Prevents: a job passes for cancelled that waits for its turn.
    viewer = Password(VIEWER.name, VIEWER.password)
    with shop.sandbox.armed(HoldJobs()), sign_in(viewer) as other:
        job = shop.update()
        assert not other.cancel(job)
    assert finished(shop.site, job)[0] is Outcome.DONE


@pytest.mark.parametrize(
    ("start", "end", "intervals", "cron"),
    [
        (time(6, 30), None, [], "30 6 * * *"),
        (time(6), time(6), [("hours", "24"), ("weekDay", "Monday")], "0 6 * * MON"),
        (time(8), time(20), [("hours", "4"), ("weekDay", "Sunday")], "0 8,12,16,20 * * SUN"),
        (time(8), time(10), [("minutes", "15")], "0,15,30,45 8,9 * * *"),
        (time(3, 20), time(3, 20), [("hours", "1")], "20 * * * *"),
        (time(3, 20), None, [("hours", "8")], "20 3,11,19 * * *"),
        (time(22), time(2), [("hours", "2")], "0 0,2,22 * * *"),
        (time(23), None, [("monthDay", "1"), ("monthDay", "LastDay")], "0 23 1,L * *"),
        (time(6), None, [("monthDay", "First"), ("weekDay", "Monday")], None),
        (time(6), time(18), [("minutes", "45")], None),
    ],
)
def test_cron(start: time, end: time | None, intervals: list[tuple[str, str]], cron: str | None):
    """Prevents: a data source that is refreshed at other times than before its adoption."""
    assert cron_of(start, end, intervals)[0] == cron
