"""The journal: a refresh reads there what earlier ones recorded, and records its own work."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from tableau_pipeline.core.checkpoint import (
    Checkpoint,
    Claim,
    ClaimRelease,
    Intent,
    Outcome,
    Owner,
    Record,
    Recovered,
)
from tableau_pipeline.errors import RefreshError

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
        claims: the newest claims that were not withdrawn; `closed` has the ids of those that
            have ended.
        recovered: what is known of all requests up to some refresh, in whatever order their
            records were stored.
        intents: the later requests, oldest first; of each, the record that knows most.
    """

    number: int
    claims: tuple[Claim, ...]
    closed: frozenset[str]
    recovered: Recovered
    intents: tuple[Intent, ...]

    @property
    def open_claims(self) -> list[Claim]:
        """The claims that have not ended."""
        return [claim for claim in self.claims if claim.id not in self.closed]

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
        known = intents.get(each.request_id)
        if known is None or _knowledge(each) >= _knowledge(known):
            intents[each.request_id] = each
    claims = [each for each in records if isinstance(each, Claim) and each.id not in withdrawn]
    # The end of a refresh that was completed is not among the newest claims and their ends.
    completed = max((each.refresh for each in closings if each.checkpoint), default=0)
    ended = {each.id for each in claims if each.refresh <= completed}
    return History(
        number=max((each.refresh for each in records), default=0),
        claims=tuple(claims),
        closed=frozenset(ended | {each.claim for each in closings}),
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


def _knowledge(intent: Intent) -> tuple[bool, bool]:
    # Of two outcomes, the one with a job was read from the server, the other only given up.
    return intent.outcome is not None, intent.job_id is not None


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
