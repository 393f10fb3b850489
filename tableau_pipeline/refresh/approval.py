"""Approvals: which refreshes a person has approved, by their kind and bounds, not by their rows."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.metadata.merge import FieldPath, Merge
from tableau_pipeline.outcome import Accept, Status
from tableau_pipeline.refresh.plan_file import PlanEntry


class MetadataChange(Frozen):
    """A value of metadata that a refresh sets; None stands for no value."""

    path: FieldPath
    before: str | None = None
    after: str | None = None


class Approval(PlanEntry):
    """What one data source may become, once its declaration is the approved one.

    Rows come and go with each run of the models, so an approval limits them only by its bounds.

    Attributes:
        kind: what was planned. Only PUBLISH lets a refresh publish in full.
        moves: "rename" or "move", if the refresh may do so.
        columns: the columns of each table; None if they were not known. A refresh must leave the
            published columns as they are, or change them to these.
        metadata: the changes of metadata that the refresh may make.
        max_change: how many rows may come, go or change, in percent of the published rows of each
            table; None for any number.
        max_shrink: how many rows fewer a table may have, likewise.
        accept: the refusals that are approved, too.
        by: who approved it.
    """

    listed_as: ClassVar = "approvals"
    written_by: ClassVar = "tableau-pipeline plan --base REV --out FILE"
    kind: Status
    moves: tuple[str, ...] = ()
    columns: dict[str, tuple[Column, ...]] | None = None
    metadata: tuple[MetadataChange, ...] = ()
    max_change: float | None = Field(default=None, ge=0)
    max_shrink: float | None = Field(default=None, ge=0, le=100)
    accept: tuple[Accept, ...] = ()
    by: str


def metadata_changes(merge: Merge | None) -> tuple[MetadataChange, ...]:
    """Return the values that a merge sets, with the values that they replace."""
    if merge is None:
        return ()
    return tuple(
        MetadataChange(path=path, before=merge.found.get(path), after=value)
        for path, value in sorted(merge.changes.items())
    )


def unapproved_columns(
    approved: Mapping[str, Sequence[Column]] | None,
    published: Mapping[str, Sequence[Column]],
    desired: Mapping[str, Sequence[Column]],
) -> list[str]:
    """Return the tables whose columns would change, but not to the approved ones."""
    return [
        table
        for table, columns in desired.items()
        if tuple(columns) != tuple(published.get(table, ()))
        and (approved is None or tuple(columns) != tuple(approved.get(table, ())))
    ]
