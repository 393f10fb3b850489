"""Decide from facts what a refresh will do, without any effects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from tableau_pipeline.core.checkpoint import Checkpoint, PublishMode, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.units import megabytes
from tableau_pipeline.errors import Check
from tableau_pipeline.extracts.updates.delta import RowCounts, Size
from tableau_pipeline.refresh.plan.guards import guard_problems
from tableau_pipeline.refresh.plan.ownership import must_overwrite, not_ours
from tableau_pipeline.refresh.plan.schema_change import schema_changes, schema_problems
from tableau_pipeline.refresh.recover.observe import Published


class Accept(StrEnum):
    """What a run may accept once instead of refusing it."""

    SHRINK = "shrink"
    SCHEMA = "schema"
    OVERWRITE = "overwrite"
    TAKEOVER = "takeover"


@dataclass(frozen=True, slots=True)
class Options:
    """The run config of a refresh."""

    dry_run: bool = False
    publish: bool = True
    full: bool = False
    accept: frozenset[Accept] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class NoChange:
    """The data source already holds what it should."""

    reason: str
    decision: ClassVar = "no change"


@dataclass(frozen=True, slots=True)
class Update:
    """Send the tables that changed; each with the reason to send it whole, if there is one.

    Attributes:
        pieces: the number of consecutive updates.
    """

    tables: Mapping[str, str | None]
    reason: str
    pieces: int = 1
    decision: ClassVar = "update"


@dataclass(frozen=True, slots=True)
class Publish:
    """Send the whole file."""

    mode: PublishMode
    reason: str

    @property
    def decision(self) -> str:
        """The decision in a few words."""
        return f"publish ({self.mode})"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do nothing; `reason` states what is wrong and what to decide.

    Attributes:
        failed: what each failed check found.
    """

    reason: str
    failed: Mapping[Check, str] = field(default_factory=dict)
    decision: ClassVar = "refuse"


