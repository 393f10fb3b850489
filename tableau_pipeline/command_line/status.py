"""The command `status`: which data sources are fresh, and which need a person."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tableau_pipeline.command_line import CodeLocation, open_project
from tableau_pipeline.command_line.output import Output, ago, columns, reports, signed
from tableau_pipeline.components.audit import undeclared
from tableau_pipeline.components.automation import next_refreshes
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.components.publish_file import published_files
from tableau_pipeline.components.status import (
    DatasourceStatus,
    Ended,
    Month,
    history,
    savings,
    statuses,
    statuses_of_files,
    with_rejected,
)
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import Change, RemoteDatasource
from tableau_pipeline.core.identity import TAG_PREFIX
from tableau_pipeline.core.site_record import SiteFacts
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.outcome import Status
from tableau_pipeline.refresh.setup import sites_folder
from tableau_pipeline.refresh.updates import record_of
from tableau_pipeline.rendering import megabytes
from tableau_pipeline.resources import shared_place

_URGENCY = [*Status]
_SIGNS = {Status.REFUSED: "x", Status.FAILED: "x", Status.GONE: "x"}
_SIGNS |= {Status.RUNNING: "~", Status.FRESH: "="}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--offline", is_flag=True, help="Ask Dagster only, not the Tableau server.")
@click.option("--savings", "saved", is_flag=True, help="Show what was saved, month by month.")
@reports
def status(
    module: str | None, names: Sequence[str], *, offline: bool, saved: bool, output: Output
) -> int:
    """Show which data sources are fresh, and which need a person. With a NAME, its history.

    Exit code: 0 all are fresh, 1 one needs a person, 2 it could not look.
    """
    problem, others, site = "", [], None
    with open_project(module) as project:
        declared = project.named(names)
        if saved:
            months = {key: savings(project.instance, key) for key in declared}
            output.result({"savings": months}, _savings(declared, months))
            return 0
        now = statuses(project.instance, declared.values())
        models = {key: each.models for key, each in declared.items()}
        lines = with_rejected(project.instance, now.values(), models, project.rejected)
        if not names:
            lines += statuses_of_files(project.instance).values()
        next_of = next_refreshes(project.definitions, project.instance)
        then = {key: next_of(each) for key, each in declared.items()}
        if not offline:
            try:
                lines, others, site = _looked(project, lines, output, everything=not names)
            except RefreshError as error:
                problem = str(error)
        past = {key: history(project.instance, key) for key in declared} if names else {}
    lines.sort(key=lambda each: (_URGENCY.index(each.state), each.name.casefold()))
    needing = [each for each in lines if each.needs_attention]
    told = [_told(each) | {"next": then.get(each.key)} for each in lines]
    counted = {"need_attention": len(needing), **({"error": problem} if problem else {})}
    data = {"datasources": told, "undeclared": others, "history": past, "site": site, **counted}
    shown = [*_shown(lines, others, past, then), Text(_closing(lines, needing))]
    if site and site.peculiarities:
        shown.append(Text(f"Of this site: {'; '.join(site.peculiarities)}."))
    output.result(data, *shown)
    if problem:
        output.problem(f"The server could not be looked at: {problem}")
        return 2
    return int(bool(needing))


def _told(line: DatasourceStatus) -> dict[str, Any]:
    derived = {"remedy": line.remedy, "needs_attention": line.needs_attention}
    told = asdict(replace(line, checkpoint=None)) | derived
    del told["checkpoint"]
    return told


def _savings(declared: Mapping[str, Declaration], found: Mapping[str, Sequence[Month]]) -> Table:
    heads = ("DATA SOURCE", "MONTH", ">REFRESHES", ">FULL", ">SENT", ">SAVED")
    rows = [
        (
            declared[key].name,
            each.month,
            each.refreshes,
            each.full,
            *map(megabytes, (each.bytes_sent, each.bytes_saved)),
            *map(_seconds, (each.seconds_saved, each.server_seconds_saved)),
        )
        for key, months in found.items()
        for each in months
    ]
    return columns((*heads, ">TIME SAVED", ">OF THE SERVER"), rows)


def _looked(
    project: CodeLocation, lines: Sequence[DatasourceStatus], output: Output, *, everything: bool
) -> tuple[list[DatasourceStatus], list[dict[str, str]], SiteFacts]:
    """Compare with the server, by one list of its data sources; add what nothing declares."""
    with project.resources() as resources, resources.tableau.session(output.waits()) as site:
        listed = {each.luid: each for each in site.tagged(TAG_PREFIX, revisions=False)}
        looked = []
        for line in lines:
            luid = line.checkpoint.luid if line.checkpoint else None
            # Another user may have removed its tag.
            remote = listed.get(luid or "") or (site.find_by_luid(luid) if luid else None)
            looked.append(_compared(line, remote))
        facts = record_of(site, sites_folder(shared_place("kept"))).facts
        if not everything:
            return looked, [], facts
        anybody = DagsterJournal(project.instance, "any").instance
        ours = [each for each in listed.values() if anybody in each.instances]
        known = {*project.datasources, *published_files(project.instance)}
        others = undeclared(project.instance, ours, known)
    return looked, [{"name": each.name, "why": each.note} for each in others], facts


def _compared(line: DatasourceStatus, remote: RemoteDatasource | None) -> DatasourceStatus:
    checkpoint = line.checkpoint
    if line.state not in (Status.FRESH, Status.LATE) or not (checkpoint and checkpoint.luid):
        return line
    if remote is None:
        return replace(line, state=Status.GONE, why=f'"{line.name}" is no longer on the server')
    change = Change.since(checkpoint, remote)
    if why := change.unexplained or checkpoint.distrust:
        return replace(line, state=Status.DRIFTED, why=str(why))
    return line


def _shown(
    lines: Sequence[DatasourceStatus],
    others: Sequence[Mapping[str, str]],
    past: Mapping[str, Sequence[Ended]],
    then: Mapping[str, str],
) -> list[RenderableType]:
    heads = ("", "DATA SOURCE", "STATE", "LAST REFRESH", "DECISION", ">ROWS", ">SENT")
    heads = (*heads, "COMPARED", "NEXT")
    rows = [(*_row(each), then.get(each.key)) for each in lines]
    shown: list[RenderableType] = [columns(heads, rows)] if lines else []
    for each in lines:
        if not each.needs_attention:
            continue
        where = f" (run {each.run_id})" if each.run_id else ""
        shown.append(signed(_sign(each), f"{each.name}: {each.state}{where}"))
        told = [*each.why.splitlines(), f"-> {each.remedy}"]
        shown += [Text(f"    {line}") for line in told]
    shown += [signed("!", f"{e['name']}: not declared here. {e['why']}") for e in others]
    for key, several in past.items():
        if not several:
            continue
        heads = (key.upper(), "DECISION", ">ROWS", ">SENT", ">SAVED", "SECONDS", "REASON")
        sent, saved = (
            megabytes(sum(getattr(each, name) or 0 for each in several))
            for name in ("bytes_sent", "bytes_saved")
        )
        closing = f"Sent {sent} in all, and saved {saved}."
        shown += [Text(""), columns(heads, map(_past, several)), Text(closing), Text("")]
    return shown


def _closing(lines: Sequence[DatasourceStatus], needing: Sequence[DatasourceStatus]) -> str:
    if not lines:
        return "No data source is declared."
    if needing:
        return f"{len(needing)} of {len(lines)} need{'s' * (len(needing) == 1)} attention."
    return f"All {len(lines)} are fresh." if len(lines) > 1 else "It is fresh."


def _sign(line: DatasourceStatus) -> str:
    return _SIGNS.get(line.state, "!")


def _row(line: DatasourceStatus) -> tuple[str | int | None, ...]:
    head, last = (_sign(line), line.name, line.state), line.last
    if last is None:
        return *head, "never", None, None, None, None
    when, compared = ago(last.at, datetime.now(UTC)), last.compared
    return *head, when, last.decision, last.rows, _size(last.bytes_sent), compared


def _past(each: Ended) -> tuple[str | int | None, ...]:
    parts = [f"{name} {took:.1f}" for name, took in each.seconds.items() if name != "total"]
    long = ", ".join(part for part in parts if not part.endswith(" 0.0"))
    seconds = f"{each.seconds['total']:.1f}: {long}" if "total" in each.seconds else None
    when, sizes = f"{each.at.astimezone():%Y-%m-%d %H:%M}", (each.bytes_sent, each.bytes_saved)
    reason = each.reason.partition("\n")[0]
    return when, each.decision, each.rows, *map(_size, sizes), seconds, reason


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:,.1f} s"


def _size(size: int | None) -> str | None:
    return None if size is None else megabytes(size)
