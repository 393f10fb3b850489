"""Determine which stored partitions belong to a model as it is partitioned now."""

from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg

from tableau_pipeline.core.snapshot import Part

# Dagster does not list partitions that have not ended yet. If this worker's clock is late, that
# could include a partition that another worker has just stored.
_LATER = datetime(3000, 1, 1, tzinfo=UTC)
_HOUR = 3600


def belongs_to(definition: dg.PartitionsDefinition | None) -> Callable[[Part], bool]:
    """Return a test whether a part is a partition of this definition, by its key and window.

    The key alone is not sufficient: "2025-01-05" may be a day or a week.

    Args:
        definition: static keys or time windows. With any other definition, or None, all stored
            parts count.
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
        first = definition.get_first_partition_window()
        last = definition.get_last_partition_window()

    def has(part: Part) -> bool:
        if not (first and last and part.span and part.partition):
            return False
        # Compared as numbers: a time in the repeated hour never equals a time in another zone.
        start, end = part.span.start.timestamp(), part.span.end.timestamp()
        if not first.start.timestamp() <= start <= last.start.timestamp():
            return False
        try:
            # Dagster takes seconds to compute three years of hourly windows.
            if definition.is_basic_hourly and end - start == _HOUR:
                opened = definition.start_time_for_partition_key(part.partition)
                if opened.timestamp() == start:
                    return True
            window = definition.time_window_for_partition_key(part.partition)
        except ValueError:  # not a time, or in another format
            return False
        same = (window.start.timestamp(), window.end.timestamp()) == (start, end)
        return same and not definition.is_window_start_excluded(window.start)

    return has