# Each states its `decision` in a few words, and the `reason`.
Plan = NoChange | Update | Publish | Refuse


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that a decision depends on.

    Attributes:
        digest: the digest of the declaration, as it would be recorded.
        whole: why only the whole file may be sent, whatever changed; None if less may do.
    """

    declaration: Declaration
    digest: str
    desired: Mapping[str, TableContent]
    published: Published
    whole: str | None = None


def decide(
    facts: Facts,
    options: Options,
    measure: Callable[[Sequence[str], Checkpoint], Size],
    layout: Callable[[], Sequence[str]],
) -> Plan:
    """Decide how to make the data source hold the desired content.

    Args:
        measure: the size of the delta of these tables against a base. It is expensive, and is
            called only if everything else allows an update.
        layout: in what the tables of a data source that is to be taken over differ from ours. It
            is expensive, too.
    """
    published, record = facts.published, facts.published.record
    if refusal := _refusal(facts, options, layout):
        return refusal
    if published.remote is None:
        gone = "the data source is gone from the server: it is published again"
        return Publish(PublishMode.CREATE, gone if record else "first publish")
    if not published.is_ours:
        return _taken_over(facts, options, layout())
    if changes := _new_metadata(facts):
        return Publish(PublishMode.OVERWRITE, f"in full: {changes[0]}")
    # On its own, accept: [overwrite] permits an overwrite that is needed; it does not ask for one.
    if Accept.OVERWRITE in options.accept and (options.full or record is None):
        return Publish(PublishMode.OVERWRITE, "in full, as asked (accept: overwrite)")
    if record is None:
        # Replace and not Overwrite: nothing tells whether analysts have worked on the metadata.
        reason = published.untrusted or "no record shows what it holds"
        return Publish(PublishMode.REPLACE, f"in full: {reason}")
    if reason := _in_full(facts, record, options):
        return Publish(PublishMode.REPLACE, f"in full: {reason}")
    changed = tuple(
        name for name, table in facts.desired.items() if not table.same_content(record.tables[name])
    )
    if not changed:
        return NoChange("every table's fingerprint equals that of the last refresh")
    if facts.whole:
        return Publish(PublishMode.REPLACE, f"in full: {_new_content(changed)}; {facts.whole}")
    return _by_size(facts.declaration, changed, record, measure(changed, record))


def _taken_over(facts: Facts, options: Options, differences: Sequence[str]) -> Publish:
    """The first publish of a data source that somebody else published before."""
    how = "accept: takeover" if facts.published.other_key else "adopt"
    reason = f"first publish: takes over the data source ({how}), which has"
    if differences:
        # Its metadata describes other tables and would not fit ours.
        return Publish(PublishMode.OVERWRITE, f"{reason} other tables: {', '.join(differences)}")
    asked = options.full and Accept.OVERWRITE in options.accept
    mode = PublishMode.OVERWRITE if asked else PublishMode.REPLACE
    return Publish(mode, f"{reason} the same tables and columns")


def _refusal(facts: Facts, options: Options, layout: Callable[[], Sequence[str]]) -> Refuse | None:
    """The reasons to do nothing, the most important ones first."""
    declaration, published = facts.declaration, facts.published
    takeover = Accept.TAKEOVER in options.accept
    if refused := not_ours(declaration, published, takeover=takeover):
        return Refuse(refused)
    guards: list[str] = []
    if Accept.SHRINK not in options.accept:
        # What somebody deleted from the server may come back with fewer rows.
        rows = published.rows if published.remote else {}
        guards = guard_problems(declaration, facts.desired, rows)
    schema: list[str] = []
    if published.remote and published.record and Accept.SCHEMA not in options.accept:
        policy = declaration.on_schema_change
        schema = schema_problems(facts.desired, published.record.tables, policy)
    problems = guards + schema
    # The question comes last: if the schema change is refused, nothing has to be overwritten.
    if not problems and Accept.OVERWRITE not in options.accept:
        changes = _new_metadata(facts) if published.is_ours or not published.remote else layout()
        problems = must_overwrite(published, changes)
    if not problems:
        return None
    failed = {Check.GUARD: "\n".join(guards), Check.SCHEMA: "\n".join(schema)}
    return Refuse("\n".join(problems), {check: found for check, found in failed.items() if found})


def _new_metadata(facts: Facts) -> list[str]:
    """Why the published metadata would not fit, as phrases; empty if it fits."""
    record, changes = facts.published.record, []
    if record:
        changes = schema_changes(facts.desired, record.tables)
        if record.declaration != facts.digest:
            changes.append("the declaration changed")
    return changes or _other_columns(facts)


def _other_columns(facts: Facts) -> list[str]:
    """In what the columns of the published metadata differ, because somebody overwrote it."""
    metadata = facts.published.metadata
    # The server chooses its own column names when it converts a Parquet file.
    if metadata is None or metadata.columns is None or facts.whole:
        return []
    wanted = {
        (facts.declaration.published_name(name), column.name)
        for name, table in facts.desired.items()
        for column in table.columns
    }
    # What a server lists besides our columns is not the work of people.
    others = metadata.columns - wanted if facts.published.is_edited else frozenset()
    return [
        *(
            f'the published metadata lacks the column "{column}" of "{table}"'
            for table, column in sorted(wanted - metadata.columns)
        ),
        *(
            f'the published metadata has the column "{column}" of "{table}", which is not ours'
            for table, column in sorted(others)
        ),
    ]


def _in_full(facts: Facts, record: Checkpoint, options: Options) -> str | None:
    """Why the whole file must be sent instead of an update; None if an update may do."""
    if facts.published.untrusted:
        return facts.published.untrusted
    # Updates refer to columns by name, but row hashes depend on their order.
    reordered = [
        name
        for name, table in facts.desired.items()
        if record.tables[name].columns != table.columns
    ]
    if reordered:
        return f"the order of columns changed in {', '.join(reordered)}"
    return "asked for (full: true)" if options.full else None


def _by_size(
    declaration: Declaration, changed: Sequence[str], record: Checkpoint, delta: Size
) -> NoChange | Update | Publish:
    """The update, or the whole file if that is smaller or better; neither if no row changed."""
    if not any(each.whole or each.deleted or each.inserted for each in delta.counts.values()):
        # Somebody has compacted the table of a lake, say.
        return NoChange(f"the files of {', '.join(changed)} changed, but not the rows in them")
    reason, size = _new_content(changed), megabytes(delta.size)

    def in_full(why: str) -> Publish:
        return Publish(PublishMode.REPLACE, f"in full: {reason}; {why}")

    cap, rebase = declaration.rebase_after, declaration.rebase
    if cap is not None and record.updates >= cap:
        return in_full(
            f"{record.updates} updates since the file was last published whole "
            f"(rebase_after: {cap})"
        )
    if record.size and delta.size > record.size:
        whole = megabytes(record.size)
        return in_full(f"the update of {size} is larger than the whole file of {whole}")
    if record.size and record.grown + delta.size > rebase * record.size:
        return in_full(
            f"with this update it would have grown by {megabytes(record.grown + delta.size)} since "
            f"it was last published whole with {megabytes(record.size)} (rebase: {rebase:g})"
        )
    too_large = f"the update of {size} exceeds the limit of {megabytes(delta.limit)} for payloads"
    if delta.size > delta.limit and not delta.pieces:
        splits = declaration.oversize == "split"
        return in_full(too_large + (", and it cannot be split below that" if splits else ""))
    split = f"; split, because {too_large}" if delta.pieces else ""
    return Update(
        tables={name: counts.whole for name, counts in delta.counts.items()},
        reason=f"{reason}: {'; '.join(_rows(name, c) for name, c in delta.counts.items())}{split}",
        pieces=max(delta.pieces, 1),
    )


def _new_content(tables: Sequence[str]) -> str:
    return f"new content in {', '.join(tables)}"


def _rows(table: str, counts: RowCounts) -> str:
    whole = f" (whole: {counts.whole})" if counts.whole else ""
    return f"{table} -{counts.deleted:,} +{counts.inserted:,} rows{whole}"
