"""The command `status`: which data sources are fresh, and which need a person."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tableau_pipeline.command_line import Project, opened
from tableau_pipeline.command_line.output import Output, ago, columns, reports, signed
from tableau_pipeline.components import standing
from tableau_pipeline.components.audit import undeclared
from tableau_pipeline.components.automation import next_refreshes
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.components.reporting import Ended
from tableau_pipeline.components.standing import Known, Month, Standing, State, remedy
from tableau_pipeline.core.declaration import (
    INSTANCE_TAG_PREFIX,
    TAG_PREFIX,
    Declaration,
    megabytes,
)
from tableau_pipeline.core.drift import Change, RemoteDatasource
from tableau_pipeline.errors import RefreshError

_URGENCY = [*State]
_SIGNS = {State.REFUSED: "x", State.FAILED: "x", State.GONE: "x"}
_SIGNS |= {State.RUNNING: "~", State.FRESH: "="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Standing):
    """A data source, as `status` tells of it.

    Attributes:
        next: what refreshes it next.
        last: the last refresh that ended well.
    """

    key: str
    name: str
    last: Ended | None
    next: str

    @property
    def needs_attention(self) -> bool:
        """Whether a person has to look at it."""
        return self.state not in (State.RUNNING, State.FRESH)

    @property
    def sign(self) -> str:
        """How urgent it is."""
        return _SIGNS.get(self.state, "!")


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
    now, problem, others = datetime.now(UTC), "", []
    with opened(module) as project:
        declared = project.named(names)
        if saved:
            months = {key: standing.savings(project.instance, key) for key in declared}
            output.result({"savings": months}, _savings(declared, months))
            return 0
        found = standing.known(project.instance, declared)
        next_of, lines = next_refreshes(project.definitions, project.instance), list[Line]()
        for key, each in declared.items():
            judged = standing.standing(each, found[key])
            last, then = found[key].last, next_of(each)
            lines.append(Line(key=key, name=each.name, last=last, next=then, **asdict(judged)))
        if not offline:
            try:
                lines, others = _looked(project, lines, found, everything=not names)
            except RefreshError as error:
                problem = str(error)
        past = {key: standing.history(project.instance, key) for key in declared} if names else {}
    lines.sort(key=lambda each: (_URGENCY.index(each.state), each.name.casefold()))
    needing = [each for each in lines if each.needs_attention]
    told = [asdict(each) | {"needs_attention": each.needs_attention} for each in lines]
    counted = {"need_attention": len(needing), **({"error": problem} if problem else {})}
    data = {"datasources": told, "undeclared": others, "history": past, **counted}
    output.result(data, *_shown(lines, others, past, now), Text(_closing(lines, needing)))
    if problem:
        output.problem(f"The server could not be looked at: {problem}")
        return 2
    return int(bool(needing))


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
    project: Project, lines: Sequence[Line], found: Mapping[str, Known], *, everything: bool
) -> tuple[list[Line], list[dict[str, str]]]:
    """Compare with the server, by one list of its data sources; add what nothing declares."""
    with project.resources() as resources, resources.tableau.session() as site:
        listed = {each.luid: each for each in site.tagged(TAG_PREFIX, revisions=False)}
        looked = []
        for line in lines:
            luid = checkpoint.luid if (checkpoint := found[line.key].checkpoint) else None
            # Another user may have removed its tag.
            remote = listed.get(luid or "") or (site.find_by_luid(luid) if luid else None)
            looked.append(_compared(line, found[line.key], remote))
        if not everything:
            return looked, []
        anybody = DagsterJournal(project.instance, "any").instance
        ours = [each for each in listed.values() if f"{INSTANCE_TAG_PREFIX}{anybody}" in each.tags]
        others = undeclared(project.instance, ours, project.datasources)
    return looked, [{"name": each.name, "why": each.why or ""} for each in others]


def _compared(line: Line, found: Known, remote: RemoteDatasource | None) -> Line:
    checkpoint, again = found.checkpoint, remedy(line.key)
    if line.state not in (State.FRESH, State.LATE) or not (checkpoint and checkpoint.luid):
        return line
    if remote is None:
        why = f'"{line.name}" is no longer on the server'
        return replace(line, state=State.GONE, why=why, remedy=again)
    change = Change.since(checkpoint, remote)
    if why := change.unexplained(checkpoint.behaviour) or checkpoint.distrust:
        do = f"tableau-pipeline diff {line.key}, then {again}"
        return replace(line, state=State.DRIFTED, why=why, remedy=do)
    return line


def _shown(
    lines: Sequence[Line],
    others: Sequence[Mapping[str, str]],
    past: Mapping[str, Sequence[Ended]],
    now: datetime,
) -> list[RenderableType]:
    heads = ("", "DATA SOURCE", "STATE", "LAST REFRESH", "DECISION", ">ROWS", ">SENT")
    heads = (*heads, "COMPARED", "NEXT")
    shown: list[RenderableType] = [columns(heads, [_row(e, now) for e in lines])] if lines else []
    for each in lines:
        if not each.needs_attention:
            continue
        where = f" (run {each.run_id})" if each.run_id else ""
        shown.append(signed(each.sign, f"{each.name}: {each.state}{where}"))
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


def _closing(lines: Sequence[Line], needing: Sequence[Line]) -> str:
    if not lines:
        return "No data source is declared."
    if needing:
        return f"{len(needing)} of {len(lines)} need{'s' * (len(needing) == 1)} attention."
    return f"All {len(lines)} are fresh." if len(lines) > 1 else "It is fresh."


def _row(line: Line, now: datetime) -> tuple[str | int | None, ...]:
    head, last = (line.sign, line.name, line.state), line.last
    if last is None:
        return *head, "never", None, None, None, None, line.next
    compared, size = last.compared.partition(": ")[0], _size(last.bytes_sent)
    return *head, ago(last.at, now), last.decision, last.rows, size, compared, line.next


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
