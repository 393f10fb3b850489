"""The commands `rollback`, `hold` and `release`: refreshes skip a data source that is held."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from tableau_pipeline.command_line.output import Output, ago, columns, reports, signed
from tableau_pipeline.command_line.project import CodeLocation, open_project
from tableau_pipeline.command_line.refresh import run_refresh
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.published_files import published_files
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.hold import Hold, end_hold, hold_of, put_hold
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.refresh.claim import live_claim, name_of
from tableau_pipeline.scripting.environment import current_user
from tableau_pipeline.snapshots.version_store import SnapshotStore

# The list shows at most this many versions. Without --to, `rollback` chooses one of them.
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Version:
    """The content of a data source between two refreshes that changed it.

    Attributes:
        number: the number of the refresh that first published this version.
        at: when this refresh changed the rows; None if the time is unknown.
        rows: the number of rows of each table.
        changed: the tables that this refresh changed.
        gone: the tables whose rows are no longer stored, which prevents a rollback to this version.
        is_current: whether this version is published now, as far as the records show.
        accepted: what was accepted for this version, and by whom; "" if nothing was accepted.
    """

    number: int
    at: datetime | None
    rows: Mapping[str, int]
    changed: Sequence[str]
    gone: Sequence[str] = ()
    is_current: bool = False
    accepted: str = ""


def versions_of(journal: StoredJournal, snapshots: Snapshots) -> Iterator[Version]:
    """Yield the versions of a data source that still have records, the newest first."""
    newer: Checkpoint | None = None
    is_current = True
    # A refresh that changed nothing belongs to the version of the refresh before it.
    for checkpoint in [*journal.checkpoints(), None]:
        if newer and not (checkpoint and _same(checkpoint, newer)):
            before = checkpoint.tables if checkpoint else {}
            yield Version(
                number=newer.refresh,
                at=newer.changed_at,
                rows=newer.rows,
                changed=[
                    name
                    for name, table in newer.tables.items()
                    if name not in before or not table.same_content(before[name])
                ],
                gone=[
                    name
                    for name, table in newer.tables.items()
                    if snapshots.version(table.model, table.version) is None
                ],
                is_current=is_current,
                accepted=str(newer.accepted or ""),
            )
            is_current = False
        newer = checkpoint


def _same(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints, the records of refreshes, have the same rows and metadata."""
    return (
        one.tables.keys() == other.tables.keys()
        and all(table.same_content(other.tables[name]) for name, table in one.tables.items())
        and one.written[:1] == other.written[:1]
    )


@click.command()
@click.argument("name")
@click.option("--to", "version", type=click.IntRange(1), help="Number of the version in the list.")
@click.option("--list", "is_list", is_flag=True, help="Show the versions, and change nothing.")
@click.option("--why", default="", help="Reason, shown to everyone who sees the hold.")
@click.option("--dry-run", is_flag=True, help="Plan and report, but change nothing.")
@click.option("--webserver", metavar="URL", help="Run in the deployment of this web server.")
@reports
def rollback(
    module: str | None,
    name: str,
    *,
    version: int | None,
    is_list: bool,
    why: str,
    dry_run: bool,
    webserver: str | None,
    output: Output,
) -> int:
    """Publish an earlier version of a data source again, and hold the data source at this version.

    Without --to, the command publishes the newest earlier version whose rows are still stored.
    Afterwards, refreshes skip the data source until `tableau-pipeline release NAME`. Edits of users
    stay.

    Exit code: 0 the data source was rolled back, 1 the rollback was refused or failed.
    """
    with open_project(module) as project:
        (key,) = project.named([name])
        with project.resources() as resources:
            store: SnapshotStore = resources.snapshots.store
            versions = [*versions_of(journal_of(project.instance, key), store)][:_MAX_LISTED]
        if is_list:
            output.result({"key": key, "versions": versions}, _table(versions))
            return 0
        target = version or _version_before(versions, key)
        given = {"rollback": target, "why": why, "by": current_user(), "dry_run": dry_run}
        result = run_refresh(project, key, given, webserver=webserver, output=output)
    data = {"key": key, "version": target, **result}
    summary = str(data.get("summary") or data.get("reason") or "")
    held = Text(f"    Held at version {target}. To go on: tableau-pipeline release {key}")
    is_held = data["success"] and not dry_run
    output.result(data, signed("=" if data["success"] else "x", summary), held if is_held else None)
    return 0 if data["success"] else 1


def _version_before(versions: Sequence[Version], key: str) -> int:
    for version in versions:
        if not (version.is_current or version.gone):
            return version.number
    raise RefusedError(
        f"No earlier version of {key} is left: either it was published once, or the rows of "
        "earlier versions are no longer stored (keep_days)",
        code=Code.NO_VERSION,
    )


def _table(versions: Sequence[Version]) -> Any:
    now, rows = datetime.now(UTC), []
    for version in versions:
        notes = ["now"] if version.is_current else []
        if version.gone and not version.is_current:
            notes.append(f"gone: {', '.join(version.gone)}")
        if version.accepted:
            notes.append(f"accepted: {version.accepted}")
        rows.append(
            (
                version.number,
                ago(version.at, now) if version.at else None,
                ", ".join(f"{table} {count:,}" for table, count in version.rows.items()),
                ", ".join(version.changed) or "metadata",
                "; ".join(notes),
            )
        )
    return columns((">VERSION", "WHEN", "ROWS", "CHANGED", ""), rows)


@click.command()
@click.argument("name")
@click.option("--why", default="", help="Reason, shown to everyone who sees the hold.")
@reports
def hold(module: str | None, name: str, *, why: str, output: Output) -> int:
    """Keep a data source as it is: refreshes skip it until `tableau-pipeline release NAME`.

    Exit code: 0 the data source is held.
    """
    with open_project(module) as project:
        key, journal = _journal(project, name)
        held = Hold(by=current_user(), why=why)
        put_hold(journal.place, journal.key, held)
        # A running refresh may have checked for holds before this hold began: warn the user.
        running = live_claim(journal.history(), journal)
    data = {"key": key, "held": held.model_dump(mode="json")}
    late = Text(f"    {name_of(running)} refreshes it, and may still finish") if running else None
    output.result(data, Text(f"{key} is {held}."), late)
    return 0


@click.command()
@click.argument("name")
@reports
def release(module: str | None, name: str, *, output: Output) -> int:
    """End a hold: the next refresh publishes the models again.

    Exit code: 0 the data source is no longer held.
    """
    with open_project(module) as project:
        key, journal = _journal(project, name)
        held = hold_of(journal.place, journal.key)
        end_hold(journal.place, journal.key)
    if held is None:
        output.result({"key": key, "released": None}, Text(f"{key} was not held."))
        return 0
    text = f"{key} is released; it was {held}. The next refresh publishes its models"
    output.result({"key": key, "released": held.model_dump(mode="json")}, Text(text))
    return 0


def _journal(project: CodeLocation, name: str) -> tuple[str, StoredJournal]:
    """Return the key and the journal of a data source that is declared or published from files."""
    files = published_files(project.instance)
    key = name if name in files else next(iter(project.named([name])))
    return key, journal_of(project.instance, key)
