from datetime import UTC, datetime, timedelta
from time import sleep

import pytest
import requests

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.http import ServerClock
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import SignIn

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
