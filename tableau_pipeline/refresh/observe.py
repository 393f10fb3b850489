"""Observe what the server has, by our records and by requests to the server.

A checkpoint is a refresh's record of the published data source. A guard declares the least number
of rows of a table, and how many of its rows a refresh may remove or change.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome, Window
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import (
    Change,
    Job,
    NoJob,
    RemoteDatasource,
    other_instance,
    still_late,
)
from tableau_pipeline.core.journal import Intent, Recovered
from tableau_pipeline.core.site_record import SiteFacts
from tableau_pipeline.errors import RefusedError, UnreadableError
from tableau_pipeline.metadata.contents import Metadata
from tableau_pipeline.outcome import Code, Distrust, Doubt, Refusal, sentence
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.effects import SLACK, misdirected
from tableau_pipeline.refresh.ownership import Ownership
from tableau_pipeline.refresh.reconcile import Reconciler

_INTERRUPTED = Distrust(Doubt.OUTCOME, "the last refresh was interrupted")


@dataclass(frozen=True, slots=True)
class Move:
    """A rename or a move that the declaration has asked for since the last refresh.

    Attributes:
        project_id: the id of the new project; None if the project does not exist yet.
        phrases: what happens, in words; the possible keys are "rename" and "move".
        taken: the refusal if the new name is taken in the new project; otherwise None.
    """

    name: str
    project_id: str | None
    phrases: Mapping[str, str]
    taken: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """What the server is known to have. All later phases of the refresh build on this knowledge.

    Attributes:
        exists: whether the data source exists, by the server's answer. If the server was not asked,
            by our records.
        remote: the data source, which was found by its recorded LUID, by name or by tag. `remote`
            and `ownership` are None if the data source does not exist, or if the server was not
            asked.
        move: how the declaration changes the name or project; None if it changes neither.
        checkpoint: the record of the last refresh whose result the server is known to have; None
            without such a record.
        distrust: why no update may build on `checkpoint`; None if the server has the rows of
            `checkpoint`.
        rows: the number of published rows by table; None if it is not known.
        metadata: the content of the published `.tds`; None if the content is not known. For
            example, the `.tds` of our own data source cannot be read.
        filters: phrases for the filters that decide which rows a user sees, as the last refresh
            found them.
        left: the digests of metadata that our refreshes left on the server.
        owner: the LUID of a former owner, if an interrupted refresh has not restored this owner
            yet. None if no such owner is recorded, or if our user does not own the data source now.
        moved: sentences about renames and moves by other users.
        late: when our earlier updates took effect, for updates that may still change the time
            stamp of the data source. Some sites change the time stamp only later.
        warnings: sentences that a user should read, although nothing is wrong.
    """

    exists: bool = False
    remote: RemoteDatasource | None = None
    ownership: Ownership | None = None
    move: Move | None = None
    checkpoint: Checkpoint | None = None
    distrust: Distrust | None = None
    rows: Mapping[str, int] | None = None
    metadata: Metadata | None = None
    filters: tuple[str, ...] = ()
    left: frozenset[str] = frozenset()
    owner: str | None = None
    moved: tuple[str, ...] = ()
    late: tuple[Window, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Whether the data source is ours. If the server was not asked, we assume that it is."""
        return self.ownership is None or self.ownership.is_ours

    @property
    def is_edited(self) -> bool:
        """Whether a user may have edited the metadata: they are unknown, or not as we left them."""
        return self.exists and (self.metadata is None or self.metadata.digest not in self.left)

    @property
    def filters_found(self) -> tuple[str, ...]:
        """The filters that decide which rows a user sees: found now, or by the last refresh."""
        if self.metadata and self.metadata.tds:
            return tuple(self.metadata.filters)
        return self.filters


def recorded(declaration: Declaration, recovered: Recovered) -> Base:
    """Return a `Base` made from our records alone, as if the server still matched them."""
    checkpoint = recovered.record
    if checkpoint is None or checkpoint.luid is None:
        return Base()
    phrases = moves(declaration, checkpoint, name=checkpoint.name)
    return Base(
        exists=True,
        move=Move(declaration.name, None, phrases) if phrases else None,
        checkpoint=checkpoint,
        distrust=recovered.distrust or checkpoint.distrust,
        rows=recovered.rows,
        # The server is not asked, so assume that no user edited the metadata. With any digest of
        # `left`, `is_edited` is False.
        metadata=Metadata(min(recovered.left), columns=None) if recovered.left else None,
        filters=recovered.filters,
        left=recovered.left,
    )


