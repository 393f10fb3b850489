"""Find times in Parquet files that old releases of Spark stored in an older calendar.

The older calendar is Julian before 15 October 1582. When Spark reads times in this calendar, it
converts them, but hyperd and Arrow would show other dates.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# The keys under which Spark stores its version and the calendar of times in a file.
_SPARK_VERSION = b"org.apache.spark.version"
_LEGACY_TIMES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
# Before _GREGORIAN, the older calendar shows other dates. Time stamps may differ until
# _STANDARD_TIME, because old releases of Spark also used other offsets of time zones.
_GREGORIAN, _STANDARD_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=UTC)
# The most rows to decode at a time.
_BATCH = 1 << 16

# For each leaf of a column (a nested column may have several), whether the leaf may have times in
# the older calendar; the keys are column names.
Suspects = Mapping[str, Sequence[bool]]


def is_legacy(footer: Mapping[bytes, bytes], *, int96: bool) -> bool | None:
    """Return whether Spark stored times in the older calendar; None for files of other writers.

    Args:
        footer: the metadata in the footer of the file.
        int96: true for INT96 time stamps, whose calendar Spark marks separately.
    """
    version = re.match(r"(\d+)\.(\d+)", footer.get(_SPARK_VERSION, b"").decode(errors="replace"))
    if version is None:
        return None
    is_marked = (_LEGACY_INT96 if int96 else _LEGACY_TIMES) in footer
    return is_marked or (int(version[1]), int(version[2])) < ((3, 1) if int96 else (3, 0))


def suspects(metadata: pq.FileMetaData, is_old: Callable[[bool], bool | None]) -> Suspects:
    """Return the columns that may have times in the older calendar, judging by statistics.

    Args:
        is_old: a function that returns whether the file uses the older calendar; its argument is
            true for INT96 time stamps.
    """
    if not (is_old(False) or is_old(True)):
        return {}
    found: dict[str, Sequence[bool]] = {}
    at = 0
    for field in metadata.schema.to_arrow_schema():
        types = [*_leaf_types(field.type)]
        flags = [
            bool(is_old(_is_int96(metadata, number))) and _may_be_old(metadata, number, type_)
            for number, type_ in enumerate(types, at)
        ]
        at += len(types)
        if any(flags):
            found[field.name] = flags
    return found


def old_times(file: pq.ParquetFile, columns: Suspects) -> tuple[str, date] | None:
    """Find a column with times that the two calendars show differently.

    Args:
        file: a file that is opened so that INT96 time stamps are read as microseconds.

    Returns:
        The column, and the date from which both calendars agree; None if there is no such column.
    """
    for name, flags in columns.items():
        for batch in file.iter_batches(_BATCH, columns=[name]):
            for is_suspect, values in zip(flags, leaves_of(batch.column(name)), strict=True):
                limit = _limit(values.type) if is_suspect else None
                if limit is None:
                    continue
                is_before = pc.call_function("less", [values, pa.scalar(limit, values.type)])
                if pc.call_function("any", [is_before]).as_py():
                    return name, limit
    return None


def _limit(type_: pa.DataType) -> date | None:
    """Return the date or time from which both calendars agree; None if the type has no dates."""
    if pa.types.is_date(type_):
        return _GREGORIAN
    if pa.types.is_timestamp(type_):
        return _STANDARD_TIME if type_.tz else _STANDARD_TIME.replace(tzinfo=None)
    return None


def _is_int96(metadata: pq.FileMetaData, leaf: int) -> bool:
    return metadata.schema.column(leaf).physical_type == "INT96"


def _may_be_old(metadata: pq.FileMetaData, leaf: int, type_: pa.DataType) -> bool:
    """Whether a leaf may have times before the limit, according to its statistics."""
    if (limit := _limit(type_)) is None:
        return False
    if _is_int96(metadata, leaf):
        # Do not use the statistics of INT96 columns: their order is not the order of time.
        return True
    first = pa.scalar(limit, type_).value
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group).column(leaf).statistics
        if known is None or not known.has_min_max or known.min_raw < first:
            return True
    return False


def _leaf_types(type_: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the leaves of a type, in Parquet's order."""
    if not pa.types.is_nested(type_):
        yield type_
        return
    for number in range(type_.num_fields):
        yield from _leaf_types(type_.field(number).type)


def leaf_count(type_: pa.DataType) -> int:
    """Return the number of columns of a Parquet file that store the values of a type."""
    return sum(1 for _ in _leaf_types(type_))


def leaves_of(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of each leaf, in Parquet's order."""
    if isinstance(values, pa.StructArray):
        for part in values.flatten():
            yield from leaves_of(part)
    elif isinstance(values, pa.MapArray):
        yield from leaves_of(values.keys)
        yield from leaves_of(values.items)
    elif pa.types.is_nested(values.type):
        yield from leaves_of(values.flatten())
    else:
        yield values
