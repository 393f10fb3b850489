"""Data updates, refreshes, and the connections that they may name."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE, NewServer
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    publish,
    rows_on_server,
    signed_in,
    wrapped_extract,
)

ONE, TWO = [1, "one"], [2, "two"]
APPEND = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}
JobFailed = tsc.server.endpoint.exceptions.JobFailedException


def update(
    server: tsc.Server,
    target: Any,
    *actions: Any,
    payload: Path | None = None,
    id: str = "",  # noqa: A002
) -> tsc.JobItem:
    return server.datasources.update_hyper_data(
        target, request_id=id or str(uuid4()), actions=actions, payload=payload
    )


def finished(server: tsc.Server, job: tsc.JobItem | tsc.BackgroundJobItem) -> tsc.JobItem:
    """As TSC's `wait_for_job`, which pauses for half a second at first."""
    deadline = time.monotonic() + 30
    while (found := server.jobs.get_by_id(job.id)).completed_at is None:
        assert time.monotonic() < deadline, "the job does not end"
        time.sleep(0.01)
    return server.jobs.wait_for_job(found)


def patch(
    sandbox: Sandbox, server: tsc.Server, luid: str, *, query: str = "", **arguments: Any
) -> str:
    arguments = {"json": {"actions": [CLEAR]}, "headers": {"RequestID": str(uuid4())}} | arguments
    path = f"sites/{{site}}/datasources/{luid}/data{query}"
    return code_of(call(sandbox, "PATCH", path, server=server, **arguments))


def test_requests_are_remembered_for_a_day(start_sandbox: Callable[..., Sandbox], one_row: Path):
    # Prevents: a failed request is repeated within a day, or a successful one never again.
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    server = signed_in(start_sandbox(clock=lambda: now[0], session_minutes=10_000))
    item = publish(server, one_row)
    bad = update(server, item, {**CLEAR, "target-table": "no"}, id="x")
    with pytest.raises(JobFailed):
        finished(server, bad)
    now[0] += timedelta(hours=23, minutes=59)
    assert update(server, item, CLEAR, id="x").id == bad.id
    now[0] += timedelta(minutes=1)
    again = update(server, item, CLEAR, id="x")
    assert again.id != bad.id
    assert finished(server, again).finish_code == 0


def test_refused_requests_cost_nothing(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, two_rows: Path
):
    # Prevents: a mistake in a batch uses up its RequestID or its payload.
    item = publish(server, one_row)
    upload = server.fileuploads.upload(str(two_rows))
    query, headers = f"?uploadSessionId={upload}", {"RequestID": "x"}
    bad = {"actions": [{**APPEND, "condition": True}]}
    assert patch(sandbox, server, item.id, query=query, headers=headers, json=bad) == "400000"
    path = f"sites/{{site}}/datasources/{item.id}/data{query}"
    good = {"actions": [APPEND]}
    answer = call(sandbox, "PATCH", path, server=server, headers=headers, json=good)
    assert answer.status_code == 202, answer.text


def test_payload_of_another_user(new_server: NewServer, one_row: Path):
    """Prevents: a user learns of another user's upload, and how large it is."""
    sandbox, server = new_server(users=(ALICE,), update_limit_mb=0.001)
    upload = server.fileuploads.upload(str(one_row))
    alice = signed_in(sandbox, tsc.TableauAuth(ALICE.name, ALICE.password))
    hers = publish(alice, one_row)
    assert patch(sandbox, alice, hers.id, query=f"?uploadSessionId={upload}") == "404015"


def test_publish_waits_for_an_update(server: tsc.Server, one_row: Path, two_rows: Path):
    # Prevents: an update that began before a publish brings the old data back.
    item = publish(server, one_row)
    for _ in range(2):
        job = update(server, item, APPEND, payload=one_row)
        publish(server, two_rows, mode="Overwrite")
        assert finished(server, job).finish_code == 0
        assert rows_on_server(server, item.id) in ([ONE, TWO], [ONE, ONE, TWO])


def test_extract_in_a_package(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: an extract of another database passes for data in Hyper, which are updated and not
    # refreshed; its refreshes pile up, or never end.
    sandbox, server = new_server()
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    assert (item.datasource_type, item.has_extracts) == ("postgres", True)
    assert [found.id for found in server.datasources.filter(has_extracts=True)] == [item.id]
    job = update(server, item, CLEAR)
    with pytest.raises(JobFailed):
        finished(server, job)
    assert server.jobs.get_by_id(job.id).notes == []
    path = f"sites/{{site}}/datasources/{item.id}/refresh"
    with sandbox.held_jobs():
        job = server.datasources.refresh(item)
        assert (job.type, job.finish_code, job.datasource_id) == ("RefreshExtract", -1, item.id)
        assert server.datasources.refresh(item) is None
        assert code_of(call(sandbox, "POST", path, server=server)) == "409093"
        other = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row), name="Other")
        assert server.datasources.refresh(other) is not None
    done = finished(server, job)
    assert (done.finish_code, done.datasource_name) == (0, "Flights")
    assert "data stay as they are" in done.notes[0]
    assert rows_on_server(server, item.id) == [ONE]
    *_, listed = server.jobs.filter(job_type="refresh_extracts")
    assert listed.id == job.id
    # Older clients send no body.
    assert call(sandbox, "POST", path, server=server).status_code == 202


def connection_of(server: tsc.Server, item: tsc.DatasourceItem) -> tsc.ConnectionItem:
    server.datasources.populate_connections(item)
    (connection,) = item.connections
    return connection


def test_update_connection(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: new credentials of a connection are lost at once, outlive a publish, or leak.
    item = publish(server, one_row)
    connection = connection_of(server, item)
    connection.server_address, connection.server_port = "db.example.com", "5432"
    connection.username, connection.password = "reader", "a-secret-to-keep"
    connection.embed_password = True
    updated = server.datasources.update_connection(item, connection)
    assert updated is not None
    again = connection_of(server, item)
    for found in (updated, again):
        assert (found.server_address, found.server_port) == ("db.example.com", "5432")
        assert found.username == "reader"
    stored = b"".join(path.read_bytes() for path in sandbox.data_dir.glob("sandbox.sqlite*"))
    assert b"a-secret-to-keep" not in stored
    connection.server_port = "many"
    with pytest.raises(tsc.ServerResponseError, match="400000"):
        server.datasources.update_connection(item, connection)
    publish(server, one_row, mode="Overwrite")
    assert not connection_of(server, item).username
