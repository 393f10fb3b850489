"""Refresh tasks and their schedules, modelled on public recordings."""

from typing import Any

import pytest

from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline_tests.publishing.hostile import Call
from tableau_pipeline_tests.publishing.recorded.support import LUID, OTHER, Server, error, xml

TASKS, SCHEDULE = "sites/[^/]+/tasks/extractRefreshes", "schedules/[^/]+"
TARGET = f'<datasource id="{LUID}"/>'


def task(schedule: str, *, luid: str = "1", target: str = TARGET) -> str:
    """A task, as in TSC, tasks_with_interval.xml and tasks_with_workbook_and_datasource.xml."""
    about = f'id="{luid}" priority="50" consecutiveFailedCount="0" type="RefreshExtractTask"'
    return f"<task><extractRefresh {about}>{schedule}{target}</extractRefresh></task>"


def schedule(frequency: str, start: str, *intervals: str, about: str = "", end: str = "") -> str:
    """A schedule with its times. Cloud sends it in a task, and Server as an answer of its own."""
    until = f'end="{end}"' if end else ""
    inside = "".join(f"<interval {each}/>" for each in intervals)
    return (
        f'<schedule {about} frequency="{frequency}"><frequencyDetails start="{start}" {until}>'
        f"<intervals>{inside}</intervals></frequencyDetails></schedule>"
    )


def tasks_of(server: Server, *tasks: str) -> list[RefreshTask]:
    """The tasks of the data source."""
    with server.saying("GET", TASKS, xml(f"<tasks>{''.join(tasks)}</tasks>")):
        found = server.site.refresh_tasks()
    assert found is not None
    return [*found.get(LUID, ())]


NEXT = 'nextRunAt="2024-02-21T02:20:00Z"'
EVENING = "18:20:00"
EACH_HALF_HOUR = f"0,30 {','.join(map(str, range(24)))} * * *"
CASES: dict[str, tuple[str, str, str | None, int | None]] = {
    # TSC, tasks_with_interval.xml: a schedule of Cloud, whose clock is eight hours behind UTC.
    "a day of the week": (
        schedule("Daily", EVENING, 'hours="24"', 'weekDay="Tuesday"', about=NEXT, end=EVENING),
        "daily Tue every 24 hours at 18:20-18:20", "20 18 * * TUE", -480,
    ),
    # TSC, schedule_get_hourly_id.xml and schedule_get_daily_id.xml.
    "hourly": (
        schedule("Hourly", "09:00:00", 'hours="4"', 'weekDay="Monday"', about=NEXT, end="17:00:00"),
        "hourly Mon every 4 hours at 09:00-17:00", "0 9,13,17 * * MON", None,
    ),
    "minutes": (
        schedule("Hourly", "00:00:00", 'minutes="30"', about=NEXT, end="24:00:00"),
        "hourly every 30 minutes at 00:00-24:00", EACH_HALF_HOUR, None,
    ),
    "weekly": (
        schedule("Weekly", "06:00:00", 'weekDay="Monday"', 'weekDay="Friday"'),
        "weekly Mon, Fri at 06:00", None, None,
    ),
    # TSC, schedule_get_monthly_id.xml and schedule_get_monthly_id_2.xml.
    "monthly": (
        schedule("Monthly", "08:00:00", 'monthDay="1"', 'monthDay="LastDay"', about=NEXT),
        "monthly 1, LastDay at 08:00", "0 8 1,L * *", -1100 + 1440,
    ),
    "the first Monday": (
        schedule("Monthly", "08:00:00", 'weekDay="Monday" monthDay="First"', about=NEXT),
        "monthly Mon, First at 08:00", None, 340,
    ),
    "suspended": (
        schedule("Daily", "18:20:00", about=f'{NEXT} name="Night" state="Suspended"'),
        '"Night", daily at 18:20 (suspended)', None, -480,
    ),
    # Unknown words, and missing parts.
    "another frequency": (
        schedule("Yearly", "18:20:00", 'moon="full"', about=NEXT),
        "yearly every full moon at 18:20", "20 18 * * *", -480,
    ),
    "no number": (
        schedule("Hourly", "18:20:00", 'hours="few"', about=NEXT),
        "hourly every few hours at 18:20", None, None,
    ),
    "no time": (schedule("Daily", "soon", about=NEXT), "daily at soon", None, None),
    # TSC, tasks_create_extract_task.xml: a zone without a colon.
    "another zone": (
        schedule("Daily", "18:20:00", about='nextRunAt="2024-02-20T18:20:00-0800"'),
        "daily at 18:20", "20 18 * * *", -480,
    ),
    "nothing": ("<schedule/>", "", None, None),
    "no schedule": ("", "", None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_task(server: Server, case: str):
    """Prevents: one schedule of an unknown kind hides the tasks of all data sources."""
    about, when, cron, ahead = CASES[case]
    (found,) = tasks_of(server, task(about))
    assert found.url.endswith("/tasks/extractRefreshes/1")
    assert (found.when, found.cron, found.ahead) == (when, cron, ahead)


# TSC, tasks_with_workbook_and_datasource.xml: on Server, a task only names its schedule.
NAMED = (
    '<schedule id="b60b" name="Every night" state="Active" priority="50" type="Extract"'
    ' createdAt="2016-02-11T01:42:55Z" updatedAt="2017-07-12T06:00:06Z" frequency="Daily"'
    ' nextRunAt="2017-07-13T06:00:00Z"/>'
)
TIMES = schedule("Daily", "23:00:00", about='id="b60b" name="Every night" ' + NEXT)


@pytest.mark.parametrize(
    ("answer", "when", "cron"),
    [
        (xml(TIMES), '"Every night", daily at 23:00', "0 23 * * *"),
        (error(403, "403004"), '"Every night", daily', None),
        (error(404, "404010"), '"Every night", daily', None),
        (xml("<schedules/>"), '"Every night", daily', None),
    ],
)
def test_times_of_a_schedule(server: Server, answer: Any, when: str, cron: str | None):
    """Prevents: a hidden schedule hides its tasks, or the pipeline requests one schedule twice."""
    with server.saying("GET", SCHEDULE, answer) as asked:
        found = tasks_of(
            server,
            task(NAMED),
            task(NAMED, luid="2"),
            task(NAMED, luid="3", target='<workbook id="9"/>'),
            task(NAMED, luid="4", target=f'<datasource id="{OTHER}" name="Other"/><news/>'),
            task(NAMED, luid="5", target=""),
        )
    assert [each.id for each in found] == ["1", "2"]
    assert {each.when for each in found} == {when}
    assert {each.cron for each in found} == {cron}
    assert len(asked) == 1


def test_site_without_tasks(server: Server):
    """Prevents: an empty list of tasks passes for tasks that the user may not see."""
    assert tasks_of(server) == []
    with server.saying("GET", TASKS, xml("")):
        assert server.site.refresh_tasks() == {}


@pytest.mark.parametrize(("status", "code"), [(403, "403004"), (401, "401002")])
def test_tasks_that_may_not_be_seen(server: Server, status: int, code: str):
    """Prevents: tasks that the user may not see count as absent, and one undoes a publish."""

    def respond(call: Call) -> None:
        error(status, code)(call)

    with server.saying("GET", TASKS, respond):
        assert server.site.refresh_tasks() is None
