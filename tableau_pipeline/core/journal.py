"""The journal: append-only records through which refreshes of a data source learn of each other."""

import json
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, Protocol
from uuid import uuid4

from filelock import FileLock, Timeout
from pydantic import Field, TypeAdapter, ValidationError

from tableau_pipeline.core.checkpoint import NEW_METADATA, Checkpoint, Outcome, PublishMode
from tableau_pipeline.core.drift import JobKind
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Code, Distrust, Doubt

# The format in which this release writes records; to change what a record means, increment it.
FORMAT = 4
RELEASE = version("tableau_pipeline")


_IN_PART = Distrust(Doubt.IN_PART, "a part of it was changed")
_INTERRUPTED = Distrust(
    Doubt.OUTCOME, "an earlier refresh was interrupted, and what it left is not known"
)


class Owner(Frozen):
    """The owner of a refresh: a step of a run, and the process that executes it.

    Attributes:
        boot, namespace: the ids of the machine's boot and of its namespace of process ids; only
            there does `pid` identify the process.
    """

    run_id: str
    step: str = ""
    attempt: int = 0
    boot: str = ""
    namespace: str = ""
    pid: int = 0


class JournalRecord(Frozen):
    """A record in the journal of a data source.

    Attributes:
        release: the release of this package that wrote the record; named in the error of a release
            that cannot read the record.
    """

    format: Literal[4] = FORMAT
    release: str = RELEASE


