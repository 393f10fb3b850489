"""Calls that are tried again, and the server's clock."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Literal

import pytest
import requests

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.http import RetryTimes, ServerClock
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import LOG, SignIn, finished, send
from tableau_pipeline_tests.publishing.test_publish import CLEAR, DATA, INSERT, fresh, rows
from tableau_sandbox.faults import CallFault, Delay, Drop, Refuse
from tableau_sandbox.testing import Sandbox

UPDATE = {"method": "PATCH", "path": DATA}
ONE = {"method": "GET", "path": "sites/*/datasources/*"}


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log of the refresh has been told; urllib3 has one of its own."""
    caplog.set_level(logging.INFO, LOG.name)
    return lambda: [record.getMessage() for record in caplog.records if record.name == LOG.name]


def clear(tableau: TableauSite, sales: RemoteDatasource) -> str:
    job = tableau.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())
    assert job
    return job


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("status", [429, 503])
def test_call_that_the_server_puts_off(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    heard: Callable[[], list[str]],
    status: int,
):
    # Prevents: a busy minute of the server fails a refresh that it asked to come back later.
    began = monotonic()
    with sandbox.armed(Refuse(**UPDATE, status=status, retry_after=1)) as fault:
        job = clear(tableau, sales)
    assert finished(tableau, job)[0]
    assert rows(sandbox, sales.luid) == 0
    assert (fault.seen, fault.fired) == (2, 1)
    assert monotonic() - began >= 1
    (line,) = heard()
    assert "PATCH" in line
    assert f"the server answered {status}; trying again in 1 s" in line


def put_in(site: TableauSite, sales: RemoteDatasource, file: Path) -> None:
    assert site.update(sales.luid, batch=INSERT, upload=site.upload(file), request_id=fresh())


def tag(site: TableauSite, sales: RemoteDatasource, file: Path) -> None:
    site.tag(sales.luid, ["x"])


def replace(site: TableauSite, sales: RemoteDatasource, file: Path) -> None:
    send(site, file, name=sales.name, project_id=sales.project_id, mode=PublishMode.REPLACE)


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("POST", "fileUploads", put_in),
        ("PUT", "fileUploads/*", put_in),
        ("PUT", "datasources/*/tags", tag),
        ("POST", "datasources", replace),
    ],
)
def test_every_call_can_be_put_off(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    small: Path,
    method: str,
    path: str,
    call: Callable[[TableauSite, RemoteDatasource, Path], None],
):
    # Prevents: some calls honour what the server asks for, and others fail.
    with sandbox.armed(Refuse(method=method, path=f"sites/*/{path}", status=429)) as fault:
        call(tableau, sales, small)
    assert (fault.seen, fault.fired) == (2, 1)


