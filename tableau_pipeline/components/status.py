"""The status of every data source, from Dagster's records and the journal; no server is asked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import dagster as dg

from tableau_pipeline.components.asset_names import step_name
from tableau_pipeline.components.freshness import Freshness
from tableau_pipeline.components.journal import histories, journal_of, journal_place
from tableau_pipeline.components.publish_file import STEP
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.published_files import published_files
from tableau_pipeline.components.rejected import newest_row_times
from tableau_pipeline.components.reporting import details_in, run_tag
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.hold import Hold, holds
from tableau_pipeline.core.identity import key_below
from tableau_pipeline.core.journal import History
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.dagster_internals import DagsterExecutionInterruptedError
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.publication import KEY_PREFIX
from tableau_pipeline.outcome import STOPPED, Accept, Refusal, Status, accepts_of
from tableau_pipeline.refresh.decide import rejection
from tableau_pipeline.rendering import command
from tableau_pipeline.resources import tableau_project_root
from tableau_pipeline.resources.services import REFUSALS

Kind = TypeVar("Kind", str, int)

# The decision of an event that no refresh recorded: a user or other code materialized the asset.
_NOT_OURS = "unknown"


@dataclass(frozen=True, slots=True)
class PastRefresh:
    """A refresh that has ended, as Dagster recorded it.

    Attributes:
        decision: what the refresh decided; one of `outcome.STOPPED` if it was refused or failed.
        rows: the number of rows of the fact table. `rows` and the bytes are None if nothing was
            refreshed.
        deleted: how many rows an update deleted, in all tables together; `inserted` counts those
            that it inserted.
        bytes_saved: the bytes that were not sent, compared with a full publish.
        requests: how many requests it sent to the server; None if it is not recorded.
        compared: how its rows were compared with the models, or a note that they were not
            compared, without the reason.
        is_full: whether it was a full publish.
        taken_at: see `Checkpoint`; None if it is not recorded.
        seconds: the duration of each phase.
        accepts: the values of `accept` with which a run is not refused; empty if no value helps.
        models_first: whether the refresh never began because an earlier step failed. Then the
            models must run first.
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
    requests: int | None = None
    compared: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    accepts: Sequence[str] = ()
    models_first: bool = False
    is_full: bool = False
    taken_at: datetime | None = None

    @property
    def is_ours(self) -> bool:
        """Whether a refresh recorded it, and not a user or other code."""
        return self.decision != _NOT_OURS

    @property
    def rows_at(self) -> datetime:
        """When this refresh or an earlier one took the published rows from the models."""
        return self.taken_at or self.at


def past_refresh(event: dg.EventLogEntry | None) -> PastRefresh | None:
    """Return the refresh that `published_result` recorded; None without a materialization."""
    materialization = event.asset_materialization if event else None
    if event is None or materialization is None:
        return None
    metadata: dict[str, Any] = {
        name: value.value for name, value in materialization.metadata.items()
    }
    details = details_in(metadata)
    sent, full = details.bytes_sent, details.bytes_of_a_full_publish
    return PastRefresh(
        at=datetime.fromtimestamp(event.timestamp, UTC),
        run_id=event.run_id,
        # Other code that reports on the asset may use these names for values of other types.
        decision=_of_type(str, metadata.get("decision")) or _NOT_OURS,
        reason=_of_type(str, metadata.get("reason")) or "",
        rows=_of_type(int, metadata.get("dagster/row_count")),
        deleted=sum(details.deleted.values()),
        inserted=sum(details.inserted.values()),
        bytes_sent=sent,
        bytes_saved=max(full - (sent or 0), 0) if full else None,
        requests=details.requests,
        compared=details.compared,
        is_full=details.full,
        taken_at=details.rows_taken_at,
        seconds=details.seconds,
    )


def _of_type(kind: type[Kind], value: object) -> Kind | None:
    return value if isinstance(value, kind) else None


