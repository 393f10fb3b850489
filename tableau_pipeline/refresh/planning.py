"""Plan a refresh: observe the data source, read its models, and decide. It changes nothing."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tableau_pipeline.core.checkpoint import NoUpdates, TableContent
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import tags_of
from tableau_pipeline.core.journal import Recovered
from tableau_pipeline.core.limits import LARGEST_PAYLOAD
from tableau_pipeline.core.site_record import SiteRecord
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.delta import Delta, RowCounts, counts, remove, total
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import Merge, Values, is_property
from tableau_pipeline.metadata.written import Written
from tableau_pipeline.outcome import Accept
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
    not_ours,
)
from tableau_pipeline.refresh.declared_metadata import DeclaredMetadata
from tableau_pipeline.refresh.effects import Effects
from tableau_pipeline.refresh.observe import Base, Observer, recorded
from tableau_pipeline.refresh.phase import phase
from tableau_pipeline.refresh.reconcile import Reconciler, layout_differences
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.refresh.updates import record_of, whole_files
from tableau_pipeline.rendering import megabytes


@dataclass(frozen=True, slots=True)
class Planned:
    """What a refresh is to do, and all that it takes.

    Attributes:
        base: what is known of the data source.
        desired: the content of each table.
        metadata: the declared metadata, and what becomes of those on the server.
        builder: builds files of the planned versions of the models.
        deltas: of an update, in the order in which they are sent.
        keeps_rows: the rows stay those of the last refresh, whatever the models have by now.
        seconds: by phase, and "total"; empty if it is to be carried out, and not only told.
    """

    plan: Plan
    base: Base
    desired: Mapping[str, TableContent]
    metadata: DeclaredMetadata
    builder: Builder
    deltas: Sequence[Delta] = ()
    keeps_rows: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def merged(self) -> Merge | None:
        """What becomes of the metadata on the server; None if there are none to keep or set."""
        return self.metadata.merge

    @property
    def declared_values(self) -> Values:
        """The declared and inherited metadata."""
        return self.metadata.declared_values

    @property
    def moves(self) -> Mapping[str, str]:
        """What becomes of its name and its project, as phrases, by "rename" and "move"."""
        return self.base.move.phrases if self.base.move else {}

    @property
    def decision(self) -> str:
        """What is to be done, in a few words."""
        return decision_of(self.plan, self.moves)

    @property
    def reason(self) -> str:
        """Why, in words."""
        return reason_of(self.plan, self.moves)

    @property
    def tables(self) -> Mapping[str, RowCounts]:
        """What an update is to do to each table that it changes."""
        return counts(self.deltas)

    @property
    def extract(self) -> Extract | None:
        """The payload of an update; of several, the last with the rows and bytes of all."""
        return total(self.deltas) if self.deltas else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know although nothing is wrong."""
        saved = self.base.checkpoint.saved if self.base.checkpoint else ()
        return (
            *self.base.warnings,
            *lost_credentials(self.plan, self.base),
            *self.metadata.lost_by(self.plan),
            *self.metadata.returned(saved),
        )

    @property
    def summary(self) -> str:
        """All of it in one line, once it was planned to be told."""
        name = self.metadata.declaration.name
        if isinstance(self.plan, Refuse):
            return f"{name}: the refresh would be refused: {self.plan.reason}"
        work = work_of(self.plan, self.moves, self.tables, self.extract)
        seconds = f"{self.seconds['total']:.1f} s"
        return f"{name}: dry run, nothing sent; a refresh would be: {work} in {seconds}"


def decision_of(plan: Plan, moves: Mapping[str, str]) -> str:
    """What is done, in a few words, such as "rename, update"."""
    moved = () if isinstance(plan, Refuse) else tuple(moves)
    is_all = moved and isinstance(plan, NoChange)
    return ", ".join(moved if is_all else [*moved, plan.decision])


def reason_of(plan: Plan, moves: Mapping[str, str]) -> str:
    """Why it is done, in words."""
    moved = () if isinstance(plan, Refuse) else moves.values()
    return "; ".join([*moved, plan.reason])


def work_of(
    plan: Plan, moves: Mapping[str, str], tables: Mapping[str, RowCounts], extract: Extract | None
) -> str:
    """What is done, in words, such as "update, -433 +419 rows, 0.13 MB"."""
    moved = "".join(f"{phrase}, " for phrase in moves.values())
    match plan:
        case NoChange():
            return f"{moved}the same rows" if moved else "no change"
        case UpdateTables():
            deleted = sum(each.deleted for each in tables.values())
            inserted = sum(each.inserted for each in tables.values())
            size = megabytes(extract.size) if extract else ""
            return f"{moved}update, -{deleted:,} +{inserted:,} rows, {size}"
    return f"{moved}{plan.decision}"


