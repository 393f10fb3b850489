"""Allow one refresh of a data source at a time, by claims in the journal."""

import logging
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import (
    Checkpoint,
    Claim,
    Closing,
    Intent,
    Outcome,
    Record,
    Recovered,
)
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.errors import RefreshError, RefusedError

# Derive the state of a data source from its records, without any effects.


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
    closings = [each for each in records if isinstance(each, Closing)]
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
    return isinstance(record, Claim) or (isinstance(record, Closing) and not record.checkpoint)


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
        if isinstance(each, Closing) and each.checkpoint
    ]
    return max(known, key=lambda each: (each.through, each.refresh), default=Recovered())


def _knowledge(intent: Intent) -> tuple[bool, bool]:
    # Of two outcomes, the one with a job was read from the server, the other only given up.
    return intent.outcome is not None, intent.job_id is not None


# Seconds. A random pause separates two refreshes that began at the same time; a refresh that waits
# for another one to end looks less often.
_RETRY = (0.05, 1.0)
_WAIT = (1.0, 5.0)
# How often to look again at a claim that was stored late and that its owner is about to withdraw.
_LOOKS_AT_LATE_CLAIMS = 5


@dataclass
class Claimed:
    """The claim of a running refresh.

    Attributes:
        history: the records as they were when the claim was made.
        checkpoint: the checkpoint with which the claim is to be closed.
    """

    claim: Claim
    history: History
    journal: Journal
    sleep: Callable[[float], None]
    checkpoint: Checkpoint | None = None

    @property
    def number(self) -> int:
        """The number of the refresh."""
        return self.claim.refresh

    def check_fence(self) -> None:
        """Check that the claim still holds. Call it right before anything that takes effect.

        Raises:
            RefreshError: another refresh has claimed the data source since. This happens, for
                example, when the run was terminated in Dagster but its process went on.
        """
        if by := self._overtaken_by():
            raise RefreshError(f"This refresh was overtaken by {by}. Nothing more is sent by it.")

    def check_effect(self, intent: Intent) -> None:
        """Check that the claim held until a request took effect; call it once it has.

        Nothing can stop a process that is paused between `check_fence` and its request. When it
        goes on, its rows may land on those of another refresh.

        Raises:
            RefreshError: another refresh has claimed the data source since. No update will build
                on what it has left.
        """
        if not (by := self._overtaken_by()):
            return
        # With a higher number than its own, the record outlives the result of that refresh.
        number = read_history(self.journal.records()).number + 1
        why = f"the {intent.action} of run {intent.run_id} took effect after a later refresh"
        update = {"refresh": number, "outcome": Outcome.DONE, "target": None, "partial": why}
        self.journal.append(intent.model_copy(update=update))
        raise RefreshError(
            f"This refresh was overtaken by {by} during its {intent.action}, which may have "
            "changed what that run left. The next run publishes in full."
        )

    def _overtaken_by(self) -> str | None:
        """Who has overtaken this refresh; None if its claim holds.

        Raises:
            RefreshError: the journal has a record by now that this release does not understand.
        """
        for _ in range(_LOOKS_AT_LATE_CLAIMS):
            try:
                history = read_history(self.journal.records())
            except RefusedError as error:
                # A refused refresh has sent nothing, but this one may have sent something already.
                raise RefreshError(f"Nothing more is sent by this refresh: {error}") from error
            # Claims that have ended count too: what a later refresh sent must not be undone. A
            # claim with an equal number was stored at the same moment.
            others = [
                each
                for each in history.claims
                if each.refresh >= self.number and each.id != self.claim.id
            ]
            # Wiping the asset removes our claim too, and then nothing keeps others from sending.
            known = any(each.id == self.claim.id for each in history.open_claims)
            if known and not others:
                return None
            self.sleep(random.uniform(*_RETRY))  # noqa: S311
        return f"run {others[0].owner.run_id}" if others else "somebody who removed its records"


@contextmanager
def claimed(
    journal: Journal,
    *,
    what: str,
    timeout: float,
    sleep: Callable[[float], None],
    log: logging.Logger,
) -> Generator[Claimed]:
    """Claim a data source while the block runs.

    Args:
        what: the data source, in messages.
        timeout: seconds to wait for another refresh to end.

    Raises:
        RefreshError: another refresh has not ended by then.
    """
    with journal.lock(timeout):
        held = _claim(journal, what, timeout, sleep, log)
        try:
            yield held
        finally:
            journal.append(
                # Also after an error: a claim left open would block later refreshes until this
                # process ends.
                Closing(
                    refresh=held.number,
                    claim=held.claim.id,
                    run_id=held.claim.owner.run_id,
                    checkpoint=held.checkpoint,
                )
            )


def _claim(
    journal: Journal, what: str, timeout: float, sleep: Callable[[float], None], log: logging.Logger
) -> Claimed:
    waited, is_logged = 0.0, False
    while True:
        history = read_history(journal.records())
        others = live_claims(history.open_claims, journal)
        if not others:
            claim = Claim(refresh=history.number + 1, owner=journal.owner)
            journal.append(claim)
            history = read_history(journal.records())
            # Of two that store their claims at once, at least the later one sees the other here.
            later = [each for each in history.open_claims if each.id != claim.id]
            if not live_claims(later, journal):
                # One that has just ended may have recorded its last after that look.
                history = read_history(journal.records()) if later else history
                return Claimed(claim, history, journal, sleep)
            # The event log does not tell reliably which claim came first, so nobody insists.
            journal.append(Closing(refresh=claim.refresh, claim=claim.id, withdrawn=True))
        elif not is_logged:
            log.info("%s refreshes %s: waiting for it", _named(others[0]), what)
            is_logged = True
        if waited >= timeout:
            raise RefreshError(_still_running(others, what, waited))
        pause = min(random.uniform(*(_WAIT if others else _RETRY)), timeout - waited)  # noqa: S311
        sleep(pause)
        waited += max(pause, 0.001)


def live_claims(claims: Sequence[Claim], journal: Journal) -> list[Claim]:
    """Return the claims of others that may still be running; one step has one data source."""
    return [
        each for each in claims if each.owner != journal.owner and not journal.has_ended(each.owner)
    ]


def _named(claim: Claim) -> str:
    return f"Run {claim.owner.run_id}"


def _still_running(others: Sequence[Claim], what: str, waited: float) -> str:
    if not others:
        return f"Other refreshes of {what} came first for {waited:.0f} s. Run again."
    return (
        f"{_named(others[0])} has been refreshing {what} for more than {waited:.0f} s. If it "
        "hangs, terminate that run in Dagster; then run again."
    )
