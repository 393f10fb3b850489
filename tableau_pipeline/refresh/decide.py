"""Decide what a refresh does: first by the facts, then by the size of an update.

A checkpoint is a refresh's record of the published data source, with the content of each table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tableau_pipeline.core.checkpoint import Checkpoint, PublishMode, TableContent, columns_of
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.extracts.delta import Delta, RowCounts
from tableau_pipeline.extracts.schema import schema_changes, schema_problems
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.metadata.contents import edits_phrase
from tableau_pipeline.metadata.merge import Merge, conflict_phrases, lost_phrases
from tableau_pipeline.outcome import Accept, Code, Refusal, Status, in_words
from tableau_pipeline.refresh.approval import Approval
from tableau_pipeline.refresh.guards import size_problems
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline.rendering import megabytes

_HOW_TO_OVERWRITE = (
    "Run again with accept: [overwrite]: that run first saves the data source as a .tdsx file in "
    'the folder "kept" of the data directory. Tableau Desktop can copy that work back from it'
)


@dataclass(frozen=True, slots=True)
class Options:
    """What a user asks of one refresh.

    Attributes:
        full: publish the full file, even if nothing changed.
        metadata_only: bring the metadata up to date, and keep the rows of the last refresh.
        accept: the refusals to accept, in this refresh only.
        by: the user who accepts these refusals, for the records; "" for the run or script itself.
        to: the checkpoint whose rows and metadata to publish again; None to publish the models.
        approval: the approval that limits the refresh; None for no limits. A refresh beyond the
            limits is refused.
        saved: the saved plan to carry out; None for a new plan. A refresh that differs from the
            saved plan is refused.
    """

    full: bool = False
    metadata_only: bool = False
    accept: frozenset[Accept] = field(default_factory=frozenset)
    by: str = ""
    to: Checkpoint | None = None
    approval: Approval | None = None
    saved: SavedPlan | None = None


@dataclass(frozen=True, slots=True)
class NoChange:
    """Send nothing: the data source already has the desired content."""

    reason: str
    decision: ClassVar = "no change"


@dataclass(frozen=True, slots=True)
class Changed:
    """Some tables differ from the checkpoint. The size of their update decides what is sent."""

    tables: tuple[str, ...]
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class UpdateTables:
    """Update the tables that changed.

    Attributes:
        tables: for each table, the reason to send all its rows; None to send only the changed rows.
        pieces: the number of updates into which the changes are split.
    """

    tables: Mapping[str, str | None]
    reason: str
    pieces: int = 1
    decision: ClassVar = "update"


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the full file.

    Attributes:
        merged: whether the file includes the metadata of the server, with the declared values set
            in them.
    """

    mode: PublishMode
    reason: str
    merged: bool = False

    @property
    def decision(self) -> str:
        """The decision in a few words."""
        return f"publish ({self.mode})"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Send nothing, because of these refusals."""

    refusals: tuple[Refusal, ...]
    decision: ClassVar = Status.REFUSED

    @property
    def reason(self) -> str:
        """One line for each refusal: what is wrong, and what a user can do."""
        return in_words(self.refusals)


# Each class has a `decision`, which is a few words, and a `reason`.
Plan = NoChange | UpdateTables | Publish | Refuse


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that a decision depends on.

    Attributes:
        desired: the desired content of each table.
        differences: how the published tables differ from the declared tables, if another user or
            another asset key published them; otherwise ().
        metadata: the merge of the declared metadata into the metadata on the server; None if there
            is no metadata to keep or set.
        rejected: for each model, the checks that rejected its newest rows.
    """

    declaration: Declaration
    desired: Mapping[str, TableContent]
    base: Base
    differences: Sequence[str] = ()
    metadata: Merge | None = None
    rejected: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def columns(self) -> Mapping[str, tuple[Column, ...]]:
        """The desired columns of each table."""
        return columns_of(self.desired)

    @property
    def edits(self) -> str:
        """The changes of metadata, in words; "" if nothing changes."""
        return self.metadata.phrase if self.metadata else ""

    def keeps_metadata(self, options: Options) -> bool:
        """Whether an overwrite keeps the metadata of the server."""
        if self.metadata is None or self.metadata.problem:
            return False
        # With accept: [overwrite], drop the metadata only if a user has edited them.
        return Accept.OVERWRITE not in options.accept or not self.base.is_edited


