"""Check the limits of a plan: guards of changed rows, an approval, and a saved plan.

These checks need the finished plan. The checks that come before the plan are in `decide`.
"""

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction

from tableau_pipeline.core.checkpoint import columns_of
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.drift import Change
from tableau_pipeline.metadata.merge import is_property, shown
from tableau_pipeline.outcome import Accept, Code, Refusal, Status
from tableau_pipeline.refresh.approval import Approval, metadata_changes, unapproved_columns
from tableau_pipeline.refresh.decide import NoChange, Options, Publish, Refuse, UpdateTables
from tableau_pipeline.refresh.guards import change_problem, too_many
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.saved_plan import PlannedRows, Published, SavedPlan


def within_limits(
    planned: Planned, options: Options, *, declaration: Declaration, digest: str
) -> Planned:
    """Return a plan unchanged if it is within its limits; otherwise, return it as a refusal.

    Args:
        digest: the digest of the whole declaration, which is the same in every environment.
    """
    if isinstance(planned.plan, Refuse):
        return planned
    changes = _Changes(planned)
    refusals = []
    if Accept.CHANGE not in options.accept:
        refusals += filter(None, map(changes.problem, declaration.tables))
    if options.approval:
        refusals += _outside(options.approval, planned, changes, digest=digest)
    if saved := options.saved:
        now = saved_plan(planned, options, key=saved.key, digest=digest, at=saved.at)
        if moved := [*saved.moved(now, is_touched=_is_touched(saved, planned.base))]:
            then = f"{saved.at:%Y-%m-%d %H:%M} UTC"
            problem = (
                f"{declaration.name} is not as it was planned at {then}: {'; '.join(moved)}. "
                "Nothing was changed"
            )
            refusals.append(Refusal(problem, Code.PLAN_MOVED, remedy="Plan again"))
    return planned.refused(*refusals) if refusals else planned


def saved_plan(
    planned: Planned, options: Options, *, key: str, digest: str, at: datetime
) -> SavedPlan:
    """Return a plan in the form in which it is saved.

    Args:
        key: the asset key, without the environment.
        digest: see `within_limits`.
        at: the time of the plan.
    """
    base, plan, published = planned.base, planned.plan, None
    if base.exists:
        remote, checkpoint = base.remote, base.checkpoint
        published = Published(
            luid=remote.luid if remote else None,
            updated_at=remote.updated_at if remote else None,
            revision=remote.revision if remote else None,
            tables=dict(checkpoint.tables) if checkpoint and not base.distrust else None,
        )
    return SavedPlan(
        key=key,
        declaration=digest,
        at=at,
        kind=kind_of(planned),
        mode=plan.mode if isinstance(plan, Publish) else None,
        moves=tuple(planned.moves),
        rows={
            name: PlannedRows(deleted=counts.deleted, inserted=counts.inserted)
            for name, counts in planned.tables.items()
        },
        tables=dict(planned.desired),
        base=published,
        full=options.full,
        metadata_only=options.metadata_only,
        accept=tuple(sorted(options.accept)),
    )


def _is_touched(saved: SavedPlan, base: Base) -> bool:
    """Whether another user may have changed the data source since the saved plan."""
    before = saved.base
    if before is None or before.updated_at is None or base.remote is None:
        return False
    late = (*base.late, *(base.checkpoint.late if base.checkpoint else ()))
    stamp = before.updated_at, before.revision
    return Change.since(stamp, base.remote, late=late).unexplained is not None


def kind_of(planned: Planned) -> Status:
    """Return what a refresh changes in a data source, except its name and project."""
    match planned.plan:
        case UpdateTables():
            return Status.UPDATE
        case Publish():
            return Status.PUBLISH
        case Refuse():
            return Status.REFUSED
    changes = planned.merged.changes if planned.merged else ()
    return Status.METADATA if any(map(is_property, changes)) else Status.UNCHANGED


