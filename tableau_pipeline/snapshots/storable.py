"""What a snapshot cannot hold is refused, by model and column."""

from collections import Counter

from pyspark.sql.types import CalendarIntervalType, NullType, StructField, StructType

from tableau_pipeline.refresh.snapshot import ROW_HASH
from tableau_pipeline.snapshots.partitions import PARTITION

_RESERVED = {ROW_HASH, PARTITION}


class UnstorableError(Exception):
    """A model has a column that a snapshot cannot hold."""


def check_storable(schema: StructType, asset_key: str) -> None:
    """Refuse what Parquet cannot hold, what Spark cannot tell apart, and names of our own.

    Raises:
        UnstorableError: lists everything that is wrong.
    """
    problems = [problem for field in schema.fields if (problem := _column_problem(field))]
    if not schema.fields:
        problems.append("it has no columns")
    folded = Counter(name.casefold() for name in schema.names)
    problems += [
        f"columns {', '.join(repr(n) for n in schema.names if n.casefold() == name)} differ by "
        "case at most: rename all but one"
        for name, count in folded.items()
        if count > 1
    ]
    if problems:
        raise UnstorableError(f'Model "{asset_key}" cannot be stored: {"; ".join(problems)}.')


def _column_problem(field: StructField) -> str | None:
    if field.name.casefold() in _RESERVED:
        return f"the column name {field.name!r} is reserved: rename it"
    if isinstance(field.dataType, NullType):
        return f"column {field.name!r} has no type (void): cast it to the type it should have"
    if isinstance(field.dataType, CalendarIntervalType):
        return f"column {field.name!r} is a calendar interval: cast it to a number"
    return None
