"""Plan a refresh: observe the data source, read its models, and decide. A plan changes nothing."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from tableau_pipeline.core.checkpoint import NoUpdates, TableContent
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import tags_of
from tableau_pipeline.core.journal import Recovered
from tableau_pipeline.core.site_record import SiteRecord
from tableau_pipeline.core.tableau_limits import LARGEST_PAYLOAD
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.delta import Delta, RowCounts, counts, remove, total
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import Merge, Values, is_property
from tableau_pipeline.metadata.written import WrittenValues
from tableau_pipeline.outcome import Accept, Refusal
from tableau_pipeline.publishing.properties import PropertiesOnServer
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.decide import (
    Changed,
    Facts,
    NoChange,
    Options,
    Plan,
    Publish,
    Refuse,
    UpdateTables,
    by_size,
    decide,
    in_full,
    lost_credentials,
    ownership_refusal,
)
from tableau_pipeline.refresh.declared_metadata import DeclaredMetadata
from tableau_pipeline.refresh.effects import Effects
from tableau_pipeline.refresh.observe import Base, Observer, recorded
from tableau_pipeline.refresh.reconcile import Reconciler, layout_differences
from tableau_pipeline.refresh.row_security import holds_rows_back, secured, unguarded, without_rows
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.refresh.timing import phase
from tableau_pipeline.refresh.updates import learn_of_stamp, record_of, whole_files
from tableau_pipeline.rendering import megabytes


@dataclass(frozen=True, slots=True)
class Planned:
    """A decision, and everything that a refresh needs to carry it out.

    Attributes:
        base: what we know about the data source.
        desired: the desired content of each table.
        metadata: the declared metadata, and their merge with the metadata on the server.
        builder: builds files from the planned versions of the models.
        deltas: the parts of an update, in the order in which they are sent.
        taken_at: if the plan publishes earlier rows, the time when they were the newest; None if it
            publishes the newest rows.
        seconds: how many seconds each phase took; the key "total" is for the whole plan. Empty if
            the plan is made to be carried out, because the refresh has its own times.
    """

    plan: Plan
    base: Base
    desired: Mapping[str, TableContent]
    metadata: DeclaredMetadata
    builder: Builder
    deltas: Sequence[Delta] = ()
    taken_at: datetime | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    def refused(self, *refusals: Refusal) -> "Planned":
        """Return a copy of this plan whose decision is to refuse."""
        # A refused update sends no files, so remove them.
        remove(self.deltas)
        return replace(self, plan=Refuse(refusals), deltas=())

    @property
    def merged(self) -> Merge | None:
        """The merge with the metadata on the server; None if there is nothing to keep or set."""
        return self.metadata.merge

    @property
    def declared_values(self) -> Values:
        """The declared and inherited metadata."""
        return self.metadata.declared_values

    @property
    def moves(self) -> Mapping[str, str]:
        """What happens to the name and project, in words; the keys are "rename" and "move"."""
        return self.base.move.phrases if self.base.move else {}

    @property
    def decision(self) -> str:
        """What the refresh does, in a few words."""
        return decision_of(self.plan, self.moves)

    @property
    def reason(self) -> str:
        """The reason for the decision, in words."""
        return reason_of(self.plan, self.moves)

    @property
    def tables(self) -> Mapping[str, RowCounts]:
        """How many rows an update deletes and inserts, for each table that it changes."""
        return counts(self.deltas)

    @property
    def extract(self) -> Extract | None:
        """The payload of the last update, with the total rows and bytes of all updates."""
        return total(self.deltas) if self.deltas else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user; they do not stop the refresh."""
        saved = self.base.checkpoint.saved if self.base.checkpoint else ()
        return (
            *self.base.warnings,
            *lost_credentials(self.plan, self.base),
            *self.metadata.work_lost_by(self.plan),
            *self.metadata.returned_work(saved),
        )

    @property
    def summary(self) -> str:
        """One line for a dry run."""
        name = self.metadata.declaration.name
        if isinstance(self.plan, Refuse):
            return f"{name}: the refresh would be refused: {self.plan.reason}"
        work = work_of(self.plan, self.moves, self.tables, self.extract)
        seconds = f"{self.seconds['total']:.1f} s"
        return f"{name}: dry run, nothing sent; a refresh would be: {work} in {seconds}"


