from pathlib import Path
from typing import Any

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.faults import (
    Delay,
    Drop,
    ExpireSessions,
    Refuse,
)
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    publish,
    send_parts,
    signed_in,
)

PUBLISH = "sites/{site}/datasources"
BLOCK = "sites/{site}/fileUploads/{upload}"


def names(server: tsc.Server) -> list[str | None]:
    return [item.name for item in server.datasources.get()[0]]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, tsc.NotSignedInError),
        (429, tsc.ServerResponseError),
        (500, tsc.server.endpoint.exceptions.InternalServerError),
        (503, tsc.server.endpoint.exceptions.InternalServerError),
        (504, tsc.server.endpoint.exceptions.InternalServerError),
    ],
)
def test_refused_on_the_nth_call_and_the_next(
    sandbox: Sandbox, server: tsc.Server, status: int, error: type[Exception]
):
    # Prevents: retries that were never run against the refusal that they are for.
    fault = Refuse(status=status, method="GET", path="sites/*/projects", nth=2, times=2)
    armed = sandbox.control.add(fault)
    server.projects.get()
    server.datasources.get()
    for _ in range(2):
        with pytest.raises(error):
            server.projects.get()
    server.projects.get()
    assert (armed.seen, armed.fired) == (4, 2)


def test_refused_publish_does_nothing(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a refused publish that took place passes for a retry that did.
    armed = sandbox.control.add(Refuse(status=503, method="POST", path=PUBLISH))
    with pytest.raises(tsc.server.endpoint.exceptions.InternalServerError):
        publish(server, one_row)
    assert names(server) == []
    publish(server, one_row)
    assert armed.fired == 1


def test_throttled_client_learns_when_to_come_back(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a client that honours Retry-After has nothing to honour.
    sandbox.control.add(Refuse(status=429, retry_after=3))
    response = call(sandbox, "GET", "sites/{site}/projects", server=server)
    assert code_of(response) == "429000"
    assert response.headers["Retry-After"] == "3"


def test_session_that_ends_between_two_blocks(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a long upload is never tested against a session that ends in its middle.
    armed = sandbox.control.add(ExpireSessions(method="PUT", path=BLOCK, nth=2))
    upload = server.fileuploads.initiate()
    block = tsc.server.RequestFactory.Fileupload.chunk_req(b"x")
    server.fileuploads.append(upload, *block)
    with pytest.raises(tsc.NotSignedInError, match="401002"):
        server.fileuploads.append(upload, *block)
    server.auth.sign_in(tsc.TableauAuth(sandbox.user, sandbox.password))
    server.fileuploads.append(upload, *block)
    assert armed.fired == 1


def test_sessions_of_one_user_end(sandbox: Sandbox, server: tsc.Server):
    # Prevents: one pipeline's lost session throws all others out too.
    alice = signed_in(sandbox, tsc.TableauAuth(ALICE.name, ALICE.password))
    armed = sandbox.control.add(ExpireSessions(user=ALICE.name))
    assert server.projects.get()[0]
    with pytest.raises(tsc.NotSignedInError):
        alice.projects.get()
    assert armed.fired == 1


@pytest.mark.parametrize(("when", "done"), [("before", []), ("after", ["Flights"])])
def test_connection_lost_around_the_work(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, when: Any, done: list[str]
):
    # Prevents: a client takes a lost request for one that was done, or a lost answer for none.
    armed = sandbox.control.add(Drop(when=when, method="POST", path=PUBLISH))
    with pytest.raises(requests.ConnectionError):
        publish(server, one_row)
    assert names(server) == done
    assert armed.fired == 1


def test_download_lost(sandbox: Sandbox, server: tsc.Server, one_row: Path, tmp_path: Path):
    # Prevents: a lost download keeps the file open, or the sandbox from answering again.
    item = publish(server, one_row)
    armed = sandbox.control.add(Drop(when="after", path="sites/*/datasources/*/content"))
    with pytest.raises(requests.ConnectionError):
        server.datasources.download(item.id, str(tmp_path / "lost"))
    assert Path(server.datasources.download(item.id, str(tmp_path / "got"))).exists()
    assert armed.fired == 1


def test_late_answer(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a client that gives up waiting takes work for undone that was done.
    armed = sandbox.control.add(Delay(seconds=1, method="POST", path="sites/*/projects"))
    server.add_http_options({"timeout": 0.3})
    with pytest.raises(requests.Timeout):
        server.projects.create(tsc.ProjectItem("Late"))
    assert [project.name for project in server.projects.filter(name="Late")] == ["Late"]
    assert armed.fired == 1


def test_refusal_reads_what_is_sent(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a refused upload shows as a broken connection, and the refusal is lost.
    sandbox.control.add(Refuse(status=429))
    file = ("tableau_datasource", "x.hyper", bytes(8 << 20))
    response = send_parts(sandbox, server, "POST", PUBLISH, file)
    assert code_of(response) == "429000"


def test_faults_meet_and_clear(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a fault that was cleared strikes all the same, or hides that it has struck.
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
