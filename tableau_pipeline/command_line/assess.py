"""The command `assess`: show the data sources of a site, and estimate what updates would save.

An update sends only the changed rows to the server, and so saves megabytes.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click
import dagster as dg
from rich.console import RenderableType
from rich.text import Text

from tableau_pipeline.command_line.output import Output, columns, markdown_table, reports, signed
from tableau_pipeline.command_line.project import prepare
from tableau_pipeline.components.assessing import JOB_DAYS, Limits
from tableau_pipeline.components.assessing import assess as look
from tableau_pipeline.components.assessment import AssessedDatasource, Assessment, DatasourceKind
from tableau_pipeline.components.pseudonyms import Names, Tokens
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.rendering import markdown_text
from tableau_pipeline.resources import resources_from_env

_HEADS = ("DATA SOURCE", "PROJECT", "KIND", ">MB", ">ROWS", "OWNER", "REFRESHED")
_HEADS += (f"JOBS OF {JOB_DAYS} DAYS", "UPDATED (UTC)", ">REVISIONS", ">MB SAVED")
_NOT_KNOWN = "?"
# The lowest value of --max-requests. It suffices to sign in and out, to list the data sources, and
# to assess some of them.
_FEWEST_REQUESTS = 10
# How many names a line of text shows. Markdown and JSON show all names.
_MOST_NAMES = 3


@click.command()
@click.option("--project", metavar="PATH", help="Only this project, and the projects below it.")
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Download two revisions of the N largest data sources, to estimate what updates save.",
)
@click.option("--max-mb", default=100, show_default=True, help="Largest file to download, in MB.")
@click.option("--no-rows", is_flag=True, help="Do not let the server count rows.")
@click.option(
    "--max-requests",
    type=click.IntRange(_FEWEST_REQUESTS),
    default=500,
    show_default=True,
    metavar="N",
    help="Send at most N requests to the server.",
)
@click.option("--markdown", is_flag=True, help="Write Markdown, for a ticket.")
@click.option("--redact", is_flag=True, help="Show tokens instead of names, ids and addresses.")
@reports
def assess(
    module: str | None,
    *,
    project: str | None,
    sample: int,
    max_mb: int,
    no_rows: bool,
    max_requests: int,
    markdown: bool,
    redact: bool,
    output: Output,
) -> int:
    """Assess the published data sources of the site, of all owners.

    The command needs no Dagster project, and writes nothing.

    Exit code: 0 every data source was assessed completely, 1 some were not, for the reasons in the
    output.
    """
    limits = Limits(max_requests, sample, max_mb, count_rows=not no_rows)
    with _redacted_errors(hidden=redact), output.bar() as bar:
        assessment, cost = _assess_site(project, limits, output, bar, redact=redact)
    data = _data(assessment) | {"requests": asdict(cost)}
    report = [Text(_markdown(assessment, cost))] if markdown else _report_lines(assessment, cost)
    output.result(data, *report)
    return int(not assessment.is_complete)


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of an assessment: requests and pauses. Each repetition of a request counts, too.

    Attributes:
        most: how many requests were allowed.
        paused: the sum of all pauses, in seconds.
    """

    sent: int
    most: int
    pauses: int
    paused: float

    def __str__(self) -> str:
        pauses = f"{self.pauses} pause{'s' * (self.pauses > 1)} of {self.paused:.1f} s in all"
        paused = f", {pauses}" if self.pauses else ""
        return f"{self.sent:,} requests of {self.most:,}{paused}. Nothing was written."


@contextmanager
def _redacted_errors(*, hidden: bool) -> Generator[None]:
    """If `hidden`, replace the message of an error by a reason that contains no names."""
    try:
        yield
    except RefreshError as error:
        if not hidden:
            raise
        reason = Tokens("").reason(str(error))
        raise RefreshError(
            f"The site could not be assessed: {reason}. Run without --redact to read the error"
        ) from None


