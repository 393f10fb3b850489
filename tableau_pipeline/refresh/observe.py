"""Recovery: find out what became of the requests that earlier refreshes sent."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tableau_pipeline.core.checkpoint import (
    NEW_METADATA,
    Checkpoint,
    Habits,
    Intent,
    Outcome,
    Recovered,
)
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, TAG_PREFIX, Declaration
from tableau_pipeline.core.journal import History
from tableau_pipeline.core.server import Job, Metadata, RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.jobs import Jobs
from tableau_pipeline.refresh.reconcile import Reconciler


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


# Decide whether a change that a data source shows is our own.


# Seconds. A time stamp that moves later than this after a job is not taken for the job's own.
_LONGEST_LAG = 30.0

# The time stamp and the newest revision of a data source, as in `RemoteDatasource.stamp`.
Stamp = tuple[datetime, int | None]


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a change of ours took effect, by the server's clock."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, job: Job | None) -> "Window | None":
        """The time from the start of a job to its end; None if the server does not show it."""
        if job and job.completed_at and (start := job.started_at or job.created_at):
            return cls(start, job.completed_at)
        return None

    def covers(self, stamp: datetime, *, lag: float) -> bool:
        """Whether a time stamp, in whole seconds, falls into the window."""
        start = self.start.replace(microsecond=0)
        return start <= stamp <= self.end + timedelta(seconds=lag)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of ours, and what the server showed of it.

    Attributes:
        before: the stamp of the data source right before the change; None if it was created.
        after: its current stamp.
        revisions: the possible numbers of revisions that the change made.
        seen: time stamps that the data source had meanwhile.
    """

    window: Window | None
    before: Stamp | None
    after: Stamp
    revisions: Collection[int]
    seen: Iterable[datetime] = ()

    def unexplained(self, habits: Habits) -> str | None:
        """The part of the change that was not ours, as far as the server shows; None if all was."""
        before = self.before[0] if self.before else None
        # Each stamp counts, as our own may have covered one that somebody else left before it.
        for stamp in dict.fromkeys([*self.seen, self.after[0]]):
            if stamp == before:
                continue
            shown = f"the server says that it was updated at {stamp:%Y-%m-%d %H:%M:%S} UTC"
            if self.window is None:
                return f"{shown}, and that was not this pipeline, as far as its records show"
            if not self.window.covers(stamp, lag=habits.lag):
                start, end = self.window.start, self.window.end
                return (
                    f"{shown}, and our change took effect from {start:%H:%M:%S} to {end:%H:%M:%S}"
                )
        # A publish in the second of our job shares its stamp, but shows as one more revision.
        if (made := self.made) is not None and made not in self.revisions:
            return f"somebody else published: it has {made} new revisions"
        return None

    @property
    def made(self) -> int | None:
        """The number of revisions that were made meanwhile; None if they cannot be counted."""
        # What we have just created had no revision before.
        before = self.before[1] if self.before else 0
        return None if before is None or self.after[1] is None else self.after[1] - before

    def learnt(self, habits: Habits, *, is_update: bool) -> Habits:
        """What the change shows about the site's behaviour; the change must be ours alone."""
        moved = self.before is None or self.after[0] != self.before[0]
        lag = habits.lag
        if self.window and moved:
            late = (self.after[0] - self.window.end).total_seconds()
            lag = min(max(lag, late), _LONGEST_LAG)
        # Every publish moves the stamp and makes a revision, which says nothing about updates.
        if not is_update:
            return habits.model_copy(update={"lag": lag})
        # Revisions that are hidden for now do not disprove what they showed before. Of several, all
        # but one are somebody else's, even if the rows turned out to be ours.
        is_clear = self.made in (0, 1)
        made = self.made if is_clear else habits.update_revisions
        update = {"moves_timestamp": moved, "update_revisions": made, "lag": lag}
        return habits.model_copy(update=update)


def revisions_of(habits: Habits, *, is_update: bool) -> Collection[int]:
    """The possible numbers of revisions of a change: 1 for a publish, the site's for an update."""
    return (1,) if not is_update else (habits.update_revisions or 0,)


# Observe the data source on the server: does it exist, is it ours, do our records fit?


