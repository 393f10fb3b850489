"""Repeated calls; the server's clock, the server's jobs, and the times of its schedules."""

import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Literal
from uuid import uuid4

import pytest
import requests

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.drift import NoJob
from tableau_pipeline.errors import RefreshError, RefusedError, UnreachableError
from tableau_pipeline.publishing import deadlines
from tableau_pipeline.publishing.http import ServerClock, Wire, rest_session
from tableau_pipeline.publishing.rest import cron_of
from tableau_pipeline.publishing.retries import RetryTimes
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import (
    DATA,
    INSERT,
    LOG,
    VIEWER,
    Shop,
    SignIn,
    finished,
    forbid,
    hooked,
    send,
)
from tableau_sandbox.faults import CallFault, Delay, Drop, HoldJobs, Refuse
from tableau_sandbox.testing import Sandbox

UPDATE = {"method": "PATCH", "path": DATA}
ONE = {"method": "GET", "path": "sites/*/datasources/*"}


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The messages in the log of the refresh, without the messages of urllib3."""
    caplog.set_level(logging.INFO, LOG.name)
    return lambda: [record.getMessage() for record in caplog.records if record.name == LOG.name]


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("status", [429, 503])
def test_call_that_the_server_puts_off(shop: Shop, heard: Callable[[], list[str]], status: int):
    # Prevents: a refresh fails although a busy server has only asked it to come back later.
    began = monotonic()
    with shop.sandbox.armed(Refuse(**UPDATE, status=status, retry_after=1)) as fault:
        job = shop.update()
    assert finished(shop.site, job)[0]
    assert shop.rows() == 0
    assert (fault.seen, fault.fired) == (2, 1)
    assert monotonic() - began >= 1
    (line,) = heard()
    assert "PATCH" in line
    assert f"the server answered {status}; trying again in 1 s" in line


@pytest.mark.few_variants(4)
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("POST", "fileUploads", lambda shop: shop.site.upload(shop.small)),
        ("PUT", "fileUploads/*", lambda shop: shop.site.upload(shop.small)),
        ("PUT", "datasources/*/tags", lambda shop: shop.site.tag(shop.sales.luid, ["x"])),
        ("POST", "datasources", lambda shop: shop.publish(shop.small)),
    ],
)
def test_every_call_can_be_put_off(
    shop: Shop, method: str, path: str, call: Callable[[Shop], object], status: int
):
    # Prevents: some kinds of calls fail when a busy server asks for a wait.
    refuse = Refuse(method=method, path=f"sites/*/{path}", status=status, retry_after=0)
    with shop.sandbox.armed(refuse) as fault:
        call(shop)
    assert (fault.seen, fault.fired) == (2, 1)


@pytest.mark.parametrize(("retry_after", "calls"), [(1740, 1), (None, 5)])
def test_patience_ends(shop: Shop, retry_after: int | None, calls: int):
    # Prevents: a refresh sleeps for hours in its step, or asks a busy server for ever.
    fault = Refuse(**UPDATE, status=429, retry_after=retry_after, times=None)
    with shop.sandbox.armed(fault) as busy, pytest.raises(RefreshError, match="429000") as caught:
        shop.update()
    assert busy.fired == calls
    assert not isinstance(caught.value, RefusedError)


def test_one_request_that_must_wait_holds_all_others_up(
    shop: Shop, sign_in: SignIn, heard: Callable[[], list[str]]
):
    # Prevents: other sessions of the process keep calling a busy server, or wait silently.
    with sign_in() as second, ThreadPoolExecutor(1) as threads:
        with shop.sandbox.armed(Refuse(**ONE, status=429, retry_after=2)) as busy:
            first = threads.submit(shop.found)
            while not busy.fired:
                sleep(0.01)
            # Wait until the answer has arrived.
            sleep(0.2)
        began = monotonic()
        second.find_by_luid(shop.sales.luid)
        assert monotonic() - began > 1
        assert first.result().luid == shop.sales.luid
    (waiting,) = (said for said in heard() if "another session" in said)
    assert re.fullmatch("Waiting [12] s, as the server asked another session to wait", waiting)


BROKEN = [
    Refuse(**ONE, status=503, times=3),
    Refuse(**ONE, status=504, times=3),
    Drop(**ONE, when="before", times=3),
    Drop(**ONE, when="after", times=3),
]


@pytest.mark.parametrize("fault", BROKEN, ids=str)
def test_reading_is_tried_again(shop: Shop, fault: CallFault, heard: Callable[[], list[str]]):
    # Prevents: one broken connection fails a refresh during a call that only reads.
    with shop.sandbox.armed(fault) as armed_fault:
        assert shop.found() == shop.sales
    assert (armed_fault.seen, armed_fault.fired) == (4, 3)
    assert len(heard()) == 3
    assert all("trying again" in line for line in heard())


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    "fault",
    [
        Drop(**UPDATE, when="after", times=3),
        Refuse(**UPDATE, status=503, times=3),
        Refuse(**UPDATE, status=504, times=3),
        Drop(**UPDATE, when="before", times=3),
    ],
    ids=str,
)
def test_update_is_sent_again_with_its_request_id(shop: Shop, fault: CallFault):
    # Prevents: one broken connection fails a refresh, or makes an update insert rows twice.
    upload = shop.site.upload(shop.small)
    with shop.sandbox.armed(fault) as armed_fault:
        job = shop.update(INSERT, upload=upload)
    assert finished(shop.site, job)[0]
    assert (armed_fault.seen, armed_fault.fired) == (4, 3)
    assert shop.rows() == 10


def test_absence_is_found_at_a_second_try(shop: Shop):
    """Prevents: one lost answer turns the look-up of a missing data source into an error."""
    with shop.sandbox.armed(Drop(**ONE, when="before")) as drop:
        assert shop.site.find_by_luid(str(uuid4())) is None
    assert (drop.seen, drop.fired) == (2, 1)


def test_update_that_a_gateway_lost_is_not_refused(shop: Shop):
    """Prevents: an update that may have arrived counts as refused because its answer was lost."""
    told = "did not answer, and answered 404 when asked again"
    with (
        shop.sandbox.armed(Refuse(**UPDATE, status=504)) as fault,
        pytest.raises(UnreachableError, match=told),
    ):
        shop.site.update(str(uuid4()), batch=INSERT, upload=None, request_id=str(uuid4()))
    assert (fault.seen, fault.fired) == (2, 1)


@pytest.mark.parametrize(
    ("fault", "calls"),
    [(Refuse(**UPDATE, status=500, times=None), 1), (Drop(**UPDATE, when="after", times=None), 4)],
    ids=str,
)
def test_update_that_may_have_arrived(shop: Shop, fault: CallFault, calls: int):
    # Prevents: an update whose answers are all lost passes for a refused update.
    with shop.sandbox.armed(fault) as armed_fault, pytest.raises(UnreachableError):
        shop.update()
    assert armed_fault.seen == calls


POST = {"method": "POST", "path": "sites/*/datasources"}


@pytest.mark.parametrize(
    "fault",
    [
        Drop(**POST, when="after"),
        Drop(**POST, when="before"),
        Refuse(**POST, status=503),
        Refuse(**POST, status=504),
        Refuse(**POST, status=504, retry_after=0),
        Refuse(**POST, status=500),
    ],
    ids=str,
)
def test_publish_is_never_sent_twice(shop: Shop, fault: CallFault):
    """Prevents: a repeated publish overwrites what another user has published in between."""
    where = {"name": shop.sales.name, "project_id": shop.sales.project_id}
    with shop.sandbox.armed(fault) as armed_fault, pytest.raises(UnreachableError):
        send(shop.site, shop.small, **where, mode=PublishMode.REPLACE)
    assert armed_fault.seen == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_block_is_not_sent_again(shop: Shop, when: Literal["before", "after"]):
    # Prevents: a block of an upload is sent again, and the uploaded file contains it twice.
    fault = Drop(method="PUT", path="sites/*/fileUploads/*", when=when)
    with shop.sandbox.armed(fault) as armed_fault, pytest.raises(RefreshError):
        shop.site.upload(shop.small)
    assert armed_fault.seen == 1


def test_server_that_hangs(sign_in: SignIn, shop: Shop):
    # Prevents: a refresh waits for ever for a server that hangs.
    with sign_in(times=RetryTimes(backoff=0, read=0.3)) as tableau:
        began = monotonic()
        with shop.sandbox.armed(Delay(**ONE, seconds=3)) as slow:
            assert tableau.find_by_luid(shop.sales.luid) == shop.sales
        assert monotonic() - began < 2
    assert slow.seen == 2


def test_upload_over_a_slow_line(monkeypatch: pytest.MonkeyPatch):
    # Prevents: the time limit for opening a connection ends the slow upload of a block.
    monkeypatch.setattr(deadlines, "_CONNECT_SECONDS", 0.1)
    parse, block = hostile.Call.parse_request, bytes(16 * 2**20)

    def slowly(call: hostile.Call) -> bool:
        sleep(0.5)
        return parse(call)

    monkeypatch.setattr(hostile.Call, "parse_request", slowly)
    with hostile.front_of("") as front, front.answering(".*", ".*", hostile.nothing):
        session = rest_session(Wire(front.url, log=LOG), lambda *_, **__: None)
        assert session.put(f"{front.url}/api/3.27/any", data=block).status_code == 200


NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)
AT_NEW_YEAR = "Wed, 01 Jan 2031 00:00:00 GMT"


def answer(date: str | None) -> requests.Response:
    made = requests.Response()
    if date is not None:
        made.headers["Date"] = date
    return made


def is_new_year(now: datetime | None) -> bool:
    assert now is not None
    assert now.tzinfo is UTC
    return NEW_YEAR <= now < NEW_YEAR + timedelta(seconds=1)


def test_time_of_the_server(sign_in: SignIn):
    # Prevents: the pipeline uses its own clock for events on a server whose clock differs.
    def dated(response: requests.Response, **_: object) -> None:
        response.headers["Date"] = AT_NEW_YEAR

    with sign_in() as site:
        site.tsc.session.hooks["response"].insert(0, dated)
        site.find_project("Default")
        now = site.now()
        sleep(0.05)
        assert now < site.now()
    assert is_new_year(now)


def test_server_without_a_clock(sign_in: SignIn):
    # Prevents: the time of this host passes for the time of the server.
    def undated(response: requests.Response, **_: object) -> None:
        response.headers.pop("Date")

    with sign_in() as site:
        site.clock._heard = None
        site.tsc.session.hooks["response"].insert(0, undated)
        with pytest.raises(RefreshError, match="lack a valid Date header"):
            site.now()


LAST = "Fri, 31 Dec 9999 23:59:59 GMT"


@pytest.mark.parametrize("date", [None, "", "yesterday", "Wed, 99 Jan 2031 00:00:00 GMT", LAST])
def test_answer_that_tells_no_time(date: str | None):
    # Prevents: one answer without a valid time fails the refresh, or erases the known time.
    clock = ServerClock()
    clock.hear(answer(date))
    assert clock.now() is None
    clock.hear(answer(AT_NEW_YEAR))
    clock.hear(answer(date))
    assert is_new_year(clock.now())


@pytest.mark.parametrize(
    "date", ["Wed, 01 Jan 2031 00:00:00 -0000", "Wed, 01 Jan 2031 01:00:00 +0100"]
)
def test_other_ways_to_write_it(date: str):
    # Prevents: the clock returns a time without a zone, which Python cannot compare.
    clock = ServerClock()
    clock.hear(answer(date))
    assert is_new_year(clock.now())


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NOWHERE = "00000000-0000-0000-0000-000000000000"


def test_job_tells_when(shop: Shop):
    # Prevents: the pipeline cannot tell whether a job ended before or after a change.
    before = datetime.now(UTC) - timedelta(seconds=1)
    job = shop.update()
    finished(shop.site, job)
    status = shop.site.job(job)
    assert status
    assert status.created_at
    assert status.started_at
    assert status.completed_at
    assert before <= status.created_at <= status.started_at <= status.completed_at
    # To be later than the time of the publish, the time of a change may lie up to a second in the
    # future. The job does not end before that time.
    assert status.completed_at <= datetime.now(UTC) + timedelta(seconds=1)


def test_job_that_the_server_hides(shop: Shop):
    # Prevents: a former user's job stops all refreshes because the new user may not see it.
    job = shop.update()
    with hooked(shop.site, lambda response, **_: forbid(response, b"403004")):
        assert shop.site.job(job) is NoJob.HIDDEN


def test_jobs_of_a_name(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path, tmp_path: Path
):
    # Prevents: a job that may change the data source is overlooked, or an unrelated job counts.
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
    # Prevents: a refusal to list jobs passes for an empty list of jobs, or fails the refresh.
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
    # Prevents: a job that the server has forgotten passes for a job without effect.
    assert not tableau.cancel(NOWHERE)


def test_job_of_somebody_else_is_not_cancelled(shop: Shop, sign_in: SignIn):
    # Prevents: a job that still waits for its turn passes for cancelled.
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
    """Prevents: an adopted data source is refreshed at other times than before."""
    assert cron_of(start, end, intervals)[0] == cron