# How many refreshes a history lists.
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class DatasourceStatus:
    """The status of a data source, from Dagster's events and the journal; no server is asked.

    Attributes:
        last: the last refresh that succeeded.
        checkpoint: what is published; None if that is uncertain: a request is open, or no refresh
            has observed its result, or the content is distrusted.
        why: what is wrong; "" if nothing is.
        accepts: the values of `accept` with which a refresh would not be refused.
        models_first: whether the refresh did not begin because a step before it failed.
        run_id: the run that failed or was refused, or that is refreshing the data source now.
        of_files: whether it is published from files; then no component declares it.
    """

    key: str
    name: str
    last: PastRefresh | None
    checkpoint: Checkpoint | None
    state: Status = Status.FRESH
    why: str = ""
    accepts: Sequence[str] = ()
    models_first: bool = False
    run_id: str | None = None
    of_files: bool = False

    @property
    def needs_attention(self) -> bool:
        """Whether a person has to act."""
        return self.state not in (Status.RUNNING, Status.FRESH)

    @property
    def remedy(self) -> str:
        """What a person can do, mostly a command; "" if no action is needed."""
        if self.state is Status.HELD:
            return f"tableau-pipeline release {self.key}"
        if self.of_files and self.needs_attention:
            accept = ", ".join(self.accepts)
            return "publish the file again" + f", with accept: [{accept}]" * bool(accept)
        preview = f"tableau-pipeline diff {self.key}, then " * (self.state is Status.DRIFTED)
        refresh = command(self.key, self.accepts, models=self.models_first)
        return preview + refresh if self.needs_attention else ""


def statuses(
    instance: dg.DagsterInstance,
    datasources: Collection[PublishedDatasource],
    *,
    reads_journal: bool = True,
) -> Mapping[str, DatasourceStatus]:
    """Return the status of each data source, by asset key.

    Most records of Dagster are read once for all data sources.

    Args:
        reads_journal: whether to read every journal. A sensor passes False, because it looks every
            minute. Then only the journals of data sources that are being refreshed are read, and
            the others get no checkpoint.

    Errors are as in `newest_records`. A data source whose own records cannot be read is UNKNOWN.
    """
    assets = {source.key: dg.AssetKey.from_user_string(source.key) for source in datasources}
    records = (record.asset_entry for record in instance.get_asset_records([*assets.values()]))
    entries = {entry.asset_key: entry for entry in records}
    planned = {
        asset_key: entry.last_planned_materialization_run_id or entry.last_run_id
        for asset_key, entry in entries.items()
    }
    run_ids = sorted(filter(None, planned.values()))
    run_records = instance.get_run_records(dg.RunsFilter(run_ids=run_ids)) if run_ids else []
    runs = {run_record.dagster_run.run_id: run_record for run_record in run_records}
    needed = {
        key
        for key, asset in assets.items()
        if reads_journal or _is_unfinished(runs.get(planned.get(asset) or ""))
    }
    recorded, held = histories(instance, needed), holds(journal_place())
    status_by_key = {}
    for datasource in datasources:
        asset, read = assets[datasource.key], recorded.get(datasource.key)
        known = History() if isinstance(read, RefusedError) else read or History()
        last = past_refresh(entries[asset].last_materialization) if asset in entries else None
        status = DatasourceStatus(datasource.key, datasource.name, last, certain_checkpoint(known))
        run = runs.get(planned.get(asset) or "")
        if run and not (last and run.dagster_run.run_id == last.run_id):
            status = _with_newest_run(instance, status, run, known)
        if status.state is Status.FRESH and isinstance(read, RefusedError):
            status = replace(status, state=Status.UNKNOWN, why=str(read))
        elif status.state is Status.FRESH:
            status = _if_fresh(status, datasource.freshness, known if read is not None else None)
        status_by_key[datasource.key] = _if_held(status, held)
    return status_by_key


def _if_held(status: DatasourceStatus, held: Mapping[str, Hold | RefusedError]) -> DatasourceStatus:
    hold = held.get(key_below(status.key, tableau_project_root()))
    if hold is None or status.state is Status.RUNNING:
        return status
    if isinstance(hold, RefusedError):
        return replace(status, state=Status.UNKNOWN, why=str(hold), accepts=(), models_first=False)
    return replace(status, state=Status.HELD, why=f"{hold}", accepts=(), models_first=False)


