"""Let only one refresh of a data source run at a time, by claims in the journal.

The journal holds the records of all refreshes of a data source. A claim is a record that reserves
the data source for one refresh, until the refresh ends the claim by another record.
"""

import logging
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome
from tableau_pipeline.core.journal import Claim, ClaimRelease, Failure, History, Intent, Record
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.errors import OvertakenError, RefreshError, RefusedError
from tableau_pipeline.outcome import Distrust, Doubt, Status

# The shortest and the longest pause before we check again whether another refresh has ended, in
# seconds.
_PAUSE = (1.0, 5.0)
_INTERRUPTED = Failure(
    status=Status.FAILED, reason="It was interrupted. The next run finds out what became of it"
)


@dataclass
class HeldClaim:
    """The claim of a running refresh.

    Attributes:
        history: the records, up to the newest record that this refresh has written or read.
    """

    claim: Claim
    history: History
    journal: StoredJournal
    is_closed: bool = False

    @property
    def number(self) -> int:
        """The number of this refresh in the history of its data source."""
        return self.claim.refresh

    def close(
        self, checkpoint: Checkpoint | None = None, *, failure: Failure | None = None
    ) -> None:
        """End the claim, and record how the refresh ended.

        Args:
            checkpoint: the refresh's record of the published data source; None if the refresh was
                not completed.
            failure: why the refresh was not completed; None if no error was raised.

        Raises:
            OvertakenError: see `append`.
        """
        self.is_closed = True
        self.append(
            ClaimRelease(
                refresh=self.number,
                claim=self.claim.id,
                run_id=self.claim.owner.run_id,
                checkpoint=checkpoint,
                failure=failure,
            )
        )

    def append(self, record: Record) -> None:
        """Store a record if this refresh still has the claim.

        Raises:
            OvertakenError: another refresh has claimed the data source in the meantime. Nothing was
                stored.
        """

        def make(history: History) -> Record:
            self._check(history)
            return record

        self._store(make)

    def report(self, intent: Intent) -> None:
        """Store `intent`, the record of a request, even if this refresh no longer has the claim."""
        self._store(lambda _: intent)

    def check_fence(self) -> None:
        """Check that this refresh still has the claim.

        Call this method right before each request that takes effect.

        Raises:
            OvertakenError: another refresh has claimed the data source in the meantime. For
                example, a user terminated the run in Dagster, but its process continued.
        """
        with _no_refusal():
            history = self.journal.latest(self.history)
        self._check(history)
        self.history = history

    def may_be_overtaken(self) -> bool:
        """Whether the records cannot be read, so that this refresh may have lost the claim.

        Raises:
            OvertakenError: see `check_fence`.
        """
        try:
            self.check_fence()
        except OvertakenError:
            raise
        except (RefreshError, OSError):
            return True
        return False

    def check_effect(self, intent: Intent) -> None:
        """Check, after a request took effect, that this refresh still has the claim.

        The process may be paused between `check_fence` and the request. When the process continues,
        its rows may replace the rows of another refresh.

        Raises:
            OvertakenError: another refresh has claimed the data source in the meantime. The next
                refresh publishes in full, because this request may have changed the rows of the
                other refresh.
        """
        try:
            self.check_fence()
        except OvertakenError as error:
            reason = f"the {intent.action} of run {intent.run_id} took effect after a later refresh"
            fields = {
                "outcome": Outcome.DONE,
                "target": None,
                "distrust": Distrust(Doubt.OTHERS, reason),
            }
            late = intent.model_copy(update=fields)
            # Give this record a higher number than the later refresh: otherwise, the checkpoint of
            # that refresh would hide this record.
            self.journal.append(
                lambda history: late.model_copy(update={"refresh": history.refresh + 1}),
                after=self.journal.history(),
            )
            raise OvertakenError(
                f"{error} This happened during its {intent.action}, which may have changed what "
                "the other refresh left. The next run publishes everything again."
            ) from None

    def _store(self, make: Callable[[History], Record]) -> None:
        with _no_refusal():
            self.history = self.journal.append(make, after=self.history)

    def _check(self, history: History) -> None:
        # Go on only if our own claim is open. If no claim is open, a later refresh may have ended:
        # its rows must stay. Or a user has removed the records: another refresh may be sending.
        if history.claim and history.claim.id == self.claim.id:
            return
        if history.claim:
            by = name_of(history.claim)
        elif history.refresh > self.number:
            by = "a later refresh"
        else:
            by = "a user, who ended its claim or removed its records"
        raise OvertakenError(f"This refresh was overtaken by {by}, and sends nothing more.")