def decide(facts: Facts, options: Options) -> NoChange | Changed | Publish | Refuse:
    """Decide how to bring the desired content into the data source."""
    base, checkpoint = facts.base, facts.base.checkpoint
    if refusal := _refusal(facts, options):
        return refusal
    if not base.exists:
        gone = "the data source is gone from the server: it is published again"
        return Publish(PublishMode.CREATE, gone if checkpoint else "first publish")
    if not base.is_ours:
        return _takeover(facts, options)
    if overwrite := _overwrite_of_ours(facts, options):
        return overwrite
    if checkpoint is None:
        # Use mode Replace, which keeps users' edits of the metadata.
        reason = base.distrust or "no record shows what it holds"
        return Publish(PublishMode.REPLACE, f"full publish: {reason}")
    if reason := _reason_in_full(facts, checkpoint, options):
        return Publish(PublishMode.REPLACE, f"full publish: {reason}")
    changed = tuple(
        name
        for name, table in facts.desired.items()
        if not table.same_content(checkpoint.tables[name])
    )
    if not changed:
        return NoChange("no row has changed since the last refresh")
    if base.metadata and base.metadata.source:
        reason = (
            f"full publish: {_new_content(changed)}; the metadata, which were kept, describe an "
            f"extract of {base.metadata.source}, and such an extract takes no updates. To allow "
            "updates, run once with full: true and accept: [overwrite], which drops "
            f"{edits_phrase(base.metadata)}"
        )
        return Publish(PublishMode.REPLACE, reason)
    return Changed(changed, checkpoint)


def _overwrite_of_ours(facts: Facts, options: Options) -> Publish | None:
    """Return an overwrite of our own data source; None if the published metadata may stay."""
    base = facts.base
    if changes := _metadata_misfits(facts):
        merged = facts.keeps_metadata(options)
        return Publish(PublishMode.OVERWRITE, f"full publish: {changes[0]}", merged=merged)
    # accept: [overwrite] permits an overwrite. It causes an overwrite only together with
    # full: true, or if the published content is unknown.
    if Accept.OVERWRITE in options.accept and (options.full or base.checkpoint is None):
        return Publish(PublishMode.OVERWRITE, "full publish, as asked (accept: overwrite)")
    if facts.edits:
        reason = "; ".join(filter(None, [str(base.distrust or ""), facts.edits]))
        # Merge the metadata even with accept: [overwrite], as long as every field of a user stays
        # valid.
        merged = not (facts.metadata and facts.metadata.broken) or facts.keeps_metadata(options)
        return Publish(PublishMode.OVERWRITE, f"full publish: {reason}", merged=merged)
    return None


def _takeover(facts: Facts, options: Options) -> Publish:
    """Return our first publish over a data source that another user or asset key published."""
    has_key = facts.base.ownership and facts.base.ownership.other_key
    how = "accept: takeover" if has_key else "adopt"
    reason = f"first publish: takes over the data source ({how}), which has"
    if facts.differences:
        # Overwrite the metadata: they describe other tables, and would not fit our tables.
        reason = f"{reason} other tables: {', '.join(facts.differences)}"
        return Publish(PublishMode.OVERWRITE, reason, merged=facts.keeps_metadata(options))
    reason = f"{reason} the same tables and columns"
    if options.full and Accept.OVERWRITE in options.accept:
        return Publish(PublishMode.OVERWRITE, reason)
    if facts.edits:
        return Publish(PublishMode.OVERWRITE, f"{reason}; {facts.edits}", merged=True)
    return Publish(PublishMode.REPLACE, reason)


def _refusal(facts: Facts, options: Options) -> Refuse | None:
    """Return the refusals, the most important first; None if nothing is refused."""
    declaration, base = facts.declaration, facts.base
    if refusal := ownership_refusal(declaration, base, options):
        return Refuse((refusal,))
    checks: list[Refusal] = []
    if Accept.CHECKS not in options.accept:
        tables = base.checkpoint.tables if base.checkpoint else {}
        checks = check_problems(facts.desired, tables, facts.rejected)
    # If a user has deleted the data source, nothing is published, so the new rows may be fewer.
    published = base.rows if base.exists else {}
    guards = size_problems(declaration, facts.desired, published, accept=options.accept)
    schema: list[Refusal] = []
    if base.exists and base.checkpoint and Accept.SCHEMA not in options.accept:
        policy = declaration.on_schema_change
        schema = schema_problems(facts.columns, columns_of(base.checkpoint.tables), policy)
    problems, metadata = checks + guards + schema, facts.metadata
    if schema and metadata and metadata.lost:
        lost = "; ".join(lost_phrases(metadata))
        remedy = 'That run saves the data source in the folder "kept" before'
        problems.append(Refusal(lost, Code.WORK_WOULD_GO, Accept.SCHEMA, remedy=remedy))
    refuses_conflicts = metadata and not problems and declaration.metadata.on_conflict == "refuse"
    if conflicts := conflict_phrases(metadata) if metadata and refuses_conflicts else []:
        problems = [
            Refusal(
                f'The metadata of "{declaration.name}" were changed by its declaration, and by a '
                f"person on the server: {'; '.join(conflicts)}. Nothing was changed (metadata: "
                "{on_conflict: refuse})",
                Code.METADATA_CONFLICT,
                Accept.METADATA,
                remedy="Declare what is on the server, or nothing of it; or set on_conflict to "
                "keep or replace; or run once with accept: [metadata], to leave what is on the "
                "server",
            )
        ]
    # Check for an overwrite last: if the schema change is refused, nothing is overwritten.
    if not problems and Accept.OVERWRITE not in options.accept:
        problems = _dropped(facts)
    if not problems:
        return None
    return Refuse(tuple(problems))


