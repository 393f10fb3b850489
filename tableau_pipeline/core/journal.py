"""The journal: numbered records by which refreshes of a data source inform each other.

A writer creates its record under the next number, or fails if another writer has taken this number.
So the numbers order all records. A record is stored with the history, which is a summary of all
records up to this record. So refreshes need only the newest record.
"""

import json
from contextlib import suppress
from datetime import UTC, datetime
from functools import reduce
from importlib.metadata import version
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import Field, ValidationError

from tableau_pipeline.core.checkpoint import NEW_METADATA, Checkpoint, Outcome, PublishMode, Window
from tableau_pipeline.core.drift import JobKind
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefreshError, RefusedError, describe_error
from tableau_pipeline.outcome import Code, Distrust, Doubt, Status, accepts_of

# The format in which this release writes records. Increment the format if the meaning of a record
# changes.
FORMAT = 5
RELEASE = version("tableau_pipeline")


_IN_PART = Distrust(Doubt.IN_PART, "a part of it was changed")
_INTERRUPTED = Distrust(
    Doubt.OUTCOME, "an earlier refresh was interrupted, and its effect is not known"
)


class Owner(Frozen):
    """The owner of a refresh: a step of a run, and the process that executes the step.

    Attributes:
        run_id: the id of the Dagster run; for a script, an id that the script generates.
        label: the name of the owner in messages, such as "run 2f1c9a0e".
        boot, namespace: the id of the machine's boot, and the id of the process namespace. Within
            both of them, `pid` identifies the process.
    """

    run_id: str
    step: str = ""
    attempt: int = 0
    label: str = ""
    boot: str = ""
    namespace: str = ""
    pid: int = 0


class Claim(Frozen):
    """The claim by which a refresh excludes all other refreshes of the data source."""

    kind: Literal["claim"] = "claim"
    refresh: int
    id: str = Field(default_factory=lambda: str(uuid4()))
    owner: Owner
    claimed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Intent(Frozen):
    """The record of a request, written before the request, and again when more is known about it.

    Attributes:
        refresh: the number of the refresh.
        step: the number of the request within the refresh.
        request_id: identifies the request. If a request has several records, the record with the
            most information counts.
        recorded_at: the time of the record, by the server's clock.
        mode: the mode of a publish; None for an update.
        keeps_work: whether the published file contains the server's metadata with edits by users.
        user: the LUID of the user who sends the request.
        name: the name of the data source on the server.
        luid: the LUID of the data source to change; None to create one.
        before: the time stamp of the data source right before the request.
        before_revision: the newest revision of the data source right before the request.
        late: as in `Checkpoint`. Until the outcome is known, this is the value before the request;
            afterwards, it is the value after the request.
        target: the checkpoint that is valid after the request has taken effect; None if the request
            does not complete the refresh.
        distrust: why no update may build on the result, even if the request succeeds; None if an
            update may. There are three reasons: the request is one part of a split update, a person
            wrote the request by hand, or another user changed the data source at the same time.
        job_id: the id of the server's job; None while it is unknown.
        outcome: None while it is unknown whether the request has taken effect.
        is_deduced: whether a refresh deduced the outcome from the data source, because it could not
            query the job. The time stamp may come from another user, and the rows may have been
            equal before. So it is unknown whether the request's metadata took effect.
    """

    kind: Literal["intent"] = "intent"
    refresh: int
    step: int = 1
    request_id: str = Field(default_factory=lambda: str(uuid4()))
    recorded_at: datetime
    run_id: str
    user: str = ""
    mode: PublishMode | None
    keeps_work: bool = False
    name: str
    project_id: str
    luid: str | None
    before: datetime | None = None
    before_revision: int | None = None
    late: tuple[Window, ...] = ()
    target: Checkpoint | None
    distrust: Distrust | None = None
    job_id: str | None = None
    outcome: Outcome | None = None
    is_deduced: bool = False
    note: str | None = None

    @property
    def brings_metadata(self) -> bool:
        """Whether the data source takes its metadata from the file that the request sends."""
        return self.mode in NEW_METADATA

    @property
    def brings_ours(self) -> bool:
        """Whether `brings_metadata` is true, and the file contains no edits by other users."""
        return self.brings_metadata and not self.keeps_work

    @property
    def job_kind(self) -> JobKind:
        """The kind of job that the server runs for the request."""
        return "publish" if self.mode else "update"

    @property
    def action(self) -> str:
        """The kind of request: an update, or a publish with its mode."""
        return f"publish ({self.mode})" if self.mode else "update"

    @property
    def reached(self) -> Checkpoint | None:
        """The target after the request has taken effect; None without a target.

        Only a request that certainly brought new metadata reduces `written` to the newest name.
        Otherwise, the data source may still have the metadata from before the request.
        """
        is_certain = self.mode in NEW_METADATA and not self.is_deduced
        return self.target.reached if self.target and is_certain else self.target


