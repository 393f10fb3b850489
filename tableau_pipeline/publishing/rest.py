"""Read what Tableau sends: lists, data sources, jobs, refresh tasks."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

import defusedxml.ElementTree
import tableauserverclient as TSC
from tableauserverclient.server.endpoint.exceptions import NonXMLResponseError

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.drift import Job, RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError, SettingError
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.http import BadAnswerError
from tableau_pipeline.rendering import megabytes

# The largest page that Tableau returns.
_PAGE_SIZE = 1000
# No site has a million items of a kind.
_MOST_PAGES = 1000
# Where the server splits what is to be one tag.
_PARTS = re.compile(r"[\s,]")
# In a filter these characters end a value or begin another one.
_NOT_IN_FILTERS = frozenset(",&:[]")


def every(endpoint: Any, options: TSC.RequestOptions | None = None) -> Iterator[Any]:
    """Yield the items of a TSC endpoint, page by page.

    TSC's own `filter()` and `all()` treat most errors as the end of the list. With them, a data
    source would seem not to exist when the server is merely too busy to answer. Its `Pager` would
    ask a server that counts wrong for ever.
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
        f"page {number} of a list has {len(items)} items, and {page.total_available} are said to be"
    )


def all_fields() -> TSC.RequestOptions:
    """Return options that ask for what Tableau's lists leave out, such as sizes and domains."""
    options = TSC.RequestOptions()
    options.all_fields = True
    return options


def named(endpoint: Any, name: str, *, in_full: bool = False) -> Iterator[Any]:
    """Yield the items of a TSC endpoint with this name; an item may come twice.

    Those that match the server's filter come first: to Tableau names that differ only in case are
    equal, but not to its filters, and a filter cannot contain every name.

    Args:
        in_full: with all of their fields.
    """
    for items in _lists(endpoint, name, in_full=in_full):
        yield from (item for item in items if same_name(item.name, name))


def alike(endpoint: Any, name: str) -> Sequence[Any]:
    """Return the groups or users with this name, one for each domain that has it.

    Those that are written in the same way are all, if there are any.
    """
    for items in _lists(endpoint, name, in_full=True):
        if found := {str(each.id): each for each in items if same_name(each.name, name)}:
            return [*found.values()]
    return []


def _lists(endpoint: Any, name: str, *, in_full: bool) -> Iterator[Iterator[Any]]:
    options = all_fields if in_full else TSC.RequestOptions
    if not _NOT_IN_FILTERS & set(name):
        filtered, field = options(), TSC.RequestOptions.Field.Name
        filtered.filter.add(TSC.Filter(field, TSC.RequestOptions.Operator.Equals, name))
        yield every(endpoint, filtered)
    yield every(endpoint, options())


def same_name(one: str | None, other: str | None) -> bool:
    """Whether two names are equal to Tableau."""
    return (one or "").casefold() == (other or "").casefold()


def tags_request(tags: Iterable[str]) -> bytes:
    """Return the body of a request that adds tags."""
    request = Element("tsRequest")
    listed = SubElement(request, "tags")
    for each in tags:
        # Without quotes, which it takes away, the server makes several tags of it. TSC writes them
        # since 0.42.
        SubElement(listed, "tag", label=f'"{each}"' if _PARTS.search(each) else each)
    return tostring(request)


def remote_datasource(
    server: TSC.Server, item: TSC.DatasourceItem, *, revision: bool = True
) -> RemoteDatasource:
    """Return a data source, with its newest revision if that is to be asked for."""
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
        megabytes=item.size,
        tags=frozenset(item.tags or ()),
        link=item.webpage_url,
        description=item.description or "",
        certification=(item.certification_note or "") if item.certified else None,
    )


def valid_time(item: TSC.DatasourceItem, name: str, value: datetime | None) -> datetime:
    """Return a time of a data source, which the client leaves out if it is not valid."""
    if value is None:
        raise RefreshError(f"The server reports no valid {name} for data source {item.id}.")
    return value


def _newest_revision(server: TSC.Server, item: TSC.DatasourceItem) -> TSC.RevisionItem | None:
    try:
        found = list_revisions(server, str(item.id))
    except TSC.ServerResponseError as error:
        # The site keeps no revisions, or this user may not see them.
        if error.code.startswith("403"):
            return None
        raise
    return found[-1] if found else None


def list_revisions(server: TSC.Server, luid: str) -> Sequence[Any]:
    """Return the revisions of a data source as the client has them, the current one last."""
    url = f"{server.datasources.baseurl}/{luid}/revisions"

    def page(
        options: TSC.RequestOptions | None,
    ) -> tuple[list[TSC.RevisionItem], TSC.PaginationItem]:
        # TSC's own call reads only the first page, but the newest revision may be on the last one.
        answer, names = server.datasources.get_request(url, options).content, server.namespace
        found = TSC.RevisionItem.from_response(answer, names, TSC.DatasourceItem())
        return found, TSC.PaginationItem.from_response(answer, names)

    found = list(every(page))
    found.sort(key=lambda each: (bool(each.current), revision_number(each)))
    return found


