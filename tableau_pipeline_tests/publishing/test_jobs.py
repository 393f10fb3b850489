"""Jobs of the server, and the times of its schedules."""

from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
import requests

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.publishing.tasks import cron_of
from tableau_pipeline_tests.publishing.conftest import VIEWER, SignIn, finished, hooked, send
from tableau_pipeline_tests.publishing.test_publish import CLEAR, fresh
from tableau_sandbox.faults import HoldJobs, Refuse
from tableau_sandbox.testing import Sandbox

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NOWHERE = "00000000-0000-0000-0000-000000000000"


def clear(tableau: TableauSite, luid: str) -> str:
    job = tableau.update(luid, batch=CLEAR, upload=None, request_id=fresh())
    assert job
    return job


def test_job_tells_when(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: nobody can tell whether a job ended before or after a change on the server.
    before = datetime.now(UTC) - timedelta(seconds=1)
    job = clear(tableau, sales.luid)
    finished(tableau, job)
    status = tableau.job(job)
    assert status
    assert status.created_at
    assert status.started_at
    assert status.completed_at
    assert before <= status.created_at <= status.started_at <= status.completed_at
    # The change has a stamp of its own, a second after that of the publish at the latest, and the
    # job does not end before it.
    assert status.completed_at <= datetime.now(UTC) + timedelta(seconds=1)


def test_code_without_an_end(tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource):
    # Prevents: a server that shows a code before the end makes a waiting job pass for done.
    def with_code(response: requests.Response, **_: object) -> None:
        response._content = response.content.replace(b"<job ", b'<job finishCode="0" ')

    with sandbox.armed(HoldJobs()):
        job = clear(tableau, sales.luid)
        with hooked(tableau, with_code):
            status = tableau.job(job)
    assert status
    assert status.created_at
    assert (status.outcome, status.completed_at) == (None, None)


def test_job_that_the_server_hides(tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource):
    # Prevents: a job of the user before stops all refreshes, since ours may not see it.
    def hidden(response: requests.Response, **_: object) -> None:
        response.status_code = 403
        error = b'<error code="403004"><summary>Forbidden</summary><detail>no</detail></error>'
        response._content = b'<tsResponse xmlns="http://tableau.com/api">%s</tsResponse>' % error

    job = clear(tableau, sales.luid)
    with hooked(tableau, hidden):
        assert tableau.job(job) is None


def test_jobs_of_a_name(
    tableau: TableauSite,
    sandbox: Sandbox,
    default: str,
    name: str,
    small: Path,
    tmp_path: Path,
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
        waiting = clear(tableau, found.luid)
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


def test_credentials_that_do_not_allow_it(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: a connected app that may not list or cancel jobs can refresh nothing at all.
    with sandbox.armed(Refuse(method="GET", path="sites/*/jobs", status=401, times=None)):
        assert tableau.jobs(name=sales.name, since=LONG_AGO) is None
    cancelling = Refuse(method="PUT", path="sites/*/jobs/*", status=401, times=None)
    with sandbox.armed(HoldJobs()), sandbox.armed(cancelling):
        assert not tableau.cancel(clear(tableau, sales.luid))


def test_unknown_job_is_not_cancelled(tableau: TableauSite):
    # Prevents: a job that the server forgot, whatever it did, passes for one without effect.
    assert not tableau.cancel(NOWHERE)


def test_job_of_somebody_else_is_not_cancelled(
    tableau: TableauSite, sandbox: Sandbox, sign_in: SignIn, sales: RemoteDatasource
):
    # Prevents: a job passes for cancelled that waits for its turn.
    viewer = Password(VIEWER.name, VIEWER.password)
    with sandbox.armed(HoldJobs()), sign_in(viewer) as other:
        job = clear(tableau, sales.luid)
        assert not other.cancel(job)
    assert finished(tableau, job)[0] is Outcome.DONE


EVERY_DAY = [("hours", "24")]


@pytest.mark.parametrize(
    ("start", "end", "intervals", "cron"),
    [
        (time(6, 30), None, [], "30 6 * * *"),
        (time(6), time(6), [*EVERY_DAY, ("weekDay", "Monday")], "0 6 * * MON"),
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
