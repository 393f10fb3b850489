"""Data updates, refreshes, connections, jobs and tasks."""

from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import pytest
import tableauserverclient as tsc

from tableau_sandbox.control import Control
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.jobs.kinds import PUBLISH, REFRESH, UPDATE
from tableau_sandbox.store.records import Job
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE, NewServer
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    default_project,
    publish,
    rows_on_server,
    signed_in,
    wrapped_extract,
)

ONE, TWO = [1, "one"], [2, "two"]
APPEND = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}
JobFailed = tsc.server.endpoint.exceptions.JobFailedException
START, A_DAY = datetime(2026, 1, 1, tzinfo=UTC), 86_400


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
    """Wait for a job like TSC's `wait_for_job`, but without its first pause of half a second."""
    deadline = monotonic() + 30
    while (found := server.jobs.get_by_id(job.id)).completed_at is None:
        assert monotonic() < deadline, "the job does not end"
        sleep(0.01)
    return server.jobs.wait_for_job(found)


def patch(
    sandbox: Sandbox, server: tsc.Server, luid: str, *, query: str = "", **arguments: Any
) -> str:
    arguments = {"json": {"actions": [CLEAR]}, "headers": {"RequestID": str(uuid4())}} | arguments
    path = f"sites/{{site}}/datasources/{luid}/data{query}"
    return code_of(call(sandbox, "PATCH", path, server=server, **arguments))


def test_requests_are_remembered_for_a_day(new_server: NewServer, one_row: Path):
    """Prevents: a failed request is repeated within a day, or a RequestID is never forgotten."""
    sandbox, server = new_server(clock=lambda: START, session_minutes=10_000)
    item = publish(server, one_row)
    bad = update(server, item, {**CLEAR, "target-table": "no"}, id="x")
    with pytest.raises(JobFailed):
        finished(server, bad)
    sandbox.advance(A_DAY - 60)
    assert update(server, item, CLEAR, id="x").id == bad.id
    sandbox.advance(60)
    again = update(server, item, CLEAR, id="x")
    assert again.id != bad.id
    assert finished(server, again).finish_code == 0


def test_refused_requests_cost_nothing(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, two_rows: Path
):
    # Prevents: a mistake in a batch uses up the RequestID or the payload.
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
    """Prevents: a user learns about an upload of another user, or about its size."""
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
    # Prevents: the sandbox updates an extract of another database, or runs several refreshes of one
    # extract at once.
    sandbox, server = new_server()
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    assert (item.datasource_type, item.has_extracts) == ("postgres", True)
    assert [each.id for each in server.datasources.filter(has_extracts=True)] == [item.id]
    assert patch(sandbox, server, item.id) == "404008"
    live = publish(server, one_row, name="Live")
    with sandbox.held_jobs():
        job = update(server, live, CLEAR)
        publish(
            server, wrapped_extract(tmp_path / "p.tdsx", one_row), name="Live", mode="Overwrite"
        )
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
    """Prevents: new credentials of a connection are lost, survive a publish, or leak."""
    item = publish(server, one_row)
    connection = connection_of(server, item)
    connection.server_address, connection.server_port = "db.example.com", "5432"
    connection.username, connection.password = "reader", "a-secret-to-keep"
    connection.embed_password = True
    updated = server.datasources.update_connection(item, connection)
    for found in (updated, connection_of(server, item)):
        parts = found.server_address, found.server_port, found.username
        assert parts == ("db.example.com", "5432", "reader")
    stored = b"".join(path.read_bytes() for path in sandbox.data_dir.glob("sandbox.sqlite*"))
    assert b"a-secret-to-keep" not in stored
    connection.server_port = "many"
    with pytest.raises(tsc.ServerResponseError, match="400000"):
        server.datasources.update_connection(item, connection)
    publish(server, one_row, mode="Overwrite")
    assert not connection_of(server, item).username


# Jobs stay in progress until a test moves the clock of the sandbox by this many seconds.
SOME_TIME = 60


def publish_job(
    server: tsc.Server, file: Path, *, name: str = "Flights", mode: str = "Overwrite"
) -> tsc.JobItem:
    item = tsc.DatasourceItem(default_project(server), name=name)
    return server.datasources.publish(item, file, mode, as_job=True)


def test_jobs_wait_their_turn_and_can_be_cancelled(
    new_server: NewServer, tmp_path: Path, one_row: Path, two_rows: Path
):
    """Prevents: jobs overtake each other, or a cancelled job takes effect."""
    slow, server = new_server(job_delay=SOME_TIME)
    first, second = publish_job(server, one_row), publish_job(server, two_rows)
    slow.wait_until_running()
    listed = {job.id: job.status for job in server.jobs.filter()}
    assert listed == {first.id: "InProgress", second.id: "Pending"}
    assert server.datasources.get()[0] == []
    server.jobs.cancel(second)
    assert server.jobs.get_by_id(second.id).finish_code == 2
    slow.control.advance(SOME_TIME)
    assert finished(server, first).finish_code == 0
    with pytest.raises(tsc.ServerResponseError, match="403091"):
        server.jobs.cancel(second)
    assert list((tmp_path / "sandbox" / "incoming").iterdir()) == []
    # A running job can also be cancelled, until it takes effect.
    third = publish_job(server, two_rows)
    slow.wait_until_running()
    server.jobs.cancel(third)
    publish_job(server, one_row, name="Following")
    slow.control.advance(SOME_TIME)
    slow.wait_until_running()
    assert server.jobs.get_by_id(third.id).finish_code == 2
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == [ONE]


