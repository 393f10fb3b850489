"""Tasks that refresh extracts, on shared or own schedules. The sandbox never runs tasks."""

from dataclasses import replace
from datetime import datetime, time, timedelta
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zoneinfo import ZoneInfo

from tableau_sandbox import access
from tableau_sandbox.clock import stamp
from tableau_sandbox.errors import malformed, not_found, refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.rest.answers import Reply, element
from tableau_sandbox.rest.datasources import find_datasource
from tableau_sandbox.rest.requests import Call, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import Datasource, RefreshTask

_FILE = files("tableau_sandbox.rest").joinpath("schedules.xml")
_SHARED = {each.get("id"): each for each in ElementTree.fromstring(_FILE.read_text("utf-8"))}  # noqa: S314


def get_schedule(services: Services, call: Call) -> Reply:
    """Return one shared schedule of the server, with its times."""
    return Reply(200, _schedule(services, _shared(call.path["schedule"]), has_times=True))


def add_task(services: Services, call: Call) -> Reply:
    """Add a task on a shared schedule of the server or, for Tableau Cloud, on its own schedule."""
    shared = call.path.get("schedule", "")
    request = parse_request(call.body, "task" if shared else "extractRefresh")
    own = _shared(shared) if shared else parse_request(call.body, "schedule")
    try:
        _next_run(services, own)
    except (AttributeError, IndexError, ValueError) as error:
        raise malformed(f"The schedule has no valid times: {error}.") from error
    about = next(request.iter("datasource"), Element("none"))
    named = replace(call, path={**call.path, "datasource": about.get("id", "")})
    found = find_datasource(services, named, to=access.CHANGE_PERMISSIONS, refused="403032")
    if not found.has_extracts:
        raise refusal("409090", f"The datasource '{found.name}' is not an extract.")
    times = "" if shared else ElementTree.tostring(own, "unicode")
    task = RefreshTask(new_luid(), call.site.luid, found.luid, shared, times)
    services.database.save("refresh_task", vars(task))
    made = _task(services, task)
    return Reply(200, element("task", None, made)) if shared else Reply(201, made)


def query_tasks(services: Services, call: Call) -> Reply:
    """List tasks on one page. Administrators see all tasks, others those of their data sources."""
    mine = {} if call.user.is_admin else {"owner": call.user.luid}
    owned = {each.luid for each in services.database.all(Datasource, site=call.site.luid, **mine)}
    found = services.database.all(RefreshTask, site=call.site.luid)
    seen = [_task(services, each) for each in found if each.datasource in owned]
    tasks = (element("task", None, each) for each in seen)
    return Reply(200, element("tasks", None, *tasks))


def _shared(luid: str) -> Element:
    if luid in _SHARED:
        return _SHARED[luid]
    raise not_found("Schedule", luid, code="404021")


def _task(services: Services, task: RefreshTask) -> Element:
    own = ElementTree.fromstring(task.times) if task.times else _shared(task.schedule)  # noqa: S314
    # Add the times only if the task has a schedule of its own.
    schedule = _schedule(services, own, has_times=bool(task.times))
    about = {"id": task.luid, "priority": 50, "consecutiveFailedCount": 0}
    target = element("datasource", {"id": task.datasource})
    return element("extractRefresh", about | {"type": "RefreshExtractTask"}, schedule, target)


def _schedule(services: Services, schedule: Element, *, has_times: bool) -> Element:
    known = {**schedule.attrib, "nextRunAt": _next_run(services, schedule)}
    return element("schedule", known, *schedule.findall("frequencyDetails") * has_times)


def _next_run(services: Services, schedule: Element) -> str | None:
    """Return the stamp of the next run; None if the schedule has no run within a month."""
    zone, now = ZoneInfo(services.options.time_zone), services.clock()
    times: Any = schedule.find("frequencyDetails")
    start, end = (
        time.fromisoformat(times.get(e) or times.get("start", "")) for e in ("start", "end")
    )
    given = [pair for each in schedule.iter("interval") for pair in each.items()]
    unit = {"hours": 60, "minutes": 1}
    step = sum(unit[name] * int(value) for name, value in given if name in unit) or 24 * 60
    days = {value for name, value in given if name not in unit}
    span = (end.hour * 60 + end.minute - start.hour * 60 - start.minute) % (24 * 60)
    for ahead in range(-1, 32):
        first = datetime.combine(now.astimezone(zone) + timedelta(ahead), start, zone)
        last = ["LastDay"] * ((first + timedelta(1)).day == 1)
        runs = [first + timedelta(minutes=each) for each in range(0, span + 1, step)]
        is_on = not days or not days.isdisjoint([f"{first:%A}", str(first.day), *last])
        if is_on and runs[-1] > now:
            return stamp(next(each for each in runs if each > now))
    return None


_TASKS, _SCHEDULE = "sites/{site}/tasks/extractRefreshes", "schedules/{schedule}"
_CREATE = ("tableau:tasks:create",)
ROUTES = (
    Route("GET", _SCHEDULE, get_schedule, ("tableau:schedules:read",)),
    Route("PUT", f"sites/{{site}}/{_SCHEDULE}/datasources", add_task, _CREATE),
    Route("GET", _TASKS, query_tasks, ("tableau:tasks:read",)),
    Route("POST", _TASKS, add_task, _CREATE),
)
