"""Models that are stored by partitions."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.snapshot import Span
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


def day(key: str, *, zone: str = "UTC", days: int = 1) -> Span:
    """The window of a daily partition, by the clock of its zone."""
    start = datetime.fromisoformat(key)
    first, last = (
        each.replace(tzinfo=ZoneInfo(zone)) for each in (start, start + timedelta(days=days))
    )
    return Span(start=first, end=last, zone=zone)


def materialize(
    pipeline: Pipeline,
    partitions: dict[str, pa.Table],
    *,
    zone: str | None = None,
    without: Iterable[str] = (),
) -> None:
    """Give some of the model's partitions new content; the other partitions stay as they are.

    Args:
        zone: the zone of partitions by day; None for partitions by value.
        without: partitions to be removed.
    """
    (table,) = pipeline.declaration.tables
    pipeline.drop_partitions(table.model, without)
    for key, rows in partitions.items():
        span = day(key, zone=zone) if zone else None
        pipeline.snapshot(table.name, rows, partition=key, span=span)


def keep_only(pipeline: Pipeline, model: str, *, part: str, columns: set[str]) -> None:
    """Remove all columns except `columns` from the files of a partition."""
    newest = pipeline.store.newest(model)
    assert newest is not None
    for path in newest.only([part]).paths:
        pq.write_table(pq.read_table(path, columns=sorted(columns)), path)
