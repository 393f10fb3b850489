"""The command `plan`: what the next refreshes would do, and why. It changes nothing."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import click
from rich.text import Text

from tableau_pipeline.command_line.output import Output, logger, signed
from tableau_pipeline.command_line.project import Project, opened
from tableau_pipeline.command_line.records import remedy
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import megabytes
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.compare import schema_changes
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.plan import NoChange, Options, Publish, Refuse, UpdateTables
from tableau_pipeline.refresh.refresh import Setup, refresh
from tableau_pipeline.refresh.report import Report, unmatched

_LOG = logging.getLogger(__name__)
# In the order of the closing line.
_KINDS = ("update", "publish", "move", "refused", "failed", "unchanged")


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the next refresh of a data source would do.

    Attributes:
        kind: one of `_KINDS`.
        limit: bytes that a payload may have; None if no update is planned.
        size: bytes that would be sent; for a full publish, those of the last one.
        notes: all that a reader should know beside, in sentences by what they are about.
    """

    key: str
    name: str
    kind: str
    decision: str
    reason: str
    inserted: int = 0
    deleted: int = 0
    rows: int = 0
    size: int | None = None
    limit: int | None = None
    notes: tuple[tuple[str, str], ...] = ()


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.pass_obj
def plan(module: str | None, names: Sequence[str], *, as_json: bool) -> int:
    """Show what the next refreshes would do, and why. It changes nothing.

    Exit code: 0 nothing would change, 2 something would, 1 one would be refused or fail.
    """
    output = Output(as_json=as_json)
    with opened(module) as project:
        declared = project.named(names)
        found = list(_online(project, declared, output))
    output.result(
        {"datasources": [_data(each) for each in found], **_counts(found)},
        *map(_tree, found),
        Text(closing(found)),
    )
    return exit_code(found)


def exit_code(found: Sequence[Foreseen]) -> int:
    """As in Terraform: 0 for nothing to do, 2 for changes, 1 for a refusal or a failure."""
    kinds = {each.kind for each in found}
    if kinds & {"refused", "failed"}:
        return 1
    return 2 if kinds - {"unchanged"} else 0


def _online(
    project: Project, declared: Mapping[str, PublishedDatasource], output: Output
) -> Iterator[Foreseen]:
    """Look at each data source as its refresh would, in one session."""
    counts = any(each.needs_counts for each in declared.values())
    # A token may be in use by a refresh, which takes its time.
    waiting = logger(output, lambda text: text.startswith("Waiting"))
    with (
        project.resources() as resources,
        resources.tableau.session(waiting, counts=counts) as site,
    ):
        for number, (key, each) in enumerate(declared.items(), 1):
            output.progress(f"{number} of {len(declared)}: {each.name}")
            setup = project.setup(key, resources)
            yield foresee(replace(setup, server=lambda: nullcontext(site)), site)
            resources.snapshots.copies.release()


def foresee(setup: Setup, site: TableauSite) -> Foreseen:
    """Let the refresh of a data source tell what it would do."""
    declaration = setup.declaration
    nothing = Foreseen(declaration.key, declaration.name, "refused", "refuse", "")
    try:
        report = refresh(setup, Options(dry_run=True))
        waits = tuple(_waits(setup, site))
    except RefusedError as error:
        return replace(nothing, reason=str(error))
    except RefreshError as error:
        return replace(nothing, kind="failed", decision="fail", reason=str(error))
    except Exception as error:  # noqa: BLE001 - the others are to be looked at all the same
        _LOG.debug("%s could not be planned", declaration.key, exc_info=error)
        reason = f"{type(error).__name__}: {error}"
        return replace(nothing, kind="failed", decision="fail", reason=reason)
    if isinstance(report.plan, Refuse):
        return replace(nothing, reason=report.reason, notes=(*waits, *_notes(report)))
    limit = min(filter(None, (site.payload_limit, declaration.payload_limit)), default=None)
    return Foreseen(
        key=declaration.key,
        name=declaration.name,
        kind=_kind(report),
        decision=report.decision,
        reason=report.reason,
        inserted=sum(each.inserted for each in report.tables.values()),
        deleted=sum(each.deleted for each in report.tables.values()),
        rows=sum(each.content.rows for each in report.desired.values()),
        size=_size(report),
        limit=limit if isinstance(report.plan, UpdateTables) else None,
        notes=(*waits, *_notes(report)),
    )


def _kind(report: Report) -> str:
    match report.plan:
        case NoChange():
            return "move" if report.moves else "unchanged"
        case UpdateTables():
            return "update"
        case _:
            return "publish"


def _size(report: Report) -> int | None:
    match report.plan:
        case NoChange():
            return 0
        case UpdateTables():
            return report.extract.size if report.extract else 0
    # The file is not built to measure it.
    before = report.base.checkpoint if report.base else None
    return before.size if before else None


