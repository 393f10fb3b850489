"""The journal: numbered records through which refreshes of a data source learn of each other.

A writer creates its record under the next number, or fails; so the numbers order all records. Each
record is stored with the history up to it, so the newest record contains all that is known.
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

# The format in which this release writes records; to change what a record means, increment it.
FORMAT = 5
RELEASE = version("tableau_pipeline")


_IN_PART = Distrust(Doubt.IN_PART, "a part of it was changed")
_INTERRUPTED = Distrust(
    Doubt.OUTCOME, "an earlier refresh was interrupted, and what it left is not known"
)


class Owner(Frozen):
    """The owner of a refresh: a step of a run, and the process that executes it.

    Attributes:
        run_id: the id of the Dagster run; a script generates an id of its own.
        label: how messages name the owner, such as "run 2f1c9a0e".
        boot, namespace: the id of the machine's boot, and the id of its namespace of process ids.
            `pid` identifies the process only within both.
    """

    run_id: str
    step: str = ""
    attempt: int = 0
    label: str = ""
    boot: str = ""
    namespace: str = ""
    pid: int = 0


class Claim(Frozen):
    """The claim of a refresh to be the only one that changes the data source."""

    kind: Literal["claim"] = "claim"
    refresh: int
    id: str = Field(default_factory=lambda: str(uuid4()))
    owner: Owner
    claimed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Intent(Frozen):
    """A request that a refresh sends: recorded before, and again when more is known about it.

    Attributes:
        refresh: the number of the refresh.
        step: the number of the request among the requests of the refresh.
        request_id: identifies the request. If a request has several records, the one with the
            most information counts.
        recorded_at: when the request was recorded, according to the server's clock.
        mode: how a whole file is published; None for an update of the published data.
        keeps_work: whether the file contains the server's metadata, including edits by users.
        user: the LUID of the user who sends the request.
        name: the name of the data source on the server.
        luid: the LUID of the data source to change; None to create one.
        before: the time stamp of the data source right before the request.
        before_revision: the newest revision of the data source right before the request.
        late: as in `Checkpoint`. While the outcome is unknown, it is the value before the request;
            once the outcome is known, it is the value after the request.
        target: the checkpoint that is valid once the request has taken effect; None if the request
            does not complete the refresh.
        distrust: why the next refresh cannot send an update on top of the result, even if this
            request succeeds. Either the request is one part of a split update, or a person wrote
            it by hand, or another user changed the data source at the same time.
        job_id: the id of the server's job, once it is known.
        outcome: None while it is unknown whether the request has taken effect.
        is_deduced: whether the outcome follows from what the data source shows, as the job could
            not be queried. Another user may have changed the time stamp, and the rows may have been
            equal before: so it is unknown whether the metadata of the request are there.
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
        """Whether the request sends a file with metadata."""
        return self.mode in NEW_METADATA

    @property
    def brings_ours(self) -> bool:
        """Whether the request sends a file with metadata that contain no edits by other users."""
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
        """The target, as it is once the request has taken effect.

        If that is deduced, the metadata may still be the ones from before.
        """
        is_certain = self.mode in NEW_METADATA and not self.is_deduced
        return self.target.reached if self.target and is_certain else self.target


# The most characters of a reason, which is stored with each later record.
_LONGEST_REASON = 2000