def ownership_refusal(declaration: Declaration, base: Base, options: Options) -> Refusal | None:
    """Return a refusal if we must not change the data source, because of its publisher or name."""
    if base.ownership is None:
        return None
    takeover = Accept.TAKEOVER in options.accept
    name_taken = base.move.taken if base.move else None
    return base.ownership.refusal(declaration, takeover=takeover) or name_taken


def _dropped(facts: Facts) -> list[Refusal]:
    """Return a refusal if an overwrite is needed, and would drop users' edits; [] otherwise."""
    base, metadata = facts.base, facts.metadata
    if not base.is_edited:
        return []
    # Collect the reasons for an overwrite that drops edits.
    if metadata is None or metadata.problem:
        changes = [*facts.differences] if not base.is_ours else _metadata_misfits(facts)
    else:
        changes = [*(_foreign_columns(facts) if base.is_ours else ()), *metadata.broken]
    if not changes:
        return []
    name = base.remote.name if base.remote else facts.declaration.name
    reason = "its metadata is not as we left it"
    if not base.is_ours:
        reason = "another user made it"
    elif not base.left:
        reason = "no record shows what its metadata was when we left it"
    problem = (
        f'"{name}" must be overwritten, because {", ".join(changes)}, but {reason}. An '
        f"overwrite drops {edits_phrase(base.metadata)}"
    )
    return [Refusal(problem, Code.WORK_WOULD_GO, Accept.OVERWRITE, remedy=_HOW_TO_OVERWRITE)]


def _metadata_misfits(facts: Facts) -> list[str]:
    """Return phrases for how the published metadata would not fit the tables; [] if they fit."""
    checkpoint, metadata, changes = facts.base.checkpoint, facts.base.metadata, []
    if checkpoint:
        changes = [*schema_changes(facts.columns, columns_of(checkpoint.tables))]
        if checkpoint.declaration != facts.declaration.digest():
            changes.append("the declaration changed")
    if metadata and not metadata.has_file:
        changes.append("the published data source has no .hyper file")
    if changes or metadata is None or metadata.columns is None:
        return changes
    # By our records the metadata fit, but another user may have overwritten the data source.
    columns = _published_columns(facts, facts.desired)
    phrase = 'the published metadata lacks the column "{}" of "{}"'
    changes = [phrase.format(column, table) for table, column in sorted(columns - metadata.columns)]
    if facts.base.distrust:
        # An overwrite in our records may not have taken effect. Then the metadata may still have
        # tables that are no longer declared.
        gone = {table for table, _ in metadata.columns} - {table for table, _ in columns}
        phrase = 'the published metadata has the table "{}", which is gone'
        changes += [phrase.format(table) for table in sorted(gone)]
    return [*changes, *_foreign_columns(facts)]


def _published_columns(facts: Facts, tables: Mapping[str, TableContent]) -> set[tuple[str, str]]:
    """Return each column as a pair of the published name of its table and the column's name."""
    name_of = facts.declaration.published_name
    return {
        (name_of(name), column.name) for name, table in tables.items() for column in table.columns
    }


def _foreign_columns(facts: Facts) -> list[str]:
    """Return a phrase for each column that another user has added."""
    base = facts.base
    # If no user has edited the metadata, the server has added the other columns itself.
    if base.metadata is None or base.metadata.columns is None or not base.is_edited:
        return []
    published = base.checkpoint.tables if base.checkpoint else {}
    foreign = (
        base.metadata.columns
        - _published_columns(facts, facts.desired)
        - _published_columns(facts, published)
    )
    return [
        f'the published metadata has the column "{column}" of "{table}", which is not ours'
        for table, column in sorted(foreign)
    ]


def _reason_in_full(facts: Facts, checkpoint: Checkpoint, options: Options) -> str | None:
    """Return why a refresh must send the full file; None if it may send an update."""
    if facts.base.distrust:
        return str(facts.base.distrust)
    # An update finds changed rows by their hashes, which depend on the order of columns.
    reordered = [
        name
        for name, table in facts.desired.items()
        if checkpoint.tables[name].columns != table.columns
    ]
    if reordered:
        return f"the order of columns changed in {', '.join(reordered)}"
    return "asked for (full: true)" if options.full else None