# Shorten a reason to this many characters, because each later record contains the reason.
_LONGEST_REASON = 2000


class Failure(Frozen):
    """Why a refresh was not completed.

    Attributes:
        status: REFUSED, FAILED or HELD.
        reason: the reason, for users.
        accepts: the values of `accept` that override the refusals.
    """

    status: Status
    reason: str
    accepts: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Return the failure to record for an error."""
        accepts = accepts_of(error.refusals) if isinstance(error, RefusedError) else ()
        status = error.decision if isinstance(error, RefreshError) else Status.FAILED
        reason = describe_error(error)[:_LONGEST_REASON]
        return cls(status=status, reason=reason, accepts=tuple(accepts))


class ClaimRelease(Frozen):
    """The end of a claim. A completed refresh adds its checkpoint.

    Attributes:
        failure: why the refresh was not completed; None if it was completed, or if the reason is
            unknown.
        unlocked_by: the user who ended the claim of a process that no longer runs; None if the
            refresh ended its own claim.
    """

    kind: Literal["closing"] = "closing"
    refresh: int
    claim: str
    run_id: str = ""
    closed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    unlocked_by: str | None = None
    checkpoint: Checkpoint | None = None
    failure: Failure | None = None


class Recovered(Frozen):
    """The state after all earlier requests, each of which has an outcome, perhaps LOST.

    A refresh records this state before it sends anything. So later refreshes need not read older
    requests, even if many refreshes have failed in a row.

    Attributes:
        refresh: the number of the refresh that recorded the state. The state includes the requests
            of all earlier refreshes. A state that `at` returns also includes the requests of this
            refresh.
        record: the checkpoint from which later refreshes start. It may come from a request with an
            uncertain outcome.
        pending: the target of the newest request with an uncertain effect; None without such a
            request.
        distrust: why no update may build on `record`; None if an update may build on it.
        sent: the request that led to `record`, without its target; None if a refresh has observed
            the result, or if the result is distrusted.
        creating: a request, without its target, that may have created the data source. The LUID of
            the data source was unknown at the request.
        rows: maps each table to the largest number of rows that the server may have now.
        left: the digests of all metadata that our refreshes have published or read.
        late: as in `Checkpoint`.
    """

    kind: Literal["recovered"] = "recovered"
    refresh: int = 0
    record: Checkpoint | None = None
    pending: Checkpoint | None = None
    distrust: Distrust | None = None
    sent: Intent | None = None
    creating: Intent | None = None
    rows: dict[str, int] = Field(default_factory=dict)
    left: frozenset[str] = frozenset()
    late: tuple[Window, ...] = ()

    @classmethod
    def at(cls, checkpoint: Checkpoint) -> "Recovered":
        """Return the state after a completed refresh."""
        return cls(refresh=checkpoint.refresh, late=checkpoint.late).holding(checkpoint)

    @property
    def luid(self) -> str | None:
        """The LUID of the data source, if it is certainly ours; otherwise None."""
        return self.record.luid if self.record else None

    @property
    def filters(self) -> tuple[str, ...]:
        """Phrases about the filters that decide which rows a user sees, as last read."""
        return self.record.filters if self.record else ()

    @property
    def published(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that the server may have, the newest first."""
        return tuple(checkpoint for checkpoint in (self.pending, self.record) if checkpoint)

    def after(self, intent: Intent) -> "Recovered":
        """Return the state after one more request."""
        target, has_metadata = intent.target, intent.mode in NEW_METADATA
        bare = intent.model_copy(update={"target": None})
        state = self._with(creating=bare) if intent.luid is None else self
        match intent.outcome:
            case Outcome.DONE if target:
                # A publish replaces all content, which ends distrust of earlier content. The last
                # part of a split update ends distrust of the earlier parts.
                state = state._with(rows={}, pending=None, late=intent.late)
                state = state.holding(intent.reached or target)
                return state._with(distrust=intent.distrust, sent=None if intent.distrust else bare)
            case Outcome.DONE:
                return state._with(distrust=intent.distrust or _IN_PART, late=intent.late)
            case Outcome.FAILED:
                # A failed update would fail again, so the next refresh must publish in full.
                detail = intent.note or "without a note"
                detail = f"the last {intent.action} failed on the server ({detail})"
                return self._with(distrust=Distrust(Doubt.FAILED, detail))
            case Outcome.LOST | None:
                # Keep the target, because the server may have its rows. Then refreshes need the
                # snapshots of these rows.
                pending = target or self.pending
                if intent.luid and intent.luid != self.luid:
                    # The request was for a data source that is not ours yet. The data source does
                    # not become ours, because the outcome is uncertain.
                    return self._with(pending=pending)
                uncertain = state.holding(target) if target else state
                # After an update or a publish with REPLACE, keep the record, because these requests
                # do not change the schema. But REPLACE may drop the metadata that we set, so take
                # `written` from the target.
                record = uncertain.record if has_metadata or self.record is None else self.record
                if record and target and intent.mode is PublishMode.REPLACE:
                    record = record.model_copy(update={"written": target.written})
                return uncertain._with(
                    record=record, pending=pending, distrust=_INTERRUPTED, sent=None
                )
            # The request was cancelled or refused, so nothing on the server has changed.
            case _:
                return self

    def holding(self, target: Checkpoint) -> "Recovered":
        """Return this state with another `record`: a checkpoint that the server may have."""
        # Keep the largest number of rows of each table. Otherwise, a request with an uncertain
        # outcome and few rows would weaken guard.max_shrink.
        rows = {name: max(count, self.rows.get(name, 0)) for name, count in target.rows.items()}
        return self._with(
            record=target.model_copy(update={"luid": target.luid or self.luid}),
            rows={**self.rows, **rows},
            left=self.left | ({target.metadata} if target.metadata else set()),
        )

    def distrusted(self, why: Distrust) -> "Recovered":
        """Return this state with a reason why no update may build on it."""
        return self._with(distrust=why)

    def recorded_by(self, refresh: int) -> "Recovered":
        """Return this state with the number of the refresh that will record it."""
        return self._with(refresh=refresh)

    def _with(self, **changes: object) -> "Recovered":
        return self.model_copy(update=changes)


