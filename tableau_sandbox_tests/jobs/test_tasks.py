"""Tasks that refresh extracts, by schedules of the server and by times of their own."""

from collections.abc import Callable
from datetime import time
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import publish, signed_in, user, wrapped_extract

WEEKDAYS = "5ced0000-0000-4000-8000-000000000001"


def create(server: tsc.Server, luid: str, interval: object) -> None:
    """A task with times of its own."""
    about = interval and tsc.ScheduleItem("", 50, "Extract", "Parallel", interval)
    target = tsc.Target(luid, "datasource")
    server.tasks.create(tsc.TaskItem("", "FullRefresh", 50, schedule_item=about, target=target))


def test_tasks(start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path):
    """Prevents: clients that read schedules find others here than on servers and on Cloud."""
    sandbox = start_sandbox(users=(ALICE,), time_zone="Asia/Tokyo")
    server = signed_in(sandbox)
    extract = publish(server, wrapped_extract(tmp_path / "e.tdsx", one_row), name="Extract")
    live = publish(server, one_row, name="Live")
    assert server.schedules.add_to_schedule(WEEKDAYS, datasource=extract) == []
    create(server, extract.id, tsc.DailyInterval(time(6, 30)))
    create(server, extract.id, tsc.HourlyInterval(time(8), time(20), 2))
    with pytest.raises(tsc.ServerResponseError, match="409090"):
        create(server, live.id, tsc.DailyInterval(time(6)))
    with pytest.raises(tsc.ServerResponseError, match="400000"):
        create(server, extract.id, None)
    shared, daily, hourly = server.tasks.get()[0]
    assert {each.target.id for each in (shared, daily, hourly)} == {extract.id}
    assert (shared.schedule_id, shared.schedule_item.name) == (WEEKDAYS, "Weekday early mornings")
    assert shared.schedule_item.interval_item is None
    whole = server.schedules.get_by_id(WEEKDAYS)
    assert (whole.interval_item.start_time, whole.interval_item.interval[0]) == (time(4), "Monday")
    # Tokyo is nine hours ahead.
    assert whole.next_run_at.time() == time(19)
    assert daily.schedule_id is None
    assert daily.schedule_item.interval_item.start_time == time(6, 30)
    assert daily.schedule_item.next_run_at.time() == time(21, 30)
    assert hourly.schedule_item.next_run_at.hour in (23, 1, 3, 5, 7, 9, 11)
    assert user(sandbox, ALICE).tasks.get()[0] == []
    server.datasources.delete(extract.id)
    assert server.tasks.get()[0] == []
