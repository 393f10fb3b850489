import json
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.faults import (
    BreakRows,
    Cut,
    Drop,
    ExpireSessions,
    HideRows,
    Refuse,
    StaleRows,
)
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import publish, signed_in
from tableau_sandbox_tests.updates.test_update_data import APPEND, finished, update
from tableau_sandbox_tests.vds.service.asking import ask, count_of, query, refused
from tableau_sandbox_tests.vds.service.test_quirks import TABLE

QUERY = "vizql-data-service/query-datasource"
KEY = {"fieldCaption": "id", "sortPriority": 1}


def test_error_after_the_first_row(vds: Sandbox, admin: tsc.Server, shop: str):
    """Prevents: a client takes the rows before an error for all rows, because the status is 200."""
    with vds.armed(BreakRows(times=None)):
        answer = query(vds, admin, shop, {**KEY, "fieldAlias": "key"})
        assert answer.status_code == 200
        body = answer.json()
        assert body["data"] == [{"key": 1}]
        assert body["error"]["errorCode"] == "500000"
        with vds.quirks(vds_schema="20253"):
            assert refused(query(vds, admin, shop, KEY)) == "500000"
    assert len(query(vds, admin, shop, KEY).json()["data"]) == 3


def test_cut_answer(vds: Sandbox, admin: tsc.Server, shop: str):
    """Prevents: a client breaks on an answer that ends early without an error."""
    with vds.armed(Cut(path=QUERY, bytes=9)):
        answer = query(vds, admin, shop, KEY)
        assert (answer.status_code, answer.text) == (200, '{"data":[')
        with pytest.raises(requests.JSONDecodeError):
            answer.json()


def test_rows_that_the_user_may_not_see(vds: Sandbox, admin: tsc.Server, shop: str, single: str):
    """Prevents: a client calls rows lost that only its user cannot see."""
    with vds.armed(HideRows(rows=3)) as fault:
        assert count_of(vds, admin, shop, "COUNT([orders])") == 1
        assert count_of(vds, admin, shop, "COUNT([customers])") == []
        assert count_of(vds, admin, single, "COUNT([Extract])") == []
        assert fault.fired == 3


def test_answers_of_before_a_change(vds: Sandbox, admin: tsc.Server, one_row: Path, two_rows: Path):
    """Prevents: a client compares counts of before its update, and calls the update lost."""
    item = publish(admin, one_row, name="Stale")

    def count() -> object:
        return count_of(vds, admin, item.id, "COUNT([Extract])")

    with vds.armed(StaleRows(times=3)):
        assert count() == 1
        finished(admin, update(admin, item, APPEND, payload=one_row))
        assert (count(), count(), count()) == (1, 1, 2)
    with vds.armed(StaleRows()):
        publish(admin, one_row, name="Stale", mode="Overwrite")
        assert (count(), count()) == (2, 1)


def test_a_fault_armed_again_remembers_nothing(
    vds: Sandbox, admin: tsc.Server, one_row: Path, two_rows: Path
):
    """Prevents: an answer of before an earlier test, and files that no data source has any more."""
    before = set((vds.data_dir / "content").iterdir())
    item = publish(admin, one_row, name="Twice stale")
    with vds.armed(StaleRows(times=None)):
        publish(admin, two_rows, name="Twice stale", mode="Overwrite")
        assert count_of(vds, admin, item.id, "COUNT([Extract])") == 1
    with vds.armed(StaleRows(times=None)):
        assert count_of(vds, admin, item.id, "COUNT([Extract])") == 2
    admin.datasources.delete(item.id)
    # What earlier faults kept may be gone, too.
    assert set((vds.data_dir / "content").iterdir()) <= before


def test_refusals_are_those_of_the_service(vds: Sandbox, admin: tsc.Server, single: str):
    """Prevents: a client of the service meets refusals in the form of another API."""
    for fault, code in (
        (Refuse(status=429, path=QUERY, nth=2, retry_after=7), "429000"),
        (Refuse(status=503, path=QUERY, nth=2), "503804"),
        (Refuse(status=500, path=QUERY, nth=2), "500000"),
        (Refuse(status=401, path=QUERY, nth=2), "401002"),
    ):
        with vds.armed(fault):
            assert query(vds, admin, single, TABLE).status_code == 200
            answer = query(vds, admin, single, TABLE)
            assert refused(answer) == code
            assert answer.headers.get("Retry-After") == ("7" if code == "429000" else None)
            assert query(vds, admin, single, TABLE).status_code == 200


def test_gateways_and_networks_fail_too(vds: Sandbox, admin: tsc.Server, single: str):
    """Prevents: faults of calls spare the calls of the service."""
    with vds.quirks(gateway_pages=True), vds.armed(Refuse(status=504, path=QUERY)):
        answer = query(vds, admin, single, TABLE)
        assert answer.headers["Content-Type"].startswith("text/html")
    with vds.armed(Drop(when="after", path=QUERY)), pytest.raises(requests.ConnectionError):
        query(vds, admin, single, TABLE)
    alice = signed_in(vds, tsc.TableauAuth(ALICE.name, ALICE.password))
    with vds.armed(ExpireSessions(path=QUERY, user=ALICE.name)):
        assert refused(query(vds, alice, single, TABLE)) == "401002"


def test_events(vds: Sandbox, admin: tsc.Server, shop: str):
    """Prevents: a client reads a stream of events that no server sends."""
    options = {"returnServerSentEvents": True, "returnFormat": "ARRAYS"}

    def events() -> list:
        answer = query(vds, admin, shop, KEY, options=options)
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n")[:-1]]

    assert events() == [
        {"event": "METADATA", "data": {"rowCount": 3}},
        {"event": "DATA", "data": [[1], [2], [3]]},
    ]
    with vds.armed(BreakRows()):
        *_, last = events()
        assert (last["event"], last["data"]["errorCode"]) == ("ERROR", "500000")


def test_simple_request(vds: Sandbox):
    """Prevents: a client that asks whether the service is there needs a session for it."""
    answer = ask(vds, None, "simple-request", method="GET")
    assert (answer.status_code, answer.json()) == (200, "ahoy")
