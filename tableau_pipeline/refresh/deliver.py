"""Carry out a decision: build what it takes, and send it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tableau_pipeline.core.checkpoint import (
    NEW_METADATA,
    Checkpoint,
    PublishMode,
    SavedWork,
    TableContent,
)
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import DriftError, NotListedError, RefreshError, UnreadableError
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.delta import Delta, total
from tableau_pipeline.extracts.desired import Declared
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import NOTHING, Merge, conflict_phrases, is_about
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline.publishing.about import AboutOnServer, describe
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.plan import NoChange, Publish, UpdateTables
from tableau_pipeline.refresh.publish import Publisher
from tableau_pipeline.refresh.reconcile import Reconciler
from tableau_pipeline.refresh.report import phase
from tableau_pipeline.refresh.send import Sender, Sent, changed_since, completed, move, tag


@dataclass(frozen=True, slots=True)
class Delivery:
    """Carries out decisions about the data source `base`.

    Attributes:
        kept: the folder, or its URL in an object store, where data sources with the work of people
            are saved before they are replaced.
        now: returns the time of the refresh.
        declared: the declared metadata; `merged` is what becomes of those on the server.
    """

    content: Builder
    base: Base
    sender: Sender
    reconciler: Reconciler
    kept: Path | str
    now: Callable[[], datetime]
    seconds: dict[str, float]
    declared: Declared
    merged: Merge | None

    def deliver(
        self,
        plan: NoChange | UpdateTables | Publish,
        deltas: Sequence[Delta],
        desired: Mapping[str, TableContent],
    ) -> Sent:
        """Make the data source hold the desired content.

        Args:
            deltas: of an update, in the order in which they are sent.

        Raises:
            RefusedError: the server refused; it holds what it held before.
            DriftError: another user changed the data source meanwhile.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        self.sender.uploaded.clear()
        extract = total(deltas) if deltas else None
        if isinstance(plan, Publish):
            # Built before anything changes on the server: its rows may be refused.
            with phase(self.seconds, "build"):
                extract = self.content.file(desired)
        remote = self._in_place()
        target = self._target(plan, desired, size=extract.size if extract else 0)
        if isinstance(plan, Publish) and extract:
            sent = self._publisher.publish(plan, extract, target, remote)
            # At once: whoever owned it is known only until this refresh ends.
            sent = self._proved(self._given_back(sent, remote))
            if not plan.merged:
                sent = self._declared_set(plan.mode, sent, extract)
        elif remote is None:
            raise ValueError(f"{plan.decision} needs a data source")
        elif isinstance(plan, NoChange):
            found, distrust = tag(self.sender.server, remote, self.sender.tags)
            sent = Sent(target, found, None, distrust)
        else:
            sent = self._proved(self._updated(deltas, target, remote))
        return replace(self._given_back(sent, remote), extract=extract)

    def _target(
        self,
        plan: NoChange | UpdateTables | Publish,
        desired: Mapping[str, TableContent],
        *,
        size: int,
    ) -> Checkpoint:
        """The checkpoint to reach; `size` is the number of bytes to be sent."""
        base, declaration = self.base, self.content.declaration
        before = base.checkpoint
        history: dict[str, Any] = {"updates": 0, "size": size, "grown": 0}
        history["changed_at"] = self.now()
        if before and not isinstance(plan, Publish):
            updates = before.updates + isinstance(plan, UpdateTables)
            history |= {"updates": updates, "size": before.size, "grown": before.grown + size}
        if before and isinstance(plan, NoChange):
            # The last comparison still stands.
            kept = ("unreconciled", "changed_at", "compared_at", "late_window")
            history |= {name: getattr(before, name) for name in kept}
        metadata = before.metadata if before else None
        is_whole = isinstance(plan, Publish) and plan.mode in NEW_METADATA
        if is_whole and not (plan.merged and base.is_edited):
            # The file brings its own, whose digest is known only once the server has it.
            metadata = None
        elif base.metadata and not base.is_edited:
            # Metadata that a user edited is never recorded as ours: a later overwrite would drop it
            # unasked.
            metadata = base.metadata.digest
        owner = base.remote.owner_id if base.remote and isinstance(plan, Publish) else None
        is_adopted = isinstance(plan, Publish) and not base.is_ours and not is_whole
        return Checkpoint(
            refresh=self.sender.claim.number,
            server=self.sender.server.url,
            site=self.sender.server.site,
            project=declaration.project_path,
            name=declaration.name,
            luid=base.remote.luid if base.remote else None,
            declaration=self.content.declaration.digest(),
            tables=dict(desired),
            metadata=metadata,
            adopted=base.metadata.digest if is_adopted and base.metadata else None,
            owner=base.owner or owner,
            written=self._written(plan),
            saved=self._saved,
            # An update is what tries it again.
            no_updates=before.no_updates if before and not isinstance(plan, UpdateTables) else None,
            **history,
        )

    @property
    def _saved(self) -> tuple[SavedWork, ...]:
        """The work of people that has been saved, without that on what is back."""
        known = self.base.checkpoint.saved if self.base.checkpoint else ()
        return tuple(each for each in known if not self.declared.has(each.path))

    def _written(self, plan: NoChange | UpdateTables | Publish) -> tuple[str, ...]:
        """Names the values that will have been set; several, if the request may not succeed."""
        record, declared, merged = self.base.checkpoint, self.declared, self.merged
        before = record.written if record and self.base.remote else ()
        is_whole = isinstance(plan, Publish) and plan.mode in NEW_METADATA
        # Those of the data source itself are set later.
        now = {path: value for path, value in declared.past.items() if is_about(path)}
        if not is_whole or plan.merged:
            is_set = merged and not merged.problem
            fields = merged.written if merged and is_set else declared.past
            now |= {path: value for path, value in fields.items() if not is_about(path)}
        if not (now or before):
            return ()
        name = declared.stored.store(now)
        if is_whole:
            return (name, *(before or (NOTHING,)))
        # Some servers drop them in mode Replace.
        return (name, NOTHING) if isinstance(plan, Publish) else (name,)

    def _in_place(self) -> RemoteDatasource | None:
        """The data source, renamed or moved if its declaration changed since the last refresh."""
        remote, planned = self.base.remote, self.base.move
        if remote is None or planned is None:
            return remote
        project_id = planned.project_id or self._project()
        # A move takes effect at once, so an overtaken refresh must be stopped before it.
        self.sender.claim.check_fence()
        return move(self.sender.server, remote, name=planned.name, project_id=project_id)

    def _project(self) -> str:
        """The id of the declared project, which is created only now if it is to be."""
        declared, jobs = self.content.declaration, self.sender.jobs
        until = jobs.server.now() + timedelta(seconds=jobs.timeouts.listing)
        for pause in jobs.pauses():
            try:
                return jobs.server.project(declared.project, create=declared.create_project)
            except NotListedError:
                # It was created a moment ago, which the server's lists do not show yet.
                if jobs.server.now() >= until:
                    raise
                jobs.sleep(pause)
        raise AssertionError("pauses have no end")

    def _updated(
        self, deltas: Sequence[Delta], target: Checkpoint, remote: RemoteDatasource
    ) -> Sent:
        # Only the last part has a target. If an earlier one turns out to be the last that landed,
        # the data source is at no checkpoint, and the next run publishes everything.
        distrust, sent = None, None
        for number, delta in enumerate(deltas, start=1):
            is_last = number == len(deltas)
            why = f"an update in {len(deltas)} parts was interrupted after part {number}"
            part = Distrust(Doubt.IN_PART, why)
            sent = self.sender.update(
                delta.batch.json(),
                delta.extract.path,
                target if is_last else None,
                to=sent.remote if sent else remote,
                distrust=distrust if is_last else part,
            )
            distrust = distrust or sent.distrust
        if sent is None:
            raise ValueError("an update has at least one part")
        return replace(sent, distrust=distrust)

    @property
    def _publisher(self) -> Publisher:
        return Publisher(
            declaration=self.content.declaration,
            base=self.base,
            sender=self.sender,
            project=self._project,
            kept=self.kept,
            now=self.now,
            seconds=self.seconds,
            declared=self.declared,
            merged=self.merged,
        )

    def _declared_set(self, mode: PublishMode, sent: Sent, extract: Extract) -> Sent:
        """Set the declared metadata in those that the server has made of a file without any."""
        if sent.distrust or sent.merged or not sent.target or not self.declared.fields:
            return sent
        try:
            held = self.sender.server.metadata(sent.remote.luid)
        except UnreadableError as error:
            return replace(sent, warnings=(*sent.warnings, f"{error} Its metadata is not set"))
        before = self.base.metadata
        if mode is PublishMode.REPLACE and before and held.digest == before.digest:
            return replace(sent, target=sent.target.reached)
        is_edited = held.digest != sent.target.metadata
        merged = replace(self.declared, record=None).merged(held, None, is_edited=is_edited)
        if merged is None or not merged.changes:
            return sent
        about = {path: value for path, value in self.declared.past.items() if is_about(path)}
        name = self.declared.stored.store({**merged.written, **about})
        written = (name, *(sent.target.written or (NOTHING,)))
        known: dict[str, Any] = {"written": written}
        known["metadata"] = sent.target.metadata if is_edited else None
        target = completed(sent.target, sent.remote, **known)
        try:
            publish = self._publisher.with_metadata
            again = publish(merged, extract, target, sent.remote, is_edited=is_edited)
            again = self._proved(again)
        except DriftError as error:
            return replace(sent, warnings=(*sent.warnings, f"{error} Its metadata is not set yet"))
        return replace(again, warnings=(*sent.warnings, *again.warnings))

    def _given_back(self, sent: Sent, before: RemoteDatasource | None) -> Sent:
        """Give the data source back to its owner, where whoever publishes becomes the owner."""
        # A declared owner gets it with all else that is said of the data source.
        if before is None or self.content.declaration.owner:
            return sent
        server, owner = self.sender.server, self.base.owner or before.owner_id
        if sent.remote.owner_id == owner:
            return sent
        began = server.now()
        try:
            describe(server, before.luid, owner=owner)
        except RefreshError as error:
            warning = f'"{before.name}" is no longer owned by {owner}, its owner before: {error}'
            return replace(sent, warnings=(*sent.warnings, warning))
        try:
            remote, distrust = changed_since(server, sent.remote, began)
        except RefreshError as error:
            remote = replace(sent.remote, owner_id=owner)
            why = f"what it shows since its owner has it back is not known: {error}"
            distrust = Distrust(Doubt.NOT_SEEN, why)
        return replace(sent, remote=remote, distrust=sent.distrust or distrust)

    def _proved(self, sent: Sent) -> Sent:
        """Resolve distrust by content: if it equals what was sent, no other user changed it."""
        if sent.distrust and sent.target:
            found = self.reconciler.compare_rows(sent.target, sent.remote)
            if not found.problem and not found.skipped:
                return replace(sent, distrust=None, warnings=(*sent.warnings, str(sent.distrust)))
        return sent