Record = Annotated[Claim | Intent | ClaimRelease | Recovered, Field(discriminator="kind")]

# How many records are kept. When a claim ends with more than one and a half times as many records,
# the oldest records are removed.
KEPT = 200

# Outcomes after which the server may have the rows of a request. They include unknown outcomes: if
# the server took the rows, refreshes need the snapshots of these rows.
_LANDED = (None, Outcome.DONE, Outcome.LOST)


class History(Frozen):
    """The summary of all records of a data source.

    Attributes:
        number: the number of the newest record; 0 without records.
        floor: the lowest number of a record that is not yet removed.
        refresh: the highest number of a refresh.
        claim: the claim that has not ended; None without such a claim.
        failure: why the last refresh was not completed; None if it was completed, or if the reason
            is unknown. If a hold (a user's order to leave the data source unchanged) stopped the
            last refresh, an earlier failure stays.
        settled: the number of the newest refresh whose requests `recovered` includes.
        recovered: the state after all requests of the refreshes up to `settled`.
        intents: the requests of refreshes after `settled`, the oldest first. If a request has
            several records, only the record with the most information is in the history.
    """

    number: int = 0
    floor: int = 1
    refresh: int = 0
    claim: Claim | None = None
    failure: Failure | None = None
    recovered: Recovered = Recovered()
    settled: int = 0
    intents: tuple[Intent, ...] = ()

    def after(self, record: Record) -> "History":
        """Return the history with one more record."""
        changes: dict[str, object] = {
            "number": self.number + 1,
            "refresh": max(self.refresh, record.refresh),
        }
        match record:
            case Claim():
                changes["claim"] = record
            # Take only requests that `recovered` does not include. All other requests come from a
            # refresh that had lost its claim.
            case Intent() if record.refresh > self.settled:
                changes["intents"] = _with_intent(self.intents, record)
            case Recovered():
                changes |= self._settled(record, record.refresh - 1)
            case ClaimRelease() if self.claim and self.claim.id == record.claim:
                changes |= {"claim": None, "failure": self._failure_after(record.failure)}
                if record.checkpoint:
                    changes |= self._settled(Recovered.at(record.checkpoint), record.refresh)
                if self.number - self.floor >= KEPT * 3 // 2:
                    changes["floor"] = self.number - KEPT
        return self.model_copy(update=changes)

    def _failure_after(self, failure: Failure | None) -> Failure | None:
        # A refresh that a hold stopped does not resolve an earlier failure.
        is_held = failure is not None and failure.status is Status.HELD
        return self.failure or failure if is_held else failure

    def _settled(self, recovered: Recovered, through: int) -> dict[str, object]:
        intents = tuple(intent for intent in self.intents if intent.refresh > through)
        return {"recovered": recovered, "settled": through, "intents": intents}

    @property
    def after_intents(self) -> Recovered:
        """The state after all records: `recovered` after all intents."""
        return reduce(Recovered.after, self.intents, self.recovered)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint before the intents."""
        return self.recovered.record

    def published_version(self, model: str) -> int | None:
        """Return the newest snapshot number of a model that the server may have; otherwise None."""
        versions = (version for checkpoint in self.published for version in checkpoint.versions)
        return next((number for name, number in versions if name == model), None)

    @property
    def versions(self) -> set[tuple[str, int]]:
        """The snapshots that a refresh may need for comparisons, as pairs (model, number)."""
        return {version for checkpoint in self.published for version in checkpoint.versions}

    @property
    def written(self) -> set[str]:
        """The names of the files with metadata values that a refresh may need for merging."""
        return {name for checkpoint in self.published for name in checkpoint.written}

    @property
    def published(self) -> list[Checkpoint]:
        """The checkpoints that the server may have, the newest first."""
        targets = [intent.target for intent in reversed(self.intents) if intent.outcome in _LANDED]
        return [checkpoint for checkpoint in (*targets, *self.recovered.published) if checkpoint]


def _with_intent(intents: tuple[Intent, ...], record: Intent) -> tuple[Intent, ...]:
    by_id = {intent.request_id: intent for intent in intents}
    previous = by_id.get(record.request_id)
    # The number of the refresh counts first: if a refresh lost its claim, a later refresh records
    # the requests of this refresh again, with the later number. Of two outcomes, prefer the outcome
    # with a job, because the server reported this outcome.
    if previous is None or _information(record) >= _information(previous):
        by_id[record.request_id] = record
    return tuple(sorted(by_id.values(), key=lambda intent: (intent.refresh, intent.step)))


def _information(intent: Intent) -> tuple[int, bool, bool]:
    return intent.refresh, intent.outcome is not None, intent.job_id is not None


class StoredRecord(Frozen):
    """The content of a file in the journal.

    Attributes:
        format: the format of the record. It has no default, so that all other JSON files are
            refused.
        release: the release of this package that wrote the record, for the error message of a
            release that cannot read the record.
        id: a random id, which makes the content of each file unique.
        history: the history up to and including this record.
    """

    format: Literal[5]
    release: str = RELEASE
    id: str = Field(default_factory=lambda: str(uuid4()))
    record: Record
    history: History


def read_record(text: str | bytes, *, repair: str) -> StoredRecord:
    """Read a record from its JSON.

    Args:
        repair: the remedy for a record that is damaged or has an older format.

    Raises:
        RefusedError: this release cannot read the record. Callers must not skip the record, because
            it may be a claim, or a request that may still take effect.
    """
    try:
        return StoredRecord.model_validate_json(text)
    except ValidationError as error:
        raise RefusedError(
            _unreadable_reason(text, error, repair=repair), code=Code.RECORD
        ) from error


def _unreadable_reason(text: str | bytes, error: ValidationError, *, repair: str) -> str:
    """Return why a record cannot be read, and the remedy."""
    stored: object = None
    with suppress(ValueError):
        stored = json.loads(text)
    stored = stored if isinstance(stored, dict) else {}
    number = stored.get("format")
    if isinstance(number, int) and number > FORMAT:
        return (
            f"release {stored.get('release', 'unknown')} of tableau_pipeline wrote it (format "
            f"{number}), and this is release {RELEASE} (format {FORMAT}). "
            "Upgrade this deployment: only one release may refresh a data source"
        )
    if isinstance(number, int) and number < FORMAT:
        return (
            f"an earlier release of tableau_pipeline wrote it (format {number}), which this "
            f"release {RELEASE} (format {FORMAT}) does not read. {repair}"
        )
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "all of it"
    return f"it is damaged, or not a record ({where}: {first['msg']}). {repair}"
