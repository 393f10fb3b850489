from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.jobs.test_jobs import publish_job
from tableau_sandbox_tests.samples import call, code_of, publish
from tableau_sandbox_tests.updates.test_update_data import CLEAR, update

START = datetime(2026, 1, 1, 12, 0, 0, 500_000, UTC)
A_SECOND = timedelta(seconds=1)


def updated_at(server: tsc.Server, item: Any) -> datetime:
    found = server.datasources.get_by_id(item.id).updated_at
    assert found is not None
    return found


def completed(sandbox: Sandbox, server: tsc.Server, job: tsc.JobItem) -> tuple[datetime, ...]:
    """When a job was created, started and completed."""
    sandbox.wait_until_idle()
    found = server.jobs.get_by_id(job.id)
    assert found.finish_code == 0
    assert found.started_at is not None
    assert found.completed_at is not None
    return found.created_at, found.started_at, found.completed_at


def test_changes_within_a_second_may_share_a_stamp(new_server: NewServer, one_row: Path):
    # Prevents: a pipeline takes a second change for none, and never meets one in its tests.
    sandbox, server = new_server(clock=lambda: START, stamps_within_second="shared")
    item = publish(server, one_row)
    assert publish(server, one_row, mode="Overwrite").updated_at == item.updated_at
    completed(sandbox, server, update(server, item, CLEAR))
    item.description = "described"
    assert server.datasources.update(item).updated_at == item.created_at
    sandbox.advance(1)
    moved = publish(server, one_row, mode="Overwrite").updated_at
    assert moved == item.created_at + A_SECOND
    sandbox.set_quirks(stamps_within_second="distinct")
    assert publish(server, one_row, mode="Overwrite").updated_at == moved + A_SECOND


@pytest.mark.parametrize("moves", [False, True])
def test_whether_tags_and_edits_move_the_stamp(
    new_server: NewServer, one_row: Path, *, moves: bool
):
    # Prevents: a pipeline takes its own tag or description for a change by someone else.
    _, server = new_server(tags_move_stamp=moves, edits_move_stamp=moves)
    item = publish(server, one_row)
    changes = (
        lambda: server.datasources.add_tags(item, ["a", "b"]),
        lambda: server.datasources.delete_tags(item, ["a"]),
        lambda: changed(server, item, description="described"),
        lambda: changed(server, item, name="Renamed"),
        lambda: changed(server, item, project_id=server.projects.create(OTHER).id),
        # What changes nothing moves nothing.
        lambda: server.datasources.add_tags(item, ["b"]),
    )
    seen = [updated_at(server, item)]
    for change in changes:
        change()
        seen.append(updated_at(server, item))
    assert len(set(seen)) == (6 if moves else 1)
    assert seen[-1] == seen[-2]


OTHER = tsc.ProjectItem("Other")


def changed(server: tsc.Server, item: Any, **attributes: Any) -> None:
    for name, value in attributes.items():
        setattr(item, name, value)
    server.datasources.update(item)


def test_stamps_pushed_on_push_the_completion_on(new_server: NewServer, one_row: Path):
    # Prevents: a job that gives a stamp of its own to each change is over before its change.
    sandbox, server = new_server(clock=lambda: START)
    item = publish(server, one_row)
    begun = updated_at(server, item)
    for number in range(1, 5):
        job = update(server, item, CLEAR) if number % 2 else publish_job(server, one_row)
        *_, ended = completed(sandbox, server, job)
        assert updated_at(server, item) == ended == begun + number * A_SECOND
    (newest, *_) = server.jobs.filter()
    assert newest.ended_at == ended


def test_stamp_may_lie_after_the_job(new_server: NewServer, one_row: Path):
    # Prevents: a server whose clocks disagree makes a pipeline publish everything for ever.
    sandbox, server = new_server(clock=lambda: START, job_stamps="after", late_stamp_seconds=3)
    *_, ended = completed(sandbox, server, publish_job(server, one_row))
    (item,) = server.datasources.get()[0]
    assert item.updated_at == ended + 3 * A_SECOND
    *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    assert updated_at(server, item) == ended + 3 * A_SECOND
    # A publish that is no job has no time to lie outside of.
    sandbox.advance(60)
    at_once = publish(server, one_row, mode="Overwrite")
    assert at_once.updated_at == START.replace(microsecond=0) + timedelta(seconds=60)


def test_late_stamps_come_when_they_are_due(new_server: NewServer, one_row: Path):
    # Prevents: a simulation sees a stamp come sooner or later from run to run.
    sandbox, server = new_server(
        clock=lambda: START,
        updates_move_stamp="late",
        late_stamp_seconds=7,
        stamps_within_second="shared",
    )
    item = publish(server, one_row)
    *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    sandbox.advance(6.9)
    assert updated_at(server, item) == item.updated_at
    sandbox.advance(600)
    # Whatever the worker is at.
    assert updated_at(server, item) == ended + 7 * A_SECOND
    sandbox.set_quirks(stamps_within_second="distinct")
    for _ in range(2):
        *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    sandbox.advance(600)
    assert updated_at(server, item) == ended + 8 * A_SECOND


def test_data_updates_may_make_revisions(new_server: NewServer, one_row: Path, tmp_path: Path):
    # Prevents: a pipeline takes the revision of its own update for a publish by someone else.
    sandbox, server = new_server(update_revisions=True, updates_move_stamp="never")
    item = publish(server, one_row)
    _, started, ended = completed(sandbox, server, update(server, item, CLEAR))
    server.datasources.populate_revisions(item)
    first, second = item.revisions
    assert (first.revision_number, second.revision_number, second.current) == ("1", "2", True)
    assert started <= second.created_at <= ended
    assert second.user_name == "admin"
    server.datasources.download_revision(item.id, "1", str(tmp_path / "first"))


def test_sites_may_keep_no_revisions(new_server: NewServer, one_row: Path):
    # Prevents: a pipeline relies on revisions that an administrator has switched off.
    sandbox, server = new_server(revisions=False)
    item = publish(server, one_row)
    assert not server.sites.get_by_id(server.site_id).revision_history_enabled
    for path in ("revisions", "revisions/1/content"):
        path = f"sites/{{site}}/datasources/{item.id}/{path}"
        assert code_of(call(sandbox, "GET", path, server=server)) == "403053"
