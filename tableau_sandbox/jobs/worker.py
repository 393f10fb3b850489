import logging
import threading

from tableau_sandbox.errors import RestError
from tableau_sandbox.faults import FailJob
from tableau_sandbox.jobs.kinds import KINDS, JobFailedError
from tableau_sandbox.services import Services
from tableau_sandbox.store import jobs
from tableau_sandbox.store.records import Job

_logger = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.02
_OWN_FAILURE = "The sandbox itself failed; its log shows why."


class Worker:
    """Executes queued jobs in the background, one at a time."""

    def __init__(self, services: Services):
        self._services = services
        self._stopping = threading.Event()
        self._started: Job | None = None
        # The database's number of changes when the worker last found nothing to do.
        self._idle_at = -1
        self._thread = threading.Thread(target=self._run, name="sandbox-worker", daemon=True)

    def start(self) -> None:
        """Start to execute jobs."""
        self._thread.start()

    def stop(self) -> None:
        """Let a job that is taking effect end, drop a job that still waits, and stop."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_next()
            except Exception:
                # The database may fail for a while, for example for lack of space.
                _logger.exception("the jobs go on after an error")
                self._stopping.wait(_PAUSE_SECONDS)

    def _run_next(self) -> None:
        if self._started is not None:
            # An error kept this job from ending. If the job has ended in another way, this changes
            # nothing.
            self._fail(self._started, _OWN_FAILURE)
            self._started = None
        database = self._services.database
        seen = database.changes
        if seen == self._idle_at:
            self._stopping.wait(_PAUSE_SECONDS)
            return
        self._services.apply_late_stamps()
        # Read the time first: once the job shows as in progress, an observer may advance the clock.
        began = self._services.now_seconds()
        job = jobs.start_next_job(
            database,
            started_at=self._services.now(),
            choose=self._choose,
        )
        if job is None:
            # Even without a change of the database, a fault may release jobs, and late stamps may
            # become due.
            if not (jobs.unfinished_jobs(database) or database.rows("SELECT due FROM late_stamp")):
                self._idle_at = seen
            self._stopping.wait(_PAUSE_SECONDS)
            return
        self._started = job
        slowed, failure = self._services.control.hits_on_job(job)
        if self._wait_until(began + self._services.options.job_delay + slowed):
            self.execute(job, failure)
            self._started = None

    def _choose(self) -> Job | None:
        queued = self._services.database.all(Job, status=jobs.PENDING)
        return self._services.control.choose_job(queued, self._services.options.job_order)

    def _wait_until(self, end: float) -> bool:
        """Wait by the sandbox's own clock; return False if the worker stops during the wait."""
        # Round like the clock: an advance by exactly the remaining time must end the wait.
        end = round(end, 6)
        while self._services.now_seconds() < end:
            if self._stopping.wait(_PAUSE_SECONDS):
                return False
        return not self._stopping.is_set()

    def execute(self, job: Job, failure: FailJob | None = None) -> None:
        """Let a started job take effect or fail. Other changes of content wait for its end."""
        try:
            if failure is not None:
                self._fail(job, failure.notes)
                return
            # Hold the lock: an update would undo a publish between the update's preparation and its
            # commit.
            with self._services.publishing:
                self._take_effect(job)
        except (JobFailedError, RestError) as error:
            self._fail(job, str(error))
        except Exception:
            _logger.exception("job %s failed", job.luid)
            self._fail(job, _OWN_FAILURE)
        finally:
            KINDS[job.kind].clean_up(self._services, job)

    def _take_effect(self, job: Job) -> None:
        commit = KINDS[job.kind].prepare(self._services, job)
        database = self._services.database
        with database.transaction():
            succeeded = jobs.finish_job(
                database, job.luid, status=jobs.SUCCESS, completed_at=self._services.now()
            )
            # If this call did not finish the job, a user has cancelled the job.
            effective_at = commit() if succeeded else None
            if effective_at is not None:
                jobs.complete_at(database, job.luid, effective_at)
        self._services.sweep_content()

    def _fail(self, job: Job, notes: str | None) -> None:
        jobs.finish_job(
            self._services.database,
            job.luid,
            status=jobs.FAILED,
            completed_at=self._services.now(),
            notes=notes,
        )
