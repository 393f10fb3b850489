"""The command `assess`: what the published extracts of a site cost, and what updates would save."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
import dagster as dg
from rich.text import Text

from tableau_pipeline.assess.assessment import Assessment, Assessor, Extract
from tableau_pipeline.assess.redaction import Redaction
from tableau_pipeline.command_line import prepare
from tableau_pipeline.command_line.output import Output, columns, reports, signed
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources import resources_from_env

_HEADS = ("EXTRACT", "PROJECT", "OWNER", ">MB", ">ROWS", "REFRESHED", ">JOB MIN", "UPDATED")
_HEADS = (*_HEADS, ">REVISIONS", "CHANGED ROWS")
_ESTIMATE = (
    "CHANGED ROWS rests on the last two revisions alone: that share of the file is what an update "
    "would send. --sample N compares them, and downloads two files for each of N data sources."
)
# The name of a schedule comes before its times.
_SCHEDULE = re.compile(r'^"[^"]*", ')


@click.command()
@click.option("--project", metavar="PATH", default="", help="Only this one, and those below it.")
@click.option("--sample", metavar="N", default=0, help="Compare two revisions of each of N.")
@click.option("--max-mb", default=100, show_default=True, help="Download no file above this.")
@click.option("--max-requests", default=500, show_default=True, help="Ask the site no more often.")
@click.option("--redact", is_flag=True, help="Replace names, users and addresses by tokens.")
@click.option("--markdown", is_flag=True, help="Write Markdown.")
@reports
def assess(
    module: str | None,
    *,
    project: str,
    sample: int,
    max_mb: int,
    max_requests: int,
    redact: bool,
    markdown: bool,
    output: Output,
) -> int:
    """Look at the published extracts that this user may see, and at what updates would save.

    It only reads, and writes nothing. It needs the TABLEAU_* variables and no Dagster project.

    Exit code: 0 all were looked at, 1 some could not be, and the reason is told.
    """
    del module
    prepare()
    given = resources_from_env()
    with (
        dg.build_resources({name: given[name] for name in ("hyper", "tableau")}) as resources,
        output.bar() as bar,
        resources.tableau.session(_Pauses(bar), counts=True) as site,
    ):
        found = Assessor(
            site,
            hyper=lambda: resources.hyper.process,
            project=_known(project, site),
            most_requests=max_requests,
            sample=sample,
            largest=max_mb,
            tell=bar,
        ).assess()
        hosts = (site.url, re.sub(r"^https?://", "", site.url), site.site)
    hidden = Redaction.of(found, hosts=hosts).hidden if redact else str
    data, rows = _data(found, hidden), [_row(each, hidden) for each in found.extracts]
    closing = [*_closing(found)]
    if markdown and not output.as_json:
        output.result({}, Text(_markdown(rows, found, hidden, closing)))
    else:
        lines = [signed("!", line) for each in found.extracts for line in _notes(each, hidden)]
        output.result(data, columns(_HEADS, rows), *lines, *map(Text, closing))
    return int(any(each.unknown for each in found.extracts))


class _Pauses(logging.Logger):
    """Shows beside the progress bar that the site asks to wait."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__("assess")
        self._tell = tell

    def handle(self, record: logging.LogRecord) -> None:
        """Show a message."""
        if record.levelno >= logging.WARNING:
            self._tell(record.getMessage())


def _known(project: str, site: Any) -> str:
    if project and site.find_project(project) is None:
        raise RefusedError(
            f'There is no project "{project}" that this user may see: name another one, or leave '
            "it out for the whole site"
        )
    return project.strip("/")


def _data(found: Assessment, hidden: Callable[[str], str]) -> Mapping[str, Any]:
    """The report as a JSON object; every text in it is hidden, if that is asked for."""

    def plain(value: Any) -> Any:
        match value:
            case str():
                return hidden(value)
            case Mapping():
                return {key: plain(each) for key, each in value.items()}
            case list() | tuple():
                return [plain(each) for each in value]
        return value

    extracts = []
    for each in found.extracts:
        tasks = None if each.tasks is None else [_when(task.when, hidden) for task in each.tasks]
        told = {**asdict(each), "tasks": tasks, "saving": each.saving}
        extracts.append(plain(told))
    totals = {"live": found.live, "requests": found.requests, "release": found.release}
    return {"extracts": extracts, **totals}


def _when(text: str, hidden: Callable[[str], str]) -> str:
    return text if hidden is str else _SCHEDULE.sub("", text)


def _row(each: Extract, hidden: Callable[[str], str]) -> Sequence[str | int | None]:
    tasks = None if each.tasks is None else [_when(task.when, hidden) for task in each.tasks]
    minutes = None if each.job_minutes is None else f"{each.job_minutes:.1f}"
    updated = f"{each.updated_at:%Y-%m-%d}" if each.updated_at else None
    found = each.difference
    changed = f"{found.share:.1%} of {found.rows:,}" if found else "unknown"
    return (
        *map(hidden, (each.name, each.project, each.owner)),
        each.megabytes,
        each.rows,
        "not known" if tasks is None else "; ".join(tasks) or "-",
        minutes,
        updated,
        each.revisions,
        changed,
    )


def _notes(each: Extract, hidden: Callable[[str], str]) -> Iterator[str]:
    for note in each.blockers:
        yield f"{hidden(each.name)}: {hidden(note)}"
    for note in each.unknown:
        yield f"{hidden(each.name)}: could not be told: {hidden(note)}"


def _closing(found: Assessment) -> Iterator[str]:
    sizes = [each.megabytes or 0 for each in found.extracts]
    compared = [each for each in found.extracts if each.difference]
    yield (
        f"{len(found.extracts)} extracts of {sum(sizes):,} MB, {found.live} data sources without "
        f"rows of their own left out; {found.requests} requests; {found.release}."
    )
    if compared:
        whole = sum(each.megabytes or 0 for each in compared)
        kept = sum((each.megabytes or 0) * (each.saving or 0) for each in compared)
        yield (
            f"Of the {len(compared)} compared, with {whole:,} MB, updates would have saved "
            f"about {kept:,.1f} MB at the last change."
        )
    yield _ESTIMATE


def _markdown(
    rows: Sequence[Sequence[str | int | None]],
    found: Assessment,
    hidden: Callable[[str], str],
    closing: Sequence[str],
) -> str:
    def line(cells: Sequence[object]) -> str:
        texts = ("-" if e is None else f"{e:,}" if isinstance(e, int) else str(e) for e in cells)
        return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"

    heads = [head.lstrip(">").lower() for head in _HEADS]
    rule = ["---:" if head.startswith(">") else "---" for head in _HEADS]
    notes = [f"* {note}" for each in found.extracts for note in _notes(each, hidden)]
    parts = ["\n".join(map(line, (heads, rule, *rows))), "\n".join(notes), "\n\n".join(closing)]
    return "# Extracts\n\n" + "\n\n".join(part for part in parts if part)