@contextmanager
def _no_refusal() -> Generator[None]:
    """Turn RefusedError into RefreshError: a refusal would mean that this refresh sent nothing."""
    try:
        yield
    except RefusedError as error:
        raise RefreshError(f"This refresh sends nothing more: {error}") from error


@contextmanager
def claimed(
    journal: StoredJournal,
    *,
    what: str,
    timeout: float,
    sleep: Callable[[float], None],
    log: logging.Logger,
) -> Generator[HeldClaim]:
    """Claim a data source while the block runs.

    Args:
        what: the name of the data source in messages.
        timeout: how many seconds to wait for the end of another refresh.

    Raises:
        RefreshError: another refresh has not ended within `timeout`.
    """
    claim = _wait_for_claim(journal, what, timeout, sleep, log)
    with journal.heartbeat():
        failure = None
        try:
            yield claim
        except Exception as error:
            failure = Failure.of(error)
            raise
        except BaseException:
            failure = _INTERRUPTED
            raise
        finally:
            # Close the claim even after an error: an open claim would block later refreshes until
            # this process ends.
            if not claim.is_closed:
                _close(claim, failure, log)


def _close(claim: HeldClaim, failure: Failure | None, log: logging.Logger) -> None:
    try:
        claim.close(failure=failure)
    except OvertakenError:
        pass
    except (OSError, RefreshError) as error:
        # Do not hide the error of the refresh: its message names the remedy.
        if failure is None:
            raise
        log.warning("The claim stays open until this process ends: %s", error)


def _wait_for_claim(
    journal: StoredJournal,
    what: str,
    timeout: float,
    sleep: Callable[[float], None],
    log: logging.Logger,
) -> HeldClaim:
    history, waited, is_logged = journal.history(), 0.0, False
    while True:
        other = live_claim(history, journal)
        if other is None:
            claim = Claim(refresh=history.refresh + 1, owner=journal.owner)
            if created := journal.create(claim, after=history):
                return HeldClaim(claim, created, journal)
            # Another process has stored a record first. Read it: it may be a claim.
            history = journal.latest(history)
            continue
        if not is_logged:
            log.info("Waiting for %s, which refreshes %s", name_of(other), what)
            is_logged = True
        if waited >= timeout:
            key = what.partition("@")[0]
            raise RefreshError(
                f"{what} has been refreshed by {name_of(other)} for more than {waited:.0f} s. If "
                "that refresh hangs, end it (terminate a run in Dagster), then run again. If it no "
                f"longer exists anywhere, run `tableau-pipeline unlock {key}` first."
            )
        pause = min(random.uniform(*_PAUSE), timeout - waited)  # noqa: S311
        sleep(pause)
        waited += max(pause, 0.001)
        history = journal.latest(history)


def name_of(claim: Claim) -> str:
    """Return the name of a claim's owner for messages: a run, or a process and its host."""
    return claim.owner.label or f"run {claim.owner.run_id}"


def live_claim(history: History, journal: StoredJournal) -> Claim | None:
    """Return the open claim of another refresh that may still run; None if there is none.

    A claim of this step of a run does not count: a step runs only one refresh at a time, so the
    refresh of that claim has ended.
    """
    claim = history.claim
    if claim is None or claim.owner == journal.owner or journal.has_ended(claim):
        return None
    return claim
