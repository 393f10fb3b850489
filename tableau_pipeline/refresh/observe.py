"""Observe what the server holds, by our records and by what the server shows."""

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
        project_id: None if the project is still to be created.
        phrases: what happens, in words; its keys are "rename" and "move", where they apply.
        taken: why it cannot be done; None if it can.
    """

    name: str
    project_id: str | None
    phrases: Mapping[str, str]
    taken: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """What the server is known to hold: all later phases of the refresh build on it.

    Attributes:
        exists: whether there is a data source: according to the server, or to our records if the
            server was not asked.
        remote: the data source, found by its recorded LUID, by name or by tag. `remote` and
            `ownership` are None if the data source is absent or the server was not asked.
        move: how the declaration changes its place; None if not at all.
        checkpoint: the last checkpoint that the server is known to hold; None if there is none.
        distrust: why no update may build on `checkpoint`; None if the server holds what it states.
        rows: rows by table; None if they are not known.
        metadata: the content of its `.tds`; None if the data source is absent, or if it is ours
            and the `.tds` cannot be read.
        filters: phrases that describe how a user's rows are chosen, as the last refresh found it.
        left: digests of the metadata as our refreshes left them on the server.
        owner: the LUID of the previous owner, whom an interrupted refresh has not restored yet;
            None if none is recorded, or if our user does not own the data source now.
        moved: what other users renamed or moved, in sentences.
        late: the windows of our updates whose time stamps may still come.
        warnings: what a user should know although nothing is wrong.
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
        """Whether the data source is ours, as far as is known."""
        return self.ownership is None or self.ownership.is_ours

    @property
    def is_edited(self) -> bool:
        """Whether a user may have edited the metadata: they are unknown, or not as we left them."""
        return self.exists and (self.metadata is None or self.metadata.digest not in self.left)

    @property
    def filters_found(self) -> tuple[str, ...]:
        """What decides which rows a user sees; if not read now, what the last refresh found."""
        if self.metadata and self.metadata.tds:
            return tuple(self.metadata.filters)
        return self.filters


def recorded(declaration: Declaration, recovered: Recovered) -> Base:
    """Return the base according to our records alone, as if the server had not changed since."""
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
        # The server is not asked, so assume that no user edited the metadata: any digest in `left`
        # makes `is_edited` False.
        metadata=Metadata(min(recovered.left), columns=None) if recovered.left else None,
        filters=recovered.filters,
        left=recovered.left,
    )


