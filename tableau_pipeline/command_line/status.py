"""The command `status`: show which data sources are fresh, and which need attention."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import click
import dagster as dg
from rich.console import RenderableType
from rich.text import Text

from tableau_pipeline.command_line.output import Output, ago, columns, reports, signed
from tableau_pipeline.command_line.project import CodeLocation, open_project
from tableau_pipeline.components.audit import undeclared
from tableau_pipeline.components.automation import describe_next_refresh
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.published_files import published_files
from tableau_pipeline.components.status import (
    DatasourceStatus,
    PastRefresh,
    history,
    requests_by_kind,
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
@click.option("--requests", is_flag=True, help="Show how many requests the refreshes sent.")
@reports
def status(
    module: str | None,
    names: Sequence[str],
    *,
    offline: bool,
    saved: bool,
    requests: bool,
    output: Output,
) -> int:
    """Show which data sources are fresh, and which need a person. With a NAME, show its history.

    Exit code: 0 all data sources are fresh, 1 a data source needs a person, 2 the status could not
    be determined.
    """
    with open_project(module) as project:
        declared = project.named(names)
        if saved or requests:
            show = _show_savings if saved else _show_requests
            show(project.instance, declared, output)
            return 0
        return _show_status(project, names, declared, offline=offline, output=output)


def _show_status(
    project: CodeLocation,
    names: Sequence[str],
    declared: Mapping[str, PublishedDatasource],
    *,
    offline: bool,
    output: Output,
) -> int:
    problem, others, site = "", [], None
    now = statuses(project.instance, declared.values())
    models = {key: datasource.models for key, datasource in declared.items()}
    lines = with_rejected(project.instance, now.values(), models, project.rejected)
    if not names:
        lines += statuses_of_files(project.instance).values()
    next_refresh = describe_next_refresh(project.definitions, project.instance)
    next_times = {key: next_refresh(datasource) for key, datasource in declared.items()}
    if not offline:
        try:
            lines, others, site = _compare_with_server(project, lines, output, everything=not names)
        except RefreshError as error:
            problem = str(error)
    histories = {key: history(project.instance, key) for key in declared} if names else {}
    lines.sort(key=lambda line: (_URGENCY.index(line.state), line.name.casefold()))
    needing = [line for line in lines if line.needs_attention]
    datasources = [_json_data(line) | {"next": next_times.get(line.key)} for line in lines]
    counted = {"need_attention": len(needing), **({"error": problem} if problem else {})}
    data = {
        "datasources": datasources,
        "undeclared": others,
        "history": histories,
        "site": site,
        **counted,
    }
    report = [*_sections(lines, others, histories, next_times), Text(_closing_line(lines, needing))]
    if site and site.peculiarities:
        report.append(Text(f"Of this site: {'; '.join(site.peculiarities)}."))
    output.result(data, *report)
    if problem:
        output.problem(f"The server could not be looked at: {problem}")
        return 2
    return int(bool(needing))


def _json_data(line: DatasourceStatus) -> dict[str, Any]:
    derived = {"remedy": line.remedy, "needs_attention": line.needs_attention}
    data = asdict(replace(line, checkpoint=None)) | derived
    del data["checkpoint"]
    return data


def _show_savings(
    instance: dg.DagsterInstance, declared: Mapping[str, Declaration], output: Output
) -> None:
    found = {key: savings(instance, key) for key in declared}
    heads = ("DATA SOURCE", "MONTH", ">REFRESHES", ">FULL", ">SENT", ">SAVED")
    rows = [
        (
            declared[key].name,
            month.month,
            month.refreshes,
            month.full,
            *map(megabytes, (month.bytes_sent, month.bytes_saved)),
            *map(_seconds, (month.seconds_saved, month.server_seconds_saved)),
        )
        for key, months in found.items()
        for month in months
    ]
    table = columns((*heads, ">TIME SAVED", ">OF THE SERVER"), rows)
    output.result({"savings": found}, table)


def _show_requests(
    instance: dg.DagsterInstance, declared: Mapping[str, Declaration], output: Output
) -> None:
    sent = {key: requests_by_kind(instance, key) for key in declared}
    heads = ("DATA SOURCE", "DECISION", ">REFRESHES", ">REQUESTS OF EACH", ">AT MOST")
    rows = [
        (declared[key].name, found.kind, found.refreshes, f"{found.mean:g}", found.most)
        for key, kinds in sent.items()
        for found in kinds
    ]
    output.result({"requests": sent}, columns(heads, rows))


def _compare_with_server(
    project: CodeLocation, lines: Sequence[DatasourceStatus], output: Output, *, everything: bool
) -> tuple[list[DatasourceStatus], list[dict[str, str]], SiteFacts]:
    """Compare the records with the server's list of data sources.

    Returns:
        All lines, updated where the server differs; the published data sources without a
        declaration, or [] if not `everything`; and the known facts of the site.
    """
    with project.resources() as resources, resources.tableau.session(output.waits()) as site:
        listed = {remote.luid: remote for remote in site.tagged(TAG_PREFIX, revisions=False)}
        compared = []
        for line in lines:
            luid = line.checkpoint.luid if line.checkpoint else None
            # The list contains only tagged data sources. If another user has removed our tag, find
            # the data source by its LUID.
            remote = listed.get(luid or "") or (site.find_by_luid(luid) if luid else None)
            compared.append(_with_drift(line, remote))
        facts = record_of(site, sites_folder(shared_place("kept"))).facts
        if not everything:
            return compared, [], facts
        deployment = journal_of(project.instance, "any").instance
        published_here = [remote for remote in listed.values() if deployment in remote.instances]
        declared = {*project.datasources, *published_files(project.instance)}
        others = undeclared(project.instance, published_here, declared)
    return compared, [{"name": other.name, "why": other.note} for other in others], facts


def _with_drift(line: DatasourceStatus, remote: RemoteDatasource | None) -> DatasourceStatus:
    checkpoint = line.checkpoint
    if line.state not in (Status.FRESH, Status.LATE) or not (checkpoint and checkpoint.luid):
        return line
    if remote is None:
        return replace(line, state=Status.GONE, why=f'"{line.name}" is no longer on the server')
    change = Change.since(checkpoint.stamp, remote, late=checkpoint.late)
    if why := change.unexplained or checkpoint.distrust:
        return replace(line, state=Status.DRIFTED, why=str(why))
    return line


def _sections(
    lines: Sequence[DatasourceStatus],
    others: Sequence[Mapping[str, str]],
    past: Mapping[str, Sequence[PastRefresh]],
    then: Mapping[str, str],
) -> list[RenderableType]:
    heads = ("", "DATA SOURCE", "STATE", "LAST REFRESH", "DECISION", ">ROWS", ">SENT")
    heads = (*heads, "COMPARED", "NEXT")
    rows = [(*_status_row(line), then.get(line.key)) for line in lines]
    shown: list[RenderableType] = [columns(heads, rows)] if lines else []
    for line in lines:
        if not line.needs_attention:
            continue
        where = f" (run {line.run_id})" if line.run_id else ""
        shown.append(signed(_sign(line), f"{line.name}: {line.state}{where}"))
        details = [*line.why.splitlines(), f"-> {line.remedy}"]
        shown += [Text(f"    {detail}") for detail in details]
    shown += [
        signed("!", f"{other['name']}: not declared here. {other['why']}") for other in others
    ]
    for key, refreshes in past.items():
        if not refreshes:
            continue
        heads = (key.upper(), "DECISION", ">ROWS", ">SENT", ">SAVED", "SECONDS", "REASON")
        sent, saved = (
            megabytes(sum(getattr(refresh, name) or 0 for refresh in refreshes))
            for name in ("bytes_sent", "bytes_saved")
        )
        closing = f"Sent {sent} in all, and saved {saved}."
        shown += [Text(""), columns(heads, map(_history_row, refreshes)), Text(closing), Text("")]
    return shown


def _closing_line(lines: Sequence[DatasourceStatus], needing: Sequence[DatasourceStatus]) -> str:
    if not lines:
        return "No data source is declared."
    if needing:
        return f"{len(needing)} of {len(lines)} need{'s' * (len(needing) == 1)} attention."
    return f"All {len(lines)} are fresh." if len(lines) > 1 else "It is fresh."


def _sign(line: DatasourceStatus) -> str:
    return _SIGNS.get(line.state, "!")


def _status_row(line: DatasourceStatus) -> tuple[str | int | None, ...]:
    head, last = (_sign(line), line.name, line.state), line.last
    if last is None:
        return *head, "never", None, None, None, None
    when, compared = ago(last.at, datetime.now(UTC)), last.compared
    return *head, when, last.decision, last.rows, _size(last.bytes_sent), compared


def _history_row(each: PastRefresh) -> tuple[str | int | None, ...]:
    parts = [f"{name} {took:.1f}" for name, took in each.seconds.items() if name != "total"]
    durations = ", ".join(part for part in parts if not part.endswith(" 0.0"))
    seconds = f"{each.seconds['total']:.1f}: {durations}" if "total" in each.seconds else None
    when, sizes = f"{each.at.astimezone():%Y-%m-%d %H:%M}", (each.bytes_sent, each.bytes_saved)
    reason = each.reason.partition("\n")[0]
    return when, each.decision, each.rows, *map(_size, sizes), seconds, reason


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:,.1f} s"


def _size(size: int | None) -> str | None:
    return None if size is None else megabytes(size)