def tell(
    about: AboutOnServer, declared: Declared, sent: Sent, target: Checkpoint, *, equal: bool | None
) -> Sent:
    """Make a server say of a data source itself what is declared, once its rows are there.

    Args:
        about: what the server said before anything was sent.
        target: the checkpoint that was reached.
        equal: whether the published rows were found equal to the models; None if nobody knows.
    """
    past, stored, began = declared.past, declared.stored, about.site.now()
    result = declared.merged_about(about.found, certified=equal)
    aim = {**about.found, **result.changes}
    is_new = bool(sent.intent and sent.intent.mode in NEW_METADATA)
    changes, failed = about.set(sent.remote, aim, is_new=is_new)
    remote, distrust = sent.remote, None
    if changes:
        try:
            # So that they are no drift.
            remote, distrust = changed_since(about.site, sent.remote, began, changes=changes)
            failed = {**about.dropped(remote, aim), **failed}
        except RefreshError as error:
            why = f"what it shows since its description was changed is not known: {error}"
            distrust = Distrust(Doubt.NOT_SEEN, why)
    fields = stored.read(target.written[0]) if target.written else {}
    now = {path: value for path, value in fields.items() if not is_about(path)}
    now |= {path: value for path, value in result.written.items() if path not in failed}
    now |= {path: past[path] for path in failed.keys() & past.keys()}
    names = (stored.store(now),) if now or target.written else ()
    return replace(
        sent,
        remote=remote,
        target=completed(target, sent.remote, written=names),
        problems=tuple(dict.fromkeys([*conflict_phrases(result), *failed.values()])),
        distrust=sent.distrust or distrust,
    )
