"""Wait until a job of the server has finished, and cancel a job that takes too long."""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from datetime import datetime

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.drift import Job, NoJob, Timeouts
from tableau_pipeline.errors import UnknownOutcomeError
from tableau_pipeline.publishing.site import TableauSite

_GROWTH = 1.5
# The shortest wait that is logged, in seconds.
_WORTH_LOGGING = 1
# Near the time limit of a job, waits become shorter, but not shorter than this many seconds. The
# server's clock is read from HTTP dates, which have whole seconds: after a shorter wait, the clock
# may show the same time.
_RESOLUTION = 1


@dataclass(frozen=True, slots=True)
class Jobs:
    """Waits for jobs, and measures the time by the server's clock. `sleep` takes seconds."""

    server: TableauSite
    timeouts: Timeouts
    sleep: Callable[[float], None]
    log: logging.Logger

    def wait(self, job_id: str, *, meanwhile: Callable[[], None] | None = None) -> Job | NoJob:
        """Wait for a job; return the finished job, or why the server does not show the job.

        Cancel a job that takes too long: `timeouts.queue` limits the time until the job starts, and
        `timeouts.job` limits the time after the start.

        Args:
            meanwhile: a function to call between two requests for the job. It is called until the
                job has started, and once more after the start.

        Raises:
            UnknownOutcomeError: the job did not finish in time, and may still take effect.
        """
        began = self.server.now()
        pauses = self.pauses()
        while True:
            status = self.server.job(job_id)
            if isinstance(status, NoJob) or status.outcome:
                return status
            if not self._wait_for_next(next(pauses), status, began):
                return self._give_up(job_id, status)
            if meanwhile:
                meanwhile()
                if not self._wait_for_next(next(pauses), status, began):
                    return self._give_up(job_id, status)
                meanwhile = None if status.started_at else meanwhile

    def _wait_for_next(self, pause: float, status: Job, began: datetime) -> bool:
        """Wait before the next request; return False if the time limit of the job has passed."""
        since, limit, doing = began, self.timeouts.queue, "in the queue"
        if status.started_at:
            since, limit, doing = status.started_at, self.timeouts.job, "running"
        # Compare only times of the server's clock, because the clock of this host may be wrong.
        remaining = limit - (self.server.now() - since).total_seconds()
        if pause >= _WORTH_LOGGING:
            text, extra = "Waiting for job %s on the server (%s)", {"waits_for": "job"}
            self.log.info(text, status.id, doing, extra=extra)
        if remaining > 0:
            self.sleep(min(pause, max(remaining, _RESOLUTION)))
        return remaining > 0

    def _give_up(self, job_id: str, last: Job) -> Job | NoJob:
        limit = (
            f"did not finish within {self.timeouts.job:.0f} s (job_timeout)"
            if last.started_at
            else f"did not start within {self.timeouts.queue:.0f} s (queue_timeout)"
        )
        if self.server.cancel(job_id):
            notes = f"{last.notes} It was cancelled because it {limit}.".strip()
            return replace(last, outcome=Outcome.CANCELLED, notes=notes)
        # The job may have finished just before the attempt to cancel it.
        status = self.server.job(job_id)
        if isinstance(status, NoJob) or status.outcome:
            return status
        raise UnknownOutcomeError(
            f"Job {job_id} on {self.server.url} {limit}, and the server does not confirm that the "
            "job is cancelled. The job may still take effect, so nothing else is sent: the next "
            "run asks for the job again. If the job hangs, cancel it on the server's Jobs page."
        )

    def pauses(self) -> Generator[float]:
        """Yield the pauses between requests in seconds, growing to `timeouts.longest_poll`."""
        pause = self.timeouts.first_poll
        while True:
            yield pause
            pause = min(pause * _GROWTH, self.timeouts.longest_poll)
