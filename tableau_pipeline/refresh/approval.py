"""Approvals of refreshes by a person. An approval limits the kind and size of a refresh."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.metadata.merge import FieldPath, Merge
from tableau_pipeline.outcome import Accept, Status
from tableau_pipeline.refresh.plan_file import PlanEntry


class MetadataChange(Frozen):
    """A change of a metadata value by a refresh; `before` or `after` is None for no value."""

    path: FieldPath
    before: str | None = None
    after: str | None = None


class Approval(PlanEntry):
    """What a refresh of one data source may do, if the declaration is as approved.

    An approval does not fix the rows, because each run of the models may change the rows. An
    approval limits only how many rows may change.

    Attributes:
        kind: the kind of the planned refresh. Only PUBLISH permits a full publish.
        moves: which of "rename" and "move" the refresh may do.
        columns: the planned columns of each table; None if they were not known. A refresh must
            either keep the published columns, or publish exactly the planned columns.
        metadata: the changes of metadata that the refresh may make.
        max_change: how many rows of each table may come, go or change, in percent of its published
            rows; None for any number.
        max_shrink: how many rows each table may lose, in percent of its published rows; None for
            any number.
        accept: the values of `accept` that the refresh may use; each prevents a kind of refusal.
        by: the person who approved the refresh.
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
    """Return the values that a merge sets, each with the value that it replaces."""
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
    """Return the tables whose columns would change to columns that are not approved."""
    return [
        table
        for table, columns in desired.items()
        if tuple(columns) != tuple(published.get(table, ()))
        and (approved is None or tuple(columns) != tuple(approved.get(table, ())))
    ]
