"""What a refresh did, how long it took, and its closing line."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration, megabytes
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import Merge, Values
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.plan import NoChange, Options, Plan, Publish, Refuse, UpdateTables
from tableau_pipeline.refresh.reconcile import Reconciliation


@dataclass(frozen=True, slots=True)
class Report:
    """What a refresh did.

    Attributes:
        plan: None if only the file was to be built, or the published rows to be compared.
        extract: the file that was built: the whole data source, or the payload of an update.
            For a split update, the last payload with the rows and bytes of all. None if nothing
            had to be built.
        tables: what an update did to each table that it changed.
        reconciliation: how the published data compares with the models; None if nothing was
            sent.
        checkpoint: None if the data source was not refreshed.
        warnings: what a person should know although nothing is wrong.
        uploaded: bytes of each file that was sent. The first publish with declared metadata sends
            two: only the file that the server makes of the first one can take them.
        job_id: the id of the server's job that carried it out, if there was one.
        seconds: by phase; "total" once the refresh has ended.
        before: rows by table that were published before; empty if they are not known.
        moves: what becomes of its name and its project, by "rename" and "move".
        problems: in what the server says other than is declared of the data source itself.
        base: what the server held before; None if only the file was to be built.
        desired: what each table is to hold; empty if that was not to be decided.
        wanted: the declared and inherited metadata.
        merged: what becomes of the metadata on the server; None if there is none to keep or set.
        summary: all of this in one line.
    """

    plan: Plan | None
    extract: Extract | None = None
    tables: Mapping[str, RowCounts] = field(default_factory=dict)
    reconciliation: Reconciliation | None = None
    checkpoint: Checkpoint | None = None
    remote: RemoteDatasource | None = None
    uploaded: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    job_id: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    base: Base | None = None
    desired: Mapping[str, TableContent] = field(default_factory=dict)
    wanted: Values = field(default_factory=dict)
    merged: Merge | None = None
    summary: str = ""

    @property
    def sent(self) -> int:
        """Bytes of all files that were sent."""
        return sum(self.uploaded)

    @property
    def decision(self) -> str:
        """What is done, in a few words."""
        if self.plan is None:
            return "build"
        moves = () if isinstance(self.plan, Refuse) else tuple(self.moves)
        is_all = moves and isinstance(self.plan, NoChange)
        return ", ".join(moves if is_all else [*moves, self.plan.decision])

    @property
    def reason(self) -> str:
        """Why, in words; "" if only the file was to be built."""
        if self.plan is None:
            return ""
        moves = () if isinstance(self.plan, Refuse) else self.moves.values()
        return "; ".join([*moves, self.plan.reason])


@contextmanager
def phase(seconds: dict[str, float], name: str) -> Generator[None]:
    """Add the time that the block takes to the seconds of a phase."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[name] = round(seconds.get(name, 0) + time.monotonic() - started, 3)


def summary(report: Report, declaration: Declaration, options: Options) -> str:
    """Such as "NYC Flights: update, -433 +419 rows, 0.13 MB in 2.1 s, equal by count, http://..."."""
    if isinstance(report.plan, Refuse):
        return f"{declaration.name}: the refresh would be refused: {report.plan.reason}"
    done = f"{_work(report, declaration)} in {report.seconds['total']:.1f} s"
    if options.dry_run:
        return f"{declaration.name}: dry run, nothing sent; a refresh would be: {done}"
    if report.plan is None:
        file = report.extract.path.as_uri() if report.extract else ""
        return f"{declaration.name}: {done}, {file}"
    link = report.remote.link if report.remote else None
    return ", ".join(filter(None, [f"{declaration.name}: {done}", comparison(report), link]))


def _work(report: Report, declaration: Declaration) -> str:
    rows = report.extract.rows if report.extract else {}
    # As everywhere, the rows of a data source are those of its fact table.
    rows = rows.get(declaration.published_name(declaration.fact_table), 0)
    size = megabytes(report.extract.size) if report.extract else ""
    if isinstance(report.plan, Publish) and (files := report.uploaded[1:]):
        size += f" ({megabytes(report.sent)} sent, in {len(files) + 1} files)"
    moved = "".join(f"{phrase}, " for phrase in report.moves.values())
    match report.plan:
        case NoChange():
            return f"{moved}the same rows" if moved else "no change"
        case UpdateTables():
            deleted = sum(each.deleted for each in report.tables.values())
            inserted = sum(each.inserted for each in report.tables.values())
            return f"{moved}update, -{deleted:,} +{inserted:,} rows, {size}"
        case Publish() as plan if report.extract is None:
            # A dry run does not build the whole file.
            return f"{moved}{plan.decision}"
        case Publish() as plan:
            return f"{moved}{plan.decision}, {rows:,} rows, {size}"
        case _:
            return f"built only, {rows:,} rows, {size}"


def comparison(report: Report) -> str:
    """How the published data was compared with the models, in words; "" if it was not refreshed."""
    how, why = compared(report)
    return f"{how}: {why}" if why else how


def compared(report: Report) -> tuple[str, str]:
    """How the published data was compared with the models, and why it was not, both in words."""
    checkpoint, found = report.checkpoint, report.reconciliation
    if checkpoint is None:
        return "", ""
    if checkpoint.distrust:
        return "to be compared by the next refresh", str(checkpoint.distrust)
    if checkpoint.unreconciled:
        return "not compared", checkpoint.unreconciled
    if found is None:
        when = checkpoint.compared_at
        return f"equal when last compared{f', {when:%Y-%m-%d %H:%M} UTC' if when else ''}", ""
    return f"equal by {found.way}", ""
