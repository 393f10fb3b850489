"""Send requests, and record enough that the next refresh can find out their outcomes."""

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tableau_pipeline.actions.batch import describe_actions
from tableau_pipeline.core.checkpoint import NEW_METADATA, Checkpoint, Outcome, PublishMode, Window
from tableau_pipeline.core.drift import (
    Change,
    Job,
    NoJob,
    RemoteDatasource,
    is_late,
    is_unchanged,
    still_late,
)
from tableau_pipeline.core.journal import Intent
from tableau_pipeline.core.site_record import SiteRecord
from tableau_pipeline.errors import (
    DriftError,
    NotAcceptedError,
    NoUpdatesError,
    RefreshError,
    RefusedError,
    UnknownOutcomeError,
    UnreachableError,
    UnreadableError,
)
from tableau_pipeline.metadata.contents import Metadata
from tableau_pipeline.metadata.merge import Merge
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.outcome import Distrust, sentence
from tableau_pipeline.publishing.jobs import Jobs
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import HeldClaim
from tableau_pipeline.refresh.effects import SUPPOSED, Effects, misdirected
from tableau_pipeline.refresh.in_place import InPlace, look_up, require_found
from tableau_pipeline.refresh.timing import phase


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of the requests for one decision.

    Attributes:
        reached: the checkpoint, which records the data source after the requests; None if no update
            can build on the result.
        intent: the intent, our record of the last request; None if nothing had to be sent.
        distrust: why another user may have changed the data source, too; None if only we changed
            it.
        warnings: sentences that a user should read, although the requests succeeded.
        metadata: the metadata on the server, if a sent file replaced them and they were read
            afterwards; otherwise None.
        merged: the metadata in the sent file; None if the server made or kept the metadata.
    """

    reached: Checkpoint | None
    remote: RemoteDatasource
    intent: Intent | None
    distrust: Distrust | None = None
    warnings: tuple[str, ...] = ()
    metadata: Metadata | None = None
    merged: Merge | None = None

    def warned(self, *warnings: str) -> "Sent":
        """Return this result with more warnings."""
        return replace(self, warnings=(*self.warnings, *warnings))

    def proved(self) -> "Sent":
        """Return this result as proved: the caller found the sent metadata on the server."""
        intent = self.intent and self.intent.model_copy(update={"is_deduced": False})
        return replace(self, intent=intent, reached=self.reached and self.reached.reached)


class FailedRequestError(RefreshError):
    """A request of ours failed, or we saw no effect of it.

    Attributes:
        intent: the recorded intent of the request.
    """

    def __init__(self, message: str, intent: Intent) -> None:
        super().__init__(message)
        self.intent = intent


class NoReasonError(FailedRequestError):
    """The job of the request failed, and the server gives no reason."""


class LostOutcomeError(FailedRequestError, UnknownOutcomeError):
    """We do not know the effect of a request, because its job is gone or hidden from our user."""


def completed(target: Checkpoint, remote: RemoteDatasource, **more: object) -> Checkpoint:
    """Return a reached checkpoint, with the LUID, time stamp and revision of the data source."""
    stamp = {"updated_at": remote.updated_at, "revision": remote.revision}
    return target.model_copy(update={"luid": remote.luid, **stamp, **more})


_UNKNOWN_OUTCOME = "Outcome unknown: the next run finds out, and publishes everything again."
_NEXT_STEP = {
    Outcome.FAILED: "The next run publishes the full file.",
    Outcome.CANCELLED: "The next run sends it again.",
}


@contextmanager
def _no_refusal(doing: str) -> Generator[None]:
    """Turn a RefusedError into a RefreshError: a RefusedError would mean that nothing changed."""
    try:
        yield
    except RefusedError as error:
        raise RefreshError(
            f"{doing}: the server accepted it, but refused a later request: {error}"
        ) from error


@dataclass
class Sender:
    """Sends the requests of one refresh. Its claim keeps other refreshes from sending meanwhile.

    Attributes:
        tags: the tags that mark the data source as ours.
        site: the record of what our sessions have learned about the site.
        effects: the object that looks for effects in the data source, if the server does not show a
            job.
        seconds: how many seconds each phase of this refresh took.
        late: the time windows of our updates that may still change the time stamp.
        sent: the number of requests for which an intent was made.
        accepted: whether the server has accepted any request.
        done: sentences about requests that took effect, or may have. If there are none, a refusal
            means that nothing was changed.
        uploaded: the size in bytes of each file that the current attempt has uploaded.
    """

    claim: HeldClaim
    jobs: Jobs
    tags: frozenset[str]
    site: SiteRecord
    effects: Effects
    seconds: dict[str, float]
    late: tuple[Window, ...] = ()
    sent: int = 0
    accepted: bool = False
    done: list[str] = field(default_factory=list)
    uploaded: list[int] = field(default_factory=list)

    @property
    def in_place(self) -> InPlace:
        """The object that changes the data source in place."""
        return InPlace(self.server, self.late, self.done)

    @property
    def server(self) -> TableauSite:
        """The session on the site."""
        return self.jobs.server

    def publish(
        self,
        file: Path,
        target: Checkpoint,
        mode: PublishMode,
        *,
        to: RemoteDatasource | None,
        project_id: str,
        keeps_work: bool = False,
    ) -> Sent:
        """Publish a whole file.

        Args:
            to: the data source to replace; None to create one.
            keeps_work: whether the metadata in the file may include users' edits.

        Raises:
            RefusedError: the server refused the request. The data source is unchanged.
            DriftError: another user changed the data source in the meantime. Nothing was sent.
            NoReasonError: the job failed, and the server gives no reason.
            LostOutcomeError: the effect of the job is unknown.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        # A publish identifies the data source by its name. If another user has renamed or moved the
        # data source, a publish under the declared name would create a second data source. So use
        # the name and project on the server.
        name, project_id = (to.name, to.project_id) if to else (target.name, project_id)
        upload = self._upload(file)
        fields: dict[str, Any] = {"mode": mode, "name": name, "project_id": project_id}
        intent = self._new_intent(to, target=target, distrust=None, keeps_work=keeps_work, **fields)
        call = partial(
            self.server.publish,
            upload,
            name=name,
            project_id=project_id,
            mode=mode,
            suffix=file.suffix,
        )
        return self._send(intent, to, call, doing=f'Publishing "{name}"')

    def update(
        self,
        batch: str,
        payload: Path | None,
        target: Checkpoint | None,
        *,
        to: RemoteDatasource,
        distrust: Distrust | None = None,
    ) -> Sent:
        """Change rows of the published data source.

        This raises the errors of `publish` and of `TableauSite.update`.

        Args:
            batch: the actions on the published tables, as JSON; the source tables are in `payload`.
            target: the checkpoint that the update leads to; None if no update can build on the
                result. Then `distrust` has the reason.
        """
        upload = self._upload(payload) if payload else None
        fields = {"name": to.name, "project_id": to.project_id}
        intent = self._new_intent(to, mode=None, **fields, target=target, distrust=distrust)
        call = partial(
            self.server.update, to.luid, batch=batch, upload=upload, request_id=intent.request_id
        )
        doing = f'Updating the data of "{to.name}"'
        return self._send(intent, to, call, doing=doing, actions=describe_actions(batch))

    def _upload(self, file: Path) -> str:
        with self.reading_files(), phase(self.seconds, "upload"):
            in_any_order = bool(self.site.facts.orders_blocks)
            upload = self.server.upload(file, in_any_order=in_any_order)
            self.uploaded.append(file.stat().st_size)
            return upload

    @contextmanager
    def reading_files(self) -> Generator[None]:
        """Let the block read files of this refresh, which another refresh may have removed.

        Raises:
            OvertakenError: a file is gone, and a later refresh has claimed the data source.
        """
        try:
            yield
        except FileNotFoundError:
            self.claim.check_fence()
            raise

    def _new_intent(self, to: RemoteDatasource | None, **fields: Any) -> Intent:
        self.sent += 1
        return Intent(
            refresh=self.claim.number,
            step=self.sent,
            recorded_at=self.server.now(),
            run_id=self.claim.claim.owner.run_id,
            user=self.server.user_id,
            luid=to.luid if to else None,
            before=to.updated_at if to else None,
            before_revision=to.revision if to else None,
            late=self.late,
            **fields,
        )

    def _send(
        self,
        intent: Intent,
        before: RemoteDatasource | None,
        call: Callable[[], str | None],
        *,
        doing: str,
        actions: str = "",
    ) -> Sent:
        """Record the intent, check that nothing changed, send the request and wait for its job."""
        # Store the intent first. The store accepts it only if we still have the claim. So if
        # another refresh claims the data source later, the other refresh finds the intent.
        self._store(intent)
        try:
            self._check_unchanged(intent, before)
            # With a failing network, the check above may take minutes, and another refresh may have
            # begun: check the claim again.
            self.claim.check_fence()
        except BaseException:
            # Record an outcome: otherwise, the next run would wait for a job that does not exist.
            self._record(intent, outcome=Outcome.REFUSED, note="it was not sent")
            raise
        with phase(self.seconds, "job"):
            try:
                job_id = call()
            except (RefusedError, NotAcceptedError) as error:
                # Some servers have carried out a request although they refused it.
                if isinstance(error, NoUpdatesError) and self._is_listed(intent):
                    message = f"{error} Nevertheless, its job is listed. {_UNKNOWN_OUTCOME}"
                    raise UnknownOutcomeError(message) from error
                self._record(intent, outcome=Outcome.REFUSED, note=str(error))
                raise
            except UnreachableError as error:
                # Record no outcome, because the server may have received the request.
                raise UnknownOutcomeError(str(error)) from error
            self.accepted = True
            if job_id is None:
                message = f"{doing}: the server does not name the job. {_UNKNOWN_OUTCOME}"
                raise UnknownOutcomeError(message)
            intent = self._record(intent, job_id=job_id)
            self.jobs.log.info("%s: running as job %s of the server", doing, job_id)
            with _no_refusal(doing):
                self._learn_word(intent)
                return self._wait_for_job(intent, before, doing=doing, actions=actions)

    def _store(self, intent: Intent) -> None:
        try:
            self.claim.append(intent)
        except (OSError, StoreError):
            # Record that nothing was sent: the store may have the intent in spite of the error.
            with suppress(OSError, RefreshError):
                self._record(intent, outcome=Outcome.REFUSED, note="it was not sent")
            raise

    def _is_listed(self, intent: Intent) -> bool:
        words, since = self.site.facts.job_words, intent.recorded_at.replace(microsecond=0)
        look_up = self.server.jobs(name=intent.name, since=since, words=words)
        return any(job.kind != "publish" for job in look_up or ())

    def _learn_word(self, intent: Intent) -> None:
        """Learn the word by which the site's job list names this kind of job, if it is unknown."""
        kind, facts = intent.job_kind, self.site.facts
        if kind in facts.job_words.values() or facts.lists_jobs.get(intent.user) is False:
            return
        words = self.server.words_of_jobs(since=intent.recorded_at.replace(microsecond=0))
        self.site.learn(lists_jobs={intent.user: words is not None})
        if word := (words or {}).get(str(intent.job_id)):
            self.site.learn(job_words={word: kind})

    def _wait_for_job(
        self, intent: Intent, before: RemoteDatasource | None, *, doing: str, actions: str
    ) -> Sent:
        """Wait for the server's job, and return its result."""
        stamps: list[datetime] = []

        def look() -> None:
            stamp = self.server.updated_at(str(intent.luid))
            stamps.extend([stamp] if stamp else [])

        # Read the time stamp during the wait: at the end, the time stamp of our request
        # hides the time stamps of other users.
        status = self.jobs.wait(str(intent.job_id), meanwhile=look if intent.luid else None)
        if isinstance(status, NoJob):
            return self._wait_for_effect(intent, before, status, doing=doing)
        self.site.learn(reads_jobs={intent.user: True})
        if status.outcome is not Outcome.DONE:
            raise self._record_failure(intent, status, doing=doing, actions=actions)
        self.claim.check_effect(intent)
        if intent.luid is None:
            remote = self._find_created(intent, status.datasource)
        else:
            remote = look_up(self.server, intent.luid)
        return self._record_done(intent, before, remote, status.window, stamps)

    def _record_failure(
        self, intent: Intent, status: Job, *, doing: str, actions: str
    ) -> RefreshError:
        outcome = status.outcome or Outcome.FAILED
        intent = self._record(intent, outcome=outcome, note=status.notes or None)
        message = (
            f"{doing}: job {intent.job_id} of the server {outcome}. "
            f"{status.notes or 'It gave no reason; look in the logs of its backgrounder.'} "
            f"{actions}The data source has not changed. {_NEXT_STEP.get(outcome, '')}"
        )
        # Only text is a reason; a numeric code is not.
        if outcome is Outcome.FAILED and not any(map(str.isalpha, status.notes)):
            return NoReasonError(message, intent)
        return RefreshError(message)

    def _wait_for_effect(
        self, intent: Intent, before: RemoteDatasource | None, no_job: NoJob, *, doing: str
    ) -> Sent:
        """Wait until the data source shows the effect of a request whose job is not shown."""
        self.learn_of(no_job, intent)
        timeouts, is_over = self.jobs.timeouts, no_job is NoJob.GONE
        seconds = timeouts.listing if intent.luid is None else timeouts.timestamp
        seconds = seconds if is_over else timeouts.queue + timeouts.job
        until = self.server.now() + timedelta(seconds=seconds)
        for pause in self.jobs.pauses():
            if effect := self.effects.of(intent, is_over=is_over):
                self.claim.check_effect(intent)
                end = max(self.server.now(), effect.remote.updated_at)
                window = Window(intent.recorded_at, end)
                deduced = intent.model_copy(update={"is_deduced": True})
                sent = self._record_done(deduced, before, effect.remote, window, ())
                sent = replace(sent, distrust=None if effect.is_proved else sent.distrust)
                return sent.warned(f"{doing}: {SUPPOSED}") if effect.is_supposed else sent
            if self.server.now() >= until:
                break
            self.jobs.sleep(pause)
        if is_over or self._can_no_longer_run(intent):
            if is_over and intent.mode is None and not self.effects.is_refuted:
                self._note_still()
            intent = self._record(intent, outcome=Outcome.LOST)
            self.done.append(f"It is not known whether the {intent.action} took effect")
            cause = "the server no longer knows" if is_over else "this user may not ask for"
            raise LostOutcomeError(
                f"{doing}: {cause} job {intent.job_id}. {_UNKNOWN_OUTCOME}", intent
            )
        raise UnknownOutcomeError(
            f"{doing}: this user may not ask for job {intent.job_id}, and for {seconds:.0f} s the "
            f"data source has not shown its effect. {_UNKNOWN_OUTCOME}"
        )

    def _note_still(self) -> None:
        """Note that an update whose job is gone did not change the time stamp.

        A failed job does not change the time stamp, either. So only two such updates in a row show
        that updates on this site never change the time stamp.
        """
        if self.site.facts.noted_still and not self.site.facts.updates_move_stamp:
            self.site.learn(updates_move_stamp=False)
        self.site.learn(noted_still=True)

    def _can_no_longer_run(self, intent: Intent) -> bool:
        """Whether the time limits for the queue and for jobs have passed since a request."""
        limit = self.jobs.timeouts.queue + self.jobs.timeouts.job
        return self.server.now() >= intent.recorded_at + timedelta(seconds=limit)

    def learn_of(self, why: NoJob, intent: Intent) -> None:
        """Record why the server does not show a job."""
        if why is NoJob.GONE:
            self.site.learn(loses_jobs=True)
        elif self.site.facts.reads_jobs.get(intent.user) is not False:
            self._learn_reads_jobs(may=False)

    def reads_jobs(self) -> bool:
        """Return whether this user may ask for jobs; ask the server once, and record the answer."""
        may = self.site.facts.reads_jobs.get(self.server.user_id)
        if may is None:
            self._learn_reads_jobs(may=(may := self.server.may_read_jobs()))
        return may

    def _learn_reads_jobs(self, *, may: bool) -> None:
        self.site.learn(reads_jobs={self.server.user_id: may})
        if not may:
            self.jobs.log.warning(
                "This user may not ask for jobs of the server, because Tableau allows this only to "
                "site administrators. So refreshes read the effect of a job from the data source, "
                "which takes longer"
            )

    def _is_of_the_site(self, intent: Intent, change: Change) -> bool:
        """Whether the site itself, and not another user, made a late time stamp or a new revision.

        If two jobs in a row show the same lag, and the same extra revision if any, it was the site.
        """
        facts, lag, is_publish = self.site.facts, change.lateness, intent.mode is not None
        is_odd = change.made is not None and change.made not in change.revisions
        if lag is None or (is_odd and (is_publish or change.made != 1)):
            return False
        is_known = self.site.knows_lag(intent.job_kind, lag)
        if is_odd:
            is_known = is_known and facts.noted_revisions == 1
            self.site.learn(noted_revisions=1)
            if is_known:
                self.site.learn(update_revisions=1)
        return is_known

    def _find_created(self, intent: Intent, luid: str | None) -> RemoteDatasource:
        """Return the data source that we have just created; wait until the server lists it."""
        if luid and (remote := self.server.find_by_luid(luid)):
            return remote
        until = self.server.now() + timedelta(seconds=self.jobs.timeouts.listing)
        for pause in self.jobs.pauses():
            remote = self.server.find_by_name(intent.name, project_id=intent.project_id)
            if remote or self.server.now() >= until:
                return require_found(remote, f'"{intent.name}"')
            self.jobs.sleep(pause)
        raise AssertionError("pauses have no end")

    def _check_unchanged(self, intent: Intent, before: RemoteDatasource | None) -> None:
        """Check that the data source has not changed since the refresh was planned.

        Raises:
            DriftError: another user changed, removed or created the data source in the meantime.
        """
        if before is None:
            is_same = self.server.find_by_name(intent.name, project_id=intent.project_id) is None
        else:
            remote = self.server.find_by_luid(before.luid)
            is_same = is_unchanged(before, remote, late=self.late)
        if not is_same:
            raise DriftError(
                f'"{intent.name}" was changed on the server while its new content was prepared. '
                "Nothing was sent: the next run decides again."
            )

    def _record_done(
        self,
        intent: Intent,
        before: RemoteDatasource | None,
        remote: RemoteDatasource,
        window: Window | None,
        stamps: Collection[datetime],
    ) -> Sent:
        """Record that the request has taken effect, and the state of the data source afterwards."""
        server, target, metadata = self.server, intent.target, None
        if target and intent.mode in NEW_METADATA:
            # Read the metadata first, and the time stamp afterwards. So if another user has changed
            # the metadata that we read, the time stamp shows this. Ignore an error: the request
            # took effect, and the next run reports the error.
            with suppress(RefusedError, UnreadableError):
                metadata = server.metadata(remote.luid)
            remote = look_up(server, remote.luid)
        change, distrust = self._explain(intent, before, remote, window, stamps)
        missed = misdirected(intent, remote)
        if missed:
            # The publish may have gone to another data source. Then this one has its former
            # metadata, even if its rows equal the rows that we sent.
            intent = intent.model_copy(update={"is_deduced": True})
        distrust = distrust or missed
        if target:
            # If there is only one new revision, it is ours. So the metadata are ours, too, whatever
            # the time stamp shows.
            is_ours = intent.brings_ours and (distrust is None or change.made == 1)
            digest = metadata.digest if metadata and is_ours else target.metadata
            target = completed(intent.reached or target, remote, metadata=digest, late=self.late)
        # Record the outcome before we tag, so that an error of tagging does not lose the outcome.
        # Record the distrust, too: later refreshes see only the last time stamp, perhaps ours.
        intent = self._record(
            intent,
            outcome=Outcome.DONE,
            target=target,
            distrust=intent.distrust or distrust,
            late=self.late,
        )
        self.done.append(f"The {intent.action} took effect")
        remote, tag_distrust = self.in_place.tag(remote, self.tags)
        return Sent(
            target,
            remote,
            intent,
            distrust or tag_distrust,
            warnings=(sentence(missed.detail),) if missed else (),
            metadata=metadata,
        )

    def _explain(
        self,
        intent: Intent,
        before: RemoteDatasource | None,
        remote: RemoteDatasource,
        window: Window | None,
        stamps: Collection[datetime],
    ) -> tuple[Change, Distrust | None]:
        """Explain the change of a data source after our request; learn how the site behaves.

        Returns:
            The change; and why another user may have changed the data source, too, or None if only
            we changed it.
        """
        is_update, site = intent.mode is None, self.site
        change = Change(
            window,
            before.stamp if before else None,
            remote.stamp,
            revisions=site.facts.revisions_of(is_update=is_update),
            lag=site.facts.stamp_lag,
            seen=stamps,
            late=self.late,
            published=remote.published,
        )
        distrust = change.unexplained
        self._note_late(remote, before, window if is_update else None)
        has_moved = before is None or remote.updated_at != before.updated_at
        if distrust and self._is_of_the_site(intent, change):
            distrust = None
        elif has_moved and not distrust:
            site.forget_noted(intent.job_kind)
        if is_update and has_moved and not distrust:
            site.learn(updates_move_stamp=True, noted_still=False)
        return change, distrust

    def _note_late(
        self, remote: RemoteDatasource, before: RemoteDatasource | None, update: Window | None
    ) -> None:
        """Note our updates whose effect on the time stamp may show later, as happens on some sites.

        Args:
            update: the window in which our last request took effect; None if it was no update.
        """
        now, earlier = self.server.now(), self.late
        self.late = still_late(earlier, now=now)
        if update and before and self.site.facts.updates_move_stamp is not False:
            stamp = remote.updated_at
            # The time stamp did not change, or an earlier update may have changed it. So our last
            # update may still change it.
            if stamp == before.updated_at or is_late(stamp, earlier):
                self.late = (*self.late, update)

    def _record(self, intent: Intent, **changes: object) -> Intent:
        changed = intent.model_copy(update=changes)
        self.claim.report(changed)
        return changed