@dataclass
class Planner:
    """Plans for one refresh.

    Attributes:
        site: None to ask no server: it is then as our records have it.
        reads_all: the metadata are to be read even if they are as they were.
        reads_jobs: tells whether this user may ask for jobs; None to ask the server.
        no_updates: why this refresh has come to send whole files alone.
        warnings: what a person should know of the roads that are closed.
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
        """The server, where there is one to ask."""
        if self.site is None:
            raise ValueError("this refresh asks no server")
        return self.site

    @cached_property
    def tags(self) -> frozenset[str]:
        """Those that the data source has if it is ours."""
        return tags_of(self.setup.declaration.key, self.setup.journal.instance)

    @cached_property
    def reconciler(self) -> Reconciler:
        """Compares what is published with models."""
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
        """Tells from the data source whether requests took effect."""
        return Effects(self.server, self.reconciler.likeness)

    @cached_property
    def record(self) -> SiteRecord:
        """What the site was seen to do."""
        return record_of(self.server, self.setup.sites)

    @property
    def log(self) -> logging.Logger:
        """That of the refresh."""
        return self.setup.log

    def observe(self, past: Recovered, *, looks_only: bool = False) -> Base:
        """Look at the data source on the server.

        Args:
            looks_only: a missing project is no mistake.
        """
        declaration = self.setup.declaration
        if self.site is None:
            return recorded(declaration, past)
        observer = Observer(
            declaration,
            self.site,
            self.reconciler,
            self.tags,
            site=self.record.facts,
            log=self.log,
            reads_all=self.reads_all,
        )
        # It is created only when a file is sent: a refused refresh must not leave an empty project.
        if declaration.create_project or looks_only:
            return observer.observe(past, self.site.find_project(declaration.project))
        return observer.observe(past, self.site.project(declaration.project, create=False))

    def plan(self, past: Recovered) -> Planned:
        """Observe, read the models, and decide; a changed table decides by its update's size.

        Raises:
            RefusedError: a model has rows that cannot be published.
        """
        base = self.observe(past)
        planned, held = self._planned(base), base.metadata
        if held and not held.tds and base.remote and isinstance(planned.plan, Publish | Refuse):
            # What records tell of it is enough only while it stays as it is.
            read = self.server.metadata(base.remote.luid)
            planned = self._planned(replace(base, metadata=read))
        return planned

    def _planned(self, base: Base) -> Planned:
        builder, deltas = self.builder, ()
        with phase(self.seconds, "plan"):
            if self.options.metadata_only:
                record = base.checkpoint if base.exists else None
                builder, desired = builder.pinned(record)
            else:
                desired = builder.desired(base.checkpoint)
            metadata = self._metadata(builder, desired, base)
            facts = Facts(
                declaration=self.setup.declaration,
                desired=desired,
                base=base,
                differences=self._differences(desired, base),
                metadata=metadata.merge,
                rejected=self.setup.rejected(),
            )
            plan = decide(facts, self.options)
        if isinstance(plan, Changed):
            if why := self._whole_files(plan, base.remote):
                plan = in_full(plan, why)
            else:
                plan, deltas = self._by_size(builder, plan, desired)
        if base.checkpoint and isinstance(plan, NoChange | UpdateTables):
            # A publish checks all tables anyway. Otherwise a key that was declared since then would
            # pass unchecked until the next change of the rows.
            changed = plan.tables if isinstance(plan, UpdateTables) else ()
            with phase(self.seconds, "plan"):
                builder.check_unchanged(desired, base.checkpoint, changed=changed)
        keeps_rows = self.options.metadata_only
        return Planned(plan, base, desired, metadata, builder, deltas, keeps_rows)

    def _metadata(
        self, builder: Builder, desired: Mapping[str, TableContent], base: Base
    ) -> DeclaredMetadata:
        """The declared metadata, beside those that the server has."""
        declaration, setup = self.setup.declaration, self.setup
        metadata = DeclaredMetadata(
            declaration,
            desired,
            checkpoint=base.checkpoint if base.exists else None,
            models=builder.models,
            inherited=setup.inherited,
            stored=Written(setup.written),
            link=setup.link,
            accepts=Accept.METADATA in self.options.accept,
            held=base.metadata,
            is_edited=base.is_edited,
        )
        declared = metadata.declared_properties(certified=True)
        concerns_server = any(map(is_property, [*declared, *metadata.last_written]))
        if not concerns_server or self.site is None or not_ours(declaration, base, self.options):
            return metadata
        on_server = PropertiesOnServer(self.site, base.remote, declared, metadata.last_written)
        return replace(metadata, on_server=on_server)

    def _differences(self, desired: Mapping[str, TableContent], base: Base) -> Sequence[str]:
        """In what the tables of a data source that is taken over differ from ours."""
        declaration = self.setup.declaration
        if base.remote is None or base.is_ours or not_ours(declaration, base, self.options):
            return ()
        hyper, columns = self.setup.hyper, {name: e.columns for name, e in desired.items()}
        return layout_differences(self.server, base.remote, hyper, declaration, columns)

    def _whole_files(self, changed: Changed, remote: RemoteDatasource | None) -> str | None:
        """Why only whole files are to be sent; None if an update may be."""
        if self.site is None:
            return None
        found = whole_files(
            self.site,
            self.record,
            self.no_updates or changed.checkpoint.no_updates,
            is_own=remote is None or remote.owner_id == self.site.user_id,
            reads_jobs=self.reads_jobs or self.site.may_read_jobs,
            declaration=self.setup.declaration.digest(),
            now=self.setup.now(),
        )
        if found is None:
            return None
        self.warnings += filter(None, [found.warning])
        return found.why

    def _by_size(
        self, builder: Builder, changed: Changed, desired: Mapping[str, TableContent]
    ) -> tuple[NoChange | UpdateTables | Publish, Sequence[Delta]]:
        """Build an update, in several parts if it is too large and may be split, and decide."""
        declaration = self.setup.declaration
        possible = self.site.payload_limit if self.site else LARGEST_PAYLOAD
        limit = min(declaration.payload_limit or possible, possible)
        pieces: Sequence[Delta] = ()
        with phase(self.seconds, "build"):
            delta = builder.delta(changed.tables, desired, changed.checkpoint)
            if declaration.on_oversize == "split" and delta.extract.size > limit:
                pieces = builder.split(delta, limit)
        plan = by_size(declaration, changed, delta, limit=limit, pieces=len(pieces))
        is_sent = isinstance(plan, UpdateTables)
        remove([*([delta] if pieces or not is_sent else ()), *(() if is_sent else pieces)])
        return plan, (pieces or [delta]) if is_sent else ()