def decision_of(plan: Plan, moves: Mapping[str, str]) -> str:
    """Return what is done, in a few words, such as "rename, update"."""
    moved = () if isinstance(plan, Refuse) else tuple(moves)
    only_moves = moved and isinstance(plan, NoChange)
    return ", ".join(moved if only_moves else [*moved, plan.decision])


def reason_of(plan: Plan, moves: Mapping[str, str]) -> str:
    """Return the reason for a decision, in words."""
    moved = () if isinstance(plan, Refuse) else moves.values()
    return "; ".join([*moved, plan.reason])


def work_of(
    plan: Plan, moves: Mapping[str, str], tables: Mapping[str, RowCounts], extract: Extract | None
) -> str:
    """Return what is done, with its size, such as "update, -433 +419 rows, 0.13 MB"."""
    moved = "".join(f"{phrase}, " for phrase in moves.values())
    match plan:
        case NoChange():
            return f"{moved}the same rows" if moved else "no change"
        case UpdateTables():
            deleted = sum(rows.deleted for rows in tables.values())
            inserted = sum(rows.inserted for rows in tables.values())
            size = megabytes(extract.size) if extract else ""
            return f"{moved}update, -{deleted:,} +{inserted:,} rows, {size}"
    return f"{moved}{plan.decision}"


@dataclass(frozen=True, slots=True)
class _Pinned:
    """Earlier rows to publish: their recorded content by table, and when they were the newest."""

    tables: Mapping[str, TableContent]
    taken_at: datetime | None


