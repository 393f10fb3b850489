"""Derive the parts of the next version of a model."""

from collections.abc import Callable, Iterable, Sequence

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.hyper.tables import Column


def succeeding(
    before: Snapshot | None,
    written: Sequence[Part],
    *,
    columns: tuple[Column, ...],
    keeps: Callable[[Part], bool],
) -> tuple[Part, ...]:
    """Return the parts of the next version: those just written, and the earlier ones that stay.

    A model is stored either whole or by partitions: a write of one kind replaces all parts of the
    other.

    Args:
        columns: the columns of the write.
        keeps: whether an earlier partition still belongs to the model.
    """
    if before is None or any(part.partition is None for part in written):
        return in_order(written)
    again = {part.partition for part in written}
    stay = [
        part
        for part in before.parts
        if part.partition is not None and part.partition not in again and keeps(part)
    ]
    return in_order([*_in_columns(stay, before, columns), *written])


def in_order(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Sort parts by their keys."""
    return tuple(sorted(parts, key=lambda part: part.partition or ""))


def _in_columns(
    parts: Iterable[Part], before: Snapshot, columns: tuple[Column, ...]
) -> Iterable[Part]:
    """Set the columns of a part only where they differ from those of the version."""
    for part in parts:
        own = part.columns or before.columns
        own = None if own == columns else own
        yield part if part.columns == own else part.model_copy(update={"columns": own})