def moves(
    now: Declaration, was: Checkpoint | Declaration, *, name: str, is_there: bool | None = None
) -> Mapping[str, str]:
    """Return phrases for how a declaration changes the name ("rename") or the project ("move").

    If only users renamed or moved the data source on the server, the result is empty.

    Args:
        was: the former declaration, or the checkpoint that was reached with it.
        name: the name of the data source on the server.
        is_there: whether the data source is already in the declared project; None if unknown.
    """
    phrases, path = {}, now.project_path
    before = was.project if isinstance(was, Checkpoint) else was.project_path
    if now.name not in (was.name, name):
        phrases["rename"] = f'renamed from "{name}" to "{now.name}"'
    if before != path and not is_there:
        may_lack = is_there is None and not now.create_project
        phrases["move"] = f'moved to "{path}"' + ", if that project exists" * may_lack
    return phrases


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes the data source of a declaration.

    Attributes:
        tags: the tags that mark the data source as ours.
        site: the facts that our sessions have learned about the site.
        reads_all: whether to read the metadata even if they seem unchanged.
    """

    declaration: Declaration
    server: TableauSite
    reconciler: Reconciler
    tags: frozenset[str]
    site: SiteFacts
    log: logging.Logger
    reads_all: bool = False

    def observe(self, recovered: Recovered, project_id: str | None) -> Base:
        """Find the data source, and check whether it matches our records.

        Args:
            project_id: the id of the declared project; None if the project does not exist.
        """
        checkpoint = recovered.record
        remote = self.server.find_by_luid(recovered.luid) if recovered.luid else None
        is_recorded = remote is not None
        moved = self._moved_by_others(remote, checkpoint, project_id) if remote else ()
        for move in moved:
            self.log.warning("%s", move)
        if remote is None:
            remote = self._find_by_name(recovered, project_id)
            is_recorded = bool(remote and self._was_created(remote, recovered.creating))
        candidates: tuple[RemoteDatasource, ...] = ()
        if remote is None:
            remote, candidates = self._find_by_tag(project_id)
        if remote is None:
            return Base(checkpoint=checkpoint, filters=recovered.filters)
        is_ours = is_recorded or self.declaration.tag in remote.tags
        metadata, unread = self._metadata(remote, recovered, is_ours=is_ours)
        base = Base(
            exists=True,
            remote=remote,
            ownership=Ownership.of(remote, self.tags, is_ours=is_ours, candidates=candidates),
            metadata=metadata,
            filters=recovered.filters,
            owner=self._owner_before(recovered, remote),
            moved=moved,
            late=still_late(recovered.late, now=self.server.now()),
            warnings=(*_adoption_warnings(recovered, remote, metadata), *unread),
        )
        # There may be no checkpoint although the LUID is recorded: for example, if a request took
        # effect only after a later refresh.
        if not is_recorded or checkpoint is None:
            distrust = _no_record(remote, recovered, is_stray=bool(candidates))
            # Guards need the number of published rows, which our records lack: count the rows.
            return replace(base, distrust=distrust, rows=self._counted(remote))
        base = replace(
            base,
            rows=self._rows(base, recovered, remote),
            left=recovered.left,
            checkpoint=checkpoint,
            move=self._declared_move(checkpoint, remote, project_id),
        )
        # Distrust leads to a full publish anyway, so do not download the rows to compare them.
        if recovered.distrust:
            return replace(base, distrust=recovered.distrust)
        return self._verified(base, checkpoint, recovered, remote)

    def _metadata(
        self, remote: RemoteDatasource, recovered: Recovered, *, is_ours: bool
    ) -> tuple[Metadata | None, tuple[str, ...]]:
        """Return the metadata of a data source; read its `.tds` only if it may have changed.

        Returns:
            The metadata, and warnings. If our own data source's metadata cannot be read: None, and
            a warning.
        """
        record = recovered.record
        if record and record.held and record.luid == remote.luid and not self.reads_all:
            is_known = not (recovered.distrust or record.distrust or recovered.sent)
            if is_known and remote.stamp == record.stamp:
                metadata = Metadata(record.held.digest, columns=None, source=record.held.source)
                return metadata, ()
        try:
            return self.server.metadata(remote.luid), ()
        except UnreadableError as error:
            # Unreadable metadata must not block refreshes of our own data source for ever. If the
            # data source is another user's, raise the error, so that the metadata are not lost.
            if not is_ours:
                raise
            warning = (
                f'The metadata of "{remote.name}" cannot be read, so they stay unchanged: '
                f"{error} To replace them, run once with full: true and accept: [overwrite], which "
                "first saves the data source"
            )
            return None, (warning,)

    def _verified(
        self, base: Base, checkpoint: Checkpoint, recovered: Recovered, remote: RemoteDatasource
    ) -> Base:
        """Check, by time stamp or content, whether the server has the rows of the checkpoint."""
        sent, late = recovered.sent, recovered.late
        if sent:
            # The request of an interrupted refresh may have changed the time stamp.
            job = self.server.job(sent.job_id) if sent.job_id else NoJob.GONE
            window = job.window if isinstance(job, Job) else None
            change = Change(
                window,
                (sent.before, sent.before_revision) if sent.before else None,
                remote.stamp,
                revisions=self.site.revisions_of(is_update=sent.mode is None),
                lag=self.site.stamp_lag,
                late=late,
                published=remote.published,
            )
            moves = sent.mode is None and self.site.updates_move_stamp is not False
            if window and moves and remote.updated_at == sent.before:
                late = (*late, window)
        else:
            change = Change.since(checkpoint.stamp, remote, late=late)
        came = remote.updated_at if remote.updated_at != checkpoint.updated_at else None
        base = replace(base, late=still_late(late, now=self.server.now(), came=came))
        unexplained = change.unexplained or (misdirected(sent, remote) if sent else None)
        distrust = unexplained or checkpoint.distrust
        if distrust is None and sent is None:
            return base
        # If an interrupted refresh `sent` a request, compare the rows in any case, because that
        # refresh did not compare them.
        reconciliation = self.reconciler.compare_rows(checkpoint, remote)
        if reconciliation.problem:
            differs = Distrust(Doubt.DIFFERS, reconciliation.problem)
            # Name the former reason, too; `and_also` names equal reasons only once.
            return replace(base, distrust=(distrust or _INTERRUPTED).and_also(differs))
        # If the rows cannot be compared, trust the checkpoint only under two conditions: our own
        # job explains the time stamp, and there was no distrust before.
        if reconciliation.skipped and distrust:
            return replace(base, distrust=distrust)
        brought = sent and sent.brings_ours and checkpoint.metadata is None
        if brought and not unexplained and base.metadata:
            # The interrupted publish sent our own metadata, and no user has changed them since. So
            # record them as left by us.
            base = replace(base, left=base.left | {base.metadata.digest})
        if unexplained is None:
            return base
        warning = f"{sentence(unexplained.detail)}. It still holds what the last refresh left"
        self.log.warning("%s: %s", remote.name, warning)
        return replace(base, warnings=(*base.warnings, warning))

    def _rows(
        self, base: Base, recovered: Recovered, remote: RemoteDatasource
    ) -> Mapping[str, int] | None:
        """Return how many rows are published; count them if another deployment or key took over."""
        owned = base.ownership
        is_taken = owned and (owned.other_instance or owned.other_key)
        return self._counted(remote) if is_taken else recovered.rows

    def _counted(self, remote: RemoteDatasource) -> Mapping[str, int] | None:
        # Count only if a guard needs the numbers, because counting may download the whole file.
        guards = map(self.declaration.guard_of, self.declaration.tables)
        if all(guard.max_shrink >= 1 and guard.max_change is None for guard in guards):
            return None
        return self.reconciler.count(remote)

    def _find_by_name(
        self, recovered: Recovered, project_id: str | None
    ) -> RemoteDatasource | None:
        if project_id is None:
            return None
        name = self.declaration.name
        remote = self.server.find_by_name(name, project_id=project_id)
        # The server lists the data source by name, but hides it from a request for its LUID.
        if remote and remote.luid == recovered.luid:
            raise RefusedError(
                f'The data source "{name}" is on the server, but this user may not read it. '
                "Give the user its ownership, or View and Overwrite on it; and View on its "
                "project.",
                code=Code.SERVER,
            )
        return remote

    def _find_by_tag(
        self, project_id: str | None
    ) -> tuple[RemoteDatasource | None, tuple[RemoteDatasource, ...]]:
        """Find the data source by our tag.

        Returns:
            The data source that has our tag and the declared name and project, and (). If there is
                none: the first data source with our tag, and all data sources with our tag.
        """
        # Look for the tag before creating a data source: dashboards would not move to a second data
        # source.
        tag, declared = self.declaration.tag, (self.declaration.name.casefold(), project_id)
        tagged = tuple(remote for remote in self.server.tagged(tag) if tag in remote.tags)
        for remote in tagged:
            # Another run may have created the data source since we looked for its name.
            if (remote.name.casefold(), remote.project_id) == declared:
                return remote, ()
        return next(iter(tagged), None), tagged

    def _was_created(self, remote: RemoteDatasource, intent: Intent | None) -> bool:
        """Whether our own request, whose answer was lost, created the data source."""
        # The name alone proves nothing: another user may have published under the name, or our own
        # user by hand. Only all these conditions together show that our request created it.
        return (
            intent is not None
            and intent.outcome in (None, Outcome.DONE, Outcome.LOST)
            and remote.owner_id == self.server.user_id
            and remote.created_at >= intent.recorded_at.replace(microsecond=0) - SLACK
            and not remote.keys - {self.declaration.key}
            and other_instance(remote, self.tags) is None
        )

    def _owner_before(self, recovered: Recovered, remote: RemoteDatasource) -> str | None:
        owners = (
            checkpoint.owner for checkpoint in recovered.published if checkpoint.luid == remote.luid
        )
        return next(filter(None, owners), None) if remote.owner_id == self.server.user_id else None

    def _moved_by_others(
        self, remote: RemoteDatasource, checkpoint: Checkpoint | None, project_id: str | None
    ) -> tuple[str, ...]:
        """Return sentences about a rename or a move by another user on the server."""
        name, path = self.declaration.name, self.declaration.project_path
        # If the declaration itself changed, a later phase renames or moves the data source.
        if checkpoint is None or (checkpoint.name, checkpoint.project) != (name, path):
            return ()
        renamed = f'Another user renamed "{name}" to "{remote.name}" on the server'
        moved = f'Another user moved "{remote.name}" out of "{path}"'
        is_moved = project_id and remote.project_id != project_id
        return (renamed,) * (remote.name != name) + (moved,) * bool(is_moved)

    def _declared_move(
        self, record: Checkpoint, remote: RemoteDatasource, project_id: str | None
    ) -> Move | None:
        """Return the rename or move that the declaration asks for; None if it asks for neither."""
        declared, is_there = self.declaration, remote.project_id == project_id
        phrases = moves(declared, record, name=remote.name, is_there=is_there)
        if not phrases:
            return None
        name = declared.name if "rename" in phrases else remote.name
        move = Move(name, project_id if "move" in phrases else remote.project_id, phrases)
        if move.project_id is None:
            return move
        other = self.server.find_by_name(move.name, project_id=move.project_id)
        if other is None or other.luid == remote.luid:
            return move
        path = self.declaration.project_path
        where = f'the project "{path}"' if move.project_id == project_id else "its project"
        taken = Refusal(
            f'"{remote.name}" is to be {" and ".join(move.phrases.values())}, but {where} has a '
            f'data source "{other.name}" already. Nothing was changed',
            Code.NAME_TAKEN,
            remedy="Declare another name or project, or rename or delete that one",
        )
        return replace(move, taken=taken)


def _adoption_warnings(
    recovered: Recovered, remote: RemoteDatasource, metadata: Metadata | None
) -> tuple[str, ...]:
    """Warn if the metadata have changed since a takeover that no later refresh has confirmed."""
    adopted = {
        checkpoint.adopted for checkpoint in recovered.published if checkpoint.luid == remote.luid
    } - {None}
    if adopted <= ({metadata.digest} if metadata else set()):
        return ()
    return (
        f'The refresh that took over "{remote.name}" did not end well, and the metadata have '
        "changed since: by another user, or by that publish. The former data source is in the "
        'folder "kept" of the data directory',
    )


def _no_record(remote: RemoteDatasource, recovered: Recovered, *, is_stray: bool) -> Distrust:
    """Explain why the published rows are unknown."""
    if recovered.luid:
        kind = "tag" if is_stray else "name"
        reason = f"the data source of the last refresh is gone, and another has its {kind}"
        return Distrust(Doubt.NO_RECORD, reason)
    stays = f', and it stays where it is, as "{remote.name}"' if is_stray else ""
    return Distrust(Doubt.NO_RECORD, f"no record shows what it holds{stays}")
