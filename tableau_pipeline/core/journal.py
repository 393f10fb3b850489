"""The journal: a refresh reads there what earlier ones recorded, and records its own work."""

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

# The format of the records of this release. Whatever changes what a record means changes it.
FORMAT = 4
RELEASE = version("tableau_pipeline")


_IN_PART = Distrust(Doubt.IN_PART, "a part of it was changed")
_INTERRUPTED = Distrust(
    Doubt.OUTCOME, "an earlier refresh was interrupted, and what it left is not known"
)


class Owner(Frozen):
    """The owner of a refresh: a step of a run, and the process that executes it.

    Attributes:
        boot: the id of the machine's boot. With `namespace` it shows where `pid` is this
            process.
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
        release: the release that wrote it, to be named by one that does not understand it.
    """

    format: Literal[4] = FORMAT
    release: str = RELEASE


class Claim(JournalRecord):
    """The claim of a refresh to be the only one of the data source."""

    kind: Literal["claim"] = "claim"
    refresh: int
    id: str = Field(default_factory=lambda: str(uuid4()))
    owner: Owner
    claimed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Intent(JournalRecord):
    """What a refresh is about to send. It is recorded before, and again when more is known.

    Attributes:
        refresh: the number of the refresh; `step` counts its requests.
        request_id: identifies the request; the record that knows most about it counts.
        recorded_at: by the server's clock.
        mode: the mode of a whole file; None for an update of the published data.
        keeps_work: the file brings along the metadata that the server held, in which people may
            have worked.
        user: the LUID of the user who sends it.
        name: the name of the data source on the server.
        luid: the LUID of the data source that is changed; None for one to be created.
        before: the time stamp of the data source right before, like `before_revision`.
        target: the checkpoint once the request has taken effect; None if it is not a whole
            refresh.
        distrust: why no update can build on it even if it is done: it is one part of a split
            update, it was written by hand, or another user changed the data source at the same
            time.
        job_id: the id of the server's job, as soon as it is known.
        outcome: None while it is open, that is, while it may or may not have taken effect.
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
        """Whether its file brings metadata along."""
        return self.mode in NEW_METADATA

    @property
    def brings_ours(self) -> bool:
        """Whether its file brings metadata in which nobody else has worked."""
        return self.brings_metadata and not self.keeps_work

    @property
    def job_kind(self) -> JobKind:
        """The kind of job that the server makes of it."""
        return "publish" if self.mode else "update"

    @property
    def action(self) -> str:
        """The kind of request: an update, or a publish with its mode."""
        return f"publish ({self.mode})" if self.mode else "update"


class ClaimRelease(JournalRecord):
    """The end of a claim; with a checkpoint if the refresh was completed.

    Attributes:
        withdrawn: another claim was there first, and nothing was done.
    """

    kind: Literal["closing"] = "closing"
    refresh: int
    claim: str
    run_id: str = ""
    closed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    withdrawn: bool = False
    checkpoint: Checkpoint | None = None


class Recovered(JournalRecord):
    """What the records add up to, once every request has its outcome.

    A refresh records it before it sends anything, so that later ones need not read the requests
    that it has accounted for, however many refreshes fail one after another.

    Attributes:
        refresh: the number of the refresh that recorded it.
        through: the requests of all refreshes up to this number are accounted for.
        record: the newest checkpoint that the server may hold.
        pending: the content of the newest request that may have taken effect or not; None if
            that is `record`.
        distrust: why no update may build on `record`; None if one may.
        sent: the request that led to `record`, without its target, if no refresh has observed
            its result yet.
        creating: the request, without its target, that may have created the data source, before
            its LUID was recorded.
        rows: the largest number of rows that each table may have, by all records.
        left: digests of the metadata that our refreshes left or found.
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
        """Return the state after a refresh that was completed."""
        number = checkpoint.refresh
        return cls(refresh=number, through=number).holding(checkpoint)

    @property
    def luid(self) -> str | None:
        """The LUID of the data source that is certainly ours."""
        return self.record.luid if self.record else None

    @property
    def published(self) -> tuple[Checkpoint, ...]:
        """The contents that the server may hold, the newest first."""
        return tuple(each for each in (self.pending, self.record) if each)

    def after(self, intent: Intent) -> "Recovered":
        """Return this state with one more request taken into account."""
        target, is_new = intent.target, intent.mode in NEW_METADATA
        bare = intent.model_copy(update={"target": None})
        now = self._with(creating=bare) if intent.luid is None else self
        match intent.outcome:
            case Outcome.DONE if target:
                # A publish replaces all content, and with it whatever was distrusted.
                target = target.reached if is_new else target
                now = now._with(rows={}, pending=None).holding(target)
                return now._with(distrust=intent.distrust, sent=None if intent.distrust else bare)
            case Outcome.DONE:
                return now._with(distrust=intent.distrust or _IN_PART)
            case Outcome.FAILED:
                # It left no trace, but the same update would only fail again; a whole file helps.
                why = intent.note or "without a note"
                why = f"the last {intent.action} failed on the server ({why})"
                return self._with(distrust=Distrust(Doubt.FAILED, why))
            case Outcome.LOST | None:
                # If the server took the rows, their snapshots are still needed.
                pending = target or self.pending
                if intent.luid and intent.luid != self.luid:
                    # A request that may never have happened does not make a data source ours.
                    return self._with(pending=pending)
                held = now.holding(target) if target else now
                # Replace keeps the schema in the record, but may drop what was written.
                record = held.record if is_new or self.record is None else self.record
                if record and target and intent.mode is PublishMode.REPLACE:
                    record = record.model_copy(update={"written": target.written})
                return held._with(record=record, pending=pending, distrust=_INTERRUPTED, sent=None)
            # It was cancelled or refused, so the server still holds what it held before.
            case _:
                return self

    def holding(self, target: Checkpoint) -> "Recovered":
        """Return this state, given that the server may hold the content of this checkpoint."""
        # A request that may not have landed must not lower the bar for guard.max_shrink.
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
        """Return this state as a refresh records it, which has accounted for all earlier ones."""
        return self._with(refresh=refresh, through=refresh - 1)

    def _with(self, **changes: object) -> "Recovered":
        return self.model_copy(update=changes)


