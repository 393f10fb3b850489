"""Publish a whole file, by the first way that the site accepts.

In this module, a road is a way to publish the file: as a bare `.hyper` file, as a package with a
`.tds`, or in mode Replace. Tableau's documentation contradicts itself about some roads. A server
refuses a road by a job that fails without a reason. The publisher tries each road once. If a road
fails and another road works, the record of the site notes that the site does not accept the failed
road.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tableau_pipeline.core.checkpoint import NEW_METADATA, Checkpoint, PublishMode, SavedEdits
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import file_name
from tableau_pipeline.errors import DriftError, RefreshError, RefusedError
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import Merge
from tableau_pipeline.metadata.new_document import new_tds
from tableau_pipeline.metadata.tds import pack
from tableau_pipeline.refresh.decide import Publish
from tableau_pipeline.refresh.declared_metadata import DeclaredMetadata, back_up, check_kept
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.row_security import check_filters_kept
from tableau_pipeline.refresh.send import LostOutcomeError, NoReasonError, Sender, Sent
from tableau_pipeline.refresh.timing import phase

_CAUSES = (
    "Known causes of that: the project has a data source of this name that this user may not see; "
    "the version of the file is newer than the server takes (max_database_version); the user lacks "
    "Publish on the project; the site's storage is full; the tables have more than one fact table"
)


@dataclass(frozen=True, slots=True)
class _Road:
    """A way to publish a file.

    Attributes:
        go: a function that publishes the file by this road.
        words: the road in words, which complete a sentence after "It is published".
        fact: the fact of the site record that this road tests; None if it tests no fact. Success
            proves the fact. If `is_other`, success after a failed road disproves the fact.
        is_other: whether the road is a substitute for the road before it.
    """

    go: Callable[[], Sent]
    words: str
    fact: str | None
    is_other: bool = False


def _may_take(taken: bool | None, unseen: bool) -> bool:
    return bool(taken) if unseen else taken is not False


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes whole files for one refresh.

    Attributes:
        project: a function that returns the id of the declared project. It creates the project if
            that is declared.
        backups: the path or URL of the folder in which data sources with users' edits are saved
            before they are replaced.
        now: a function that returns the time of the refresh.
        metadata: the declared metadata, and their merge with the metadata on the server.
    """

    declaration: Declaration
    base: Base
    sender: Sender
    project: Callable[[], str]
    backups: Path | str
    now: Callable[[], datetime]
    seconds: dict[str, float]
    metadata: DeclaredMetadata

    def publish(
        self, plan: Publish, extract: Extract, target: Checkpoint, remote: RemoteDatasource | None
    ) -> Sent:
        """Publish a file. If users' edits may be lost, first save the data source."""
        base, server, saved, copy = self.base, self.sender.server, None, ()
        is_bare = plan.mode is PublishMode.OVERWRITE and not plan.merged
        merged = self.metadata.merge
        lost = merged.lost if merged and plan.mode in NEW_METADATA else {}
        # A merge drops users' calculations that use a removed column.
        drops = is_bare or bool(lost) or (plan.merged and bool(merged and merged.broken))
        if remote and base.is_edited and (drops or not base.is_ours):
            name = f"{file_name(self.declaration.key)} {self.now():%Y-%m-%d %H%M%S}"
            saved = back_up(server, remote, location=self.backups, name=name)
            copy = (f'"{remote.name}" was saved as {saved} before it was replaced',)
            # Log the path now: if the outcome of the publish stays unknown, no report will show it.
            self.sender.jobs.log.warning("%s", *copy)
            work = [SavedEdits(path=path, work=text, file=saved) for path, text in lost.items()]
            target = target.model_copy(update={"saved": (*target.saved, *work)})
        sent = self._take_a_road(plan, extract, target, remote)
        if plan.mode is PublishMode.REPLACE and not base.is_ours:
            check_kept(server, sent.remote, base.metadata, saved=saved)
        return sent.warned(*copy)

    def _take_a_road(
        self, plan: Publish, extract: Extract, target: Checkpoint, remote: RemoteDatasource | None
    ) -> Sent:
        """Publish by the first road that the site accepts."""
        failed: RefreshError | None = None
        site = self.sender.site
        for road in self._roads(plan, extract, target, remote):
            if failed:
                self.sender.jobs.log.warning("%s It is published %s instead", failed, road.words)
            try:
                sent = road.go()
            except (NoReasonError, LostOutcomeError) as error:
                self._check_place(target, remote)
                failed = failed or error
            except RefusedError as error:
                # Try another road only in mode Replace: a site may refuse this mode, and accept the
                # file without it. Any other refusal applies to all roads.
                if plan.mode is not PublishMode.REPLACE:
                    raise
                failed = failed or error
            else:
                if road.fact and (failed or not road.is_other):
                    site.learn(**{road.fact: not road.is_other})
                return sent
        if failed is None:
            raise ValueError("there is a road for each publish")
        if isinstance(failed, NoReasonError):
            raise NoReasonError(f"{failed} {_CAUSES}", failed.intent) from failed
        raise failed

    def _check_place(self, target: Checkpoint, remote: RemoteDatasource | None) -> None:
        """Check that no user created or removed the data source, which would make the job fail.

        Raises:
            DriftError: another user created or removed the data source.
        """
        server = self.sender.server
        if remote:
            is_same = server.find_by_luid(remote.luid) is not None
            event = "removed"
        else:
            is_same = server.find_by_name(target.name, project_id=self.project()) is None
            event = "created"
        if not is_same:
            raise DriftError(
                f'"{target.name}" was {event} on the server by another user while it was published.'
            )

    def _roads(
        self, plan: Publish, extract: Extract, target: Checkpoint, remote: RemoteDatasource | None
    ) -> Iterator[_Road]:
        """Yield the roads for a plan, the usual road first."""
        sender, merged, facts = self.sender, self.metadata.merge, self.sender.site.facts
        if plan.merged and remote and merged:
            yield _Road(
                lambda: self.with_metadata(merged, extract, target, remote), "as a package", None
            )
            return
        is_star = len(target.tables) > 1
        # If this user may not ask for jobs, a failed job shows only after hours. Then take only
        # roads that are known to work.
        unseen = not sender.reads_jobs()
        fact = "takes_bare_stars" if is_star else None
        takes = not is_star or _may_take(facts.takes_bare_stars, unseen)
        if plan.mode is PublishMode.REPLACE:
            takes = takes and sender.server.knows_replace and _may_take(facts.replaces, unseen)
            fact = "replaces"
        current = self._merge_of_published() if plan.mode is PublishMode.REPLACE else None
        if takes or (plan.mode is PublishMode.REPLACE and current is None):
            place = remote.project_id if remote else self.project()
            yield _Road(
                lambda: sender.publish(
                    extract.path, target, plan.mode, to=remote, project_id=place
                ),
                "as a bare file",
                fact,
            )
        if current and remote:
            yield _Road(
                lambda: self.with_metadata(current, extract, target, remote),
                "with its metadata",
                "replaces",
                is_other=True,
            )
        elif is_star and plan.mode is not PublishMode.REPLACE:
            yield _Road(
                lambda: self._as_package(plan.mode, extract, target, remote),
                "as a package that describes its tables",
                "takes_bare_stars",
                is_other=True,
            )

    def _merge_of_published(self) -> Merge | None:
        """Return a merge that can publish the server's metadata again; None if there is none."""
        merge = self.metadata.merge
        if self.base.metadata and (merge is None or merge.tds is None):
            merge = replace(self.metadata, on_server=None, is_edited=True).merge
        return merge if merge and merge.tds is not None else None

    def _as_package(
        self,
        mode: PublishMode,
        extract: Extract,
        target: Checkpoint,
        remote: RemoteDatasource | None,
    ) -> Sent:
        """Publish a package of a file and a new `.tds` like the one that the server would make."""
        package = extract.path.with_suffix(".tdsx")
        with self.sender.reading_files(), phase(self.seconds, "build"):
            tds = new_tds(self.metadata.tables, self.declaration.relationships)
            pack(tds, extract.path, package)
        place = remote.project_id if remote else self.project()
        return self.sender.publish(package, target, mode, to=remote, project_id=place)

    def with_metadata(
        self,
        merged: Merge,
        extract: Extract,
        target: Checkpoint,
        remote: RemoteDatasource,
        *,
        is_edited: bool | None = None,
    ) -> Sent:
        """Publish a package of a file and merged metadata.

        Args:
            is_edited: whether users may have edited the metadata; None to use the observation of
                this refresh.
        """
        if merged.tds is None:
            raise ValueError("only a .tds can be published")
        package = extract.path.with_suffix(".tdsx")
        with self.sender.reading_files(), phase(self.seconds, "build"):
            pack(merged.tds, extract.path, package)
        try:
            sent = self.sender.publish(
                package,
                target,
                PublishMode.OVERWRITE,
                to=remote,
                project_id=remote.project_id,
                keeps_work=self.base.is_edited if is_edited is None else is_edited,
            )
        except RefusedError as error:
            if not merged.phrase:
                raise
            raise _of_a_package(error, merged.phrase) from error
        sent = replace(sent, merged=merged)
        if sent.metadata is None:
            # Give a warning: if this user may not see the job either, we may have mistaken another
            # user's change for the effect of the job.
            return sent.warned(
                f'The metadata of "{sent.remote.name}" cannot be read after they were published. '
                "Its metadata may not be set yet"
            )
        check_filters_kept(self.base, sent.metadata, name=sent.remote.name)
        if changed := self.metadata.differences_on_server(merged.tds, sent.metadata):
            return sent.warned(
                f"The server holds other metadata than were published: {'; '.join(changed)}"
            )
        return sent.proved()


def _of_a_package(error: RefusedError, phrase: str) -> RefusedError:
    """Return a refusal that also explains why the file was a package.

    Args:
        phrase: the metadata in the package, see `Merge.phrase`.
    """
    *others, last = error.refusals
    problem = (
        f"{last.text} The file was a .tdsx package, to bring along what is declared ({phrase})"
    )
    remedy = (
        "If this is the cause: remove it from the declaration, or have the server accept such "
        "packages"
    )
    return RefusedError(*others, replace(last, problem=problem, remedy=remedy))