# The largest difference between the times that a server gives to a request and to its result.
_SLACK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Move:
    """Another name or project, which the declaration asks for since the last refresh.

    Attributes:
        project_id: None if the project is still to be created.
        phrases: what happens, by "rename" and "move".
        taken: why it cannot be done, as a sentence; None if it can.
    """

    name: str
    project_id: str | None
    phrases: Mapping[str, str]
    taken: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What the server holds, as far as it can be known.

    Attributes:
        remote: the data source, found by the LUID in our records or by name; None if absent.
        is_ours: our records name it, it carries our tag, or a request of ours has just created
            it.
        strays: the data sources with our tag, if none has its LUID in our records, or its name in
            its project; `remote` is the first.
        other_instance: the tag of another deployment that publishes it; None if there is none.
        other_key: another key of this deployment that publishes it; None if there is none.
        move: what the declaration changes of its place; None if nothing.
        record: our checkpoint of this data source; None if there is none.
        untrusted: why no update may build on `record`; None if the server holds what it states.
        rows: rows by table; None if they are not known.
        metadata: the content of its `.tds`; None if the data source is absent or not ours.
        left: digests of the metadata that our refreshes left.
        warnings: what a person should know although nothing is wrong.
    """

    remote: RemoteDatasource | None
    is_ours: bool = False
    strays: tuple[RemoteDatasource, ...] = ()
    other_instance: str | None = None
    other_key: str | None = None
    move: Move | None = None
    record: Checkpoint | None = None
    untrusted: str | None = None
    rows: Mapping[str, int] | None = None
    metadata: Metadata | None = None
    left: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    @property
    def is_edited(self) -> bool:
        """Whether others may have edited the metadata: it is not what our refreshes left."""
        return self.metadata is None or self.metadata.digest not in self.left


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes the data source of a declaration; `tags` are those that it has if it is ours."""

    declaration: Declaration
    server: TableauSite
    reconciler: Reconciler
    tags: frozenset[str]
    log: logging.Logger

    def observe(self, recovered: Recovered, project_id: str | None) -> Published:
        """Find the data source, and check whether it is as our records state.

        Raises:
            RefusedError: the data source exists, but this user may not read it.
        """
        remote = self.server.find_by_luid(recovered.luid) if recovered.luid else None
        named = remote is not None
        if remote:
            for moved in moves(
                self.declaration, remote, recovered=recovered, project_id=project_id
            ):
                self.log.warning("%s", moved)
        else:
            remote = self._find_by_name(recovered, project_id)
            named = bool(remote and self._was_created(remote, recovered.creating))
        # Before anything is created: a second data source would leave the dashboards on the first.
        strays = self._strays() if remote is None else ()
        remote = strays[0] if strays else remote
        if remote is None:
            return Published(remote=None, record=recovered.record)
        published = Published(
            remote=remote,
            is_ours=named or self.declaration.tag in remote.tags,
            strays=strays,
            other_instance=self._other_instance(remote),
            other_key=self._other_key(remote),
            metadata=self.server.metadata(remote.luid),
        )
        # A request that took effect after a later refresh leaves a record, but not of its rows.
        if not named or recovered.record is None:
            why = "no record shows what it holds"
            if strays:
                why += f', and it stays where it is, as "{remote.name}"'
            if recovered.luid:
                why = (
                    f"the data source of the last refresh ({recovered.luid}) is gone, and another "
                    f"has its {'tag' if strays else 'name'}"
                )
            # Guards still need the number of rows, which no record has.
            return replace(published, untrusted=why, rows=self._counted(remote))
        # The record has no LUID yet if the answer to our create was lost.
        record = recovered.record.model_copy(update={"luid": remote.luid})
        published = replace(published, rows=recovered.rows, left=recovered.left, record=record)
        published = replace(published, move=self._move(record, remote, project_id))
        return self._trusted(published, record, recovered, remote)

    def _trusted(
        self,
        published: Published,
        record: Checkpoint,
        recovered: Recovered,
        remote: RemoteDatasource,
    ) -> Published:
        """Check whether the server holds what the record states: by stamp, or else by content."""
        # It is published in full in any case, so its contents need not be downloaded.
        if recovered.untrusted:
            return replace(published, untrusted=recovered.untrusted)
        change = self._change(record, recovered, remote)
        doubt = change.unexplained(record.habits)
        if doubt is None and recovered.sent is None and record.suspect is None:
            return published
        # The refresh that was interrupted after `sent` has not compared its rows either.
        found = self.reconciler.judge(record, remote)
        if found.problem:
            why = doubt or record.suspect or "the last refresh was interrupted"
            more = "" if found.problem in why else f", and {found.problem}"
            return replace(published, untrusted=why + more)
        # Where nothing can be compared, a stamp that fits our job is enough, but not one in doubt.
        if found.skipped and (doubt or record.suspect):
            return replace(published, untrusted=doubt or record.suspect)
        brought = recovered.sent and recovered.sent.mode in NEW_METADATA
        if brought and not doubt and record.metadata is None and published.metadata:
            # Nobody has changed the metadata since our own file brought it along.
            record = record.model_copy(update={"metadata": published.metadata.digest})
            published = replace(published, left=published.left | {published.metadata.digest})
        update = {"updated_at": remote.updated_at, "revision": remote.revision, "suspect": None}
        published = replace(published, record=record.model_copy(update=update))
        if doubt is None:
            return published
        warning = f"{doubt}. It still holds what the last refresh left"
        self.log.warning("%s: %s", remote.name, warning)
        return replace(published, warnings=(warning,))

    def _change(self, record: Checkpoint, recovered: Recovered, remote: RemoteDatasource) -> Change:
        """The change since the record: none, or the request that led to it."""
        sent = recovered.sent
        if sent is None:
            before = (record.updated_at, record.revision) if record.updated_at else None
            # We have sent nothing since, so every new revision is somebody else's.
            return Change(None, before, remote.stamp, revisions=(0,))
        is_update = sent.mode is None
        before = (sent.before, sent.before_revision) if sent.before else None
        window = Window.of(self.server.job(sent.job_id)) if sent.job_id else None
        revisions = revisions_of(record.habits, is_update=is_update)
        return Change(window, before, remote.stamp, revisions=revisions)

    def _counted(self, remote: RemoteDatasource) -> Mapping[str, int] | None:
        # Counting may download the whole file, which is wasted if no guard will ask.
        if all(table.guard.max_shrink >= 1 for table in self.declaration.tables):
            return {}
        return self.reconciler.count(remote)

    def _find_by_name(
        self, recovered: Recovered, project_id: str | None
    ) -> RemoteDatasource | None:
        if project_id is None:
            return None
        name = self.declaration.name
        remote = self.server.find_by_name(name, project_id=project_id)
        # The server lists it by name, but hides it when asked for by its LUID.
        if remote and remote.luid == recovered.luid:
            raise RefusedError(
                f'The data source "{name}" ({remote.luid}) is on the server, but this user may not '
                "read it. Give the user its ownership, or View and Overwrite on it."
            )
        return remote

    def _was_created(self, remote: RemoteDatasource, intent: Intent | None) -> bool:
        """Whether the data source comes from a create of ours whose answer was lost."""
        # A name proves nothing: somebody else may have published under it since, or our own user by
        # hand. Only all of this together shows that our request created it.
        return (
            intent is not None
            and intent.outcome in (None, Outcome.DONE, Outcome.LOST)
            and remote.owner_id == self.server.user_id
            and remote.created_at >= intent.recorded_at.replace(microsecond=0) - _SLACK
            and not {tag for tag in remote.tags if tag.startswith(TAG_PREFIX)}
            - {self.declaration.tag}
            and self._other_instance(remote) is None
        )

    def _other_instance(self, remote: RemoteDatasource) -> str | None:
        others = {tag for tag in remote.tags if tag.startswith(INSTANCE_TAG_PREFIX)} - self.tags
        return min(others, default=None)

    def _other_key(self, remote: RemoteDatasource) -> str | None:
        others = {tag for tag in remote.tags if tag.startswith(TAG_PREFIX)} - self.tags
        if not others or not self.tags & remote.tags or self._other_instance(remote):
            return None
        return min(others).removeprefix(TAG_PREFIX)

    def _strays(self) -> tuple[RemoteDatasource, ...]:
        tag = self.declaration.tag
        return tuple(each for each in self.server.tagged(tag) if tag in each.tags)

    def _move(
        self, record: Checkpoint, remote: RemoteDatasource, project_id: str | None
    ) -> Move | None:
        """What the declaration asks for since the record; what people moved stays where it is."""
        name, place, phrases = remote.name, remote.project_id, {}
        declared, path = self.declaration.name, self.declaration.project_path
        if declared not in (record.name, name):
            phrases["rename"] = f'renamed from "{name}" to "{declared}"'
            name = declared
        if record.project != path and place != project_id:
            phrases["move"] = f'moved to "{path}"'
            place = project_id
        if not phrases:
            return None
        found = self.server.find_by_name(name, project_id=place) if place else None
        taken = None
        if found and found.luid != remote.luid:
            where = f'project "{path}"' if place == project_id else "its project"
            taken = (
                f'"{remote.name}" is to be {" and ".join(phrases.values())}, but {where} has a '
                f'data source "{found.name}" ({found.luid}) already. Nothing was changed: declare '
                "another name or project, or rename or delete that one"
            )
        return Move(name, place, phrases, taken)


def moves(
    declaration: Declaration,
    remote: RemoteDatasource,
    *,
    recovered: Recovered,
    project_id: str | None,
) -> list[str]:
    """Return what somebody renamed or moved on the server, in sentences."""
    known = recovered.record
    place = (declaration.name, declaration.project_path)
    # If the declaration itself changed, the difference is ours, and delivery carries it out.
    if known is None or (known.name, known.project) != place:
        return []
    found = []
    if remote.name != declaration.name:
        found.append(f'Somebody renamed "{declaration.name}" to "{remote.name}" on the server')
    if project_id and remote.project_id != project_id:
        found.append(f'Somebody moved "{remote.name}" out of "{declaration.project_path}"')
    return found
