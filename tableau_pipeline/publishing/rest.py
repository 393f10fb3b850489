"""Read answers of Tableau's REST API: lists, data sources, revisions, jobs, refresh tasks."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

import defusedxml.ElementTree
import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.drift import Job, RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.errors import BadAnswerError
from tableau_pipeline.publishing.tsc_internals import NonXMLResponseError

# The largest page that Tableau returns, in items.
_PAGE_SIZE = 1000
# The most pages that we read: no site has a million items of the same kind.
_MOST_PAGES = 1000
# The server splits a tag at these characters.
_TAG_SEPARATORS = re.compile(r"[\s,]")
# In a filter, these characters end a value or begin another value.
_NOT_IN_FILTERS = frozenset(",&:[]")


def iterate(endpoint: Any, options: TSC.RequestOptions | None = None) -> Iterator[Any]:
    """Yield the items of a TSC endpoint, page by page.

    TSC's own `filter()` and `all()` treat most errors as the end of the list. If the server were
    too busy to answer, a data source would seem to be missing. TSC's `Pager` would never stop if
    the server reported a wrong total.
    """
    options = options or TSC.RequestOptions()
    options.pagesize = _PAGE_SIZE
    page_of = getattr(endpoint, "get", endpoint)
    for number in range(1, _MOST_PAGES + 1):
        options.pagenumber = number
        items, page = page_of(options)
        yield from items
        if page.page_size * number >= page.total_available:
            return
        if page.page_size < 1 or not items:
            break
    raise NonXMLResponseError(
        f"page {number} of a list has {len(items)} items, of {page.total_available} in all"
    )


def all_fields() -> TSC.RequestOptions:
    """Return options that request all fields; by default, lists lack sizes and domains."""
    options = TSC.RequestOptions()
    options.all_fields = True
    return options


def items_named(endpoint: Any, name: str, *, in_full: bool = False) -> Iterator[Any]:
    """Yield the items of a TSC endpoint with this name; an item may occur twice.

    Items that match the server's filter come first, then items from the whole list. A filter is not
    enough, for two reasons. Names that differ only in case are equal for Tableau, but not for its
    filters. And filters cannot express some names.

    Args:
        in_full: whether to request all fields of the items.
    """
    for items in _lists(endpoint, name, in_full=in_full):
        yield from (item for item in items if same_name(item.name, name))


def principals_named(endpoint: Any, name: str) -> Sequence[Any]:
    """Return the groups or users with this name: one for each domain that has such a group or user.

    Names that differ in case count only if the server's filter finds no exact match.
    """
    for items in _lists(endpoint, name, in_full=True):
        if matches := {str(item.id): item for item in items if same_name(item.name, name)}:
            return [*matches.values()]
    return []


def _lists(endpoint: Any, name: str, *, in_full: bool) -> Iterator[Iterator[Any]]:
    options = all_fields if in_full else TSC.RequestOptions
    if not _NOT_IN_FILTERS & set(name):
        filtered, field = options(), TSC.RequestOptions.Field.Name
        filtered.filter.add(TSC.Filter(field, TSC.RequestOptions.Operator.Equals, name))
        yield iterate(endpoint, filtered)
    yield iterate(endpoint, options())


def same_name(one: str | None, other: str | None) -> bool:
    """Whether Tableau treats two names as equal."""
    return (one or "").casefold() == (other or "").casefold()


def tags_request(tags: Iterable[str]) -> bytes:
    """Return the body of a request that adds tags."""
    request = Element("tsRequest")
    parent = SubElement(request, "tags")
    for tag in tags:
        # The server splits a label at separators. It does not split a label in quotes, and removes
        # the quotes. TSC's own request adds the quotes only since release 0.42.
        SubElement(parent, "tag", label=f'"{tag}"' if _TAG_SEPARATORS.search(tag) else tag)
    return tostring(request)


def remote_datasource(
    server: TSC.Server, item: TSC.DatasourceItem, *, revision: bool = True
) -> RemoteDatasource:
    """Return a data source. If `revision` is true, also ask for the newest revision."""
    newest, published = _newest_revision(server, item) if revision else None, None
    if newest:
        by = f' by "{newest.user_name}"' if newest.user_name else ""
        at = f" at {newest.created_at:%Y-%m-%d %H:%M:%S} UTC" if newest.created_at else ""
        published = f"revision {newest.revision_number} was published{by}{at}"
    return RemoteDatasource(
        luid=str(item.id),
        name=str(item.name),
        project_id=str(item.project_id),
        owner_id=str(item.owner_id),
        created_at=valid_time(item, "createdAt", item.created_at),
        updated_at=valid_time(item, "updatedAt", item.updated_at),
        revision=revision_number(newest) if newest else None,
        published=published,
        publisher_id=newest.user_id if newest else None,
        megabytes=item.size,
        tags=frozenset(item.tags or ()),
        link=item.webpage_url,
        description=item.description or "",
        certification=(item.certification_note or "") if item.certified else None,
    )


def valid_time(item: TSC.DatasourceItem, name: str, value: datetime | None) -> datetime:
    """Return a time of a data source; raise RefreshError if the server sent no valid time."""
    if value is None:
        raise RefreshError(f"The server reports no valid {name} for data source {item.id}.")
    return value


def _newest_revision(server: TSC.Server, item: TSC.DatasourceItem) -> TSC.RevisionItem | None:
    try:
        revisions = list_revisions(server, str(item.id))
    except TSC.ServerResponseError as error:
        # The site keeps no revisions, or this user may not see them.
        if error.code.startswith("403"):
            return None
        raise
    return revisions[-1] if revisions else None


def list_revisions(server: TSC.Server, luid: str) -> Sequence[Any]:
    """Return the revisions of a data source as TSC items, with the current revision last."""
    url = f"{server.datasources.baseurl}/{luid}/revisions"

    def page(
        options: TSC.RequestOptions | None,
    ) -> tuple[list[TSC.RevisionItem], TSC.PaginationItem]:
        # TSC's own call reads only the first page, but the newest revision may be on the last page.
        answer, names = server.datasources.get_request(url, options).content, server.namespace
        items = TSC.RevisionItem.from_response(answer, names, TSC.DatasourceItem())
        return items, TSC.PaginationItem.from_response(answer, names)

    revisions = list(iterate(page))
    revisions.sort(key=lambda revision: (bool(revision.current), revision_number(revision)))
    return revisions


def revision_number(revision: TSC.RevisionItem) -> int:
    """Return the number of a revision.

    Raises:
        BadAnswerError: the server sent no number.
    """
    number = str(revision.revision_number)
    if not number.isdecimal():
        raise BadAnswerError(
            f'does not answer like a Tableau Server: it sent "{number}" as the number of a '
            "revision."
        )
    return int(number)


_FINISHED = {
    str(TSC.JobItem.FinishCode.Success): Outcome.DONE,
    str(TSC.JobItem.FinishCode.Completed): Outcome.DONE,
    str(TSC.JobItem.FinishCode.Cancelled): Outcome.CANCELLED,
}
# Only failed jobs have notes of this type.
_ERROR = "errorcode"


def job(server: TSC.Server, job_id: str) -> Job:
    """Return the present state of a job."""
    # Avoid TSC's own call: it drops times with fractions of a second. Before 0.42, it also drops
    # notes with a type.
    url = f"{server.jobs.baseurl}/{job_id}"
    answer = defusedxml.ElementTree.fromstring(
        server.jobs.get_request(url).content, forbid_dtd=True
    )
    element = next(answer.iterfind("{*}job"))
    datasource = element.find(".//{*}datasource[@id]")
    notes = [*element.iterfind("{*}statusNotes/{*}statusNote")]
    texts = [child.text for child in element.iterfind(".//{*}notes")]
    texts += [note.get("text") or note.get("value") for note in notes]
    code, completed_at = element.get("finishCode"), parse_time(element.get("completedAt"))
    # Some servers report a finish code before the job has ended. So look at the progress, too;
    # Tableau's Migration SDK does the same.
    is_over = completed_at is not None or (code and element.get("progress") == "100")
    # Count an unknown code as a failure.
    outcome = _FINISHED.get(code or "", Outcome.FAILED) if is_over else None
    # Some jobs have failed although their code means success. So look for errors in the notes, like
    # the Migration SDK.
    if outcome is Outcome.DONE and any(note.get("type", "").casefold() == _ERROR for note in notes):
        outcome = Outcome.FAILED
    return Job(
        id=job_id,
        outcome=outcome,
        notes=" ".join(filter(None, texts)),
        created_at=parse_time(element.get("createdAt")),
        started_at=parse_time(element.get("startedAt")),
        completed_at=completed_at,
        datasource=datasource.get("id") if datasource is not None else None,
    )


def parse_time(text: str | None) -> datetime | None:
    """Parse a time from Tableau; return None if the text is not a valid time with a zone."""
    try:
        time_stamp = datetime.fromisoformat(text or "")
        return time_stamp.astimezone(UTC) if time_stamp.tzinfo else None
    except (OverflowError, ValueError):
        return None


_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class RefreshTask:
    """A task that refreshes an extract.

    Attributes:
        when: the schedule of the task, in words.
        url: the URL of the task; a DELETE request to this URL removes the task.
        cron: the schedule as a cron expression in the time zone of the site; None if cron cannot
            express the schedule, or the task is suspended.
        ahead: how many minutes the time zone of the site is ahead of UTC; None if unknown.
    """

    id: str
    when: str
    url: str
    cron: str | None = None
    ahead: int | None = None


def refresh_tasks(tsc: TSC.Server) -> Mapping[str, Sequence[RefreshTask]]:
    """Return the tasks that this user may see, by the LUIDs of their data sources."""
    url = f"{tsc.tasks.baseurl}/extractRefreshes"
    # Avoid TSC's own call: it fails if a single schedule is of a kind that TSC does not know.
    root = defusedxml.ElementTree.fromstring(tsc.tasks.get_request(url).content, forbid_dtd=True)
    schedules: dict[str, Element] = {}
    tasks: dict[str, list[RefreshTask]] = defaultdict(list)
    for item in root.iterfind(".//{*}extractRefresh"):
        target, schedule = item.find("{*}datasource"), item.find("{*}schedule")
        if target is None:
            continue
        task_id, timing = item.get("id", ""), Element("schedule") if schedule is None else schedule
        refresh_task = _task(task_id, f"{url}/{task_id}", _with_times(tsc, timing, schedules))
        tasks[target.get("id", "")].append(refresh_task)
    # All tasks of a site run in one time zone. `_task` finds the time zone only for tasks that run
    # at most once a day, so take it from one of these tasks.
    ahead = next(
        (task.ahead for group in tasks.values() for task in group if task.ahead is not None), None
    )
    return {luid: [replace(task, ahead=ahead) for task in group] for luid, group in tasks.items()}


def _with_times(tsc: TSC.Server, schedule: Element, known: dict[str, Element]) -> Element:
    """Return a schedule with its times.

    Tableau Server lists tasks without the times of their schedules. So ask the server for each
    schedule, but only once.
    """
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
    pairs = [pair for interval in schedule.iterfind(".//{*}interval") for pair in interval.items()]
    begin, end = (details.get(key, "") if details is not None else "" for key in ("start", "end"))
    days = ", ".join(v[:3] if name == "weekDay" else v for name, v in pairs if name.endswith("Day"))
    is_off = schedule.get("state", "Active") != "Active"
    steps = [f"every {value} {name}" for name, value in pairs if not name.endswith("Day")]
    until = f"-{end[:5]}" if end and steps else ""
    words = [frequency.lower(), days, *steps, begin and f"at {begin[:5]}{until}"]
    when = " ".join(filter(None, [*words, "(suspended)" if is_off else ""]))
    label = f'"{schedule.get("name")}", {when}' if schedule.get("name") else when
    try:
        start = time.fromisoformat(begin)
        # Tableau writes the end of a day as 24:00, which Python does not parse.
        last = time.fromisoformat(end.replace("24:", "00:")) if end else None
        cron, step = cron_of(start, last, pairs)
        next_run = datetime.fromisoformat(schedule.get("nextRunAt", "")).astimezone(UTC)
    except ValueError:
        return RefreshTask(luid, label, url)
    offset = (_minutes(start) - _minutes(next_run.time()) + _DAY // 2) % _DAY - _DAY // 2
    # If a task runs several times a day, its next run may not be the first run of a day. Then the
    # difference between `start` and the next run says nothing about the time zone.
    ahead = None if step < _DAY else offset
    return RefreshTask(luid, label, url, None if is_off else cron, ahead)


def cron_of(
    start: time, end: time | None, intervals: Sequence[tuple[str, str]]
) -> tuple[str | None, int]:
    """Return the cron expression of a schedule, and the minutes between two runs.

    The cron expression is None if cron cannot express the schedule.

    Args:
        intervals: Tableau's pairs of a name (minutes, hours, weekDay or monthDay) and a value.

    Raises:
        ValueError: the value of minutes or hours is not a number.
    """
    units = {"minutes": 1, "hours": 60}
    step = sum(units[name] * int(value) for name, value in intervals if name in units) or _DAY
    week = [value[:3].upper() for name, value in intervals if name == "weekDay"]
    month = [
        "L" if value == "LastDay" else value for name, value in intervals if name == "monthDay"
    ]
    span = (_minutes(end or start) - _minutes(start)) % _DAY or (_DAY if step < _DAY else 1)
    # A task also runs at `end`. Leave this run out if the runs are less than an hour apart: with
    # it, the cron expression would add runs after `end`.
    runs = [(_minutes(start) + offset) % _DAY for offset in range(0, span + (step >= 60), step)]
    hours, minutes = ({run // 60 for run in runs}, {run % 60 for run in runs})
    at = " ".join(",".join(map(str, sorted(numbers))) for numbers in (minutes, hours))
    at = f"{min(minutes)} *" if len(hours) == 24 and len(minutes) == 1 else at
    # Cron cannot express the first Monday of a month, or steps such as 45 minutes.
    is_plain = all(day == "L" or day.isdecimal() for day in month) and not (week and month)
    if not is_plain or (step < _DAY and step % 60 and 60 % step):
        return None, step
    return f"{at} {','.join(month) or '*'} * {','.join(week) or '*'}", step


def _minutes(of: time) -> int:
    return of.hour * 60 + of.minute


def probe(tsc: TSC.Server) -> object:
    """Send a request that any session may make: list one data source."""
    return tsc.datasources.get(TSC.RequestOptions(pagesize=1))


def session_is_alive(tsc: TSC.Server) -> bool:
    """Return whether the session is alive.

    Use this function because a server may wrongly report that a session has ended.
    """
    try:
        probe(tsc)
    except TSC.FailedSignInError:
        return False
    return True
