"""The command `status`: which data sources are fresh, and which need a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

import click
import dagster as dg
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._core.scheduler.instigation import InstigatorStatus
from dagster._utils.schedules import get_latest_completed_cron_tick, get_next_cron_tick
from rich.text import Text

from tableau_pipeline.command_line.output import Output, ago, columns, signed
from tableau_pipeline.command_line.project import Project, opened
from tableau_pipeline.command_line.records import Ended, Known, history, known, remedy, total_bytes
from tableau_pipeline.components.audit import undeclared
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.triggers import AfterTrigger, CronTrigger
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, TAG_PREFIX, megabytes
from tableau_pipeline.core.server import Change, RemoteDatasource
from tableau_pipeline.errors import RefreshError


class State(StrEnum):
    """How a data source is, the most urgent first."""

    REFUSED = "refused"
    FAILED = "failed"
    GONE = "gone"
    DRIFTED = "drifted"
    LATE = "late"
    NEVER = "never refreshed"
    RUNNING = "refreshing"
    FRESH = "fresh"


_URGENCY = {state: number for number, state in enumerate(State)}
_FINE = (State.RUNNING, State.FRESH)
_SIGNS = {State.REFUSED: "x", State.FAILED: "x", State.GONE: "x", State.FRESH: "="}


@dataclass(frozen=True, slots=True)
class Line:
    """A data source, as `status` tells of it.

    Attributes:
        why: what is wrong; "" if nothing is.
        do: the remedy.
        next: what refreshes it next.
    """

    key: str
    name: str
    state: State
    last: Ended | None
    why: str = ""
    do: str = ""
    next: str = ""
    run_id: str | None = None

    @property
    def needs_somebody(self) -> bool:
        """Whether a person has to look at it."""
        return self.state not in _FINE


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--offline", is_flag=True, help="Ask Dagster only, not the Tableau server.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.pass_obj
def status(module: str | None, names: Sequence[str], *, offline: bool, as_json: bool) -> int:
    """Show which data sources are fresh, and which need a person. With a NAME, its history.

    Exit code: 0 all are fresh, 1 one needs a person, 2 it could not look.
    """
    output, now = Output(as_json=as_json), datetime.now(UTC)
    with opened(module) as project:
        declared = project.named(names)
        found = known(project, declared)
        switches = _switches(project)
        lines = [
            _line(key, each, found[key], project=project, switches=switches)
            for key, each in declared.items()
        ]
        others: list[dict[str, str]] = []
        problem = ""
        if not offline:
            try:
                lines, others = _looked(project, lines, found, everything=not names)
            except RefreshError as error:
                problem = str(error)
        past = {key: history(project, each) for key, each in declared.items()} if names else {}
    lines.sort(key=lambda each: (_URGENCY[each.state], each.name.casefold()))
    _show(output, lines, others=others, past=past, problem=problem, now=now)
    return 2 if problem else int(any(each.needs_somebody for each in lines))


def _line(
    key: str,
    datasource: PublishedDatasource,
    found: Known,
    *,
    project: Project,
    switches: Mapping[str, bool],
) -> Line:
    """What Dagster alone knows of a data source."""
    line = Line(key, datasource.name, State.FRESH, found.last)
    line = replace(line, next=_next(datasource, project, switches))
    if found.running:
        return replace(line, state=State.RUNNING, run_id=found.running)
    if stopped := found.stopped:
        is_refusal = stopped.decision == "refuse"
        return replace(
            line,
            state=State.REFUSED if is_refusal else State.FAILED,
            why=stopped.reason,
            do=remedy(key, stopped.reason),
            run_id=stopped.run_id,
        )
    again = f"tableau-pipeline refresh {key}"
    if found.last is None:
        # The events of an asset can be wiped, which does not touch the journal.
        why = "its journal has refreshes, but Dagster's events of it are gone"
        why = why if found.is_published else ""
        return replace(line, state=State.NEVER, why=why, do=again)
    policy = project.freshness.get(key)
    if policy and (why := late(policy, found.last.at, datetime.now(UTC))):
        return replace(line, state=State.LATE, why=why, do=again)
    return line


def late(policy: dg.FreshnessPolicy, refreshed: datetime, now: datetime) -> str | None:
    """Why a data source is late, by the rules of Dagster's web UI; None if it is not."""
    match policy:
        case TimeWindowFreshnessPolicy():
            window = policy.fail_window.to_timedelta()
            hours = window.total_seconds() / 3600
            is_late = now - refreshed >= window
            return f"freshness: its last refresh is older than {hours:g} h" if is_late else None
        case CronFreshnessPolicy():
            zone = policy.timezone
            due = get_latest_completed_cron_tick(policy.deadline_cron, now, zone)
            if refreshed >= due - policy.lower_bound_delta:
                return None
            return f"freshness: it was due at {due:%Y-%m-%d %H:%M} ({zone})"
    return None


