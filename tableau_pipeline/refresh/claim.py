"""Allow one refresh of a data source at a time, by means of claims in the journal."""

import logging
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome
from tableau_pipeline.core.journal import (
    Claim,
    ClaimRelease,
    History,
    Intent,
    Journal,
    read_history,
)
from tableau_pipeline.errors import OvertakenError, RefreshError, RefusedError
from tableau_pipeline.outcome import Distrust, Doubt

# The shortest and the longest pause, in seconds. A random pause separates two refreshes that began
# at once. A refresh that waits for another refresh to end pauses longer.
_RETRY_PAUSE = (0.05, 1.0)
_WAIT_PAUSE = (1.0, 5.0)
# How often to check again for a claim that was stored late, which its owner is about to withdraw.
_CHECKS_OF_LATE_CLAIMS = 5


@dataclass
class HeldClaim:
    """The claim of a running refresh.

    Attributes:
        history: the records as they were when the claim was made.
    """

    claim: Claim
    history: History
    journal: Journal
    sleep: Callable[[float], None]
    is_closed: bool = False

    @property
    def number(self) -> int:
        """The number of the refresh."""
        return self.claim.refresh

    def close(self, checkpoint: Checkpoint | None = None) -> None:
        """End the claim, and record the checkpoint if the refresh was completed."""
        self.is_closed = True
        self.journal.append(
            ClaimRelease(
                refresh=self.number,
                claim=self.claim.id,
                run_id=self.claim.owner.run_id,
                checkpoint=checkpoint,
            )
        )

    def check_fence(self) -> None:
        """Check that the claim still holds. Call it right before anything that takes effect.

        Raises:
            OvertakenError: another refresh has claimed the data source since. This happens, for
                example, if the run was terminated in Dagster but its process went on.
        """
        if overtaker := self._overtaken_by():
            raise OvertakenError(
                f"This refresh was overtaken by {overtaker}. Nothing more is sent by it."
            )

    def check_effect(self, intent: Intent) -> None:
        """Check that the claim held until a request took effect; call this afterwards.

        Nothing can stop a process that is paused between `check_fence` and its request. When
        that process goes on, its rows may land on the rows of another refresh.

        Raises:
            OvertakenError: another refresh has claimed the data source since. No update will build
                on what that refresh has left.
        """
        if not (overtaker := self._overtaken_by()):
            return
        # Number the record higher than that refresh, so that the record outlives its result.
        number = read_history(self.journal.records()).number + 1
        reason = f"the {intent.action} of run {intent.run_id} took effect after a later refresh"
        fields = {
            "refresh": number,
            "outcome": Outcome.DONE,
            "target": None,
            "distrust": Distrust(Doubt.OTHERS, reason),
        }
        self.journal.append(intent.model_copy(update=fields))
        raise OvertakenError(
            f"This refresh was overtaken by {overtaker} during its {intent.action}, which may have "
            "changed what that run left. The next run publishes everything again."
        )

    def _overtaken_by(self) -> str | None:
        """Return who has overtaken this refresh; None if its claim holds.

        Raises:
            RefreshError: the journal now has a record that this release does not understand.
        """
        for _ in range(_CHECKS_OF_LATE_CLAIMS):
            try:
                history = read_history(self.journal.records())
            except RefusedError as error:
                # Do not refuse: a refused refresh has sent nothing, but this refresh may have sent.
                raise RefreshError(f"Nothing more is sent by this refresh: {error}") from error
            # Count ended claims as well, because what a later refresh sent must not be undone. A
            # claim with our number was stored at the same moment.
            others = [
                claim
                for claim in history.claims
                if claim.refresh >= self.number and claim.id != self.claim.id
            ]
            # If a user wiped the asset, our claim is gone, and another run is free to send.
            is_open = any(claim.id == self.claim.id for claim in history.open_claims)
            if is_open and not others:
                return None
            self.sleep(random.uniform(*_RETRY_PAUSE))  # noqa: S311
        return f"run {others[0].owner.run_id}" if others else "another user who removed its records"


@contextmanager
def claimed(
    journal: Journal,
    *,
    what: str,
    timeout: float,
    sleep: Callable[[float], None],
    log: logging.Logger,
) -> Generator[HeldClaim]:
    """Claim a data source while the block runs.

    Args:
        what: how messages name the data source.
        timeout: seconds to wait for another refresh to end.

    Raises:
        RefreshError: another refresh has not ended within `timeout`.
    """
    with journal.lock(timeout):
        claim = _wait_for_claim(journal, what, timeout, sleep, log)
        try:
            yield claim
        finally:
            # A claim left open after an error would block later refreshes until this process ends.
            if not claim.is_closed:
                claim.close()


def _wait_for_claim(
    journal: Journal, what: str, timeout: float, sleep: Callable[[float], None], log: logging.Logger
) -> HeldClaim:
    waited, is_logged = 0.0, False
    while True:
        history = read_history(journal.records())
        others = live_claims(history.open_claims, journal)
        if not others:
            claim = Claim(refresh=history.number + 1, owner=journal.owner)
            journal.append(claim)
            history = read_history(journal.records())
            # If two refreshes claim at once, at least the later one sees the other's claim here.
            later = [other for other in history.open_claims if other.id != claim.id]
            if not live_claims(later, journal):
                # Read again: a refresh that has just ended may have recorded its result since.
                history = read_history(journal.records()) if later else history
                return HeldClaim(claim, history, journal, sleep)
            # The event log does not reliably show which claim came first, so both withdraw.
            journal.append(ClaimRelease(refresh=claim.refresh, claim=claim.id, withdrawn=True))
        elif not is_logged:
            log.info("Run %s refreshes %s: waiting for it", others[0].owner.run_id, what)
            is_logged = True
        if waited >= timeout and not others:
            raise RefreshError(
                f"Other refreshes of {what} came first for {waited:.0f} s. Run again."
            )
        if waited >= timeout:
            raise RefreshError(
                f"Run {others[0].owner.run_id} has been refreshing {what} for more than "
                f"{waited:.0f} s. If it hangs, terminate that run in Dagster; then run again."
            )
        pause = min(random.uniform(*(_WAIT_PAUSE if others else _RETRY_PAUSE)), timeout - waited)  # noqa: S311
        sleep(pause)
        waited += max(pause, 0.001)


def live_claims(claims: Sequence[Claim], journal: Journal) -> list[Claim]:
    """Return the claims of other steps that may still run; a step refreshes one data source."""
    return [
        claim
        for claim in claims
        if claim.owner != journal.owner and not journal.has_ended(claim.owner)
    ]