def test_server_that_asks_for_too_much_patience(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: a refresh sleeps for hours in its step, and holds its place in the pool.
    fault = Refuse(**UPDATE, status=429, retry_after=1740, times=None)
    with sandbox.armed(fault) as busy, pytest.raises(RefreshError, match="429000") as caught:
        clear(tableau, sales)
    assert busy.fired == 1
    assert not isinstance(caught.value, RefusedError)


def test_patience_ends(tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource):
    # Prevents: a server that is always busy is asked for ever.
    fault = Refuse(**UPDATE, status=429, times=None)
    with sandbox.armed(fault) as busy, pytest.raises(RefreshError, match="429000"):
        clear(tableau, sales)
    assert busy.fired == 5


@pytest.mark.parametrize(
    "fault",
    [
        Refuse(**ONE, status=503, times=3),
        Refuse(**ONE, status=504, times=3),
        Drop(**ONE, when="before", times=3),
        Drop(**ONE, when="after", times=3),
    ],
    ids=str,
)
def test_reading_is_tried_again(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    fault: CallFault,
    heard: Callable[[], list[str]],
):
    # Prevents: one connection that breaks off fails a refresh that only wanted to look.
    with sandbox.armed(fault) as armed_fault:
        assert tableau.find_by_luid(sales.luid) == sales
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
def test_update_is_sent_again_with_its_request_id(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    small: Path,
    fault: CallFault,
):
    # Prevents: one connection that breaks off fails a refresh, or its rows are inserted twice.
    upload = tableau.upload(small)
    with sandbox.armed(fault) as armed_fault:
        job = tableau.update(sales.luid, batch=INSERT, upload=upload, request_id=fresh())
    assert job
    assert finished(tableau, job)[0]
    assert (armed_fault.seen, armed_fault.fired) == (4, 3)
    assert rows(sandbox, sales.luid) == 10


@pytest.mark.parametrize(
    ("fault", "calls"),
    [(Refuse(**UPDATE, status=500, times=None), 1), (Drop(**UPDATE, when="after", times=None), 4)],
    ids=str,
)
def test_update_that_may_have_arrived(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    fault: CallFault,
    calls: int,
):
    # Prevents: an update whose answers are all lost passes for one that was refused.
    with sandbox.armed(fault) as armed_fault, pytest.raises(RefreshError) as caught:
        clear(tableau, sales)
    assert not isinstance(caught.value, RefusedError), "what happened is not known"
    assert armed_fault.seen == calls


@pytest.mark.parametrize("when", ["before", "after"])
def test_block_is_not_sent_again(
    tableau: TableauSite, sandbox: Sandbox, small: Path, when: Literal["before", "after"]
):
    # Prevents: a block is in the file twice.
    fault = Drop(method="PUT", path="sites/*/fileUploads/*", when=when)
    with sandbox.armed(fault) as armed_fault, pytest.raises(RefreshError):
        tableau.upload(small)
    assert armed_fault.seen == 1


def test_server_that_hangs(sign_in: SignIn, sandbox: Sandbox, sales: RemoteDatasource):
    # Prevents: a refresh waits for ever for a server that was switched off in mid-sentence.
    with sign_in(times=RetryTimes(backoff=0, read=0.3)) as tableau:
        began = monotonic()
        with sandbox.armed(Delay(**ONE, seconds=3)) as slow:
            assert tableau.find_by_luid(sales.luid) == sales
        assert monotonic() - began < 2
    assert slow.seen == 2


NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)


def answer(date: str | None) -> requests.Response:
    made = requests.Response()
    if date is not None:
        made.headers["Date"] = date
    return made


def dated(response: requests.Response, **_: object) -> None:
    response.headers["Date"] = "Wed, 01 Jan 2031 00:00:00 GMT"


def test_time_of_the_server(sign_in: SignIn):
    # Prevents: what happened on a server whose clock is wrong is ordered by ours.
    with sign_in() as site:
        site.tsc.session.hooks["response"].insert(0, dated)
        site.find_project("Default")
        now = site.now()
        sleep(0.05)
        assert now < site.now()
    assert NEW_YEAR <= now < NEW_YEAR + timedelta(seconds=1)


def test_time_without_a_fault(tableau: TableauSite):
    # Prevents: the time zone of this host gets into the server's time.
    tableau.find_project("Default")
    assert timedelta() <= datetime.now(UTC) - tableau.now() < timedelta(seconds=2)


def test_first_question(tableau: TableauSite, monkeypatch: pytest.MonkeyPatch):
    # Prevents: there is no time before something else was asked.
    monkeypatch.setattr(tableau.clock, "_heard", None)
    assert tableau.now()


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
    clock.hear(answer("Wed, 01 Jan 2031 00:00:00 GMT"))
    clock.hear(answer(date))
    now = clock.now()
    assert now is not None
    assert NEW_YEAR <= now < NEW_YEAR + timedelta(seconds=1)


@pytest.mark.parametrize(
    "date", ["Wed, 01 Jan 2031 00:00:00 -0000", "Wed, 01 Jan 2031 01:00:00 +0100"]
)
def test_other_ways_to_write_it(date: str):
    # Prevents: times with and without a zone meet, which cannot be compared.
    clock = ServerClock()
    clock.hear(answer(date))
    now = clock.now()
    assert now is not None
    assert now.tzinfo is UTC
    assert NEW_YEAR <= now < NEW_YEAR + timedelta(seconds=1)