def _switches(project: Project) -> Mapping[str, bool]:
    """Whether each schedule and sensor of the location is on, by name."""
    definitions = project.definitions
    found = {
        each.name: str(getattr(each.default_status, "value", "")) == "RUNNING"
        for each in (*(definitions.schedules or ()), *(definitions.sensors or ()))
        if hasattr(each, "default_status")
    }
    for state in project.instance.all_instigator_state():
        if state.instigator_name in found and state.status != InstigatorStatus.DECLARED_IN_CODE:
            found[state.instigator_name] = state.status is InstigatorStatus.RUNNING
    return found


def _next(datasource: PublishedDatasource, project: Project, switches: Mapping[str, bool]) -> str:
    """What refreshes it next."""
    trigger = datasource.trigger
    if trigger is None:
        return "by hand"
    definitions = project.definitions
    match trigger:
        case CronTrigger(cron, zone):
            names = [
                each.name
                for each in definitions.schedules or ()
                if isinstance(each, dg.ScheduleDefinition)
                and (each.cron_schedule, each.execution_timezone) == (cron, zone)
            ]
            tick = get_next_cron_tick(cron, datetime.now(UTC), zone).astimezone()
            what = f"{tick:%Y-%m-%d %H:%M}"
        case AfterTrigger(after):
            names = [
                each.name
                for each in definitions.sensors or ()
                if isinstance(each, dg.AutomationConditionSensorDefinition)
            ]
            what = f"after {after} of its models"
        case _:
            names = [each for each in switches if each.startswith("refresh_after_dbt_")]
            what = "after dbt"
    return what if any(switches.get(name) for name in names) else f"off: {what}"


def _looked(
    project: Project, lines: Sequence[Line], found: Mapping[str, Known], *, everything: bool
) -> tuple[list[Line], list[dict[str, str]]]:
    """Compare with the server, by one list of its data sources; add what nothing declares.

    Raises:
        RefreshError: the server did not answer, or rejects the credentials.
    """
    with project.resources() as resources, resources.tableau.session() as site:
        listed = {each.luid: each for each in site.tagged(TAG_PREFIX, revisions=False)}
        looked = []
        for line in lines:
            luid = checkpoint.luid if (checkpoint := found[line.key].checkpoint) else None
            remote = listed.get(luid or "")
            if luid and remote is None:
                # Somebody may have removed its tag.
                remote = site.find_by_luid(luid)
            looked.append(_compared(line, found[line.key], remote))
        if not everything:
            return looked, []
        anybody = DagsterJournal(project.instance, dg.AssetKey("any")).instance
        ours = [each for each in listed.values() if f"{INSTANCE_TAG_PREFIX}{anybody}" in each.tags]
        others = undeclared(project.instance, ours, project.datasources)
    return looked, [{"name": each.name, "why": each.why or ""} for each in others]


def _compared(line: Line, found: Known, remote: RemoteDatasource | None) -> Line:
    checkpoint, again = found.checkpoint, f"tableau-pipeline refresh {line.key}"
    if (
        checkpoint is None
        or checkpoint.luid is None
        or line.state
        not in (
            State.FRESH,
            State.LATE,
        )
    ):
        return line
    if remote is None:
        why = f"{checkpoint.luid} is no longer on the server"
        return replace(line, state=State.GONE, why=why, do=again)
    change = Change.since(checkpoint, remote.stamp)
    if why := change.unexplained(checkpoint.behaviour):
        return replace(line, state=State.DRIFTED, why=why, do=f"{again}, or the audit")
    return line