def _if_fresh(
    status: DatasourceStatus, freshness: Freshness | None, known: History | None
) -> DatasourceStatus:
    """Return the status of a data source whose last run shows no problem.

    Its journal and the time may still show one.

    Args:
        known: its journal; None if that was not read.
    """
    last = status.last
    if last is None:
        # A user can wipe the events of an asset, which does not affect the journal.
        reason = "its journal has refreshes, but Dagster's events of it are gone"
        why = reason if known and known.published else ""
        return replace(status, state=Status.NEVER, why=why)
    if known and not known.number and last.is_ours:
        reason = (
            "Dagster has events of its refreshes, but the data folder has no record of them: this "
            "is another data folder, deployment or environment, or its records were lost"
        )
        return replace(status, state=Status.UNKNOWN, why=reason)
    late = freshness.late(last.at, datetime.now(UTC)) if freshness else ""
    return replace(status, state=Status.LATE, why=late) if late else status


def with_rejected(
    instance: dg.DagsterInstance,
    statuses: Collection[DatasourceStatus],
    models: Mapping[str, Collection[str]],
    rejected: Mapping[str, Sequence[str]],
) -> list[DatasourceStatus]:
    """Set the status to refused where a check has rejected the rows of the next refresh.

    Args:
        models: the models of each data source; the keys are asset keys of data sources.
        rejected: the checks that rejected the newest rows of a model, by model.
    """
    written = newest_row_times(instance, rejected)
    result = []
    for status in statuses:
        # Ignore rejected rows that the last refresh took: a user had accepted them.
        taken_at = status.last.rows_at.timestamp() if status.last else 0.0
        rejected_models = [
            model for model in models.get(status.key, ()) if written.get(model, 0.0) > taken_at
        ]
        if rejected_models and status.state in (Status.FRESH, Status.LATE, Status.NEVER):
            refusals = [rejection(model, rejected[model]) for model in rejected_models]
            reason = "; ".join(refusal.text for refusal in refusals)
            reason = f"its next refresh is refused: {reason}"
            status = replace(status, state=Status.REFUSED, why=reason, accepts=(Accept.CHECKS,))
        result.append(status)
    return result


def statuses_of_files(instance: dg.DagsterInstance) -> Mapping[str, DatasourceStatus]:
    """Return the status of each data source that is published from files, by asset key.

    Errors are as in `published_files`. One whose own records cannot be read is UNKNOWN.
    """
    published, held = published_files(instance), holds(journal_place())
    assets = {key: dg.AssetKey.from_user_string(key) for key in published}
    records = (record.asset_entry for record in instance.get_asset_records([*assets.values()]))
    entries = {entry.asset_key: entry for entry in records}
    status_by_key = {}
    for key, file in published.items():
        entry, known, run = entries.get(assets[key]), file.history, file.run
        last = past_refresh(entry.last_materialization) if entry else None
        checkpoint = certain_checkpoint(known)
        status = DatasourceStatus(key, file.declaration.name, last, checkpoint, of_files=True)
        if file.problem:
            status = replace(status, state=Status.UNKNOWN, why=file.problem)
        elif run is None or file.by_command:
            status = _by_command(status, known, journal_of(instance, key))
        elif not (last and run.dagster_run.run_id == last.run_id):
            status = _with_newest_run(instance, status, run, known)
        status_by_key[key] = _if_held(status, held)
    return status_by_key


def _by_command(
    status: DatasourceStatus, known: History, journal: StoredJournal
) -> DatasourceStatus:
    """Return the status of a data source that the command `publish` published last from files."""
    checkpoint = known.checkpoint
    is_shown = status.last and checkpoint and status.last.taken_at == checkpoint.taken_at
    if checkpoint and checkpoint.taken_at and not is_shown:
        (table,) = checkpoint.tables.values()
        last = PastRefresh(
            at=checkpoint.taken_at,
            run_id="",
            decision="publish" if checkpoint.updates == 0 else "update",
            reason="",
            rows=table.content.rows,
            # The journal does not say how the rows were compared, only whether they were equal.
            compared="equal" if checkpoint.is_equal else "",
            taken_at=checkpoint.taken_at,
        )
        status = replace(status, last=last)
    if known.claim:
        if not journal.has_ended(known.claim):
            return replace(status, state=Status.RUNNING)
        why = "the process of its publish is gone, and has left no result"
        return replace(status, state=Status.FAILED, why=why)
    if checkpoint and known.refresh == checkpoint.refresh:
        return status
    if (failure := known.failure) is None:
        why = "its last publish was interrupted, and has left no reason"
        return replace(status, state=Status.FAILED, why=why)
    if failure.status is Status.HELD:
        # The refresh did nothing, because of a hold. `_if_held` sees whether the hold has ended.
        return status
    return replace(status, state=failure.status, why=failure.reason, accepts=failure.accepts)


