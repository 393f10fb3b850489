"""The tasks of a site that refresh its extracts, and their times as cron expressions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from xml.etree.ElementTree import Element

import defusedxml.ElementTree
import tableauserverclient as TSC

_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class RefreshTask:
    """A task that refreshes an extract.

    Attributes:
        when: its schedule in words.
        url: where a DELETE removes the task.
        cron: when it runs, in the time zone of the site; None if that cannot be written so, or
            it does not run.
        ahead: minutes by which that zone is ahead of UTC; None if the task does not tell.
    """

    id: str
    when: str
    url: str
    cron: str | None = None
    ahead: int | None = None


def refresh_tasks(tsc: TSC.Server) -> Mapping[str, Sequence[RefreshTask]]:
    """Return the tasks of the site that this user may see, by the LUID of the data source."""
    url = f"{tsc.tasks.baseurl}/extractRefreshes"
    # The client's own call fails as a whole over a single schedule that it does not know.
    root = defusedxml.ElementTree.fromstring(tsc.tasks.get_request(url).content, forbid_dtd=True)
    known: dict[str, Element] = {}
    found: dict[str, list[RefreshTask]] = defaultdict(list)
    for each in root.iterfind(".//{*}extractRefresh"):
        target, schedule = each.find("{*}datasource"), each.find("{*}schedule")
        if target is None:
            continue
        luid, about = each.get("id", ""), Element("schedule") if schedule is None else schedule
        task = _task(luid, f"{url}/{luid}", _with_times(tsc, about, known))
        found[target.get("id", "")].append(task)
    # One clock runs all tasks of a site, but those that run every few hours do not tell its zone.
    told = next((e.ahead for tasks in found.values() for e in tasks if e.ahead is not None), None)
    return {luid: [replace(e, ahead=told) for e in tasks] for luid, tasks in found.items()}


def _with_times(tsc: TSC.Server, schedule: Element, known: dict[str, Element]) -> Element:
    """The schedule itself on Tableau Cloud; on Server, its times have to be asked for."""
    luid = schedule.get("id", "")
    if schedule.find("{*}frequencyDetails") is not None or not luid:
        return schedule
    if luid not in known:
        try:
            answer = tsc.schedules.get_request(f"{tsc.schedules.baseurl}/{luid}").content
            parsed = defusedxml.ElementTree.fromstring(answer, forbid_dtd=True)
            known[luid] = next(parsed.iterfind("{*}schedule"), schedule)
        except TSC.ServerResponseError:
            known[luid] = schedule
    return known[luid]


def _task(luid: str, url: str, schedule: Element) -> RefreshTask:
    details, frequency = schedule.find("{*}frequencyDetails"), schedule.get("frequency", "")
    given = [pair for each in schedule.iterfind(".//{*}interval") for pair in each.items()]
    begin, end = (details.get(e, "") if details is not None else "" for e in ("start", "end"))
    days = ", ".join(v[:3] if name == "weekDay" else v for name, v in given if name.endswith("Day"))
    is_off = schedule.get("state", "Active") != "Active"
    every = [f"every {value} {name}" for name, value in given if not name.endswith("Day")]
    until = f"-{end[:5]}" if end and every else ""
    words = [frequency.lower(), days, *every, begin and f"at {begin[:5]}{until}"]
    when = " ".join(filter(None, [*words, "(suspended)" if is_off else ""]))
    named = f'"{schedule.get("name")}", {when}' if schedule.get("name") else when
    try:
        start = time.fromisoformat(begin)
        # Midnight at the end of a day is no time to Python.
        last = time.fromisoformat(end.replace("24:", "00:")) if end else None
        cron, step = cron_of(start, last, given)
        following = datetime.fromisoformat(schedule.get("nextRunAt", "")).astimezone(UTC)
    except ValueError:
        return RefreshTask(luid, named, url)
    ahead = (_minutes(start) - _minutes(following.time()) + _DAY // 2) % _DAY - _DAY // 2
    told = None if step < _DAY else ahead
    return RefreshTask(luid, named, url, None if is_off else cron, told)


def cron_of(
    start: time, end: time | None, intervals: Sequence[tuple[str, str]]
) -> tuple[str | None, int]:
    """Return a cron expression, or None; and the minutes between two runs of a day.

    Args:
        intervals: names and values as Tableau has them: minutes, hours, weekDay or monthDay.

    Raises:
        ValueError: a number is none.
    """
    unit = {"minutes": 1, "hours": 60}
    step = sum(unit[name] * int(value) for name, value in intervals if name in unit) or _DAY
    week = [value[:3].upper() for name, value in intervals if name == "weekDay"]
    month = [
        "L" if value == "LastDay" else value for name, value in intervals if name == "monthDay"
    ]
    span = (_minutes(end or start) - _minutes(start)) % _DAY or (_DAY if step < _DAY else 1)
    # The end is a time to run, too; a quarter of an hour later none would be.
    runs = [(_minutes(start) + e) % _DAY for e in range(0, span + (step >= 60), step)]
    hours, minutes = ({each // 60 for each in runs}, {each % 60 for each in runs})
    at = " ".join(",".join(map(str, sorted(each))) for each in (minutes, hours))
    at = f"{min(minutes)} *" if len(hours) == 24 and len(minutes) == 1 else at
    # The first Monday of a month is no day of the month, nor are steps such as 45 minutes hours.
    is_plain = all(day == "L" or day.isdecimal() for day in month) and not (week and month)
    if not is_plain or (step < _DAY and step % 60 and 60 % step):
        return None, step
    return f"{at} {','.join(month) or '*'} * {','.join(week) or '*'}", step


def _minutes(of: time) -> int:
    return of.hour * 60 + of.minute