class _Pauses(logging.Logger):
    """Shows, without names, why the assessment waits; records the seconds of each pause."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__("assess")
        self._tell, self.seconds = tell, list[float]()

    def handle(self, record: logging.LogRecord) -> None:
        """Show a pause, or the wait for a token that another process uses."""
        seconds = getattr(record, "seconds", None)
        if seconds is None:
            if getattr(record, "waits_for", "") == "token":
                self._tell("Waiting: another process of this host uses the token")
            return
        self.seconds.append(seconds)
        status = getattr(record, "status", None)
        answer = f"The server answered {status}" if status else "The server did not answer"
        self._tell(f"{answer}: a pause of {seconds:.1f} s")


def _assess_site(
    project: str | None,
    limits: Limits,
    output: Output,
    bar: Callable[..., None],
    *,
    redact: bool,
) -> tuple[Assessment, _Cost]:
    prepare()
    available, pauses = resources_from_env(), _Pauses(output.progress)
    needed = {name: available[name] for name in ("hyper", "tableau")}
    with dg.build_resources(needed) as resources:
        with resources.tableau.session(pauses, counts=limits.count_rows) as site:
            names = Tokens(str(site.tsc.site_id)) if redact else Names()
            # Reading the attribute `process` starts hyperd, so read it only on demand.
            hyper = partial(getattr, resources.hyper, "process")
            assessment = look(site, hyper, project=project, limits=limits, names=names, tell=bar)
        # Count the requests after the session, because signing out is a request, too.
        cost = _Cost(site.budget.sent, limits.requests, len(pauses.seconds), sum(pauses.seconds))
    return assessment, cost


def _data(found: Assessment) -> dict[str, Any]:
    """Return the assessment as JSON values."""
    data = asdict(found)
    data["datasources"] = [
        asdict(datasource)
        | {
            "saved_megabytes": datasource.saved_megabytes,
            "basis": datasource.basis,
            "obstacles": _obstacles(found, datasource),
        }
        for datasource in found.datasources
    ]
    return data


def _obstacles(found: Assessment, each: AssessedDatasource) -> list[dict[str, str]]:
    listed = each.obstacles(takes_updates=found.takes_updates)
    return [asdict(obstacle) for obstacle in listed]


def _table_row(each: AssessedDatasource) -> Sequence[str | int | None]:
    kind = each.kind if each.kind in (DatasourceKind.HYPER, DatasourceKind.UNKNOWN) else ""
    source_kind = f"{each.kind} of {', '.join(each.sources) or _NOT_KNOWN}"
    may_have_rows = each.kind is not DatasourceKind.LIVE
    tasks = None if each.tasks is None else "; ".join(task.when for task in each.tasks) or "-"
    job_totals = f"{each.jobs.jobs} in {each.jobs.minutes:.1f} min" if each.jobs else None
    jobs = "-" if each.jobs and not each.jobs.jobs else job_totals
    saved = each.saved_megabytes
    rows = None if each.rows is None else sum(each.rows.values())
    return (
        each.name,
        each.project,
        kind or source_kind,
        _cell(each.megabytes),
        _cell(rows) if may_have_rows else "-",
        each.owner,
        _cell(tasks),
        _cell(jobs),
        f"{each.updated_at:%Y-%m-%d %H:%M}",
        _cell(each.revisions) if may_have_rows else "-",
        (_NOT_KNOWN if may_have_rows else "-") if saved is None else f"{saved:,.1f}",
    )


def _cell(value: str | int | None) -> str | int:
    return _NOT_KNOWN if value is None else value


@dataclass(frozen=True, slots=True)
class _Group:
    """The data sources that share a text of the report, such as an obstacle."""

    text: str
    names: Sequence[str]
    remedy: str = ""


def _grouped(pairs: Iterable[tuple[tuple[str, str], str]]) -> list[_Group]:
    """Group names by text and remedy. The group with the most names comes first."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for text_and_remedy, name in pairs:
        names[text_and_remedy].append(name)
    most_first = sorted(names.items(), key=lambda item: -len(item[1]))
    return [_Group(text, members, remedy) for (text, remedy), members in most_first]


def _labelled_datasources(found: Assessment) -> Iterator[tuple[str, AssessedDatasource]]:
    """Yield each data source with a label: its name, plus its project if the name is not unique."""
    counts = Counter(datasource.name for datasource in found.datasources)
    for datasource in found.datasources:
        yield (
            datasource.name
            if counts[datasource.name] == 1
            else f"{datasource.name} ({datasource.project})",
            datasource,
        )


def _obstacle_groups(found: Assessment) -> list[_Group]:
    return _grouped(
        ((obstacle.text, obstacle.remedy), label)
        for label, datasource in _labelled_datasources(found)
        for obstacle in datasource.obstacles(takes_updates=found.takes_updates)
    )


# Maps fields of an assessment to their names in the report. A field that is not listed here keeps
# its name.
_FACTS: Mapping[str, str] = {
    "kind": "what it connects to",
    "compared": "what updates would save",
    "jobs": f"jobs of the last {JOB_DAYS} days",
    "tasks": "refresh tasks",
}