def _is_unfinished(run: dg.RunRecord | None) -> bool:
    return run is not None and not run.dagster_run.is_finished


def certain_checkpoint(recorded: History) -> Checkpoint | None:
    """Return the newest checkpoint; None if it is uncertain what the server holds."""
    is_open = recorded.intents or recorded.recovered.sent or recorded.recovered.distrust
    return None if is_open else recorded.checkpoint


def history(instance: dg.DagsterInstance, key: str) -> Sequence[PastRefresh]:
    """Return the last refreshes of a data source, the newest first."""
    events = instance.fetch_materializations(dg.AssetKey.from_user_string(key), limit=_MAX_LISTED)
    refreshed = filter(None, (past_refresh(record.event_log_entry) for record in events.records))
    stopped_runs = _stopped_runs(instance, key, limit=_MAX_LISTED)
    refreshes = [*refreshed, *(_stopped_refresh(instance, key, run) for run in stopped_runs)]
    return sorted(refreshes, key=lambda refresh: refresh.at, reverse=True)[:_MAX_LISTED]


@dataclass(frozen=True, slots=True)
class Month:
    """What a data source saved in a month, compared with a full publish in each refresh.

    Attributes:
        month: such as "2026-11".
        full: how many refreshes were full publishes.
        seconds_saved: None if there is no full publish to compare with; `server_seconds_saved`
            counts the server's jobs only.
    """

    month: str
    refreshes: int
    full: int
    bytes_sent: int
    bytes_saved: int
    seconds_saved: float | None
    server_seconds_saved: float | None


@dataclass(frozen=True, slots=True)
class Requests:
    """How many requests the refreshes of a data source sent, for one kind of refresh.

    Attributes:
        kind: what they decided, such as "update".
        mean: requests of a refresh, on average; `most` is the largest number.
    """

    kind: str
    refreshes: int
    mean: float
    most: int


def requests_by_kind(instance: dg.DagsterInstance, key: str) -> Sequence[Requests]:
    """Return what the newest thousand refreshes of a data source cost in requests, by kind."""
    kinds: dict[str, list[int]] = {}
    for refresh in _refreshed(instance, key):
        if refresh.requests is not None:
            kinds.setdefault(refresh.decision, []).append(refresh.requests)
    return [
        Requests(kind, len(sent), round(sum(sent) / len(sent), 1), max(sent))
        for kind, sent in sorted(kinds.items())
    ]


def _refreshed(instance: dg.DagsterInstance, key: str) -> Sequence[PastRefresh]:
    """Return the newest thousand refreshes that succeeded, the oldest first."""
    events = instance.fetch_materializations(dg.AssetKey.from_user_string(key), limit=1000)
    refreshed = filter(None, (past_refresh(record.event_log_entry) for record in events.records))
    return [*refreshed][::-1]


def savings(instance: dg.DagsterInstance, key: str) -> Sequence[Month]:
    """Return what the newest thousand refreshes of a data source have saved, by month."""
    months: dict[str, list[PastRefresh]] = {}
    for latest in _refreshed(instance, key):
        months.setdefault(f"{latest.at:%Y-%m}", []).append(latest)
    full = [refresh for group in months.values() for refresh in group if refresh.is_full]

    def saved(group: Sequence[PastRefresh], phase: str) -> float | None:
        seconds = [refresh.seconds.get(phase, 0.0) for refresh in full]
        mean = sum(seconds) / len(full) if full else None
        differences = [
            mean - refresh.seconds.get(phase, 0.0)
            for refresh in group
            if mean and not refresh.is_full
        ]
        # The sum may be -0.0, which becomes 0.0.
        return round(sum(differences), 1) + 0.0 if full else None

    return [
        Month(
            month,
            len(refreshes),
            sum(refresh.is_full for refresh in refreshes),
            sum(refresh.bytes_sent or 0 for refresh in refreshes),
            sum(refresh.bytes_saved or 0 for refresh in refreshes),
            saved(refreshes, "total"),
            saved(refreshes, "job"),
        )
        for month, refreshes in months.items()
    ]