@dataclass
class Planner:
    """Makes the plans of one refresh.

    Attributes:
        site: the session on the site; None to plan from our records alone.
        reads_all: whether to read the metadata even if they seem unchanged.
        reads_jobs: a function that returns whether this user may ask for jobs; None to ask the
            server.
        no_updates: why an update failed in this refresh; None if no update failed. After a failed
            update, the refresh sends only whole files.
        warnings: sentences about how a user can make updates possible.
    """

    setup: Setup
    options: Options
    builder: Builder
    site: TableauSite | None
    seconds: dict[str, float]
    reads_all: bool = False
    reads_jobs: Callable[[], bool] | None = None
    no_updates: NoUpdates | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def server(self) -> TableauSite:
        """The session on the site. Only plans that may ask the server use this property."""
        if self.site is None:
            raise ValueError("this refresh asks no server")
        return self.site

    @cached_property
    def tags(self) -> frozenset[str]:
        """The tags that mark the data source as ours."""
        return tags_of(self.setup.declaration.key, self.setup.journal.instance)

    @cached_property
    def reconciler(self) -> Reconciler:
        """The object that compares the published rows with the models."""
        return Reconciler(
            declaration=self.setup.declaration,
            snapshots=self.builder.snapshots,
            server=self.server,
            hyper=self.setup.hyper,
            log=self.setup.log,
            sleep=self.setup.sleep,
        )

    @cached_property
    def effects(self) -> Effects:
        """The object that finds out from the data source whether requests took effect."""
        return Effects(self.server, self.reconciler.likeness)

    @cached_property
    def record(self) -> SiteRecord:
        """The record of what our sessions have learned about the site."""
        return record_of(self.server, self.setup.sites)

    @property
    def log(self) -> logging.Logger:
        """The log of the refresh."""
        return self.setup.log

    def observe(self, recovered: Recovered, *, looks_only: bool = False) -> Base:
        """Look at the data source on the server.

        Args:
            looks_only: whether the declared project may be missing, because nothing is published.
        """
        declaration = self.setup.declaration
        if self.site is None:
            return recorded(declaration, recovered)
        observer = Observer(
            declaration,
            self.site,
            self.reconciler,
            self.tags,
            site=self.record.facts,
            log=self.log,
            reads_all=self.reads_all,
        )
        # Do not create a missing project yet: if the refresh were refused, the project would stay
        # empty.
        may_lack = declaration.create_project or looks_only
        project = (
            self.site.find_project(declaration.project)
            if may_lack
            else self.site.project(declaration.project, create=False)
        )
        base = observer.observe(recovered, project)
        if base.remote and base.checkpoint and not (base.distrust or recovered.sent):
            learn_of_stamp(self.record, base.checkpoint, base.remote, now=self.site.now())
        return base

    def plan(self, recovered: Recovered) -> Planned:
        """Observe the data source, read the models, and decide what the refresh does.

        If tables changed, build their update: its size decides whether the refresh sends the
        update.

        Raises:
            RefusedError: a model has rows that cannot be published.
        """
        base = self._accepted(self.observe(recovered))
        planned, metadata = self._plan_for(base), base.metadata
        if (
            metadata
            and not metadata.tds
            and base.remote
            and isinstance(planned.plan, Publish | Refuse)
        ):
            # The metadata were not read, because their recorded digest was enough. A publish or a
            # refusal needs the metadata themselves.
            full_metadata = self.server.metadata(base.remote.luid)
            planned = self._plan_for(self._accepted(replace(base, metadata=full_metadata)))
        return planned

    def _accepted(self, base: Base) -> Base:
        """Return the base; drop its record of former filters if the user accepts their loss."""
        # Keep the filters if the metadata were not read: then the metadata have not changed, and
        # still have the filters.
        is_unchanged = base.metadata is not None and not base.metadata.tds
        is_accepted = Accept.FILTER in self.options.accept and not is_unchanged
        return replace(base, filters=()) if is_accepted else base

    def _plan_for(self, base: Base) -> Planned:
        builder = self.builder
        with phase(self.seconds, "plan"):
            is_empty = holds_rows_back(self.setup.declaration, base)
            pinned = None if is_empty else self._pinned(base)
            if is_empty:
                builder, base = builder.emptied(), without_rows(base, self.setup.declaration)
            if pinned is None:
                desired = builder.desired(base.checkpoint)
            else:
                desired = pinned.tables
                builder = builder.pinned(desired, **self._without_rows())
        # Explain read errors here, too: a plan may read earlier versions of the models, and
        # `newest_models` explains only errors of the newest versions.
        with builder.reading():
            planned = self._plan_to(desired, builder, base, is_empty=is_empty)
        return replace(planned, taken_at=pinned.taken_at if pinned else None)

    def _plan_to(
        self, desired: Mapping[str, TableContent], builder: Builder, base: Base, *, is_empty: bool
    ) -> Planned:
        deltas: Sequence[Delta] = ()
        with phase(self.seconds, "plan"):
            metadata = self._declared_metadata(builder, desired, base)
            facts = Facts(
                declaration=self.setup.declaration,
                desired=desired,
                base=base,
                differences=self._layout_differences(desired, base),
                metadata=metadata.merge,
                rejected=self.setup.rejected(),
            )
            plan = self._decide(facts, is_empty=is_empty)
        if isinstance(plan, Changed):
            if reason := self._reason_for_whole_files(plan, base.remote):
                plan = in_full(plan, reason)
            else:
                plan, deltas = self._decide_by_size(builder, plan, desired)
            plan = secured(plan, facts)
        if base.checkpoint and isinstance(plan, NoChange | UpdateTables):
            # Check keys of unchanged tables, because the declaration of a key may be new. A publish
            # checks all tables anyway, but other plans check only the changed tables.
            changed = plan.tables if isinstance(plan, UpdateTables) else ()
            with phase(self.seconds, "plan"):
                builder.check_unchanged(desired, base.checkpoint, changed=changed)
        return Planned(plan, base, desired, metadata, builder, deltas)

    def _decide(self, facts: Facts, *, is_empty: bool) -> Plan | Changed:
        """Decide what the refresh does; `is_empty` means that no row may be published yet."""
        options = self.options
        is_theirs = ownership_refusal(facts.declaration, facts.base, options) is not None
        if not is_theirs and (refusal := unguarded(facts.declaration, facts.base, options)):
            return Refuse((refusal,))
        if is_empty:
            options = replace(options, accept=options.accept | {Accept.SHRINK})
        return secured(decide(facts, options), facts)

    def _pinned(self, base: Base) -> "_Pinned | None":
        """Return the earlier rows to publish; None to publish the newest rows."""
        options = self.options
        if options.saved:
            return _Pinned(options.saved.tables, options.saved.at)
        if not (options.to or options.metadata_only):
            return None
        checkpoint = options.to or (base.checkpoint if base.exists else None)
        return _Pinned(checkpoint.tables, checkpoint.taken_at) if checkpoint else _Pinned({}, None)

    def _without_rows(self) -> dict[str, str]:
        name = self.setup.declaration.name
        if to := self.options.to:
            doing = f'"{name}" cannot go back to version {to.refresh}'
            return {"doing": doing, "remedy": "Choose a version that `rollback --list` shows"}
        if self.options.saved:
            return {"doing": f'"{name}" cannot be refreshed as planned', "remedy": "Plan again"}
        doing = f'The metadata of "{name}" cannot be published alone'
        return {"doing": doing, "remedy": "Refresh without metadata_only"}

    def _declared_metadata(
        self, builder: Builder, desired: Mapping[str, TableContent], base: Base
    ) -> DeclaredMetadata:
        """Return the declared metadata, together with the metadata on the server."""
        declaration, setup = self.setup.declaration, self.setup
        metadata = DeclaredMetadata(
            declaration,
            desired,
            checkpoint=base.checkpoint if base.exists else None,
            models=builder.models,
            inherited=setup.inherited,
            stored=WrittenValues(setup.written),
            link=setup.link,
            accepts=Accept.METADATA in self.options.accept,
            to=self.options.to,
            held=base.metadata,
            # After our publish has included a user's filter, the filter still counts as the user's
            # edit.
            is_edited=base.is_edited or bool(base.metadata and base.metadata.filters),
        )
        declared = metadata.declared_properties(certified=True)
        concerns_server = any(map(is_property, [*declared, *metadata.last_written]))
        if (
            not concerns_server
            or self.site is None
            or ownership_refusal(declaration, base, self.options)
        ):
            return metadata
        on_server = PropertiesOnServer(self.site, base.remote, declared, metadata.last_written)
        return replace(metadata, on_server=on_server)

    def _layout_differences(self, desired: Mapping[str, TableContent], base: Base) -> Sequence[str]:
        """Return phrases for how the tables of a data source to take over differ from ours."""
        declaration = self.setup.declaration
        if (
            base.remote is None
            or base.is_ours
            or ownership_refusal(declaration, base, self.options)
        ):
            return ()
        hyper, columns = self.setup.hyper, {name: table.columns for name, table in desired.items()}
        return layout_differences(self.server, base.remote, hyper, declaration, columns)

    def _reason_for_whole_files(
        self, changed: Changed, remote: RemoteDatasource | None
    ) -> str | None:
        """Return why only whole files may be sent; None if an update may be sent."""
        if self.site is None:
            return None
        limitation = whole_files(
            self.site,
            self.record,
            self.no_updates or changed.checkpoint.no_updates,
            is_own=remote is None or remote.owner_id == self.site.user_id,
            reads_jobs=self.reads_jobs or self.site.may_read_jobs,
            declaration=self.setup.declaration.digest(),
            now=self.setup.now(),
        )
        if limitation is None:
            return None
        self.warnings += filter(None, [limitation.warning])
        return limitation.why

    def _decide_by_size(
        self, builder: Builder, changed: Changed, desired: Mapping[str, TableContent]
    ) -> tuple[NoChange | UpdateTables | Publish, Sequence[Delta]]:
        """Build an update, and decide by its size; split a large update if that is declared."""
        declaration = self.setup.declaration
        server_limit = self.site.payload_limit if self.site else LARGEST_PAYLOAD
        limit = min(declaration.payload_limit or server_limit, server_limit)
        pieces: Sequence[Delta] = ()
        with phase(self.seconds, "build"):
            delta = builder.delta(changed.tables, desired, changed.checkpoint)
            if declaration.on_oversize == "split" and delta.extract.size > limit:
                pieces = builder.split(delta, limit)
        plan = by_size(declaration, changed, delta, limit=limit, pieces=len(pieces))
        is_sent = isinstance(plan, UpdateTables)
        remove([*([delta] if pieces or not is_sent else ()), *(() if is_sent else pieces)])
        return plan, (pieces or [delta]) if is_sent else ()