def revision_number(revision: TSC.RevisionItem) -> int:
    """Return the number of a revision.

    Raises:
        BadAnswerError: the server tells none.
    """
    number = str(revision.revision_number)
    if not number.isdecimal():
        raise BadAnswerError(f"does not answer like a Tableau Server: it has a revision {number}.")
    return int(number)


_FINISHED = {
    str(TSC.JobItem.FinishCode.Success): Outcome.DONE,
    str(TSC.JobItem.FinishCode.Completed): Outcome.DONE,
    str(TSC.JobItem.FinishCode.Cancelled): Outcome.CANCELLED,
}
# The type of a note that a failed job has.
_ERROR = "errorcode"


def job(server: TSC.Server, job_id: str) -> Job:
    """Ask for a job by its id."""
    # TSC drops times with fractions of a second, and before 0.42 the notes that have a type.
    url = f"{server.jobs.baseurl}/{job_id}"
    answer = defusedxml.ElementTree.fromstring(
        server.jobs.get_request(url).content, forbid_dtd=True
    )
    found = next(answer.iterfind("{*}job"))
    named = found.find(".//{*}datasource[@id]")
    notes = [*found.iterfind("{*}statusNotes/{*}statusNote")]
    texts = [each.text for each in found.iterfind(".//{*}notes")]
    texts += [each.get("text") or each.get("value") for each in notes]
    code, completed_at = found.get("finishCode"), moment(found.get("completedAt"))
    # Some servers report a finish code before the job has ended. Tableau's Migration SDK takes
    # progress alone for the end.
    is_over = completed_at is not None or (code and found.get("progress") == "100")
    # One that is not known here must not pass for success.
    outcome = _FINISHED.get(code or "", Outcome.FAILED) if is_over else None
    # As in the Migration SDK, for which some jobs have failed with the code of success.
    if outcome is Outcome.DONE and any(e.get("type", "").casefold() == _ERROR for e in notes):
        outcome = Outcome.FAILED
    return Job(
        id=job_id,
        outcome=outcome,
        notes=" ".join(filter(None, texts)),
        created_at=moment(found.get("createdAt")),
        started_at=moment(found.get("startedAt")),
        completed_at=completed_at,
        datasource=named.get("id") if named is not None else None,
    )


def moment(text: str | None) -> datetime | None:
    """Return a time as Tableau writes it, perhaps with fractions; None if it is none in a zone."""
    try:
        found = datetime.fromisoformat(text or "")
        return found.astimezone(UTC) if found.tzinfo else None
    except (OverflowError, ValueError):
        return None


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


_VARIABLE = "TSC_CHUNK_SIZE_MB"
# The client's megabyte, in which it measures blocks. All other MB are 10^6 bytes.
_CLIENT_MEGABYTE = 2**20
_MOST_BLOCKS = 1000
# A block is in memory several times while it is sent; TSC's own blocks have 50.
_USUAL = 16
# A request may have 64, which includes more than the block.
_LARGEST_BLOCK = 63


def block_size(size: int) -> int:
    """Return the block size in bytes for a file of this many bytes.

    Raises:
        RefusedError: the file needs larger blocks than are allowed, or than TSC_CHUNK_SIZE_MB
            sets.
    """
    needed = -(-size // (_MOST_BLOCKS * _CLIENT_MEGABYTE))
    if needed > _LARGEST_BLOCK:
        raise RefusedError(
            f"The file has {megabytes(size)}; Tableau takes {_MOST_BLOCKS} blocks of "
            f"{megabytes(_LARGEST_BLOCK * _CLIENT_MEGABYTE)} at most. Publish fewer rows or "
            "columns, by `retain` for instance.",
            code=Code.TOO_LARGE,
        )
    if not (asked := os.environ.get(_VARIABLE)):
        return max(_USUAL, needed) * _CLIENT_MEGABYTE
    if not asked.isdecimal() or int(asked) < max(1, needed):
        raise SettingError(
            f"{_VARIABLE} is {asked!r}: Tableau takes {_MOST_BLOCKS} blocks of a file. Unset it, "
            f"or set it to a whole number of MB, {max(1, needed)} or more.",
        )
    return int(asked) * _CLIENT_MEGABYTE


def one_datasource(tsc: TSC.Server) -> object:
    """Ask for what any session may read."""
    return tsc.datasources.get(TSC.RequestOptions(pagesize=1))


def reads(tsc: TSC.Server) -> bool:
    """Return whether the session is alive: servers say of some requests that it has ended."""
    try:
        one_datasource(tsc)
    except TSC.FailedSignInError:
        return False
    return True
