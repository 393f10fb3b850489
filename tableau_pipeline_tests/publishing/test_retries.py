"""Calls that are tried again, and the server's clock."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep
from typing import Literal

import pytest
import requests

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.http import RetryTimes, ServerClock
from tableau_pipeline_tests.publishing.conftest import (
    DATA,
    INSERT,
    LOG,
    Shop,
    SignIn,
    finished,
    send,
)
from tableau_sandbox.faults import CallFault, Delay, Drop, Refuse

UPDATE = {"method": "PATCH", "path": DATA}
ONE = {"method": "GET", "path": "sites/*/datasources/*"}


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log of the refresh has been told; urllib3 has one of its own."""
    caplog.set_level(logging.INFO, LOG.name)
    return lambda: [record.getMessage() for record in caplog.records if record.name == LOG.name]


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("status", [429, 503])
def test_call_that_the_server_puts_off(shop: Shop, heard: Callable[[], list[str]], status: int):
    # Prevents: a busy minute of the server fails a refresh that it asked to come back later.
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


@pytest.mark.few_variants(2)
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
    shop: Shop, method: str, path: str, call: Callable[[Shop], object]
):
    # Prevents: some calls honour what the server asks for, and others fail.
    refuse = Refuse(method=method, path=f"sites/*/{path}", status=429)
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


BROKEN = [
    Refuse(**ONE, status=503, times=3),
    Refuse(**ONE, status=504, times=3),
    Drop(**ONE, when="before", times=3),
    Drop(**ONE, when="after", times=3),
]


@pytest.mark.parametrize("fault", BROKEN, ids=str)
def test_reading_is_tried_again(shop: Shop, fault: CallFault, heard: Callable[[], list[str]]):
    # Prevents: one connection that breaks off fails a refresh that only wanted to look.
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
    # Prevents: one connection that breaks off fails a refresh, or its rows are inserted twice.
    upload = shop.site.upload(shop.small)
    with shop.sandbox.armed(fault) as armed_fault:
        job = shop.update(INSERT, upload=upload)
    assert finished(shop.site, job)[0]
    assert (armed_fault.seen, armed_fault.fired) == (4, 3)
    assert shop.rows() == 10


@pytest.mark.parametrize(
    ("fault", "calls"),
    [(Refuse(**UPDATE, status=500, times=None), 1), (Drop(**UPDATE, when="after", times=None), 4)],
    ids=str,
)
def test_update_that_may_have_arrived(shop: Shop, fault: CallFault, calls: int):
    # Prevents: an update whose answers are all lost passes for one that was refused.
    with shop.sandbox.armed(fault) as armed_fault, pytest.raises(RefreshError) as caught:
        shop.update()
    assert not isinstance(caught.value, RefusedError), "what happened is not known"
    assert armed_fault.seen == calls


POST = {"method": "POST", "path": "sites/*/datasources"}


@pytest.mark.parametrize(
    "fault",
    [
        Drop(**POST, when="after"),
        Drop(**POST, when="before"),
        Refuse(**POST, status=503),
        Refuse(**POST, status=504),
        Refuse(**POST, status=500),
    ],
    ids=str,
)
def test_publish_is_never_sent_twice(shop: Shop, fault: CallFault):
    """Prevents: a publish that is repeated overwrites what somebody sent in between."""
    where = {"name": shop.sales.name, "project_id": shop.sales.project_id}
    with shop.sandbox.armed(fault) as armed_fault, pytest.raises(RefreshError) as caught:
        send(shop.site, shop.small, **where, mode=PublishMode.REPLACE)
    assert not isinstance(caught.value, RefusedError), "it may have been received"
    assert armed_fault.seen == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_block_is_not_sent_again(shop: Shop, when: Literal["before", "after"]):
    # Prevents: a block is in the file twice.
    fault = Drop(method="PUT", path="sites/*/fileUploads/*", when=when)
    with shop.sandbox.armed(fault) as armed_fault, pytest.raises(RefreshError):
        shop.site.upload(shop.small)
    assert armed_fault.seen == 1


def test_server_that_hangs(sign_in: SignIn, shop: Shop):
    # Prevents: a refresh waits for ever for a server that was switched off in mid-sentence.
    with sign_in(times=RetryTimes(backoff=0, read=0.3)) as tableau:
        began = monotonic()
        with shop.sandbox.armed(Delay(**ONE, seconds=3)) as slow:
            assert tableau.find_by_luid(shop.sales.luid) == shop.sales
        assert monotonic() - began < 2
    assert slow.seen == 2


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
    # Prevents: what happened on a server whose clock is wrong is ordered by ours.
    def dated(response: requests.Response, **_: object) -> None:
        response.headers["Date"] = AT_NEW_YEAR

    with sign_in() as site:
        site.tsc.session.hooks["response"].insert(0, dated)
        site.find_project("Default")
        now = site.now()
        sleep(0.05)
        assert now < site.now()
    assert is_new_year(now)


def test_time_without_a_fault(sign_in: SignIn):
    # Prevents: the time zone of this host gets into the server's time, or there is no time before
    # something else was asked.
    with sign_in() as site:
        assert timedelta() <= datetime.now(UTC) - site.now() < timedelta(seconds=2)


def test_server_without_a_clock(sign_in: SignIn):
    # Prevents: the time of this host passes for that of the server.
    def undated(response: requests.Response, **_: object) -> None:
        response.headers.pop("Date")

    with sign_in() as site:
        site.clock._heard = None
        site.tsc.session.hooks["response"].insert(0, undated)
        with pytest.raises(RefreshError, match="lack a valid Date header"):
            site.now()


@pytest.mark.parametrize("date", [None, "", "yesterday", "Wed, 99 Jan 2031 00:00:00 GMT"])
def test_answer_that_tells_no_time(date: str | None):
    # Prevents: one odd answer on the way fails the refresh, or makes it forget the time.
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
    # Prevents: times with and without a zone meet, which cannot be compared.
    clock = ServerClock()
    clock.hear(answer(date))
    assert is_new_year(clock.now())
