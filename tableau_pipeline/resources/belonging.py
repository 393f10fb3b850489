"""Which of the partitions that were stored belong to a model as it is partitioned now."""

from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg

from tableau_pipeline.core.snapshot import Part

# Dagster knows no partition that is yet to end. By the clock of a worker that is behind, that
# would be one that another worker has just stored.
_LATER = datetime(3000, 1, 1, tzinfo=UTC)
_HOUR = 3600


def belongs_to(definition: dg.PartitionsDefinition | None) -> Callable[[Part], bool]:
    """Tells whether a part is a partition of this definition: one of its keys, and its window.

    A key alone does not tell: "2025-01-05" is a day as well as a week.

    Args:
        definition: of fixed keys or windows of time; of any other, or of None, whatever is stored
            counts.
    """
    match definition:
        case dg.StaticPartitionsDefinition():
            keys = frozenset(definition.get_partition_keys())
            return lambda part: part.span is None and part.partition in keys
        case dg.TimeWindowPartitionsDefinition():
            return _has_window(definition)
    return lambda part: True


def _has_window(definition: dg.TimeWindowPartitionsDefinition) -> Callable[[Part], bool]:
    with dg.partition_loading_context(effective_dt=_LATER):
        first, last = (
            definition.get_first_partition_window(),
            definition.get_last_partition_window(),
        )

    def has(part: Part) -> bool:
        if not (first and last and part.span and part.partition):
            return False
        # As numbers: a time in the hour that comes twice equals none of another zone.
        start, end = part.span.start.timestamp(), part.span.end.timestamp()
        if not first.start.timestamp() <= start <= last.start.timestamp():
            return False
        try:
            # Dagster takes seconds for the windows of three years of hours.
            if definition.is_basic_hourly and end - start == _HOUR:
                opened = definition.start_time_for_partition_key(part.partition)
                if opened.timestamp() == start:
                    return True
            window = definition.time_window_for_partition_key(part.partition)
        except ValueError:  # not even a time, or of another format
            return False
        same = (window.start.timestamp(), window.end.timestamp()) == (start, end)
        return same and not definition.is_window_start_excluded(window.start)

    return has