class Claim(JournalRecord):
    """The claim of a refresh to be the only one that changes the data source."""

    kind: Literal["claim"] = "claim"
    refresh: int
    id: str = Field(default_factory=lambda: str(uuid4()))
    owner: Owner
    claimed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Intent(JournalRecord):
    """A request of a refresh. It is recorded before it is sent, and again when more is known.

    Attributes:
        refresh: the number of the refresh.
        step: the number of the request among the requests of the refresh.
        request_id: identifies the request. Of several records of it, the record with the most
            information counts.
        recorded_at: when the request was recorded, according to the server's clock.
        mode: how a whole file is published; None for an update of the published data.
        keeps_work: whether the file contains the server's metadata, including edits by users.
        user: the LUID of the user who sends the request.
        name: the name of the data source on the server.
        luid: the LUID of the data source to change; None to create one.
        before: the time stamp of the data source right before the request.
        before_revision: the newest revision of the data source right before the request.
        target: the checkpoint that is valid once the request has taken effect; None if the request
            does not complete the refresh.
        distrust: why no update can build on the result, even if the request succeeds: the request
            is one part of a split update, it was written by hand, or another user changed the data
            source at the same time.
        job_id: the id of the server's job, once it is known.
        outcome: None while it is unknown whether the request has taken effect.
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
    target: Checkpoint | None
    distrust: Distrust | None = None
    job_id: str | None = None
    outcome: Outcome | None = None
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


class ClaimRelease(JournalRecord):
    """The end of a claim; with a checkpoint if the refresh was completed.

    Attributes:
        withdrawn: whether the refresh gave up the claim at once, because it saw another claim that
            was stored at the same time.
    """

    kind: Literal["closing"] = "closing"
    refresh: int
    claim: str
    run_id: str = ""
    closed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    withdrawn: bool = False
    checkpoint: Checkpoint | None = None


class Recovered(JournalRecord):
    """The state that follows from all earlier records, once every request has its outcome.

    A refresh records this state before it sends anything. Later refreshes then need not read older
    requests, however many refreshes have failed in a row.

    Attributes:
        refresh: the number of the refresh that recorded the state.
        through: the state includes the requests of all refreshes up to this number.
        record: the newest checkpoint that the server may hold.
        pending: the target of the newest request that may or may not have taken effect; None if
            there is none.
        distrust: why no update may build on `record`; None if an update may.
        sent: the request that led to `record`, stored without its target; None once a refresh has
            observed the result.
        creating: a request that may have created the data source, whose LUID was not known then;
            stored without its target.
        rows: for each table, by name, the largest number of rows that the server possibly holds
            now, according to all records.
        left: the digests of all metadata that our refreshes have published or found.
    """

    kind: Literal["recovered"] = "recovered"
    refresh: int = 0
    through: int = 0
    record: Checkpoint | None = None
    pending: Checkpoint | None = None
    distrust: Distrust | None = None
    sent: Intent | None = None
    creating: Intent | None = None
    rows: dict[str, int] = Field(default_factory=dict)
    left: frozenset[str] = frozenset()

    @classmethod
    def at(cls, checkpoint: Checkpoint) -> "Recovered":
        """Return the state after a completed refresh."""
        number = checkpoint.refresh
        return cls(refresh=number, through=number).holding(checkpoint)

    @property
    def luid(self) -> str | None:
        """The LUID of the data source that is certainly ours."""
        return self.record.luid if self.record else None

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
                # A publish replaces all content, including any that was distrusted.
                target = target.reached if has_metadata else target
                state = state._with(rows={}, pending=None).holding(target)
                return state._with(distrust=intent.distrust, sent=None if intent.distrust else bare)
            case Outcome.DONE:
                return state._with(distrust=intent.distrust or _IN_PART)
            case Outcome.FAILED:
                # The same update would fail again, so the next refresh must publish in full.
                detail = intent.note or "without a note"
                detail = f"the last {intent.action} failed on the server ({detail})"
                return self._with(distrust=Distrust(Doubt.FAILED, detail))
            case Outcome.LOST | None:
                # Keep the target: if the server took its rows, their snapshots are still needed.
                pending = target or self.pending
                if intent.luid and intent.luid != self.luid:
                    # An uncertain request does not make the data source ours.
                    return self._with(pending=pending)
                uncertain = state.holding(target) if target else state
                # Replace keeps the recorded schema, but may drop the metadata that we had set.
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
        # Keep the largest counts: an uncertain request must not weaken guard.max_shrink.
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
        return self._with(refresh=refresh, through=refresh - 1)

    def _with(self, **changes: object) -> "Recovered":
        return self.model_copy(update=changes)


Record = Annotated[Claim | Intent | ClaimRelease | Recovered, Field(discriminator="kind")]
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def read_record(stored: object, *, repair: str) -> Record:
    """Read a record from its JSON value.

    Args:
        repair: what a user can do about a damaged record.

    Raises:
        RefusedError: this release cannot read the record. Do not skip the record: it may be a
            claim, or a request that may still take effect.
    """
    text = json.dumps(stored)
    try:
        return _RECORD.validate_json(text)
    except ValidationError as error:
        raise RefusedError(
            unreadable_reason(text, error, repair=repair), code=Code.RECORD
        ) from error


def unreadable_reason(text: str | bytes, error: ValidationError, *, repair: str) -> str:
    """Return why a record, or a file of records, cannot be read, and the remedy."""
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


# Of the claims and their ends (a ClaimRelease without a checkpoint), only the newest count, this
# many. A valid claim is always among these, as other refreshes store no further claims once they
# see the valid claim.
CLAIMS = 50
# A paused process may store an old checkpoint late. We assume that fewer than this many newer
# checkpoints have been stored by then.
MOST_LATE_RECORDS = 25

# Outcomes after which the rows of a request may be published. Unknown outcomes are among them: if
# the server took the rows, refreshes still need the snapshots of the rows.
_LANDED = (None, Outcome.DONE, Outcome.LOST)


@dataclass(frozen=True, slots=True)
class History:
    """The records of a data source, in order.

    Attributes:
        number: the highest number of any refresh.
        claims: the newest claims that were not withdrawn.
        open_claims: the claims among `claims` that have not ended.
        recovered: the state after all requests of the refreshes up to `recovered.through`, in
            whatever order the records were stored.
        intents: the requests of later refreshes, oldest first. For each request, this is the record
            with the most information.
    """

    number: int
    claims: tuple[Claim, ...]
    open_claims: list[Claim]
    recovered: Recovered
    intents: tuple[Intent, ...]

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint before the intents."""
        return self.recovered.record

    def published_version(self, model: str) -> int | None:
        """Return the newest version of a model that may be published; None if none is recorded."""
        versions = (version for checkpoint in self._published for version in checkpoint.versions)
        return next((number for name, number in versions if name == model), None)

    @property
    def versions(self) -> set[tuple[str, int]]:
        """All snapshots that a refresh may need for comparisons, as pairs (model, number)."""
        return {version for checkpoint in self._published for version in checkpoint.versions}

    @property
    def written(self) -> set[str]:
        """The names of all stored values of metadata that a refresh may need for merging."""
        return {name for checkpoint in self._published for name in checkpoint.written}

    @property
    def _published(self) -> list[Checkpoint]:
        """The checkpoints that the server may hold, the newest first."""
        targets = [intent.target for intent in reversed(self.intents) if intent.outcome in _LANDED]
        return [checkpoint for checkpoint in (*targets, *self.recovered.published) if checkpoint]