class Failure(Frozen):
    """Why a refresh was not completed.

    Attributes:
        status: REFUSED, FAILED or HELD.
        reason: in words, for users.
        accepts: what a run must accept to override the refusals.
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
    """The end of a claim; with a checkpoint if the refresh was completed.

    Attributes:
        failure: why it was not completed; None if it was, or if the reason was not recorded.
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
    """The state that follows from all earlier requests; each has an outcome, perhaps LOST.

    A refresh records this state before it sends anything. Later refreshes then need not read older
    requests, however many refreshes have failed in a row.

    Attributes:
        refresh: the number of the refresh that recorded the state. The state includes the requests
            of all refreshes before it; if `at` made the state, also those of the refresh itself.
        record: the checkpoint that later refreshes start from. It may come from a request whose
            outcome is uncertain.
        pending: the target of the newest request that may or may not have taken effect; None if
            there is none.
        distrust: why no update may build on `record`; None if an update may.
        sent: the request that led to `record`, stored without its target; None if a refresh has
            observed the result, or if the result is distrusted.
        creating: a request that may have created the data source. The LUID was not known when the
            request was recorded. It is stored without its target.
        rows: the largest number of rows that the server possibly holds now, by the name of the
            table.
        left: the digests of all metadata that our refreshes have published or found.
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
        """The LUID of the data source that is certainly ours."""
        return self.record.luid if self.record else None

    @property
    def filters(self) -> tuple[str, ...]:
        """What decided which rows a user sees, as the last refresh found it."""
        return self.record.filters if self.record else ()

    @property
    def published(self) -> tuple[Checkpoint, ...]:
        """The contents that the server may hold, the newest first."""
        return tuple(checkpoint for checkpoint in (self.pending, self.record) if checkpoint)

    def after(self, intent: Intent) -> "Recovered":
        """Return the state after one more request."""
        target, has_metadata = intent.target, intent.mode in NEW_METADATA
        bare = intent.model_copy(update={"target": None})
        state = self._with(creating=bare) if intent.luid is None else self
        match intent.outcome:
            case Outcome.DONE if target:
                # A publish replaces all content, and so ends distrust of earlier content. The last
                # part of an update ends distrust of the parts before it.
                state = state._with(rows={}, pending=None, late=intent.late)
                state = state.holding(intent.reached or target)
                return state._with(distrust=intent.distrust, sent=None if intent.distrust else bare)
            case Outcome.DONE:
                return state._with(distrust=intent.distrust or _IN_PART, late=intent.late)
            case Outcome.FAILED:
                # If it was an update, the same one would fail again: the next refresh must publish
                # in full.
                detail = intent.note or "without a note"
                detail = f"the last {intent.action} failed on the server ({detail})"
                return self._with(distrust=Distrust(Doubt.FAILED, detail))
            case Outcome.LOST | None:
                # Keep the target: if the server took its rows, refreshes still need the snapshots
                # of these rows.
                pending = target or self.pending
                if intent.luid and intent.luid != self.luid:
                    # The request was for a data source that is not ours yet. As its outcome is
                    # uncertain, the data source does not become ours.
                    return self._with(pending=pending)
                uncertain = state.holding(target) if target else state
                # A publish with REPLACE keeps the schema in the record, but may drop the metadata
                # that we set, so `written` comes from the target.
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
        """Return this state with a checkpoint whose content the server may hold."""
        # Keep the largest number of rows of each table. Otherwise an uncertain request with fewer
        # rows would weaken guard.max_shrink.
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
        """Return this state as recorded by a refresh that has processed all earlier refreshes."""
        return self._with(refresh=refresh)

    def _with(self, **changes: object) -> "Recovered":
        return self.model_copy(update=changes)


Record = Annotated[Claim | Intent | ClaimRelease | Recovered, Field(discriminator="kind")]

# How many records are kept. When a claim ends and half as many more are stored, the oldest ones are
# removed.
KEPT = 200

# Outcomes after which the server possibly holds the rows of a request. Unknown outcomes are among
# them: if the server took the rows, refreshes still need the snapshots of the rows.
_LANDED = (None, Outcome.DONE, Outcome.LOST)


class History(Frozen):
    """What all records of a data source amount to.

    Attributes:
        number: the number of the newest record; 0 if there is none.
        floor: the lowest number that a record may still have; earlier ones were removed.
        refresh: the highest number of any refresh.
        claim: the claim that has not ended; None if no refresh runs.
        failure: why the last refresh was not completed; None if it was, or if this is unknown. A
            refresh that did nothing, because of a hold, leaves the failure before it.
        settled: the number of the newest refresh whose requests `recovered` includes.
        recovered: the state after all requests of the refreshes up to `settled`.
        intents: the requests of refreshes after `settled`, oldest first. If a request has several
            records, only the one with the most information is here.
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
            # Take only requests that `recovered` does not include. Records of the others come from
            # a refresh that was overtaken.
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
        # A refresh that did nothing, because of a hold, does not settle a failure before it.
        is_held = failure is not None and failure.status is Status.HELD
        return self.failure or failure if is_held else failure

    def _settled(self, recovered: Recovered, through: int) -> dict[str, object]:
        intents = tuple(intent for intent in self.intents if intent.refresh > through)
        return {"recovered": recovered, "settled": through, "intents": intents}

    @property
    def after_intents(self) -> Recovered:
        """The state after all records: `recovered`, with the intents applied."""
        return reduce(Recovered.after, self.intents, self.recovered)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint before the intents."""
        return self.recovered.record

    def published_version(self, model: str) -> int | None:
        """Return the model's newest snapshot that the server possibly holds; None without one."""
        versions = (version for checkpoint in self.published for version in checkpoint.versions)
        return next((number for name, number in versions if name == model), None)

    @property
    def versions(self) -> set[tuple[str, int]]:
        """All snapshots that a refresh may need for comparisons, as pairs (model, number)."""
        return {version for checkpoint in self.published for version in checkpoint.versions}

    @property
    def written(self) -> set[str]:
        """The names of the stored metadata values that a refresh may need for merging."""
        return {name for checkpoint in self.published for name in checkpoint.written}

    @property
    def published(self) -> list[Checkpoint]:
        """The checkpoints that the server may hold, the newest first."""
        targets = [intent.target for intent in reversed(self.intents) if intent.outcome in _LANDED]
        return [checkpoint for checkpoint in (*targets, *self.recovered.published) if checkpoint]


def _with_intent(intents: tuple[Intent, ...], record: Intent) -> tuple[Intent, ...]:
    by_id = {intent.request_id: intent for intent in intents}
    previous = by_id.get(record.request_id)
    # The number of the refresh counts first: a refresh that was overtaken records what it sent
    # under a higher number. Of two outcomes, prefer the one with a job: the server reported it.
    if previous is None or _information(record) >= _information(previous):
        by_id[record.request_id] = record
    return tuple(sorted(by_id.values(), key=lambda intent: (intent.refresh, intent.step)))


def _information(intent: Intent) -> tuple[int, bool, bool]:
    return intent.refresh, intent.outcome is not None, intent.job_id is not None


class StoredRecord(Frozen):
    """The content of a file of the journal.

    Attributes:
        format: the format of the record. It has no default, so that other JSON files are refused.
        release: the release of this package that wrote the record. A release that cannot read the
            record names the writing release in its error.
        id: drawn for each record, so that no two files have the same content.
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
        repair: what a user can do about a record that is damaged or has an older format.

    Raises:
        RefusedError: this release cannot read the record. Do not skip the record: it may be a
            claim, or a request that may still take effect.
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