def _waits(setup: Setup, site: TableauSite) -> Iterator[tuple[str, str]]:
    """On which jobs of the server the answer depends."""
    for intent in read_history(setup.journal.records()).intents:
        if intent.outcome:
            continue
        job = site.job(intent.job_id) if intent.job_id else None
        if intent.job_id and job and job.outcome is None:
            yield "waits", f"its {intent.action} still runs as job {intent.job_id}: plan again then"
        elif job is None:
            sent = f"{intent.recorded_at:%Y-%m-%d %H:%M} UTC"
            which = f"job {intent.job_id}, which" if intent.job_id else "a job that"
            yield "waits", f"its {intent.action} of {sent} became {which} the server does not know"


def _notes(report: Report) -> Iterator[tuple[str, str]]:
    base = report.base
    if base is None:
        return
    if base.checkpoint:
        for change in schema_changes(report.desired, base.checkpoint.tables):
            yield "schema", change
    for table, counts in report.tables.items():
        if len(report.tables) > 1 or counts.whole:
            why = f" (all rows: {counts.whole})" if counts.whole else ""
            yield "table", f"{table}: +{counts.inserted:,} -{counts.deleted:,} rows{why}"
    yield from (("warning", found) for found in unmatched(report.orphans))
    for each in (*base.moved, *base.warnings):
        yield "warning", each
    overwrites = isinstance(report.plan, Publish) and report.plan.mode is PublishMode.OVERWRITE
    if base.left and base.is_edited and base.metadata and not isinstance(report.plan, Refuse):
        work = "; ".join(f"{kind} {', '.join(names)}" for kind, names in base.metadata.work.items())
        yield "dropped" if overwrites else "kept", work or "what others changed in its metadata"


def _tree(each: Foreseen) -> Text:
    """The head, and a branch for each thing to know; a line of any length stays whole."""
    # There is one reason for no change, and most data sources have it.
    reasons = [text for text in each.reason.split("\n") if each.kind != "unchanged"]
    branches = [f"because: {text}" for text in reasons]
    branches += [f"{about}: {text}" for about, text in each.notes]
    if each.kind == "refused" and "--accept" in (do := remedy(each.key, each.reason)):
        branches.append(f"fix: {do}")
    tree = signed(_sign(each), _head(each))
    for number, branch in enumerate(branches, 1):
        tree.append(f"\n{'└' if number == len(branches) else '├'}── {branch}")
    return tree


def _sign(each: Foreseen) -> str:
    if each.kind == "publish" and PublishMode.CREATE in each.decision:
        return "+"
    return {"refused": "!", "failed": "x", "unchanged": "="}.get(each.kind, "~")


def _head(each: Foreseen) -> str:
    """Such as "NYC Flights  update  +28,135 -0 of 308,641 rows  2.40 MB of 95.00 MB"."""
    match each.kind:
        case "unchanged" | "move":
            parts = [each.decision]
        case "update":
            size = f"{megabytes(each.size or 0)} of {megabytes(each.limit or 0)}"
            rows = f"+{each.inserted:,} -{each.deleted:,} of {each.rows:,} rows"
            parts = [each.decision, rows, size]
        case "publish":
            size = f"about {megabytes(each.size)}" if each.size else "size not known"
            parts = [each.decision, f"{each.rows:,} rows", size]
        case _:
            parts = [each.kind]
    return "  ".join([each.name, *parts])


def _counts(found: Sequence[Foreseen]) -> dict[str, object]:
    kinds = Counter(each.kind for each in found)
    return {
        "counts": {kind: kinds[kind] for kind in _KINDS},
        "changes": sum(kinds[kind] for kind in ("update", "publish", "move")),
        "bytes": sum(each.size or 0 for each in found),
        "sizes_not_known": sum(each.size is None and each.kind == "publish" for each in found),
    }


def closing(found: Sequence[Foreseen]) -> str:
    """Such as "Plan: 1 update, 0 publish, 1 refused, 38 unchanged; 2.40 MB"."""
    kinds = Counter(each.kind for each in found)
    always = ("update", "publish", "refused", "unchanged")
    parts = [f"{kinds[kind]} {kind}" for kind in _KINDS if kinds[kind] or kind in always]
    size = megabytes(sum(each.size or 0 for each in found))
    files = sum(each.size is None and each.kind == "publish" for each in found)
    more = (
        f", and {files} full publish{'es' if files > 1 else ''} of a size not known"
        if files
        else ""
    )
    return f"Plan: {', '.join(parts)}; {size}{more}"


def _data(each: Foreseen) -> dict[str, object]:
    return {
        "key": each.key,
        "name": each.name,
        "kind": each.kind,
        "decision": each.decision,
        "reason": each.reason,
        "rows": each.rows,
        "inserted": each.inserted,
        "deleted": each.deleted,
        "bytes": each.size,
        "limit": each.limit,
        "notes": [{"about": about, "text": text} for about, text in each.notes],
    }
