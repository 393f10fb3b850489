"""Recovery: find out what became of the requests that earlier refreshes sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tableau_pipeline.core.checkpoint import Checkpoint, Former, Intent, Outcome, PublishMode
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.job_waiting import Jobs
from tableau_pipeline.refresh.recover.history import History

_NEW_METADATA = (PublishMode.CREATE, PublishMode.OVERWRITE)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What our records state of the data source, once every request has its outcome.

    Attributes:
        record: the newest checkpoint that the server may hold.
        former: the state in a record of an older format, if there is no checkpoint.
        untrusted: why no update may build on `record`; None if one may.
        sent: the request that led to `record`, if no refresh has observed its result yet.
        creating: the request that may have created the data source, before its LUID was
            recorded.
        rows: the largest number of rows that each table may have, by all records.
        left: digests of the metadata that our refreshes left or found.
    """

    record: Checkpoint | None = None
    former: Former | None = None
    untrusted: str | None = None
    sent: Intent | None = None
    creating: Intent | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    left: frozenset[str] = frozenset()

    @property
    def luid(self) -> str | None:
        """The LUID of the data source that is certainly ours."""
        known = self.record or self.former
        return known.luid if known else None

    def after(self, intent: Intent) -> "Recovered":
        """Return this state with one more request taken into account."""
        target, is_new = intent.target, intent.mode in _NEW_METADATA
        now = replace(self, creating=intent if intent.luid is None else self.creating)
        match intent.outcome:
            case Outcome.DONE if target:
                # A publish replaces all content, and with it whatever was in doubt.
                now = replace(now, rows={}).holding(target)
                sent = None if intent.partial else intent
                return replace(now, untrusted=intent.partial, sent=sent)
            case Outcome.DONE:
                return replace(now, untrusted=intent.partial or "a part of it was changed")
            case Outcome.FAILED:
                # It left no trace, but the same update would only fail again; a whole file helps.
                why = intent.note or "without a note"
                failed = f"the last {intent.action} failed on the server ({why})"
                return replace(self, untrusted=failed)
            case Outcome.LOST | None:
                if intent.luid and intent.luid != self.luid:
                    # A request that may never have happened does not make a data source ours.
                    return self
                lost = "an earlier refresh was interrupted, and what it left is not known"
                held = now.holding(target) if target else now
                # Replace keeps the metadata, and so the schema in the record.
                record = held.record if is_new or self.record is None else self.record
                return replace(held, record=record, untrusted=lost, sent=None)
            # It was cancelled or refused, so the server still holds what it held before.
            case _:
                return self

    def holding(self, target: Checkpoint) -> "Recovered":
        """Return this state, given that the server may hold the content of this checkpoint."""
        luid = target.luid or self.luid
        # A request that may not have landed must not lower the bar for guard.max_shrink.
        rows = {name: max(count, self.rows.get(name, 0)) for name, count in target.rows.items()}
        return replace(
            self,
            record=target.model_copy(update={"luid": luid}),
            former=None,
            rows={**self.rows, **rows},
            left=self.left | ({target.metadata} if target.metadata else set()),
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """Asks the server what became of each open request, and records the answer.

    It never sends anything again: if the outcome is not known, the next publish is in full.

    Attributes:
        acts: False for a dry run, which neither waits nor records anything.
    """

    journal: Journal
    jobs: Jobs
    acts: bool = True

    def recover(self, history: History) -> Recovered:
        """Find out what is published, as far as our records and the server show it.

        Raises:
            RefreshError: a request may still take effect, so nothing else may be sent.
        """
        recovered = Recovered(former=history.former)
        if former := history.former:
            recovered = replace(recovered, rows=former.rows)
        if history.checkpoint:
            recovered = recovered.holding(history.checkpoint)
        for intent in history.intents:
            recovered = recovered.after(
                self._resolved(intent) if intent.outcome is None else intent
            )
        return recovered

    def _resolved(self, intent: Intent) -> Intent:
        if intent.job_id:
            look = self.jobs.wait if self.acts else self.jobs.server.job
            status = look(intent.job_id)
            if status and status.outcome:
                return self._closed(intent, status.outcome, status.notes)
            self.jobs.log.warning("The server no longer knows job %s", intent.job_id)
        # A dry run does not wait: left open, the request is planned for as if it were lost.
        if not self.acts:
            return intent
        self._wait_for_unknown(intent)
        return self._closed(intent, Outcome.LOST, "its outcome cannot be determined")

    def _closed(self, intent: Intent, outcome: Outcome, note: str) -> Intent:
        self.jobs.log.info(
            "An interrupted refresh had sent its %s: %s %s", intent.action, outcome, note
        )
        intent = intent.model_copy(update={"outcome": outcome, "note": note or None})
        if self.acts:
            self.journal.append(intent)
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