Record = Annotated[Claim | Intent | ClaimRelease | Recovered, Field(discriminator="kind")]
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def read_record(stored: object, *, repair: str) -> Record:
    """Read a record from its JSON value.

    Args:
        repair: what a user can do about a damaged one.

    Raises:
        RefusedError: this release does not understand it. It must not be skipped, as it may be a
            claim, or a request that may still take effect.
    """
    text = json.dumps(stored)
    try:
        return _RECORD.validate_json(text)
    except ValidationError as error:
        raise RefusedError(not_understood(text, error, repair=repair), code=Code.RECORD) from error


def not_understood(text: str | bytes, error: ValidationError, *, repair: str) -> str:
    """Return why a record, or a file of them, cannot be read, and the remedy."""
    written: object = None
    with suppress(ValueError):
        written = json.loads(text)
    written = written if isinstance(written, dict) else {}
    found = written.get("format")
    if isinstance(found, int) and found > FORMAT:
        return (
            f"release {written.get('release', 'unknown')} of tableau_pipeline wrote it (format "
            f"{found}), and this is release {RELEASE} (format {FORMAT}). "
            "Upgrade this deployment: only one release may refresh a data source"
        )
    if isinstance(found, int) and found < FORMAT:
        return (
            f"an earlier release of tableau_pipeline wrote it (format {found}), which this release "
            f"{RELEASE} (format {FORMAT}) does not read. {repair}"
        )
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "all of it"
    return f"it is damaged, or not a record ({where}: {first['msg']}). {repair}"


# How many of the newest claims and their ends count. A claim that holds is never deeper: no other
# refresh stores one while it is to be seen.
CLAIMS = 50
# A process that was paused may store a checkpoint on top of newer ones, but never that many.
LATE = 25

# Unknown outcomes belong here: if the server took the rows, their snapshots are still needed.
_LANDED = (None, Outcome.DONE, Outcome.LOST)