def in_full(changed: Changed, why: str) -> Publish:
    """Return the decision to publish in full, because of `why`."""
    reason = f"full publish: {_new_content(changed.tables)}; {why}"
    return Publish(PublishMode.REPLACE, reason)


def by_size(
    declaration: Declaration, changed: Changed, delta: Delta, *, limit: int, pieces: int
) -> NoChange | UpdateTables | Publish:
    """Decide by the size of an update: send the update, publish the full file, or send nothing.

    Args:
        limit: the largest allowed payload in bytes.
        pieces: the number of updates into which the update was split; 0 if it was not split.
    """
    checkpoint, bytes_ = changed.checkpoint, delta.extract.size
    if not any(
        counts.whole or counts.deleted or counts.inserted for counts in delta.counts.values()
    ):
        # For example, a job has compacted the table of a lake.
        tables = ", ".join(changed.tables)
        return NoChange(f"the files of {tables} changed, but not the rows in them")
    reason, size = _new_content(changed.tables), megabytes(bytes_)

    cap, growth = declaration.republish.after, declaration.republish.growth
    if cap is not None and checkpoint.updates >= cap:
        return in_full(
            changed,
            f"{checkpoint.updates} updates since the last full publish (republish.after: {cap})",
        )
    if checkpoint.size and bytes_ > checkpoint.size:
        full = megabytes(checkpoint.size)
        return in_full(changed, f"the update of {size} is larger than the full file of {full}")
    grown = checkpoint.grown + bytes_
    if checkpoint.size and grown > growth * checkpoint.size:
        return in_full(
            changed,
            f"updates since the last full publish would total {megabytes(grown)}, the file has "
            f"{megabytes(checkpoint.size)} (limit: {growth:g}x, republish.growth)",
        )
    too_large = f"the update of {size} exceeds the limit of {megabytes(limit)} for payloads"
    if bytes_ > limit and not pieces:
        splits = declaration.on_oversize == "split"
        return in_full(
            changed, too_large + (", and it cannot be split below that" if splits else "")
        )
    rows = "; ".join(_rows_phrase(name, counts) for name, counts in delta.counts.items())
    split = f"; split, because {too_large}" if pieces else ""
    return UpdateTables(
        tables={name: counts.whole for name, counts in delta.counts.items()},
        reason=f"{reason}: {rows}{split}",
        pieces=max(pieces, 1),
    )


def _new_content(tables: Sequence[str]) -> str:
    return f"new content in {', '.join(tables)}"


def _rows_phrase(table: str, counts: RowCounts) -> str:
    note = f" (all rows: {counts.whole})" if counts.whole else ""
    return f"{table} -{counts.deleted:,} +{counts.inserted:,} rows{note}"


def check_problems(
    desired: Mapping[str, TableContent],
    published: Mapping[str, TableContent],
    rejected: Mapping[str, Sequence[str]],
) -> list[Refusal]:
    """Return a refusal for each model whose rejected rows would be published.

    Args:
        published: the published content of each table. It may include rejected rows that a user
            accepted.
        rejected: for each model, the checks that rejected its newest rows.
    """
    problems = []
    for name, table in desired.items():
        names, before = rejected.get(table.model, ()), published.get(name)
        # Refuse only versions that are not published yet. Comparing the contents is not enough:
        # with `retain`, the same version has other content each day.
        is_known = before and (before.model, before.version) == (table.model, table.version)
        if not names or is_known or (before and table.same_content(before)):
            continue
        refusal = rejection(table.model, names)
        problem = f'Table "{name}": {refusal.problem}'
        problems.append(replace(refusal, problem=problem, table=name))
    return problems


def rejection(model: str, checks: Sequence[str]) -> Refusal:
    """Return the refusal of a model's newest rows, which blocking checks have rejected."""
    names = f"check{'s' * (len(checks) > 1)} " + ", ".join(f'"{check}"' for check in checks)
    return Refusal(
        f'the blocking {names} of the model "{model}" rejected its newest rows',
        Code.ROWS_REJECTED,
        Accept.CHECKS,
        remedy="Correct the model, and run it again with its checks. To publish these rows all the "
        "same, run once with accept: [checks]",
        details={"model": model, "checks": [*checks]},
    )


def lost_credentials(plan: object, base: Base) -> tuple[str, ...]:
    """Return a warning if a publish drops credentials embedded in another user's extract."""
    source = base.metadata.source if base.metadata else None
    if base.remote is None or base.is_ours or source is None or not isinstance(plan, Publish):
        return ()
    return (
        f'A publish drops the credentials for {source} that are embedded in "{base.remote.name}": '
        "its own refresh tasks fail from then on. Delete those tasks, as this pipeline brings the "
        "rows",
    )