def _stopped_runs(instance: dg.DagsterInstance, key: str, *, limit: int) -> Sequence[dg.RunRecord]:
    return instance.get_run_records(dg.RunsFilter(tags={run_tag(key): [*map(str, STOPPED)]}), limit)


def _with_newest_run(
    instance: dg.DagsterInstance, status: DatasourceStatus, run: dg.RunRecord, known: History
) -> DatasourceStatus:
    """Return the status, updated for the newest run.

    The caller has checked that this run is not the run of `status.last`.
    """
    run_id, run_status = run.dagster_run.run_id, run.dagster_run.status
    decision = run.dagster_run.tags.get(run_tag(status.key))
    if not run.dagster_run.is_finished:
        claim = known.claim if known.claim and known.claim.owner.run_id == run_id else None
        if claim and journal_of(instance, status.key).has_ended(claim):
            reason = "the process of its refresh is gone, and has left no result"
            return replace(status, state=Status.FAILED, why=reason, run_id=run_id)
        return replace(status, state=Status.RUNNING, run_id=run_id)
    stops: Sequence[dg.RunRecord] = [run]
    if decision not in STOPPED and (decision or run_status is dg.DagsterRunStatus.SUCCESS):
        # The newest run was a dry run or only built a file, so it says nothing: look for a stopped
        # run since the last refresh.
        stopped = _stopped_runs(instance, status.key, limit=1)
        stops = [
            record
            for record in stopped
            if status.last is None or record.create_timestamp > status.last.at
        ]
    for stop in (_stopped_refresh(instance, status.key, record) for record in stops):
        state = Status.REFUSED if stop.decision == Status.REFUSED else Status.FAILED
        fields = {"why": stop.reason, "accepts": stop.accepts, "models_first": stop.models_first}
        return replace(status, state=state, run_id=stop.run_id, **fields)
    return status


def _stopped_refresh(instance: dg.DagsterInstance, key: str, run: dg.RunRecord) -> PastRefresh:
    run_id, when = run.dagster_run.run_id, run.end_time or run.start_time
    failure = failure_of(instance, run_id, key)
    return PastRefresh(
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
    """Why the step of a data source failed; if it did not fail, why another step of the run did.

    Attributes:
        text: the reason; "" if no step failed.
        accepts: the values of `accept` with which a run is not refused; empty if no value helps.
        is_before: whether it was another step that failed, before that of the data source.
    """

    text: str = ""
    accepts: Sequence[str] = ()
    is_before: bool = False


def failure_of(instance: dg.DagsterInstance, run_id: str, key: str) -> StepFailure:
    """Return why a run did not refresh a data source."""
    step = STEP if key.startswith(KEY_PREFIX) else step_name(key)
    log = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    events = [record.event_log_entry.dagster_event for record in log.records]
    failed = {str(event.step_key): event.step_failure_data for event in events if event}
    for name, data in sorted(failed.items(), key=lambda item: item[0] != step):
        description = data.user_failure_data.description if data.user_failure_data else None
        error = data.error.cause or data.error if data.error else None
        if data.error and data.error.cls_name == _INTERRUPTED:
            description = "It was interrupted, by Ctrl-C or by the end of its host. Run it again"
        text = description or (error.message.strip() if error else "") or "no reason was recorded"
        if name != step:
            words = f"the step {name}, which comes before it, failed: {text}"
            return StepFailure(words, is_before=True)
        metadata = data.user_failure_data.metadata if data.user_failure_data else {}
        refusals = metadata.get(REFUSALS)
        recorded: Any = refusals.value if refusals else ()
        return StepFailure(text, accepts_of(Refusal.of_json(refusal) for refusal in recorded))
    return StepFailure()