@dataclass(frozen=True, slots=True)
class History:
    """The records of a data source, in order.

    Attributes:
        number: the highest number of any refresh.
        claims: the newest claims that were not withdrawn.
        open_claims: those of them that have not ended.
        recovered: what is known of all requests up to some refresh, in whatever order their
            records were stored.
        intents: the later requests, oldest first; of each, the record that knows most.
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
        """The newest version of a model that may be published; None if no record names one."""
        versions = (each for checkpoint in self._published for each in checkpoint.versions)
        return next((number for known, number in versions if known == model), None)

    @property
    def versions(self) -> set[tuple[str, int]]:
        """All snapshots that a refresh may have to compare with, by model and number."""
        return {version for checkpoint in self._published for version in checkpoint.versions}

    @property
    def written(self) -> set[str]:
        """The names of all values of metadata that a refresh may have to merge with."""
        return {name for checkpoint in self._published for name in checkpoint.written}

    @property
    def _published(self) -> list[Checkpoint]:
        """The checkpoints that the server may hold, the newest first."""
        landed = [each.target for each in reversed(self.intents) if each.outcome in _LANDED]
        return [each for each in (*landed, *self.recovered.published) if each]


def read_history(records: Sequence[Record]) -> History:
    """Order records, independent of the order in which they were stored."""
    closings = [each for each in records if isinstance(each, ClaimRelease)]
    withdrawn = {each.claim for each in closings if each.withdrawn}
    recovered = newest_recovered(records)
    intents: dict[str, Intent] = {}
    for each in records:
        # It accounts for all earlier requests, even those whose records were stored later.
        if not isinstance(each, Intent) or each.refresh <= recovered.through:
            continue
        known = intents.setdefault(each.request_id, each)
        # Of two outcomes, the one with a job was read from the server, the other only given up.
        if (each.outcome is not None, each.job_id is not None) >= (
            known.outcome is not None,
            known.job_id is not None,
        ):
            intents[each.request_id] = each
    claims = [each for each in records if isinstance(each, Claim) and each.id not in withdrawn]
    # The end of a refresh that was completed is not among the newest claims and their ends.
    completed = max((each.refresh for each in closings if each.checkpoint), default=0)
    closed = {each.claim for each in closings}
    return History(
        number=max((each.refresh for each in records), default=0),
        claims=tuple(claims),
        open_claims=[e for e in claims if e.refresh > completed and e.id not in closed],
        recovered=recovered,
        intents=tuple(sorted(intents.values(), key=lambda each: (each.refresh, each.step))),
    )


def is_claim(record: Record) -> bool:
    """Whether a record is a claim, or its end without a result; the others are about requests."""
    return isinstance(record, Claim) or (isinstance(record, ClaimRelease) and not record.checkpoint)


def is_complete(requests: Sequence[Record]) -> bool:
    """Whether older records cannot change what these records about requests add up to.

    Args:
        requests: all but claims, newest first.
    """
    return any(not isinstance(each, Intent) for each in requests[:-LATE])


def needed(records: Sequence[Record]) -> list[Record]:
    """Return the records that may still matter, in the same order: oldest first."""
    recovered = newest_recovered(records)
    claims = [each for each in records if is_claim(each)][-CLAIMS:]
    accounts = [each for each in records if not is_claim(each) and not isinstance(each, Intent)]
    kept = {id(each) for each in (*claims, *accounts[-LATE:])}
    return [
        each
        for each in records
        if id(each) in kept or (isinstance(each, Intent) and each.refresh >= recovered.refresh)
    ]


def newest_recovered(records: Sequence[Record]) -> Recovered:
    """Return what accounts for most requests; an empty one if nothing was ever recorded."""
    known = [each for each in records if isinstance(each, Recovered)]
    known += [
        Recovered.at(each.checkpoint)
        for each in records
        if isinstance(each, ClaimRelease) and each.checkpoint
    ]
    return max(known, key=lambda each: (each.through, each.refresh), default=Recovered())


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
            RefusedError: another release wrote one that this release does not understand.
        """

    def append(self, record: Record) -> None:
        """Store a record; it is durable once this returns."""

    def has_ended(self, owner: Owner) -> bool:
        """Whether an owner is known not to run any more."""

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Hold a lock during the block, where records alone do not keep refreshes apart.

        Raises:
            RefreshError: another process has held it for more than `timeout` seconds.
        """


@contextmanager
def held(lock: FileLock, *, by: str, timeout: float) -> Generator[None]:
    """Hold a lock file during the block, as `Journal.lock` promises it.

    Args:
        by: who else may hold it, for messages.
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
