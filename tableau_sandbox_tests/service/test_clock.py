from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
import requests

from tableau_sandbox.faults import Refuse
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import TIMEOUT, call, publish

START = datetime(2026, 1, 1, 12, 0, 0, 999_000, UTC)
SECOND = START.replace(microsecond=0)


def date_of(response: requests.Response) -> datetime:
    # Two headers of one name would be joined by a comma, and more.
    assert response.headers["Date"].count(",") == 1
    return parsedate_to_datetime(response.headers["Date"])


def test_every_answer_has_the_time_of_the_sandbox(new_server: NewServer, one_row: Path):
    # Prevents: a client that reckons by the clock of the server reckons by the one of its machine.
    sandbox, server = new_server(clock=lambda: START)
    item = publish(server, one_row)
    datasource = f"sites/{{site}}/datasources/{item.id}"

    def answers() -> list[requests.Response]:
        sandbox.control.add(Refuse(status=503, path="sites/{site}/datasources/refused"))
        return [
            call(sandbox, "GET", "serverInfo"),
            call(sandbox, "GET", datasource),
            call(sandbox, "GET", datasource, server=server),
            call(sandbox, "GET", f"{datasource}/content", server=server),
            call(sandbox, "GET", "sites/{site}/datasources/refused", server=server),
            requests.get(sandbox.url, timeout=TIMEOUT),
            requests.get(f"{sandbox.url}/nowhere", timeout=TIMEOUT),
        ]

    first = answers()
    assert [answer.status_code for answer in first] == [200, 401, 200, 200, 503, 200, 404]
    assert {date_of(answer) for answer in first} == {SECOND}
    sandbox.advance(3600.5)
    assert {date_of(answer) for answer in answers()} == {SECOND + timedelta(seconds=3601)}
    assert sandbox.now() == START + timedelta(seconds=3600.5)


@pytest.mark.parametrize("offset", [-7200, 7200])
def test_clock_may_disagree_with_the_machine(new_server: NewServer, one_row: Path, offset: float):
    # Prevents: a pipeline compares times of two machines, and is never found out.
    sandbox, server = new_server(clock_offset=offset)
    expected = datetime.now(UTC) + timedelta(seconds=offset)
    close = timedelta(seconds=30)
    assert abs(date_of(call(sandbox, "GET", "serverInfo")) - expected) < close
    assert abs(publish(server, one_row).updated_at - expected) < close
    sandbox.advance(60)
    sandbox.restart()
    advanced = expected + timedelta(seconds=60)
    assert abs(date_of(call(sandbox, "GET", "serverInfo")) - advanced) < close