def test_name_taken_while_the_job_waited(new_server: NewServer, one_row: Path, two_rows: Path):
    """Prevents: a queued job replaces a data source that was published meanwhile under its name."""
    slow, server = new_server(job_delay=SOME_TIME)
    for taken_name in ("in-job", "at-request"):
        slow.set_quirks(taken_name=taken_name)
        job = publish_job(server, two_rows, name=taken_name, mode="CreateNew")
        item = publish(server, one_row, name=taken_name)
        slow.wait_until_running()
        slow.control.advance(SOME_TIME)
        with pytest.raises(JobFailed):
            finished(server, job)
        assert rows_on_server(server, item.id) == [ONE]


def test_jobs_left_behind_have_failed(new_server: NewServer, one_row: Path):
    """Prevents: a client waits for ever for a job of a server that was stopped."""
    slow, server = new_server(job_delay=SOME_TIME)
    jobs = [publish_job(server, one_row) for _ in range(2)]
    slow.wait_until_running()
    slow.restart()
    for job in jobs:
        found = server.jobs.get_by_id(job.id)
        assert found.finish_code == 1
        assert found.completed_at
        assert "stopped before the job had finished" in found.status_notes[0]["text"]


def test_filters_order_and_pages(new_server: NewServer, tmp_path: Path, one_row: Path):
    """Prevents: an orchestrator that filters jobs finds wrong jobs, or all jobs."""
    bad = tmp_path / "bad.hyper"
    bad.write_bytes(b"bad")
    sandbox, server = new_server(clock=lambda: START, session_minutes=60 * 24 * 9)
    # Each job runs on a day of its own; the last job fails.
    for name, file in (("A", one_row), ("B", one_row), ("C", bad)):
        publish_job(server, file, name=name)
        sandbox.wait_until_idle()
        sandbox.advance(A_DAY)

    def titles(query: str = "") -> list[str | None]:
        response = call(sandbox, "GET", f"sites/{{site}}/jobs{query}", server=server)
        found = tsc.BackgroundJobItem.from_response(response.content, server.namespace)
        return [job.title for job in found]

    assert titles() == ["C", "B", "A"]
    second_day = "2026-01-02T00:00:00Z"
    for query, expected in {
        "status:eq:Failed": ["C"],
        "status:in:[Success,Failed]": ["C", "B", "A"],
        "jobType:eq:publish_datasource,title:eq:B": ["B"],
        "jobType:eq:refresh_extracts": [],
        f"createdAt:gt:{second_day}": ["C"],
        f"startedAt:gte:{second_day}": ["C", "B"],
        f"completedAt:lt:{second_day}": ["A"],
        "completedAt:eq:2026-01-02T01:00:00%2B01:00": ["B"],
        # The progress of an ended job is 100, which comes before 50 as text.
        "progress:gt:50": ["C", "B", "A"],
        "progress:lte:50": [],
        "notes:has:problem publishing": ["C"],
        "title:has:A": ["A"],
        "title:eq:*": ["C", "B", "A"],
        "title:eq:*B*": ["B"],
        "status:eq:S*cc*ss": ["B", "A"],
        "status:eq:S*ccess*s": [],
        "status:in:[S*]": [],
        "subtitle:has:A": [],
    }.items():
        assert titles(f"?filter={query}") == expected, query
    assert titles("?sort=createdAt:asc") == ["A", "B", "C"]
    assert titles("?sort=status:asc,title:desc") == ["C", "B", "A"]
    assert titles("?pageSize=2&pageNumber=2") == ["A"]


def test_senseless_filters(shared_sandbox: Sandbox, shared_server: tsc.Server):
    # Prevents: the sandbox silently ignores a filter that real servers do not know.
    for wrong in (
        *("createdAt:gt:yesterday", "createdAt:gt:2026-01-01T00:00:00", "createdAt:has:2026"),
        *("progress:gt:half", "status:has:Fail", "notes:eq:x", "priority:eq:50"),
    ):
        path = f"sites/{{site}}/jobs?filter={wrong}"
        assert code_of(call(shared_sandbox, "GET", path, server=shared_server)) == "400065", wrong


def queued(number: int, kind: str) -> Job:
    return Job(number, f"{number}", "site", "user", kind, "", "{}", "Pending", "", *[None] * 3)


@pytest.mark.parametrize("order", ["fifo", "any"])
@pytest.mark.parametrize(
    ("held", "ready"), [([], "0123"), ([UPDATE], "03"), ([UPDATE, PUBLISH], "3"), ([None], "")]
)
def test_next_job(held: list[str | None], ready: str, order: str):
    """Prevents: a held job runs, an allowed job does not, or jobs overtake each other."""
    kinds = [PUBLISH, UPDATE, UPDATE, REFRESH]
    jobs = [queued(number, kind) for number, kind in enumerate(kinds)]
    control = Control(faults=[HoldJobs(job_kind=kind) for kind in held])
    allowed = [jobs[int(number)] for number in ready]
    for _ in range(3):
        chosen = control.choose_job(jobs, order)
        assert chosen in (allowed[:1] if order == "fifo" else allowed) or not (allowed or chosen)
    # A fault counts each job once, even if the job has been skipped several times.
    control.choose_job([*jobs, queued(4, UPDATE)], order)
    for armed in control.faults():
        kind = armed.fault.job_kind
        counted = len([each for each in (*kinds, UPDATE) if kind in (None, each)])
        assert (armed.seen, armed.fired) == (counted, counted)