def _show(
    output: Output,
    lines: Sequence[Line],
    *,
    others: Sequence[Mapping[str, str]],
    past: Mapping[str, Sequence[Ended]],
    problem: str,
    now: datetime,
) -> None:
    needing = [each for each in lines if each.needs_somebody]
    data = {
        "datasources": [_data(each) for each in lines],
        "undeclared": others,
        "history": {key: [_ended(each) for each in several] for key, several in past.items()},
        "need_somebody": len(needing),
        **({"error": problem} if problem else {}),
    }
    if output.as_json:
        output.result(data)
        return
    heads = ("", "DATA SOURCE", "STATE", "LAST REFRESH", "DECISION", ">ROWS", ">SENT")
    heads = (*heads, "COMPARED", "NEXT")
    output.result(data, columns(heads, [_row(each, now) for each in lines]))
    for each in needing:
        where = f" (run {each.run_id})" if each.run_id else ""
        output.result(data, signed(_sign(each), f"{each.name}: {each.state}{where}"))
        if each.why:
            output.result(data, Text(f"    {each.why}".replace("\n", "\n    ")))
        output.result(data, Text(f"    -> {each.do}"))
    for each in others:
        output.result(data, signed("!", f"{each['name']}: not declared here. {each['why']}"))
    for key, several in past.items():
        _show_past(output, key, several)
    if problem:
        output.problem(f"The server could not be looked at: {problem}")
    output.result(data, Text(_closing(lines, needing)))


def _closing(lines: Sequence[Line], needing: Sequence[Line]) -> str:
    if not lines:
        return "No data source is declared."
    if needing:
        verb = "needs" if len(needing) == 1 else "need"
        return f"{len(needing)} of {len(lines)} {verb} somebody."
    return f"All {len(lines)} are fresh." if len(lines) > 1 else "It is fresh."


def _sign(line: Line) -> str:
    return _SIGNS.get(line.state, "!" if line.needs_somebody else "~")


def _row(line: Line, now: datetime) -> tuple[str, ...]:
    last = line.last
    return (
        _sign(line),
        line.name,
        line.state,
        ago(last.at if last else None, now),
        last.decision if last else "-",
        f"{last.rows:,}" if last and last.rows is not None else "-",
        megabytes(last.sent) if last and last.sent is not None else "-",
        last.compared.partition(":")[0] if last else "-",
        line.next,
    )


def _show_past(output: Output, key: str, several: Sequence[Ended]) -> None:
    heads = (key.upper(), "DECISION", ">ROWS", ">SENT", ">SAVED", "SECONDS", "REASON")
    rows = [
        (
            f"{each.at.astimezone():%Y-%m-%d %H:%M}",
            each.decision,
            f"{each.rows:,}" if each.rows is not None else "-",
            megabytes(each.sent) if each.sent is not None else "-",
            megabytes(each.saved) if each.saved is not None else "-",
            _phases(each.seconds),
            each.reason.partition("\n")[0],
        )
        for each in several
    ]
    sent, saved = total_bytes(several)
    output.result({}, Text(""), columns(heads, rows))
    text = f"{len(several)} refreshes sent {megabytes(sent)}, and saved {megabytes(saved)}."
    output.result({}, Text(text), Text(""))


def _phases(seconds: Mapping[str, float]) -> str:
    """Such as "3.1: build 0.9, send 2.1", without what took no time."""
    parts = [f"{name} {each:.1f}" for name, each in seconds.items() if name != "total"]
    long = ", ".join(part for part in parts if not part.endswith(" 0.0"))
    return f"{seconds['total']:.1f}: {long}" if "total" in seconds else "-"


def _data(line: Line) -> dict[str, object]:
    return {
        "key": line.key,
        "name": line.name,
        "state": line.state,
        "needs_somebody": line.needs_somebody,
        "why": line.why,
        "remedy": line.do,
        "next": line.next,
        "run_id": line.run_id,
        "last": _ended(line.last) if line.last else None,
    }


def _ended(ended: Ended) -> dict[str, object]:
    return {
        "at": ended.at,
        "run_id": ended.run_id,
        "decision": ended.decision,
        "reason": ended.reason,
        "rows": ended.rows,
        "bytes_sent": ended.sent,
        "bytes_saved": ended.saved,
        "compared": ended.compared,
        "seconds": ended.seconds,
    }
