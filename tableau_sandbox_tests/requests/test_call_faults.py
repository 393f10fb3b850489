from pathlib import Path
from typing import Any

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.faults import Delay, Drop, ExpireSessions, Refuse
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import call, publish, user

PUBLISH = "sites/{site}/datasources"
SERVER_ERROR = tsc.server.endpoint.exceptions.InternalServerError


def names(server: tsc.Server) -> list[str | None]:
    return [item.name for item in server.datasources.get()[0]]


def test_sessions_of_one_user_end(sandbox: Sandbox, server: tsc.Server):
    """Prevents: one pipeline's lost session throws all others out too."""
    alice = user(sandbox, ALICE)
    armed = sandbox.control.add(ExpireSessions(user=ALICE.name))
    assert server.projects.get()[0]
    with pytest.raises(tsc.NotSignedInError):
        alice.projects.get()
    assert armed.fired == 1


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (Refuse(status=503, method="POST", path=PUBLISH), SERVER_ERROR, []),
        (Drop(when="before", method="POST", path=PUBLISH), requests.ConnectionError, []),
        (Drop(when="after", method="POST", path=PUBLISH), requests.ConnectionError, ["Flights"]),
        (Delay(seconds=1, method="POST", path=PUBLISH), requests.Timeout, ["Flights"]),
    ],
    ids=["refused", "lost-before", "lost-after", "late"],
)
def test_what_was_done_all_the_same(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, fault: Any, error: Any, done: list[str]
):
    """Prevents: a client takes a lost request for one that was done, or a lost answer for none."""
    armed = sandbox.control.add(fault)
    server.add_http_options({"timeout": 0.5 if isinstance(fault, Delay) else 20})
    with pytest.raises(error):
        publish(server, one_row)
    server.add_http_options({"timeout": 20})
    assert names(server) == done
    assert armed.fired == 1
    publish(server, one_row, mode="Overwrite")


def test_faults_meet_and_clear(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a fault that was cleared strikes all the same, or hides that it has struck."""
    late = sandbox.control.add(Delay(seconds=0.1, times=None))
    refused = sandbox.control.add(Refuse(status=503, times=None))
    assert call(sandbox, "GET", "serverInfo").status_code == 503
    assert (late.fired, refused.fired) == (1, 1)
    assert sandbox.control.clear(refused.number)
    assert not sandbox.control.clear(refused.number)
    assert server.projects.get()[0]
    assert [armed.fired for armed in sandbox.control.faults()] == [2]
    sandbox.control.clear()
    assert sandbox.control.faults() == []
    server.projects.get()
    assert late.fired == 2