class _Changes:
    """Counts the rows that a plan changes in a table, only when the number is needed."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._counted: dict[str, int | None] = {}

    def published(self, table: str) -> int | None:
        """Return the number of published rows; None if it is not known; 0 for a new table."""
        base = self._planned.base
        if not base.exists:
            return 0
        return None if base.rows is None else base.rows.get(table, 0)

    def desired(self, table: str) -> int:
        return self._planned.desired[table].content.rows

    def of(self, table: str) -> int | None:
        """Return how many rows come, go or change; None if the number is not known."""
        if table not in self._counted:
            self._counted[table] = self._count(table)
        return self._counted[table]

    def problem(self, table: Table) -> Refusal | None:
        """Return a refusal if more rows of a table change than its guard allows; otherwise None."""
        name = table.name
        return change_problem(table, self.published(name), lambda: self.of(name))

    def too_many(self, table: str, share: Fraction) -> str | None:
        """Return a phrase if more than this share of published rows may change; otherwise None."""
        return too_many(self.published(table), lambda: self.of(table), share)

    def _count(self, table: str) -> int | None:
        planned = self._planned
        counts = planned.tables.get(table)
        if isinstance(planned.plan, NoChange) or (planned.deltas and counts is None):
            return 0
        if counts and not counts.whole:
            return max(counts.deleted, counts.inserted)
        checkpoint = planned.base.checkpoint
        before = checkpoint.tables.get(table) if checkpoint else None
        if before is None:
            return None
        now = planned.desired[table]
        return 0 if now.same_content(before) else planned.builder.changed_rows(table, now, before)


def _outside(
    approval: Approval, planned: Planned, changes: _Changes, *, digest: str
) -> Iterator[Refusal]:
    """Yield one refusal, with all changes that an approval does not cover, if there are any."""
    problems = []
    if approval.declaration != digest:
        problems.append("its declaration is not the approved one")
    else:
        problems += _beyond(approval, planned, changes)
    if problems:
        yield Refusal(
            f"The approval of {planned.metadata.declaration.name} by {approval.by} does not cover "
            f"this refresh: {'; '.join(problems)}. Nothing was changed",
            Code.NOT_APPROVED,
            remedy="Plan again with --base, and let the plan be approved; or refresh without the "
            "approval",
        )


def _beyond(approval: Approval, planned: Planned, changes: _Changes) -> Iterator[str]:
    """Yield a phrase for each change of a plan that the approval does not cover."""
    if isinstance(planned.plan, Publish) and approval.kind is not Status.PUBLISH:
        yield f"it would be a {planned.reason}; approved: {approval.kind}"
    yield from (text for move, text in planned.moves.items() if move not in approval.moves)
    checkpoint = planned.base.checkpoint
    if planned.base.exists and checkpoint and Accept.SCHEMA not in approval.accept:
        published, desired = columns_of(checkpoint.tables), columns_of(planned.desired)
        for table in unapproved_columns(approval.columns, published, desired):
            yield f'the columns of table "{table}" would not change as approved'
    for change in metadata_changes(planned.merged):
        if change not in approval.metadata:
            yield (
                f"the {shown(change.path)} would change from {_value(change.before)} to "
                f"{_value(change.after)}"
            )
    for table in planned.desired:
        yield from _out_of_bounds(approval, changes, table)


def _out_of_bounds(approval: Approval, changes: _Changes, table: str) -> Iterator[str]:
    change, shrink = map(_share, (approval.max_change, approval.max_shrink))
    if change is not None and (problem := changes.too_many(table, change)):
        yield f'table "{table}": {problem}; approved: {approval.max_change:g} %'
    if shrink is None:
        return
    before, now = changes.published(table), changes.desired(table)
    if before is None:
        yield f'table "{table}": how many rows it would lose is not known'
    elif before - now > shrink * before:
        yield (
            f'table "{table}": {now:,} rows where {before:,} are published, '
            f"{(before - now) / before:.1%} fewer; approved: {approval.max_shrink:g} %"
        )


def _share(percent: float | None) -> Fraction | None:
    # Return an exact fraction: with floats, 7 % of 100 rows would be more than 7 rows.
    return None if percent is None else Fraction(str(percent)) / 100


def _value(text: str | None) -> str:
    return "nothing" if text is None else f'"{text}"'
