"""Saved plans: a later refresh carries out exactly the plan that a person has seen, or nothing."""

from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar

from tableau_pipeline.core.checkpoint import PublishMode, TableContent
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.outcome import Accept, Status
from tableau_pipeline.refresh.plan_file import PlanEntry


class PlannedRows(Frozen):
    """How many rows an update deletes and inserts in a table; see `extracts.delta.RowCounts`."""

    deleted: int
    inserted: int


class Published(Frozen):
    """The state that a plan builds on: the data source on the server, and our record of its rows.

    Attributes:
        updated_at: the server's time stamp. If the server was not asked, this, `luid` and
            `revision` are None.
        tables: the published content of each table; None if it is not known.
    """

    luid: str | None = None
    updated_at: datetime | None = None
    revision: int | None = None
    tables: dict[str, TableContent] | None = None


class SavedPlan(PlanEntry):
    """The plan of one refresh, with all facts that the plan depends on, but no values of rows.

    Attributes:
        at: the time of the plan.
        kind: what the refresh does. If the refresh publishes, `mode` is the publish mode.
        moves: "rename" if the refresh renames the data source, "move" if it moves the data source.
        rows: how many rows an update deletes and inserts in each table.
        tables: the content to publish: versions of models, and cutoffs below which rows are left
            out.
        base: the published state; None if the data source does not exist.
        full, metadata_only, accept: see `Options`.
    """

    listed_as: ClassVar = "plans"
    written_by: ClassVar = "tableau-pipeline plan --out FILE"
    at: datetime
    kind: Status
    mode: PublishMode | None = None
    moves: tuple[str, ...]
    rows: dict[str, PlannedRows]
    tables: dict[str, TableContent]
    base: Published | None = None
    full: bool
    metadata_only: bool
    accept: tuple[Accept, ...]

    def moved(self, now: "SavedPlan", *, is_touched: bool) -> Iterator[str]:
        """Yield a phrase for each fact that has changed since this plan.

        Args:
            now: the plan that follows from the present facts.
            is_touched: whether another user may have changed the data source on the server.
        """
        if self.declaration != now.declaration:
            yield "its declaration has changed"
        before, base = self.base, now.base
        if before is None or base is None:
            if before or base:
                yield "it is gone from the server" if before else "it is published by now"
            return
        if before.luid != base.luid:
            yield "another data source has taken its place on the server"
        if is_touched:
            yield f"it was changed on the server, {_stamp(before)} then, and {_stamp(base)} now"
        for name in _other_rows(before, base):
            yield f'the published rows of table "{name}" are different'
        if (self.kind, self.mode, self.moves) != (now.kind, now.mode, now.moves):
            yield f"a refresh would be: {now.decision}, and not: {self.decision}"
        elif self.rows != now.rows:
            yield "an update would carry other rows"

    @property
    def decision(self) -> str:
        """What the refresh does, in a few words."""
        return ", ".join([*self.moves, f"{self.kind} ({self.mode})" if self.mode else self.kind])


def _stamp(published: Published) -> str:
    at = published.updated_at
    return f"updated at {at:%Y-%m-%d %H:%M:%S} UTC" if at else "not known"


def _other_rows(before: Published, now: Published) -> Iterator[str]:
    names = {**(before.tables or {}), **(now.tables or {})}
    for name in names:
        then, by_now = ((side.tables or {}).get(name) for side in (before, now))
        if not (then and by_now and then.same_content(by_now)):
            yield name
