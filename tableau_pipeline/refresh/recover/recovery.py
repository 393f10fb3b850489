"""Recovery: find out what became of the requests that earlier refreshes sent."""

from dataclasses import dataclass
from datetime import timedelta

from tableau_pipeline.core.checkpoint import Intent, Outcome, Recovered
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.job_waiting import Jobs
from tableau_pipeline.refresh.recover.history import History


@dataclass(frozen=True, slots=True)
class Recovery:
    """Asks the server what became of each open request, and records the answer.

    It never sends anything again: if the outcome is not known, the next publish is in full.

    Attributes:
        claim: of the refresh; None for a dry run, which neither waits nor records anything.
    """

    jobs: Jobs
    claim: Claimed | None

    def recover(self, history: History) -> Recovered:
        """Find out what is published, as far as our records and the server show it.

        Raises:
            RefreshError: a request may still take effect, so nothing else may be sent.
        """
        recovered = history.recovered
        for intent in history.intents:
            recovered = recovered.after(
                self._resolved(intent) if intent.outcome is None else intent
            )
        if self.claim and history.intents:
            recovered = recovered.recorded_by(self.claim.number)
            self.claim.journal.append(recovered)
        return recovered

    def _resolved(self, intent: Intent) -> Intent:
        if intent.job_id:
            look = self.jobs.wait if self.claim else self.jobs.server.job
            status = look(intent.job_id)
            if status and status.outcome:
                return self._closed(intent, status.outcome, status.notes)
            self.jobs.log.warning("The server no longer knows job %s", intent.job_id)
        # A dry run does not wait: left open, the request is planned for as if it were lost.
        if self.claim is None:
            return intent
        self._wait_for_unknown(intent)
        return self._closed(intent, Outcome.LOST, "its outcome cannot be determined")

    def _closed(self, intent: Intent, outcome: Outcome, note: str) -> Intent:
        self.jobs.log.info(
            "An interrupted refresh had sent its %s: %s %s", intent.action, outcome, note
        )
        intent = intent.model_copy(update={"outcome": outcome, "note": note or None})
        if self.claim:
            self.claim.journal.append(intent)
        return intent

    def _wait_for_unknown(self, intent: Intent) -> None:
        """Wait until the request can no longer run, whether the server received it or not.

        Raises:
            RefreshError: that is not certain yet.
        """
        server = self.jobs.server
        remote = server.find_by_luid(intent.luid) if intent.luid else None
        # A job is listed by the name of its data source, which somebody may have changed.
        for name in {intent.name, remote.name if remote else intent.name}:
            # The server cuts off fractions, so a job of the same second would seem older.
            since = intent.recorded_at.replace(microsecond=0)
            found = server.jobs(name=name, since=since)
            if found is None:
                self._check_time(intent)
                return
            for job in found:
                if job.outcome is None:
                    self.jobs.wait(job.id)

    def _check_time(self, intent: Intent) -> None:
        timeouts = self.jobs.timeouts
        until = intent.recorded_at + timedelta(seconds=timeouts.queue + timeouts.job)
        if self.jobs.server.now() < until:
            raise RefreshError(
                f"An interrupted refresh sent a request ({intent.action}) that the server may have "
                "received, and which job that became is not known, nor may this user list jobs. "
                f"Nothing is sent beside it before {until:%Y-%m-%d %H:%M} UTC: run again then, or "
                "let the user list jobs (site administrator)."
            )