def moves(
    now: Declaration, was: Checkpoint | Declaration, *, name: str, is_there: bool | None = None
) -> Mapping[str, str]:
    """Return how a declaration changes the name or project: phrases, with keys "rename" and "move".

    Args:
        was: what was declared before.
        name: the name of the data source on the server. If users renamed or moved it and the
            declaration did not change, it stays as they left it.
        is_there: whether it is in the declared project already; None if that is not known.
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
        tags: the tags that the data source has if it is ours.
        site: what our sessions have seen the site do.
        reads_all: read the metadata even if they seem unchanged.
    """

    declaration: Declaration
    server: TableauSite
    reconciler: Reconciler
    tags: frozenset[str]
    site: SiteFacts
    log: logging.Logger
    reads_all: bool = False

    def observe(self, recovered: Recovered, project_id: str | None) -> Base:
        """Find the data source, and check whether it is as our records state.

        Args:
            project_id: of the declared project; None if it does not exist.
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
        # A request may take effect only after a later refresh. Then the records name its data
        # source, but not its rows.
        if not is_recorded or checkpoint is None:
            distrust = _no_record(remote, recovered, is_stray=bool(candidates))
            # Guards still need the number of rows, which no record has.
            return replace(base, distrust=distrust, rows=self._counted(remote))
        base = replace(
            base,
            rows=recovered.rows,
            left=recovered.left,
            checkpoint=checkpoint,
            move=self._declared_move(checkpoint, remote, project_id),
        )
        # Distrusted records lead to a full publish anyway: do not download the rows for them.
        if recovered.distrust:
            return replace(base, distrust=recovered.distrust)
        return self._verified(base, checkpoint, recovered, remote)

    def _metadata(
        self, remote: RemoteDatasource, recovered: Recovered, *, is_ours: bool
    ) -> tuple[Metadata | None, tuple[str, ...]]:
        """Return the content of its `.tds`, which is read only if it may have changed.

        Returns:
            The metadata, and warnings. If the data source is ours and its metadata cannot be read:
            None, and a warning.
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
            # Unreadable metadata must not block refreshes of our own data source for ever. If it is
            # another user's, fail: its metadata must not be lost.
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
        """Check whether the server holds what the checkpoint states: by stamp, or by content."""
        sent, late = recovered.sent, recovered.late
        if sent:
            # The interrupted request may explain the change.
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
        # Compare also if a request was `sent`: the interrupted refresh did not compare its rows.
        reconciliation = self.reconciler.compare_rows(checkpoint, remote)
        if reconciliation.problem:
            differs = Distrust(Doubt.DIFFERS, reconciliation.problem)
            # The last refresh may have found the same difference.
            return replace(base, distrust=(distrust or _INTERRUPTED).and_also(differs))
        # If the rows cannot be compared, trust the checkpoint only if our own job explains the
        # stamp and nothing was distrusted before.
        if reconciliation.skipped and distrust:
            return replace(base, distrust=distrust)
        brought = sent and sent.brings_ours and checkpoint.metadata is None
        if brought and not unexplained and base.metadata:
            # The interrupted publish brought our own metadata, and no user has changed them since:
            # they count as left by us.
            base = replace(base, left=base.left | {base.metadata.digest})
        if unexplained is None:
            return base
        warning = f"{sentence(unexplained.detail)}. It still holds what the last refresh left"
        self.log.warning("%s: %s", remote.name, warning)
        return replace(base, warnings=(*base.warnings, warning))

    def _counted(self, remote: RemoteDatasource) -> Mapping[str, int] | None:
        # Counting may download the whole file, which is wasted if no guard needs the numbers.
        guards = map(self.declaration.guard_of, self.declaration.tables)
        if all(guard.max_shrink >= 1 for guard in guards):
            return None
        return self.reconciler.count(remote)

    def _find_by_name(
        self, recovered: Recovered, project_id: str | None
    ) -> RemoteDatasource | None:
        if project_id is None:
            return None
        name = self.declaration.name
        remote = self.server.find_by_name(name, project_id=project_id)
        # The server lists it by name, but hides it from a request by its LUID.
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
        """Find the data source with our tag; if none is at the declared place, return them all."""
        # Look before creating anything: a second data source would leave dashboards on the first.
        tag, declared = self.declaration.tag, (self.declaration.name.casefold(), project_id)
        tagged = tuple(remote for remote in self.server.tagged(tag) if tag in remote.tags)
        for remote in tagged:
            # Another run may have created it since it was looked for by name.
            if (remote.name.casefold(), remote.project_id) == declared:
                return remote, ()
        return next(iter(tagged), None), tagged

    def _was_created(self, remote: RemoteDatasource, intent: Intent | None) -> bool:
        """Whether our own request, whose answer was lost, created the data source."""
        # A name proves nothing: another user may have published under it since, or our own user by
        # hand. Only all of this together shows that our request created it.
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
        """Return what another user renamed or moved on the server, in sentences."""
        name, path = self.declaration.name, self.declaration.project_path
        # If the declaration itself changed, the rename or move is ours to make, and a later phase
        # makes it.
        if checkpoint is None or (checkpoint.name, checkpoint.project) != (name, path):
            return ()
        renamed = f'Another user renamed "{name}" to "{remote.name}" on the server'
        moved = f'Another user moved "{remote.name}" out of "{path}"'
        is_moved = project_id and remote.project_id != project_id
        return (renamed,) * (remote.name != name) + (moved,) * bool(is_moved)

    def _declared_move(
        self, record: Checkpoint, remote: RemoteDatasource, project_id: str | None
    ) -> Move | None:
        """Return the rename or move that the declaration asks for, and whether it can be done."""
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
    """Warn if the metadata have changed since an adoption that no refresh has confirmed."""
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
