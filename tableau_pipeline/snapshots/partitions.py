"""Determine with Spark the partition of each row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

# The column by which Spark divides a write into folders.
PARTITION = "_partition"
# The folder of rows that belong to none: Spark's ExternalCatalogUtils.DEFAULT_PARTITION_NAME.
NULL_KEY = "__HIVE_DEFAULT_PARTITION__"
NO_PARTITION = f"{PARTITION}={NULL_KEY}"
# Spark's ExternalCatalogUtils.escapePathName
_ESCAPED = set("\"#%'*/:=?\\\x7f{[]^")


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a partition covers: `start` inclusive, `end` exclusive; both in one zone."""

    start: datetime
    end: datetime

    @property
    def zone(self) -> str:
        """The name of the zone."""
        return str(self.start.tzinfo)


class PartitionError(Exception):
    """The rows do not fit the partitions."""


def partition_folder(folder: Path, key: str) -> Path:
    """Return the folder to which Spark writes a partition, with Spark's escaping."""
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED or ord(c) < 32 else c for c in key)
    return folder / f"{PARTITION}={escaped}"


def with_partition(
    frame: DataFrame, expression: str, partitions: Mapping[str, Window] | Sequence[str]
) -> DataFrame:
    """Add a column `_partition` with the key of each row's partition, NULL for none.

    Args:
        expression: SQL over the columns of the frame. A date or a `timestamp_ntz` is the wall
            clock time in the partitions' zone, a `timestamp` is an instant.
        partitions: windows by key, or the keys that the expression itself returns.

    Raises:
        PartitionError: the type of the expression cannot be compared with windows.
    """
    value = F.expr(expression)
    if not isinstance(partitions, Mapping):
        text = value.cast("string")
        # Any other key becomes NULL, by which the write recognizes a stray row.
        return frame.withColumn(PARTITION, F.when(text.isin(list(partitions)), text))
    type_ = frame.select(value).schema.fields[0].dataType
    # A lookup by day has a row for each day; one by minute has 1,440 times as many.
    whole_days = all(_is_midnight(edge) for w in partitions.values() for edge in (w.start, w.end))
    zone = next(iter(partitions.values())).zone
    moment = _day(value, type_, zone) if whole_days else _minute(value, type_, zone)
    if moment is None:
        wanted = "a date or a timestamp" if whole_days else "a timestamp, not a date"
        raise PartitionError(f"{expression} is {type_.simpleString()}, but has to be {wanted}")
    # A join on equality: comparing each row with each window would cost their product.
    moments = _days(partitions) if whole_days else _minutes(partitions)
    lookup = frame.sparkSession.createDataFrame(
        list(moments), f"__moment {'DATE' if whole_days else 'TIMESTAMP'}, {PARTITION} STRING"
    )
    return (
        frame.withColumn("__moment", moment)
        .join(F.broadcast(lookup), "__moment", "left")
        .drop("__moment")
    )


def _is_midnight(moment: datetime) -> bool:
    return (moment.hour, moment.minute, moment.second) == (0, 0, 0)


def _day(value: SparkColumn, type_: DataType, zone: str) -> SparkColumn | None:
    """Return the day in the calendar of the zone; the session's own zone is UTC."""
    if isinstance(type_, TimestampType):
        return F.from_utc_timestamp(value, zone).cast("date")
    return value.cast("date") if isinstance(type_, DateType | TimestampNTZType) else None


def _minute(value: SparkColumn, type_: DataType, zone: str) -> SparkColumn | None:
    """Return the instant truncated to the minute: all Dagster windows begin on a full minute."""
    if isinstance(type_, TimestampNTZType):
        value = F.to_utc_timestamp(value.cast("timestamp"), zone)
    return F.date_trunc("minute", value) if not isinstance(type_, DateType) else None


def _days(windows: Mapping[str, Window]) -> Iterator[tuple[date, str]]:
    for key, window in windows.items():
        for number in range((window.end.date() - window.start.date()).days):
            yield window.start.date() + timedelta(days=number), key


def _minutes(windows: Mapping[str, Window]) -> Iterator[tuple[datetime, str]]:
    for key, window in windows.items():
        # Steps in local time would repeat or skip an hour when the clocks change.
        moment, end = window.start.astimezone(UTC), window.end.astimezone(UTC)
        while moment < end:
            yield moment, key
            moment += timedelta(minutes=1)
