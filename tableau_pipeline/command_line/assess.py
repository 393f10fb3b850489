"""The command `assess`: what there is on a site, and what the pipeline could do for it."""

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

from tableau_pipeline.command_line import prepare
from tableau_pipeline.command_line.output import (
    Output,
    columns,
    markdown_table,
    reports,
    signed,
)
from tableau_pipeline.components.assessing import JOB_DAYS, Limits
from tableau_pipeline.components.assessing import assess as look
from tableau_pipeline.components.assessment import Assessed, Assessment, DatasourceKind
from tableau_pipeline.components.naming import Names, Tokens
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.rendering import markdown_text
from tableau_pipeline.resources import resources_from_env

_HEADS = ("DATA SOURCE", "PROJECT", "KIND", ">MB", ">ROWS", "OWNER", "REFRESHED")
_HEADS += (f"JOBS OF {JOB_DAYS} DAYS", "UPDATED (UTC)", ">REVISIONS", ">MB SAVED")
_NOT_KNOWN = "?"
# Signing in and out, the lists, and something to look at.
_FEWEST_REQUESTS = 10
# Names in a line for people; Markdown and JSON have all of them.
_NAMED = 3


@click.command()
@click.option("--project", metavar="PATH", help="Only this project, and those below it.")
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Download two revisions of the N largest data sources, to estimate what updates save.",
)
@click.option("--max-mb", default=100, show_default=True, help="Download no file above this.")
@click.option("--no-rows", is_flag=True, help="Do not let the server count rows.")
@click.option(
    "--max-requests",
    type=click.IntRange(_FEWEST_REQUESTS),
    default=500,
    show_default=True,
    metavar="N",
    help="Send no more requests to the server than this.",
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
    """Look at what others have published on the site. It needs no project, and writes nothing.

    Exit code: 0 each data source was looked at, 1 some were not, and the reason is told.
    """
    limits = Limits(max_requests, sample, max_mb, count_rows=not no_rows)
    with _without_names(hidden=redact), output.bar() as bar:
        found, cost = _looked(project, limits, output, bar, redact=redact)
    data = _data(found) | {"requests": asdict(cost)}
    shown = [Text(_markdown(found, cost))] if markdown else _lines(found, cost)
    output.result(data, *shown)
    return int(not found.is_complete)


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a look has cost: requests, each attempt counted, and pauses that the server asked for.

    Attributes:
        paused: seconds of all pauses.
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
def _without_names(*, hidden: bool) -> Generator[None]:
    """Hide what an error says of a server, if that is to be hidden."""
    try:
        yield
    except RefreshError as error:
        if not hidden:
            raise
        reason = Tokens("").reason(str(error))
        raise RefreshError(
            f"No look was possible: {reason}. Run without --redact to read it"
        ) from None


class _Pauses(logging.Logger):
    """Tells what a look waits for, without names, and counts the seconds of pauses."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__("assess")
        self._tell, self.seconds = tell, list[float]()

    def handle(self, record: logging.LogRecord) -> None:
        """Tell of a pause, or that the token is in use."""
        seconds = getattr(record, "seconds", None)
        if seconds is None:
            if getattr(record, "waits_for", "") == "token":
                self._tell("Waiting: another process of this host uses the token")
            return
        self.seconds.append(seconds)
        status = getattr(record, "status", None)
        answer = f"The server answered {status}" if status else "The server did not answer"
        self._tell(f"{answer}: a pause of {seconds:.1f} s")


def _looked(
    project: str | None,
    limits: Limits,
    output: Output,
    bar: Callable[..., None],
    *,
    redact: bool,
) -> tuple[Assessment, _Cost]:
    prepare()
    given, pauses = resources_from_env(), _Pauses(output.progress)
    wanted = {name: given[name] for name in ("hyper", "tableau")}
    with dg.build_resources(wanted) as resources:
        with resources.tableau.session(pauses, counts=limits.count_rows) as site:
            names = Tokens(str(site.tsc.site_id)) if redact else Names()
            # Started when it is needed.
            hyper = partial(getattr, resources.hyper, "process")
            found = look(site, hyper, project=project, limits=limits, names=names, tell=bar)
        # Signing out is a request, too.
        cost = _Cost(site.budget.sent, limits.requests, len(pauses.seconds), sum(pauses.seconds))
    return found, cost


def _data(found: Assessment) -> dict[str, Any]:
    """The object that programs get."""
    about = asdict(found)
    about["datasources"] = [
        asdict(each)
        | {
            "saved_megabytes": each.saved_megabytes,
            "basis": each.basis,
            "obstacles": _obstacles(found, each),
        }
        for each in found.datasources
    ]
    return about


def _obstacles(found: Assessment, each: Assessed) -> list[dict[str, str]]:
    listed = each.obstacles(takes_updates=found.takes_updates)
    return [asdict(obstacle) for obstacle in listed]


def _cells(each: Assessed) -> Sequence[str | int | None]:
    kind = each.kind if each.kind in (DatasourceKind.HYPER, DatasourceKind.UNKNOWN) else ""
    of = f"{each.kind} of {', '.join(each.sources) or _NOT_KNOWN}"
    has_rows = each.kind is not DatasourceKind.LIVE
    tasks = None if each.tasks is None else "; ".join(task.when for task in each.tasks) or "-"
    ran = f"{each.jobs.jobs} in {each.jobs.minutes:.1f} min" if each.jobs else None
    jobs = "-" if each.jobs and not each.jobs.jobs else ran
    saved = each.saved_megabytes
    counted = None if each.rows is None else sum(each.rows.values())
    return (
        each.name,
        each.project,
        kind or of,
        _or_unknown(each.megabytes),
        _or_unknown(counted) if has_rows else "-",
        each.owner,
        _or_unknown(tasks),
        _or_unknown(jobs),
        f"{each.updated_at:%Y-%m-%d %H:%M}",
        _or_unknown(each.revisions) if has_rows else "-",
        (_NOT_KNOWN if has_rows else "-") if saved is None else f"{saved:,.1f}",
    )


def _or_unknown(value: str | int | None) -> str | int:
    return _NOT_KNOWN if value is None else value


@dataclass(frozen=True, slots=True)
class _Group:
    """Data sources of which one thing is to be said."""

    text: str
    names: Sequence[str]
    remedy: str = ""


def _grouped(pairs: Iterable[tuple[tuple[str, str], str]]) -> list[_Group]:
    """Group names by text and remedy, those of most first."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for about, name in pairs:
        names[about].append(name)
    ordered = sorted(names.items(), key=lambda item: -len(item[1]))
    return [_Group(text, listed, remedy) for (text, remedy), listed in ordered]


def _labelled(found: Assessment) -> Iterator[tuple[str, Assessed]]:
    """The data sources, by their names; with their projects where several have one name."""
    counted = Counter(each.name for each in found.datasources)
    for each in found.datasources:
        yield each.name if counted[each.name] == 1 else f"{each.name} ({each.project})", each


def _in_the_way(found: Assessment) -> list[_Group]:
    return _grouped(
        ((obstacle.text, obstacle.remedy), label)
        for label, each in _labelled(found)
        for obstacle in each.obstacles(takes_updates=found.takes_updates)
    )


# What is not known, in words for people.
_FACTS: Mapping[str, str] = {
    "kind": "what it connects to",
    "compared": "what updates would save",
    "jobs": f"jobs of the last {JOB_DAYS} days",
    "tasks": "refresh tasks",
}


def _not_known(found: Assessment) -> list[_Group]:
    """What is not known of all, and of some."""
    whole = [_Group(f"{_FACTS.get(e, e)}: {why}", ()) for e, why in found.unknown.items()]
    some = _grouped(
        ((f"{_FACTS.get(fact, fact)}: {_of_any(why, each.name)}", ""), label)
        for label, each in _labelled(found)
        for fact, why in each.unknown.items()
        # What may not be downloaded is in the way; that a live connection has no data is no news.
        if fact
        not in (*found.unknown, "download", *(["compared"] * (each.kind is DatasourceKind.LIVE)))
    )
    return [*whole, *some]


def _of_any(why: str, name: str) -> str:
    """What a server says of a data source, so that the same said of others is equal."""
    return re.sub(rf"(['\"]){re.escape(name)}\1", "this data source", why)


def _estimates(found: Assessment) -> Iterator[tuple[str, str]]:
    for label, each in _labelled(found):
        if each.saved_megabytes is not None:
            text = (
                f"about {each.saved_megabytes:,.1f} of {each.megabytes:,} MB less in each refresh"
            )
            yield label, f"{text}, if as many rows change as before ({each.basis})"


def _about(found: Assessment) -> str:
    role = found.role or "a role that the server does not tell"
    may = "" if found.may_publish else ", which may not publish"
    site = f'site "{found.site}"' if found.site else "the default site"
    return f"{found.url}, {site}, REST API {found.version}, as {found.user} ({role}{may})"


def _closing(found: Assessment) -> str:
    listed = found.datasources
    free = sum(1 for each in listed if not _obstacles(found, each) and each.is_complete)
    size = sum(each.megabytes or 0 for each in listed)
    left = sum(1 for each in listed if not each.is_complete)
    missing = f" {left} were not looked at as a whole." if left else ""
    return (
        f"This user may see {len(listed)} data sources, {size:,} MB in all. Nothing was found "
        f"in the way of {free}.{missing}"
    )


def _lines(found: Assessment, cost: _Cost) -> Iterator[RenderableType]:
    yield Text(_about(found))
    yield columns(_HEADS, map(_cells, found.datasources))
    for group in _in_the_way(found):
        yield signed("!", f"{_first(group)}: {group.text}")
        yield Text(f"    -> {group.remedy}")
    for name, text in _estimates(found):
        yield signed("~", f"{name}: {text}")
    for group in _not_known(found):
        yield signed(_NOT_KNOWN, f"{_first(group)}: {group.text}")
    yield Text(_closing(found))
    yield Text(str(cost))


def _first(group: _Group) -> str:
    """Such as "Sales, Orders, Stock and 27 more"."""
    more = len(group.names) - _NAMED
    listed = ", ".join(group.names[:_NAMED]) or "all"
    return f"{listed} and {more} more" if more > 0 else listed


def _markdown(found: Assessment, cost: _Cost) -> str:
    """A report for a ticket."""
    parts = [
        f"## Published data sources\n\n{markdown_text(_about(found))}",
        markdown_table(_HEADS, map(_cells, found.datasources)),
    ]
    blocked = [
        f"- {markdown_text(each.text)}  \n  Remedy: {markdown_text(each.remedy)}  \n  {_all(each)}"
        for each in _in_the_way(found)
    ]
    estimates = [f"- {markdown_text(f'{name}: {text}')}" for name, text in _estimates(found)]
    unknown = [f"- {markdown_text(each.text)}  \n  {_all(each)}" for each in _not_known(found)]
    for title, lines in (
        ("In the way of an adoption", blocked),
        ("What updates would save, estimated", estimates),
        ("Not known", unknown),
    ):
        listed = "\n".join(lines) or "Nothing."
        parts.append(f"### {title}\n\n{listed}")
    parts.append(f"{markdown_text(_closing(found))} {cost}")
    return "\n\n".join(parts)


def _all(group: _Group) -> str:
    listed = markdown_text(", ".join(group.names))
    return f"{len(group.names)}: {listed}" if listed else "All data sources."
