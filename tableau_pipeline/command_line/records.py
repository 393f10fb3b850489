"""What Dagster has recorded of the data sources of a location, in few reads for all of them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from tableau_pipeline.command_line.project import Project
from tableau_pipeline.components.journal import DagsterJournal, newest_records, records_of
from tableau_pipeline.components.reporting import run_tags
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.journal import Claim, ClaimRelease, Record, read_history

_STOPPED = ("refuse", "failed")
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Ended:
    """A refresh that has ended.

    Attributes:
        decision: "refuse" or "failed" if nothing was refreshed.
        rows: of the fact table; None if nothing was refreshed, like `sent` and `whole`.
        sent: bytes.
        whole: bytes of the whole file, which a refresh without updates would have sent.
        seconds: by phase.
    """

    at: datetime
    run_id: str
    decision: str
    reason: str
    rows: int | None = None
    sent: int | None = None
    whole: int | None = None
    compared: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def saved(self) -> int | None:
        """The bytes that it has not sent, compared with a publish of the whole file."""
        return max(self.whole - (self.sent or 0), 0) if self.whole else None


@dataclass(frozen=True, slots=True)
class Known:
    """All that Dagster knows of a data source.

    Attributes:
        last: the last refresh that ended well.
        stopped: a later one that did not.
        running: the id of the run that refreshes it now.
        checkpoint: None if the last one is not certain: a sending of it is open.
        is_published: whether a checkpoint or a sending of it is recorded.
    """

    last: Ended | None = None
    stopped: Ended | None = None
    running: str | None = None
    checkpoint: Checkpoint | None = None
    is_published: bool = False


def known(project: Project, declared: Mapping[str, Declaration]) -> Mapping[str, Known]:
    """Read what is recorded of these data sources, by asset key.

    Raises:
        RefusedError: another release wrote a record that this one does not understand.
    """
    instance = project.instance
    keys = {dg.AssetKey.from_user_string(key): key for key in declared}
    entries = {
        keys[each.asset_entry.asset_key]: each.asset_entry
        for each in instance.get_asset_records(list(keys))
    }
    newest = newest_records(instance)
    wanted = {
        run_id
        for entry in entries.values()
        if (run_id := entry.last_planned_materialization_run_id or entry.last_run_id)
    }
    records = instance.get_run_records(dg.RunsFilter(run_ids=sorted(wanted))) if wanted else []
    runs = {each.dagster_run.run_id: each for each in records}
    found = {}
    for key, declaration in declared.items():
        entry = entries.get(key)
        claim, request = newest.get(key, (None, None))
        last = refreshed(entry.last_materialization) if entry else None
        planned = entry and (entry.last_planned_materialization_run_id or entry.last_run_id)
        run = runs.get(planned or "")
        if run and last and run.dagster_run.run_id == last.run_id:
            run = None
        running, stopped = _latest(instance, declaration, run, last=last, claim=claim)
        checkpoint, is_published = _checkpoint(instance, key, request)
        found[key] = Known(last, stopped, running, checkpoint, is_published)
    return found


def refreshed(event: dg.EventLogEntry | None) -> Ended | None:
    """Read the materialization of a published asset."""
    materialization = event.asset_materialization if event else None
    if event is None or materialization is None:
        return None
    metadata: dict[str, Any] = {name: each.value for name, each in materialization.metadata.items()}
    return Ended(
        at=datetime.fromtimestamp(event.timestamp, UTC),
        run_id=event.run_id,
        # It was materialized by hand, or by other code.
        decision=metadata.get("decision", "unknown"),
        reason=metadata.get("reason", ""),
        rows=metadata.get("dagster/row_count"),
        sent=metadata.get("bytes sent"),
        whole=metadata.get("bytes in full"),
        compared=metadata.get("comparison", ""),
        seconds={
            name.removeprefix("seconds/"): value
            for name, value in metadata.items()
            if name.startswith("seconds/")
        },
    )


def history(project: Project, declaration: Declaration) -> Sequence[Ended]:
    """Return the last refreshes of a data source, the newest first."""
    key, instance = dg.AssetKey.from_user_string(declaration.key), project.instance
    done = [
        found
        for each in instance.fetch_materializations(key, limit=_LISTED).records
        if (found := refreshed(each.event_log_entry))
    ]
    stopped = [_stopped(instance, declaration, each) for each in _stops(instance, declaration)]
    return sorted([*done, *stopped], key=lambda each: each.at, reverse=True)[:_LISTED]


def _stops(
    instance: dg.DagsterInstance, declaration: Declaration, limit: int = _LISTED
) -> Sequence[dg.RunRecord]:
    (name,) = run_tags(declaration, "")
    filter_ = dg.RunsFilter(tags={name: list(_STOPPED)})
    return instance.get_run_records(filter_, limit=limit)


def _latest(
    instance: dg.DagsterInstance,
    declaration: Declaration,
    run: dg.RunRecord | None,
    *,
    last: Ended | None,
    claim: Record | None,
) -> tuple[str | None, Ended | None]:
    """Return the run that refreshes the data source now, and the last one if that was stopped.

    Args:
        run: the last one that was to refresh it, if it is not the one of `last`.
    """
    if run is None:
        return None, None
    run_id, status = run.dagster_run.run_id, run.dagster_run.status
    (tag,) = run_tags(declaration, "")
    decision = run.dagster_run.tags.get(tag)
    if not run.dagster_run.is_finished:
        if isinstance(claim, Claim) and claim.owner.run_id == run_id:
            key = dg.AssetKey.from_user_string(declaration.key)
            if DagsterJournal(instance, key).has_ended(claim.owner):
                why = "the process of its refresh is gone, and has left no result"
                return None, Ended(run.create_timestamp, run_id, "failed", why)
        return run_id, None
    if decision in _STOPPED or (decision is None and status is not dg.DagsterRunStatus.SUCCESS):
        return None, _stopped(instance, declaration, run)
    # It was a dry run, or only built a file: what counts is the run before.
    for each in _stops(instance, declaration, limit=1):
        if last is None or each.create_timestamp > last.at:
            return None, _stopped(instance, declaration, each)
    return None, None


def _stopped(instance: dg.DagsterInstance, declaration: Declaration, run: dg.RunRecord) -> Ended:
    (tag,) = run_tags(declaration, "")
    run_id = run.dagster_run.run_id
    ended = run.end_time or run.start_time
    return Ended(
        at=datetime.fromtimestamp(ended, UTC) if ended else run.create_timestamp,
        run_id=run_id,
        decision=run.dagster_run.tags.get(tag) or "failed",
        reason=failure_of(instance, run_id, declaration.key.replace("/", "__"))
        or f"its run ended as {run.dagster_run.status.value}, without a result",
    )


def failure_of(instance: dg.DagsterInstance, run_id: str, step: str) -> str:
    """Return why a step failed, or the first step before it; "" if none did."""
    log = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    events = [each.event_log_entry.dagster_event for each in log.records]
    failed = {str(each.step_key): each.step_failure_data for each in events if each}
    for name, data in sorted(failed.items(), key=lambda item: item[0] != step):
        said = data.user_failure_data.description if data.user_failure_data else None
        error = data.error.cause or data.error if data.error else None
        text = said or (error.message.strip() if error else "") or "it says not why"
        # The web UI shows where to type it, which is not here.
        lines = [each for each in text.splitlines() if "goes into the launchpad" not in each]
        where = "" if name == step else f"the step {name} failed before it: "
        return where + "\n".join(lines)
    return ""


def _checkpoint(
    instance: dg.DagsterInstance, key: str, request: Record | None
) -> tuple[Checkpoint | None, bool]:
    if isinstance(request, ClaimRelease) and request.checkpoint:
        return request.checkpoint, True
    if request is None:
        return None, False
    past = read_history(records_of(instance, dg.AssetKey.from_user_string(key)))
    is_certain = not past.intents and not past.recovered.sent and not past.recovered.distrust
    return past.checkpoint if is_certain else None, bool(past.checkpoint or past.intents)


def remedy(key: str, reason: str) -> str:
    """The command that lets a refused or failed refresh through, or tries it again."""
    accept = "".join(
        f" --accept {each}" for each in dict.fromkeys(re.findall(r"accept: \[(\w+)\]", reason))
    )
    return f"tableau-pipeline refresh {key}{accept}"


def total_bytes(ended: Iterable[Ended]) -> tuple[int, int]:
    """Return the bytes that these refreshes sent, and those that they saved."""
    several = [*ended]
    return sum(each.sent or 0 for each in several), sum(each.saved or 0 for each in several)