def read_history(records: Sequence[Record]) -> History:
    """Interpret records, independent of the order in which they were stored."""
    releases = [release for release in records if isinstance(release, ClaimRelease)]
    withdrawn = {release.claim for release in releases if release.withdrawn}
    recovered = newest_recovered(records)
    intents: dict[str, Intent] = {}
    for record in records:
        # Skip what `recovered` includes: all earlier requests, even if they were stored later.
        if not isinstance(record, Intent) or record.refresh <= recovered.through:
            continue
        previous = intents.setdefault(record.request_id, record)
        # Of two outcomes, prefer the one with a job: it was read from the server, not assumed.
        if (record.outcome is not None, record.job_id is not None) >= (
            previous.outcome is not None,
            previous.job_id is not None,
        ):
            intents[record.request_id] = record
    claims = [claim for claim in records if isinstance(claim, Claim) and claim.id not in withdrawn]
    # A release with a checkpoint is not read with the claims, so it may be missing. Let the newest
    # one also end all earlier claims.
    completed = max((release.refresh for release in releases if release.checkpoint), default=0)
    closed = {release.claim for release in releases}
    return History(
        number=max((record.refresh for record in records), default=0),
        claims=tuple(claims),
        open_claims=[
            claim for claim in claims if claim.refresh > completed and claim.id not in closed
        ],
        recovered=recovered,
        intents=tuple(sorted(intents.values(), key=lambda intent: (intent.refresh, intent.step))),
    )


def is_claim(record: Record) -> bool:
    """Whether a record only starts or ends a claim, and says nothing of requests."""
    return isinstance(record, Claim) or (isinstance(record, ClaimRelease) and not record.checkpoint)


def is_complete(requests: Sequence[Record]) -> bool:
    """Whether these records determine the state, so that older records need not be read.

    Args:
        requests: records other than claims, newest first.
    """
    return any(not isinstance(record, Intent) for record in requests[:-MOST_LATE_RECORDS])


def relevant_records(records: Sequence[Record]) -> list[Record]:
    """Return the records that may still matter, in their order: oldest first."""
    recovered = newest_recovered(records)
    claims = [record for record in records if is_claim(record)][-CLAIMS:]
    states = [
        record for record in records if not is_claim(record) and not isinstance(record, Intent)
    ]
    kept = {id(record) for record in (*claims, *states[-MOST_LATE_RECORDS:])}
    return [
        record
        for record in records
        if id(record) in kept
        or (isinstance(record, Intent) and record.refresh >= recovered.refresh)
    ]


def newest_recovered(records: Sequence[Record]) -> Recovered:
    """Return the state that includes the most requests; an empty state if none is recorded."""
    states = [record for record in records if isinstance(record, Recovered)]
    states += [
        Recovered.at(record.checkpoint)
        for record in records
        if isinstance(record, ClaimRelease) and record.checkpoint
    ]
    return max(states, key=lambda state: (state.through, state.refresh), default=Recovered())


class Journal(Protocol):
    """The append-only records of one data source, in Dagster's event log or in a file."""

    @property
    def instance(self) -> str:
        """The id of the deployment whose records these are."""

    @property
    def owner(self) -> Owner:
        """The owner of the records that this process writes."""

    def records(self) -> Sequence[Record]:
        """Return the records that may still matter, in a bounded number of reads.

        The order is not defined: a record that was stored late may come before others.

        Raises:
            RefusedError: another release wrote a record that this release cannot read.
        """

    def append(self, record: Record) -> None:
        """Store a record; it is durable once this returns."""

    def has_ended(self, owner: Owner) -> bool:
        """Whether an owner has certainly stopped running."""

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Hold a lock during the block, if records alone cannot keep refreshes apart.

        Raises:
            RefreshError: another process has held it for more than `timeout` seconds.
        """


@contextmanager
def holding_lock(lock: FileLock, *, by: str, timeout: float) -> Generator[None]:
    """Hold a lock file during the block, as `Journal.lock` specifies.

    Args:
        by: who else may hold the lock, for error messages.
    """
    Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
    try:
        acquired = lock.acquire(timeout=timeout)
    except Timeout:
        raise RefreshError(
            f"{by} has held {lock.lock_file} for more than {timeout:.0f} s. Look for a process "
            "that hangs, and stop it."
        ) from None
    with acquired:
        yield