def _unknown_groups(found: Assessment) -> list[_Group]:
    """Return facts unknown for every data source, then facts unknown for some data sources."""
    entirely = [
        _Group(f"{_FACTS.get(field, field)}: {why}", ()) for field, why in found.unknown.items()
    ]
    partly = _grouped(
        ((f"{_FACTS.get(fact, fact)}: {_without_name(why, datasource.name)}", ""), label)
        for label, datasource in _labelled_datasources(found)
        for fact, why in datasource.unknown.items()
        # Leave out forbidden downloads, because the report lists them as obstacles. Leave out
        # comparisons of live connections, which never have data.
        if fact
        not in (
            *found.unknown,
            "download",
            *(["compared"] * (datasource.kind is DatasourceKind.LIVE)),
        )
    )
    return [*entirely, *partly]


def _without_name(why: str, name: str) -> str:
    """Remove the name from a server's message, so that equal messages can be grouped."""
    return re.sub(rf"(['\"]){re.escape(name)}\1", "this data source", why)


def _estimates(found: Assessment) -> Iterator[tuple[str, str]]:
    for label, datasource in _labelled_datasources(found):
        if datasource.saved_megabytes is not None:
            text = (
                f"about {datasource.saved_megabytes:,.1f} of {datasource.megabytes:,} MB less "
                "in each refresh"
            )
            yield label, f"{text}, if as many rows change as before ({datasource.basis})"


def _heading(found: Assessment) -> str:
    role = found.role or "a role that the server does not report"
    restriction = "" if found.may_publish else ", which may not publish"
    site = f'site "{found.site}"' if found.site else "the default site"
    return f"{found.url}, {site}, REST API {found.version}, as {found.user} ({role}{restriction})"


def _closing_line(found: Assessment) -> str:
    datasources = found.datasources
    unobstructed = sum(
        1
        for datasource in datasources
        if not _obstacles(found, datasource) and datasource.is_complete
    )
    size = sum(datasource.megabytes or 0 for datasource in datasources)
    incomplete = sum(1 for datasource in datasources if not datasource.is_complete)
    missing = f" {incomplete} were assessed only in part." if incomplete else ""
    return (
        f"This user may see {len(datasources)} data sources, {size:,} MB in all. No obstacle is "
        f"known for {unobstructed}.{missing}"
    )


def _report_lines(found: Assessment, cost: _Cost) -> Iterator[RenderableType]:
    yield Text(_heading(found))
    yield columns(_HEADS, map(_table_row, found.datasources))
    for group in _obstacle_groups(found):
        yield signed("!", f"{_some_names(group)}: {group.text}")
        yield Text(f"    -> {group.remedy}")
    for name, text in _estimates(found):
        yield signed("~", f"{name}: {text}")
    for group in _unknown_groups(found):
        yield signed(_NOT_KNOWN, f"{_some_names(group)}: {group.text}")
    yield Text(_closing_line(found))
    yield Text(str(cost))


def _some_names(group: _Group) -> str:
    """Shorten the names of a group, for example to "Sales, Orders, Stock and 27 more"."""
    more = len(group.names) - _MOST_NAMES
    names = ", ".join(group.names[:_MOST_NAMES]) or "all"
    return f"{names} and {more} more" if more > 0 else names


def _markdown(found: Assessment, cost: _Cost) -> str:
    """Return the report as Markdown, for a ticket."""
    parts = [
        f"## Published data sources\n\n{markdown_text(_heading(found))}",
        markdown_table(_HEADS, map(_table_row, found.datasources)),
    ]
    blocked = [
        f"- {markdown_text(group.text)}  \n  Remedy: {markdown_text(group.remedy)}  \n"
        f"  {_all_names(group)}"
        for group in _obstacle_groups(found)
    ]
    estimates = [f"- {markdown_text(f'{name}: {text}')}" for name, text in _estimates(found)]
    unknown = [
        f"- {markdown_text(group.text)}  \n  {_all_names(group)}"
        for group in _unknown_groups(found)
    ]
    for title, lines in (
        ("Obstacles to an adoption", blocked),
        ("What updates would save, estimated", estimates),
        ("Not known", unknown),
    ):
        section = "\n".join(lines) or "Nothing."
        parts.append(f"### {title}\n\n{section}")
    parts.append(f"{markdown_text(_closing_line(found))} {cost}")
    return "\n\n".join(parts)


def _all_names(group: _Group) -> str:
    names = markdown_text(", ".join(group.names))
    return f"{len(group.names)}: {names}" if names else "All data sources."
