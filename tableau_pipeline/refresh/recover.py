"""Find out the outcomes of requests of earlier refreshes.

Before each request that publishes or updates rows, a refresh stores an intent in the journal: the
description of the request. The refresh adds the id of the server's job as soon as it knows the id.
If the process dies before it stores the outcome, the next refresh of the data source finds an open
intent, which is an intent without an outcome. `recover` never repeats the request of an open
intent:

* If the id of the job is known, `recover` waits for the job's end. If the job succeeded, the server
  should have the rows that the intent describes; `observe` confirms this by time stamp or by rows.
  If the job was cancelled or failed, the data source is unchanged. After a cancelled job, the
  refresh plans the change again. After a failed job, the refresh publishes in full, because the
  same update would probably fail again.
* If no id is known, an update succeeded if the server has the rows of the update. Otherwise, the
  refresh sends nothing while the job of the request may still run. If the server lists jobs,
  `recover` looks for the job as long as a gateway may still hold the request, and waits for the end
  of the job. If the server does not list jobs, `recover` raises an error until the time limits of
  jobs have passed. After the limits, the rows on the server count as unknown.
"""

from datetime import timedelta

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.drift import Job, NoJob
from tableau_pipeline.core.journal import History, Intent, Recovered
from tableau_pipeline.errors import UnknownOutcomeError
from tableau_pipeline.refresh.effects import Effects
from tableau_pipeline.refresh.send import Sender


def recover(history: History, sender: Sender | None, effects: Effects | None) -> Recovered:
    """Find out the outcomes of requests of earlier refreshes, and record the outcomes.

    No request is repeated. If an outcome stays unknown, the refresh then publishes in full.

    Args:
        sender: the sender of the refresh; None to look once, and neither wait nor record.
        effects: the object that looks for effects on the server; None to ask no server.

    Raises:
        UnknownOutcomeError: a request may still take effect, so we must not send anything else.
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
    """Return an open intent with its outcome, if one look at the server shows the outcome.

    If the intent stays open, the plan treats its outcome as unknown.
    """
    job = effects.server.job(intent.job_id) if intent.job_id else NoJob.HIDDEN
    outcome, note = (job.outcome, job.notes) if isinstance(job, Job) else (None, "")
    is_deduced = outcome is None and _took_effect(intent, job, effects)
    outcome = Outcome.DONE if is_deduced else outcome
    found = {"outcome": outcome, "is_deduced": is_deduced, "note": note or None}
    return intent.model_copy(update=found)


def _took_effect(intent: Intent, job: Job | NoJob, effects: Effects) -> bool:
    """Whether the data source shows that a request took effect; False if the server shows the job.

    If the server shows the job, the outcome comes from the job.
    """
    if isinstance(job, Job):
        return False
    effect = effects.of(intent, is_over=_is_job_over(intent, job, effects))
    if effect is None or intent.job_id:
        return effect is not None
    # If the answer was lost, only the rows of an update prove that the server received the request.
    return effect.is_proved and intent.mode is None


def _takes_effect_soon(intent: Intent, job: Job | NoJob, sender: Sender) -> bool:
    """Whether the data source shows the effect of a request within `timeouts.timestamp`."""
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
    # A job that another user started may still run, although it seems gone: the server may hide it
    # from our user.
    return job is NoJob.GONE and intent.user == effects.server.user_id


def _settled(intent: Intent, sender: Sender) -> Intent:
    """Wait for the outcome of an open intent, and record it; if none can be found, record LOST."""
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
    """Wait until a request can no longer take effect, even if the server has received it."""
    jobs = sender.jobs
    seconds = jobs.timeouts.queue + jobs.timeouts.job
    until = intent.recorded_at + timedelta(seconds=seconds)
    # A gateway may still hold the request, and hand it on later. Until then, the server has no job
    # to list. If the server has named the job, no gateway holds the request.
    held = 0 if intent.job_id else min(jobs.timeouts.arrival, seconds)
    arrived = intent.recorded_at + timedelta(seconds=held)
    remote = jobs.server.find_by_luid(intent.luid) if intent.luid else None
    # List jobs by both names of the data source, because another user may have renamed it.
    for name in {intent.name, remote.name if remote else intent.name}:
        for pause in jobs.pauses():
            # Read the time before the list, because a request may arrive right after the list.
            now = jobs.server.now()
            # The server's times have no fractions of seconds. Cut the fractions off here, too:
            # otherwise, our job would seem older than the request.
            jobs_by_name = jobs.server.jobs(
                name=name,
                since=intent.recorded_at.replace(microsecond=0),
                words=sender.site.facts.job_words,
            )
            if now >= until:
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
                # `wait` may cancel a job that takes too long. So do not call `wait` for a job of an
                # unknown kind, which may not be ours.
                if job.kind:
                    jobs.wait(job.id)
            if not unfinished:
                left = (arrived - now).total_seconds()
                if left <= 0:
                    break
                text = "A lost request (%s) may still reach the server; waiting until %s UTC"
                extra = {"waits_for": "request"}
                jobs.log.info(text, intent.action, f"{arrived:%H:%M:%S}", extra=extra)
                pause = min(pause, max(left, 1))
            jobs.sleep(pause)
