"""The status of data sources, from Dagster's records and the journals, without a server."""

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

# The `decision` of an event that no refresh recorded, but a user or other code.
_NOT_OURS = "unknown"


@dataclass(frozen=True, slots=True)
class PastRefresh:
    """A refresh that has ended, as Dagster recorded it.

    Attributes:
        decision: what the refresh decided, such as "update"; a value in `outcome.STOPPED` if the
            refresh was refused or failed.
        rows: the number of rows of the fact table. If nothing was refreshed, `rows`, `bytes_sent`
            and `bytes_saved` are None.
        deleted, inserted: how many rows an update deleted and inserted, in all tables together.
        bytes_saved: how many bytes a full publish would have sent in addition.
        requests: how many requests the refresh sent to the server; None if no number is recorded.
        compared: the state of the comparison of the rows with the models, such as "not compared";
            "" if it is unknown.
        is_full: whether the refresh was a full publish.
        taken_at: when a refresh last made the published rows equal to the models, as in
            `Checkpoint`; None if no time is recorded.
        seconds: the duration of each phase of the refresh.
        accepts: the values of `accept` that prevent the refusal; empty if no value helps.
        models_first: whether an earlier step failed, so that the refresh never began. Then the
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
        """Whether a refresh, not a user or other code, recorded the event."""
        return self.decision != _NOT_OURS

    @property
    def rows_at(self) -> datetime:
        """When this refresh, or an earlier refresh, took the published rows from the models."""
        return self.taken_at or self.at


def past_refresh(event: dg.EventLogEntry | None) -> PastRefresh | None:
    """Return the refresh that a materialization reports; None for other events."""
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
        # Other code may use these names for metadata of other types.
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


# A history lists at most this many refreshes.
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class DatasourceStatus:
    """The status of a data source, from Dagster's events and the journal, without a server.

    Attributes:
        last: the last refresh that succeeded.
        checkpoint: the record of the published content; None if the content is uncertain, see
            `certain_checkpoint`.
        why: the reason for the state; "" if nothing is wrong.
        accepts: the values of `accept` that would prevent the refusal of a refresh.
        models_first: whether an earlier step failed, so that the refresh never began.
        run_id: the run that failed or was refused, or that is refreshing the data source now.
        of_files: whether the data source is published from files, and declared by no component.
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
        """Whether a person has to look at the data source."""
        return self.state not in (Status.RUNNING, Status.FRESH)

    @property
    def remedy(self) -> str:
        """The action for a person, mostly a command; "" if no action is needed."""
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
    """Map the asset key of each data source to its status.

    Most queries to Dagster's storage cover all data sources at once.

    Args:
        reads_journal: whether to read every journal. Sensors pass False, because they run every
            minute. With False, the function reads only the journals of data sources with an
            unfinished run, and only the statuses of these data sources have a checkpoint.

    Raises the same errors as `components.journal.newest_records`. A data source with unreadable
    records is UNKNOWN, unless its newest run or a hold shows another state.
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
    """Check the journal and the deadline of a data source whose last run shows no problem.

    Args:
        known: the history in the data source's journal; None if the journal was not read.
    """
    last = status.last
    if last is None:
        # Users can wipe the events of an asset. The journal then still has its records.
        reason = "its journal has refreshes, but its events in Dagster are gone"
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
    """Change a status to refused if a check has rejected rows that the next refresh would take.

    Args:
        models: maps asset keys of data sources to their models.
        rejected: maps models to the checks that rejected their newest rows.
    """
    written = newest_row_times(instance, rejected)
    result = []
    for status in statuses:
        # Ignore rejected rows that the last refresh took, because a user had accepted them.
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
    """Map the asset key of each data source that is published from files to its status.

    Raises the same errors as `published_files`. A data source with unreadable records is UNKNOWN,
    unless it is held.
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
    """Return the status of a data source after a publish of files by the command `publish`."""
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
            # The journal records only whether the rows were equal, not how they were compared.
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
        # The last publish did nothing because of a hold. `_if_held` checks whether the hold still
        # exists.
        return status
    return replace(status, state=failure.status, why=failure.reason, accepts=failure.accepts)


def _is_unfinished(run: dg.RunRecord | None) -> bool:
    return run is not None and not run.dagster_run.is_finished


def certain_checkpoint(recorded: History) -> Checkpoint | None:
    """Return the newest checkpoint; None if the server may have other content.

    The content is uncertain if requests are recorded after the newest checkpoint, if no refresh has
    observed the result of a request, or if a refresh has recorded a reason to doubt the content.
    """
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
    """The bytes and seconds that the refreshes of a month saved, compared with full publishes.

    Attributes:
        month: such as "2026-11".
        full: how many refreshes were full publishes.
        seconds_saved, server_seconds_saved: the saved time of all phases, and of the server's jobs;
            None without a full publish to compare with.
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
    """The number of requests that the refreshes of a kind sent for a data source.

    Attributes:
        kind: the decision of these refreshes, such as "update".
        mean: the average number of requests of a refresh.
    """

    kind: str
    refreshes: int
    mean: float
    most: int


def requests_by_kind(instance: dg.DagsterInstance, key: str) -> Sequence[Requests]:
    """Count the requests of the newest thousand refreshes of a data source, by kind of refresh."""
    kinds: dict[str, list[int]] = {}
    for refresh in _refreshed(instance, key):
        if refresh.requests is not None:
            kinds.setdefault(refresh.decision, []).append(refresh.requests)
    return [
        Requests(kind, len(sent), round(sum(sent) / len(sent), 1), max(sent))
        for kind, sent in sorted(kinds.items())
    ]


def _refreshed(instance: dg.DagsterInstance, key: str) -> Sequence[PastRefresh]:
    """Return the newest thousand successful refreshes, the oldest first."""
    events = instance.fetch_materializations(dg.AssetKey.from_user_string(key), limit=1000)
    refreshed = filter(None, (past_refresh(record.event_log_entry) for record in events.records))
    return [*refreshed][::-1]


def savings(instance: dg.DagsterInstance, key: str) -> Sequence[Month]:
    """Sum up the savings of the newest thousand refreshes of a data source, by month."""
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
        # Adding 0.0 turns a sum of -0.0 into 0.0.
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
    """Update the status for the newest run, which must differ from the run of `status.last`."""
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
        # The newest run, for example a dry run, does not show the status. Look for a refused or
        # failed run since the last refresh.
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
    """The failure of a data source's step, or of an earlier step of the run.

    Attributes:
        text: the reason of the failure; "" if no step failed.
        accepts: the values of `accept` that prevent the refusal; empty if no value helps.
        is_before: whether an earlier step failed, not the step of the data source.
    """

    text: str = ""
    accepts: Sequence[str] = ()
    is_before: bool = False


def failure_of(instance: dg.DagsterInstance, run_id: str, key: str) -> StepFailure:
    """Return the failure that prevented a refresh of a data source in a run."""
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
