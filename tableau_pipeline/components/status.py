"""How the data sources of a location are, as Dagster has recorded it: in few reads for all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from tableau_pipeline.components.asset_names import step_name
from tableau_pipeline.components.journal import DagsterJournal, newest_records
from tableau_pipeline.components.publish_file import FILES, STEP, published_files
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.rejected import rejected_since
from tableau_pipeline.components.reporting import run_tag
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.journal import Claim, ClaimRelease, Record, read_history
from tableau_pipeline.dagster_internals import DagsterExecutionInterruptedError
from tableau_pipeline.outcome import STOPPED, Accept, Refusal, Status, accepts_of
from tableau_pipeline.refresh.decide import rejection
from tableau_pipeline.rendering import command
from tableau_pipeline.resources.services import REFUSALS


@dataclass(frozen=True, slots=True)
class Ended:
    """A refresh that has ended, as Dagster recorded it.

    Attributes:
        decision: one of `outcome.STOPPED` if nothing was refreshed.
        rows: of the fact table; None if nothing was refreshed, like the bytes.
        deleted: rows of all tables that an update has deleted; `inserted` likewise.
        bytes_saved: those that were not sent, compared with a full publish.
        compared: how its rows were compared with the models, without why they were not.
        is_full: it was a full publish.
        taken_at: see `Checkpoint`; None if that is not recorded.
        seconds: by phase.
        accepts: what a run may accept instead of refusing it.
        models_first: it did not begin, as a step before it failed.
    """

    at: datetime
    run_id: str
    decision: str
    reason: str
    rows: int | None = None
    deleted: int = 0
    inserted: int = 0
    bytes_sent: int | None = None
    bytes_saved: int | None = None
    compared: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    accepts: Sequence[str] = ()
    models_first: bool = False
    is_full: bool = False
    taken_at: datetime | None = None

    @property
    def rows_at(self) -> datetime:
        """When its rows were taken from the models, by this refresh or by an earlier one."""
        return self.taken_at or self.at


def ended(event: dg.EventLogEntry | None) -> Ended | None:
    """Read what `published_result` wrote of a refresh."""
    materialization = event.asset_materialization if event else None
    if event is None or materialization is None:
        return None
    metadata: dict[str, Any] = {name: each.value for name, each in materialization.metadata.items()}
    details = metadata.get("details", {})
    sent, full = details.get("bytes sent"), details.get("bytes of a full publish")
    taken = details.get("rows taken at")
    return Ended(
        at=datetime.fromtimestamp(event.timestamp, UTC),
        run_id=event.run_id,
        # It was materialized by hand, or by other code.
        decision=metadata.get("decision", "unknown"),
        reason=metadata.get("reason", ""),
        rows=metadata.get("dagster/row_count"),
        deleted=sum(details.get("deleted", {}).values()),
        inserted=sum(details.get("inserted", {}).values()),
        bytes_sent=sent,
        bytes_saved=max(full - (sent or 0), 0) if full else None,
        compared=details.get("compared", ""),
        is_full=details.get("full", False),
        taken_at=datetime.fromisoformat(taken) if taken else None,
        seconds=details.get("seconds", {}),
    )


_LISTED = 20


@dataclass(frozen=True, slots=True)
class DatasourceStatus:
    """How a data source is, as far as Dagster alone knows.

    Attributes:
        last: the last refresh that ended well.
        checkpoint: None if the last one is not certain: a request for it is open.
        why: what is wrong; "" if nothing is.
        accepts: what a refresh may accept to go on all the same.
        models_first: its refresh did not begin, as a step before it failed.
        run_id: the run that was stopped, or that refreshes it now.
        of_files: files became this data source; nothing declares it.
    """

    key: str
    name: str
    last: Ended | None
    checkpoint: Checkpoint | None
    state: Status = Status.FRESH
    why: str = ""
    accepts: Sequence[str] = ()
    models_first: bool = False
    run_id: str | None = None
    of_files: bool = False

    @property
    def needs_attention(self) -> bool:
        """Whether a person has to look at it."""
        return self.state not in (Status.RUNNING, Status.FRESH)

    @property
    def remedy(self) -> str:
        """The command that helps; "" if nothing is wrong."""
        if self.of_files and self.needs_attention:
            accept = ", ".join(self.accepts)
            return "publish the file again" + f", with accept: [{accept}]" * bool(accept)
        look = f"tableau-pipeline diff {self.key}, then " * (self.state is Status.DRIFTED)
        do = command(self.key, self.accepts, models=self.models_first)
        return look + do if self.needs_attention else ""


def statuses(
    instance: dg.DagsterInstance, datasources: Collection[PublishedDatasource]
) -> Mapping[str, DatasourceStatus]:
    """Return how these data sources are, by asset key.

    Raises:
        RefusedError: another release wrote a record that this one does not understand.
    """
    assets = {each.key: dg.AssetKey.from_user_string(each.key) for each in datasources}
    read = (each.asset_entry for each in instance.get_asset_records([*assets.values()]))
    entries = {entry.asset_key: entry for entry in read}
    planned = {
        each: entry.last_planned_materialization_run_id or entry.last_run_id
        for each, entry in entries.items()
    }
    wanted = sorted(filter(None, planned.values()))
    found = instance.get_run_records(dg.RunsFilter(run_ids=wanted)) if wanted else []
    runs = {each.dagster_run.run_id: each for each in found}
    newest = newest_records(instance)
    judged = {}
    for each in datasources:
        asset, journal = assets[each.key], DagsterJournal(instance, each.key)
        claim, request = newest.get(journal.key, (None, None))
        last = ended(entries[asset].last_materialization) if asset in entries else None
        now = DatasourceStatus(each.key, each.name, last, _certain(journal, request))
        run = runs.get(planned.get(asset) or "")
        if run and not (last and run.dagster_run.run_id == last.run_id):
            now = _latest(instance, now, run, claim)
        if now.state is Status.FRESH and last is None:
            # The events of an asset can be wiped, which does not touch the journal.
            why = "its journal has refreshes, but Dagster's events of it are gone"
            now = replace(now, state=Status.NEVER, why=why if request else "")
        elif now.state is Status.FRESH and last and each.freshness:
            why = each.freshness.late(last.at, datetime.now(UTC))
            now = replace(now, state=Status.LATE, why=why) if why else now
        judged[each.key] = now
    return judged


def with_rejected(
    instance: dg.DagsterInstance,
    statuses: Collection[DatasourceStatus],
    models: Mapping[str, Collection[str]],
    rejected: Mapping[str, Sequence[str]],
) -> list[DatasourceStatus]:
    """Return data sources as refused whose next refresh is, as a check has rejected its rows.

    Args:
        models: of each data source, by asset key.
        rejected: the checks that rejected the newest rows of a model, by model.
    """
    written = rejected_since(instance, rejected)
    judged = []
    for now in statuses:
        # Rows that a refresh has taken since were accepted.
        since = now.last.rows_at.timestamp() if now.last else 0.0
        found = [each for each in models.get(now.key, ()) if written.get(each, 0.0) > since]
        if found and now.state in (Status.FRESH, Status.LATE, Status.NEVER):
            why = "; ".join(rejection(each, rejected[each]) for each in found)
            why = f"its next refresh is refused: {why}"
            now = replace(now, state=Status.REFUSED, why=why, accepts=(Accept.CHECKS,))
        judged.append(now)
    return judged


def statuses_of_files(instance: dg.DagsterInstance) -> Mapping[str, DatasourceStatus]:
    """Return how the data sources are that files became, or were to become, by asset key.

    Raises:
        RefusedError: as `statuses`.
    """
    found = published_files(instance)
    newest = newest_records(instance) if found else {}
    judged = {}
    for key, (declaration, run) in found.items():
        journal = DagsterJournal(instance, key)
        claim, request = newest.get(journal.key, (None, None))
        last = ended(instance.get_latest_materialization_event(dg.AssetKey(key.split("/"))))
        certain = _certain(journal, request)
        now = DatasourceStatus(key, declaration.name, last, certain, of_files=True)
        if not (last and run.dagster_run.run_id == last.run_id):
            now = _latest(instance, now, run, claim)
        judged[key] = now
    return judged


def _certain(journal: DagsterJournal, request: Record | None) -> Checkpoint | None:
    """Return the checkpoint of the newest record about requests, if none of them is open."""
    if isinstance(request, ClaimRelease):
        return request.checkpoint
    past = read_history(journal.records() if request else ())
    is_open = past.intents or past.recovered.sent or past.recovered.distrust
    return None if is_open else past.checkpoint


def history(instance: dg.DagsterInstance, key: str) -> Sequence[Ended]:
    """Return the last refreshes of a data source, the newest first."""
    events = instance.fetch_materializations(dg.AssetKey.from_user_string(key), limit=_LISTED)
    done = filter(None, (ended(each.event_log_entry) for each in events.records))
    stops = _stops(instance, key, limit=_LISTED)
    both = [*done, *(_stopped(instance, key, each) for each in stops)]
    return sorted(both, key=lambda each: each.at, reverse=True)[:_LISTED]


@dataclass(frozen=True, slots=True)
class Month:
    """What the refreshes of a data source have saved in a month, had each been a full publish.

    Attributes:
        month: such as "2026-11".
        full: how many were full publishes.
        seconds_saved: None if no full publish is known to compare with; `server_seconds_saved` are
            those of the server's jobs.
    """

    month: str
    refreshes: int
    full: int
    bytes_sent: int
    bytes_saved: int
    seconds_saved: float | None
    server_seconds_saved: float | None


def savings(instance: dg.DagsterInstance, key: str) -> Sequence[Month]:
    """Return what the newest thousand refreshes of a data source have saved, by month."""
    events = instance.fetch_materializations(dg.AssetKey.from_user_string(key), limit=1000)
    months: dict[str, list[Ended]] = {}
    for each in reversed([*filter(None, (ended(e.event_log_entry) for e in events.records))]):
        months.setdefault(f"{each.at:%Y-%m}", []).append(each)
    full = [each for month in months.values() for each in month if each.is_full]

    def saved(month: Sequence[Ended], phase: str) -> float | None:
        usual = sum(each.seconds.get(phase, 0.0) for each in full) / len(full) if full else None
        others = [usual - e.seconds.get(phase, 0.0) for e in month if usual and not e.is_full]
        # The sum may be -0.0.
        return round(sum(others), 1) + 0.0 if full else None

    return [
        Month(
            month,
            len(several),
            sum(each.is_full for each in several),
            sum(each.bytes_sent or 0 for each in several),
            sum(each.bytes_saved or 0 for each in several),
            saved(several, "total"),
            saved(several, "job"),
        )
        for month, several in months.items()
    ]


def _stops(instance: dg.DagsterInstance, key: str, *, limit: int) -> Sequence[dg.RunRecord]:
    return instance.get_run_records(dg.RunsFilter(tags={run_tag(key): [*map(str, STOPPED)]}), limit)


def _latest(
    instance: dg.DagsterInstance, now: DatasourceStatus, run: dg.RunRecord, claim: Record | None
) -> DatasourceStatus:
    """Return how a data source is, given the last run that was to refresh it, unlike `last`."""
    run_id, status = run.dagster_run.run_id, run.dagster_run.status
    decision = run.dagster_run.tags.get(run_tag(now.key))
    if not run.dagster_run.is_finished:
        is_owner = isinstance(claim, Claim) and claim.owner.run_id == run_id
        if is_owner and DagsterJournal(instance, now.key).has_ended(claim.owner):
            why = "the process of its refresh is gone, and has left no result"
            return replace(now, state=Status.FAILED, why=why, run_id=run_id)
        return replace(now, state=Status.RUNNING, run_id=run_id)
    stops: Sequence[dg.RunRecord] = [run]
    if decision not in STOPPED and (decision or status is dg.DagsterRunStatus.SUCCESS):
        # It was a dry run, or only built a file: what counts is the run before.
        found = _stops(instance, now.key, limit=1)
        stops = [e for e in found if now.last is None or e.create_timestamp > now.last.at]
    for stop in (_stopped(instance, now.key, each) for each in stops):
        state = Status.REFUSED if stop.decision == Status.REFUSED else Status.FAILED
        why = {"why": stop.reason, "accepts": stop.accepts, "models_first": stop.models_first}
        return replace(now, state=state, run_id=stop.run_id, **why)
    return now


def _stopped(instance: dg.DagsterInstance, key: str, run: dg.RunRecord) -> Ended:
    run_id, when = run.dagster_run.run_id, run.end_time or run.start_time
    failure = failure_of(instance, run_id, key)
    return Ended(
        at=datetime.fromtimestamp(when, UTC) if when else run.create_timestamp,
        run_id=run_id,
        decision=run.dagster_run.tags.get(run_tag(key)) or Status.FAILED,
        reason=failure.text or f"its run ended as {run.dagster_run.status.value}, without a result",
        accepts=failure.accepts,
        models_first=failure.is_before,
    )


_INTERRUPTED = DagsterExecutionInterruptedError.__name__


@dataclass(frozen=True, slots=True)
class StepFailure:
    """Why the step of a data source failed, or the first one before it.

    Attributes:
        text: "" if none did.
        accepts: what a run may accept to go on all the same.
        is_before: it was a step before that of the data source.
    """

    text: str = ""
    accepts: Sequence[str] = ()
    is_before: bool = False


def failure_of(instance: dg.DagsterInstance, run_id: str, key: str) -> StepFailure:
    """Return why a run has not refreshed a data source."""
    step = STEP if key.startswith(FILES) else step_name(key)
    log = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    events = [each.event_log_entry.dagster_event for each in log.records]
    failed = {str(each.step_key): each.step_failure_data for each in events if each}
    for name, data in sorted(failed.items(), key=lambda item: item[0] != step):
        said = data.user_failure_data.description if data.user_failure_data else None
        error = data.error.cause or data.error if data.error else None
        if data.error and data.error.cls_name == _INTERRUPTED:
            said = "It was interrupted, by Ctrl-C or by the end of its host. Run it again"
        text = said or (error.message.strip() if error else "") or "no reason was recorded"
        if name != step:
            return StepFailure(f"the step {name} failed before it: {text}", is_before=True)
        metadata = data.user_failure_data.metadata if data.user_failure_data else {}
        refusals = metadata.get(REFUSALS)
        recorded: Any = refusals.value if refusals else ()
        return StepFailure(text, accepts_of(Refusal.of_json(each) for each in recorded))
    return StepFailure()
