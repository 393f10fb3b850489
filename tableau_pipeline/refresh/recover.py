"""Recover: find out what became of the requests of earlier refreshes.

Before each request that changes the data source, a refresh stores an intent in the journal, and the
id of the server's job as soon as it is known. If the process dies before the outcome is stored, the
next refresh of the data source finds the intent open. Then `recover` does not repeat the request:

* If the job is known, `recover` waits for it. If the job was done, the server should hold what the
  intent describes; `observe` confirms that by time stamp or by rows. If the job was cancelled or
  failed, the server holds what it held before. After a cancelled job, the refresh plans the
  change again. After a failed job, it publishes in full, as the same update would only fail again.
* If the job is not known, an update was done if the server holds the rows of the update. Otherwise,
  the refresh sends nothing while the job of the lost request may still run. `recover` waits for
  such a job; where the server does not list jobs, `recover` raises an error until the time limits
  of jobs have passed. Then it is unknown what the server holds.
"""

from datetime import timedelta

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.drift import Job, NoJob
from tableau_pipeline.core.journal import History, Intent, Recovered
from tableau_pipeline.errors import UnknownOutcomeError
from tableau_pipeline.refresh.effects import Effects
from tableau_pipeline.refresh.send import Sender


def recover(history: History, sender: Sender | None, effects: Effects | None) -> Recovered:
    """Find out what became of the requests of earlier refreshes, and record it.

    It never repeats a request: if an outcome is not known, the next publish is a full one.

    Args:
        sender: sends for the refresh; None to only look, without waiting or recording.
        effects: looks at the server; None to ask no server.

    Raises:
        UnknownOutcomeError: a request may still take effect, so nothing else may be sent.
    """
    recovered = history.recovered
    for intent in history.intents:
        if effects and not intent.outcome:
            intent = _settled(intent, sender) if sender else _observed(intent, effects)
        recovered = recovered.after(intent)
    if sender and history.intents:
        recovered = recovered.recorded_by(sender.claim.number)
        sender.claim.append(recovered)
    return recovered


def _observed(intent: Intent, effects: Effects) -> Intent:
    """Return the open intent with its outcome, as far as one look shows it.

    Without an outcome, the plan treats the request as lost.
    """
    job = effects.server.job(intent.job_id) if intent.job_id else NoJob.HIDDEN
    outcome, note = (job.outcome, job.notes) if isinstance(job, Job) else (None, "")
    is_deduced = outcome is None and _took_effect(intent, job, effects)
    outcome = Outcome.DONE if is_deduced else outcome
    found = {"outcome": outcome, "is_deduced": is_deduced, "note": note or None}
    return intent.model_copy(update=found)


def _took_effect(intent: Intent, job: Job | NoJob, effects: Effects) -> bool:
    """Whether the data source shows that a request took effect, if its job is hidden or gone."""
    if isinstance(job, Job):
        return False
    effect = effects.of(intent, is_over=_is_job_over(intent, job, effects))
    if effect is None or intent.job_id:
        return effect is not None
    # If the answer was lost, only new rows prove that the server received the request.
    return effect.is_proved and intent.mode is None


def _takes_effect_soon(intent: Intent, job: Job | NoJob, sender: Sender) -> bool:
    """Whether `_took_effect` becomes true within the time that an update may take to show."""
    jobs = sender.jobs
    until = jobs.server.now() + timedelta(seconds=jobs.timeouts.timestamp)
    for pause in jobs.pauses():
        if _took_effect(intent, job, sender.effects):
            return True
        if isinstance(job, Job) or jobs.server.now() >= until:
            break
        jobs.sleep(pause)
    return False


def _is_job_over(intent: Intent, job: Job | NoJob, effects: Effects) -> bool:
    # A job that another user started may still run, and merely be hidden from this user.
    return job is NoJob.GONE and intent.user == effects.server.user_id


def _settled(intent: Intent, sender: Sender) -> Intent:
    """Wait for the outcome of an open intent, and record it, even if it stays unknown."""
    jobs, outcome, note = sender.jobs, Outcome.LOST, "its outcome cannot be determined"
    is_deduced = False
    job = jobs.wait(intent.job_id) if intent.job_id else NoJob.HIDDEN
    if isinstance(job, Job) and job.outcome:
        outcome, note = job.outcome, job.notes
    elif intent.job_id:
        jobs.log.warning("The server reports nothing about job %s (%s)", intent.job_id, job)
    if outcome is Outcome.LOST and _takes_effect_soon(intent, job, sender):
        outcome, note, is_deduced = Outcome.DONE, "as the data source shows", True
    if outcome is Outcome.LOST and not _is_job_over(intent, job, sender.effects):
        _wait_for_unknown(intent, sender)
    jobs.log.info("An interrupted refresh sent a request (%s): %s %s", intent.action, outcome, note)
    found = {"outcome": outcome, "is_deduced": is_deduced, "note": note or None}
    intent = intent.model_copy(update=found)
    sender.claim.append(intent)
    return intent


def _wait_for_unknown(intent: Intent, sender: Sender) -> None:
    """Wait until a request can no longer run, whether the server received it or not."""
    jobs = sender.jobs
    until = intent.recorded_at + timedelta(seconds=jobs.timeouts.queue + jobs.timeouts.job)
    remote = jobs.server.find_by_luid(intent.luid) if intent.luid else None
    # Jobs are listed by the name of their data source, which another user may have changed.
    for name in {intent.name, remote.name if remote else intent.name}:
        for pause in jobs.pauses():
            # Cut off the fraction of the second, as the server does, or our job would seem older.
            jobs_by_name = jobs.server.jobs(
                name=name,
                since=intent.recorded_at.replace(microsecond=0),
                words=sender.site.facts.job_words,
            )
            if jobs.server.now() >= until:
                return
            if jobs_by_name is None:
                raise UnknownOutcomeError(
                    f"An interrupted refresh sent a request ({intent.action}) that the server may "
                    "have received. The refresh cannot find its job, because the server lists no "
                    "jobs by name for this user. The job may still run, so nothing is sent before "
                    f"{until:%Y-%m-%d %H:%M} UTC: run again then, or let the user list jobs (site "
                    "administrator)."
                )
            unfinished = [job for job in jobs_by_name if job.outcome is None]
            for job in unfinished:
                # Only a job that is certainly ours may be cancelled if it takes too long.
                if job.kind:
                    jobs.wait(job.id)
            if not unfinished:
                break
            jobs.sleep(pause)
