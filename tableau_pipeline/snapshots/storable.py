"""Refuse what a snapshot cannot hold, by model and column."""

from collections import Counter
from collections.abc import Iterable, Iterator, Set

from pyspark.sql import types as T

from tableau_pipeline.hyper.tables import ROW_HASH, json_text
from tableau_pipeline.snapshots.partitions import NULL_KEY, PARTITION

_UNHASHABLE = (T.ArrayType, T.BinaryType, T.StructType)
_RESERVED = {ROW_HASH, PARTITION}


class UnstorableError(Exception):
    """A model has a column that a snapshot cannot hold."""


def check_storable(schema: T.StructType, asset_key: str) -> None:
    """Refuse types that Parquet cannot hold, and names that are empty, reserved or alike.

    Raises:
        UnstorableError: lists all problems.
    """
    reserved = _RESERVED | {json_text(name).casefold() for name in schema.names}
    problems = [problem for field in schema.fields if (problem := _column_problem(field, reserved))]
    problems += [
        f"the name of column {position} is empty: name it"
        for position, name in enumerate(schema.names, 1)
        if not name
    ]
    if not schema.fields:
        problems.append("it has no columns")
    folded = Counter(name.casefold() for name in schema.names)
    problems += [
        f"columns {', '.join(repr(n) for n in schema.names if n.casefold() == name)} differ only "
        "in case, or not at all: rename all but one"
        for name, count in folded.items()
        if count > 1
    ]
    if problems:
        raise UnstorableError(f'Model "{asset_key}" cannot be stored: {"; ".join(problems)}.')


def check_partition_keys(keys: Iterable[str], asset_key: str) -> None:
    """Refuse the key that Spark gives to rows without one.

    Raises:
        UnstorableError: names model and key.
    """
    if NULL_KEY in keys:
        raise UnstorableError(
            f'Model "{asset_key}" cannot be stored: the partition key "{NULL_KEY}" is reserved, '
            "as Spark stores rows without a key under it: choose another one."
        )


def _column_problem(field: T.StructField, reserved: Set[str]) -> str | None:
    if field.name.casefold() in reserved:
        return f"the column name {field.name!r} is reserved: rename it"
    parts = list(_parts(field.dataType))
    if any(isinstance(part, T.NullType) for part in parts):
        return f"column {field.name!r} has no type (void): cast it to the intended type"
    if any(isinstance(part, T.CalendarIntervalType) for part in parts):
        return f"column {field.name!r} holds a calendar interval: cast it to a number"
    if any(part.simpleString().startswith("time(") for part in parts):
        return f"column {field.name!r} holds a time, which Spark does not store: cast it to text"
    # Spark writes such keys as JSON by their memory addresses, so no two hashes would be equal.
    if any(isinstance(part, T.MapType) and isinstance(part.keyType, _UNHASHABLE) for part in parts):
        return (
            f"column {field.name!r} holds a map with keys of a nested or binary type: "
            "use map_entries(column)"
        )
    return None


def _parts(type_: T.DataType) -> Iterator[T.DataType]:
    """Yield a type and all types nested in it."""
    yield type_
    match type_:
        case T.StructType():
            inner = [field.dataType for field in type_.fields]
        case T.ArrayType():
            inner = [type_.elementType]
        case T.MapType():
            inner = [type_.keyType, type_.valueType]
        case _:
            inner = []
    for each in inner:
        yield from _parts(each)
