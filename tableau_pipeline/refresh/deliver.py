"""Carry out a decision: build the file, move the data source, send, and set field metadata."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tableau_pipeline.core.checkpoint import NEW_METADATA, Checkpoint, PublishMode
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import (
    DriftError,
    NotListedError,
    NoUpdatesError,
    RefreshError,
    RefusedError,
    UnreadableError,
)
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.written import NO_VALUES
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline.refresh.decide import NoChange, Publish, UpdateTables
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.publish import Publisher
from tableau_pipeline.refresh.send import Sender, Sent
from tableau_pipeline.refresh.timing import phase


@dataclass(frozen=True, slots=True)
class Delivery:
    """Carries out decisions for one refresh.

    Attributes:
        backups: the path or URL of the folder in which data sources with users' edits are saved
            before they are replaced.
        now: a function that returns the time of the refresh.
    """

    declaration: Declaration
    sender: Sender
    backups: Path | str
    now: Callable[[], datetime]
    seconds: dict[str, float]

    def deliver(self, planned: Planned) -> tuple[Sent, Extract | None]:
        """Carry out a plan.

        Returns:
            What was sent, and the file that was built for it (or None). The file has the whole data
                source, or the payload of an update. For a split update, the file is the last
                payload, but `rows` and `size` are the totals of all payloads.

        Raises:
            RefusedError: the server refused the request. The data source is unchanged.
            DriftError: another user changed the data source in the meantime.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        self.sender.uploaded.clear()
        plan, extract = planned.plan, planned.extract
        if isinstance(plan, Publish):
            # Build the file before anything changes on the server, because the build may refuse a
            # row.
            with phase(self.seconds, "build"):
                extract = planned.builder.file(planned.desired)
        remote = self._move_as_declared(planned)
        target = self._target(planned, size=extract.size if extract else 0)
        if isinstance(plan, Publish) and extract:
            sent = self._publisher(planned).publish(plan, extract, target, remote)
        elif remote is None:
            raise ValueError(f"{plan.decision} needs a data source")
        elif isinstance(plan, NoChange):
            tagged, distrust = self.sender.in_place.tag(remote, self.sender.tags)
            sent = Sent(target, tagged, None, distrust)
        else:
            sent = self._update(planned, target, remote)
        return self._restore_owner(planned, sent), extract

    def describe(self, planned: Planned, sent: Sent, extract: Extract | None) -> Sent:
        """Set the declared metadata in the server's `.tds`; publish again if the `.tds` changes.

        Returns:
            The result of the second publish. If there was no second publish, or if it was refused,
                or if another user changed the data source: `sent`, perhaps with a warning.

        Raises:
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        plan, declared, before = planned.plan, planned.metadata, planned.base.metadata
        reached = sent.reached
        if not (isinstance(plan, Publish) and extract and reached and declared.fields):
            return sent
        if plan.merged or sent.merged:
            return sent
        try:
            metadata = self.sender.server.metadata(sent.remote.luid)
        except (RefusedError, UnreadableError) as error:
            # Only warn, because the rows are published. If the cause stays, the next refresh may be
            # refused.
            return sent.warned(f"{str(error).removesuffix('.')}. Its metadata is not set yet")
        if plan.mode is PublishMode.REPLACE and before and metadata.digest == before.digest:
            return replace(sent, reached=reached.reached)
        is_edited = metadata.digest != reached.metadata
        merged = declared.with_held(metadata, is_edited=is_edited).merge
        if merged is None:
            return sent
        if not merged.changes:
            return replace(sent, reached=reached.reached)
        name = declared.store_with_properties(merged.written)
        fields: dict[str, Any] = {"written": (name, *(reached.written or (NO_VALUES,)))}
        fields["metadata"] = reached.metadata if is_edited else None
        target = reached.model_copy(update=fields)
        try:
            publish = self._publisher(planned).with_metadata
            second = publish(merged, extract, target, sent.remote, is_edited=is_edited)
        except DriftError as error:
            return sent.warned(f"{error} Its metadata is not set yet")
        except RefusedError as error:
            # Only warn, because the rows are published.
            text = str(error).removesuffix(".")
            return sent.warned(f"{text}. Its rows are published. Its metadata is not set yet")
        second = replace(second, warnings=(*sent.warnings, *second.warnings))
        return self._restore_owner(planned, second)

    def _target(self, planned: Planned, *, size: int) -> Checkpoint:
        """Return the checkpoint that a plan leads to; `size` is the number of bytes to send."""
        plan, base, declaration = planned.plan, planned.base, self.declaration
        before, is_update = base.checkpoint, isinstance(plan, UpdateTables)
        history: dict[str, Any] = {"updates": 0, "size": size, "grown": 0}
        history["changed_at"] = self.now()
        if before and not isinstance(plan, Publish):
            updates = before.updates + is_update
            history |= {"updates": updates, "size": before.size, "grown": before.grown + size}
        if before and isinstance(plan, NoChange):
            # The rows do not change, so the last comparison and the time of the last change stay
            # valid.
            fields = ("unreconciled", "changed_at", "compared_at")
            history |= {name: getattr(before, name) for name in fields}
            history["late"] = base.late
        digest = before.metadata if before else None
        is_whole = isinstance(plan, Publish) and plan.mode in NEW_METADATA
        if is_whole and not (plan.merged and base.is_edited):
            # The file has new metadata, whose digest is known only after the publish.
            digest = None
        elif base.metadata and not base.is_edited:
            # Record the digest only if no user edited the metadata. Otherwise, users' edits would
            # be recorded as ours, and a later overwrite would drop them without asking.
            digest = base.metadata.digest
        owner = base.remote.owner_id if base.remote and isinstance(plan, Publish) else None
        is_adopted = isinstance(plan, Publish) and not base.is_ours and not is_whole
        return Checkpoint(
            refresh=self.sender.claim.number,
            server=self.sender.server.url,
            site=self.sender.server.site,
            project=declaration.project_path,
            name=declaration.name,
            luid=base.remote.luid if base.remote else None,
            declaration=declaration.digest(),
            tables=dict(planned.desired),
            metadata=digest,
            adopted=base.metadata.digest if is_adopted and base.metadata else None,
            owner=base.owner or owner,
            written=planned.metadata.written_by(plan),
            filters=base.filters_found,
            saved=planned.metadata.still_lost(before.saved if before else ()),
            # If an update succeeds, forget that updates were refused before.
            no_updates=before.no_updates if before and not is_update else None,
            taken_at=planned.taken_at or self.now(),
            **history,
        )

    def _move_as_declared(self, planned: Planned) -> RemoteDatasource | None:
        """Rename or move the data source if the declaration asks for it; return the data source."""
        remote, declared = planned.base.remote, planned.base.move
        if remote is None or declared is None:
            return remote
        project_id = declared.project_id or self._project_id()
        # A move takes effect at once. So stop here if another refresh has claimed the data source.
        self.sender.claim.check_fence()
        return self.sender.in_place.move(remote, name=declared.name, project_id=project_id)

    def _project_id(self) -> str:
        """Return the id of the declared project; create it if `create_project` is declared."""
        declared, jobs = self.declaration, self.sender.jobs
        until = jobs.server.now() + timedelta(seconds=jobs.timeouts.listing)
        for pause in jobs.pauses():
            try:
                return jobs.server.project(declared.project, create=declared.create_project)
            except NotListedError:
                # The project has just been created, and is not in the server's lists yet.
                if jobs.server.now() >= until:
                    raise
                jobs.sleep(pause)
        raise AssertionError("pauses have no end")

    def _update(self, planned: Planned, target: Checkpoint, remote: RemoteDatasource) -> Sent:
        # Only the last part leads to a checkpoint. If a part takes effect, and a later part fails,
        # the next run publishes the full file.
        distrust, sent, deltas = None, None, planned.deltas
        for number, delta in enumerate(deltas, start=1):
            is_last = number == len(deltas)
            reason = f"an update in {len(deltas)} parts was interrupted after part {number}"
            part = Distrust(Doubt.IN_PART, reason)
            try:
                sent = self.sender.update(
                    delta.batch.json(),
                    delta.extract.path,
                    target if is_last else None,
                    to=sent.remote if sent else remote,
                    distrust=distrust if is_last else part,
                )
            except NoUpdatesError:
                raise
            except RefusedError as error:
                if sent is None:
                    raise
                # Raise no refusal: earlier parts took effect, so the refresh must be tried again.
                raise RefreshError(
                    f"An update in {len(deltas)} parts was refused after part {number - 1} took "
                    f"effect: {error} The next run publishes everything again"
                ) from error
            distrust = distrust or sent.distrust
        if sent is None:
            raise ValueError("an update has at least one part")
        return replace(sent, distrust=distrust)

    def _publisher(self, planned: Planned) -> Publisher:
        return Publisher(
            declaration=self.declaration,
            base=planned.base,
            sender=self.sender,
            project=self._project_id,
            backups=self.backups,
            now=self.now,
            seconds=self.seconds,
            metadata=planned.metadata,
        )

    def _restore_owner(self, planned: Planned, sent: Sent) -> Sent:
        """Give the data source back to its former owner, if a publish has changed the owner."""
        before = planned.base.remote
        # If an owner is declared, the owner is set later, with the other declared properties.
        if before is None or self.declaration.owner:
            return sent
        owner = planned.base.owner or before.owner_id
        if sent.remote.owner_id == owner:
            return sent
        try:
            remote, distrust = self.sender.in_place.change_owner(sent.remote, owner)
        except RefreshError as error:
            name = sent.remote.name
            return sent.warned(f'"{name}" is no longer owned by {owner}, its former owner: {error}')
        return replace(sent, remote=remote, distrust=sent.distrust or distrust)
