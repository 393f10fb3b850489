"""The columns of files: their declared types, and their types in Arrow and Spark."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.bad_rows import BadRows

# Rows that are converted at once: enough for Arrow to be fast, few enough to fit in memory.
_AT_ONCE = 20_000
# Bad columns that the message about a row names.
_NAMED = 3

_ARROW: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
}

# Converts a value from a file; raises ValueError if the value does not fit.
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the values of one column.

    Attributes:
        shown: formats a value for a message.
        has_options: whether options determine how its values are written.
    """

    field: T.StructField
    convert: Convert
    shown: Callable[[Any], str]
    has_options: bool

    @property
    def arrow(self) -> pa.Field:
        """The column as an Arrow field."""
        return pa.field(self.field.name, arrow_type(self.field.dataType))


def declared(columns: str) -> T.StructType:
    """Parse columns such as "id bigint, day date".

    Raises:
        RefusedError: the text is not Spark's DDL, or a name is repeated.
    """
    try:
        schema = cast("T.StructType", T.StructType.fromDDL(columns))
    except PySparkException as error:
        raise RefusedError(
            f'columns: "{columns}" cannot be parsed ({_first_line(error)}): write names and types '
            'as Spark does, "id bigint, day date", names with blanks in `backticks`'
        ) from error
    check_names(schema.names, "columns")
    return schema


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse column names that Spark cannot distinguish, or that are empty.

    Raises:
        RefusedError: names the columns.
    """
    if "" in names:
        position = [*names].index("") + 1
        raise RefusedError(f"{where}: the name of column {position} is empty: name it")
    folded = [name.casefold() for name in names]
    twins = [name for name in names if folded.count(name.casefold()) > 1]
    if twins:
        listed = ", ".join(f'"{name}"' for name in twins)
        raise RefusedError(
            f"{where}: the columns {listed} differ only in case, or not at all: rename all but one"
        )


def stored_schema(schema: T.StructType) -> T.StructType:
    """Return the schema with the types that Spark stores: char and varchar become string."""
    return T.StructType(
        [
            T.StructField(each.name, _stored(each.dataType), metadata=each.metadata)
            for each in schema.fields
        ]
    )


def arrow_type(type_: T.DataType) -> pa.DataType:
    """Return the Arrow type that holds exactly the values of a supported Spark type."""
    match type_:
        case T.DecimalType():
            return pa.decimal128(type_.precision, type_.scale)
        case T.ArrayType():
            return pa.list_(arrow_type(type_.elementType))
        case T.MapType():
            return pa.map_(arrow_type(type_.keyType), arrow_type(type_.valueType))
        case T.StructType():
            return pa.struct([(each.name, arrow_type(each.dataType)) for each in type_.fields])
    return _ARROW[type(type_)]


def batches(
    rows: Iterable[tuple[int, Sequence[Any]]],
    readers: Sequence[Reader],
    *,
    file: str,
    bad: BadRows,
) -> Iterator[pa.RecordBatch]:
    """Convert the good rows to Arrow; count the others in `bad`.

    Args:
        rows: each with its line number, and as many values as there are readers.
    """
    schema = pa.schema([each.arrow for each in readers])
    rows = iter(rows)
    while chunk := list(islice(rows, _AT_ONCE)):
        wrong: dict[int, list[tuple[Reader, Any]]] = {}
        columns = [
            _converted(reader, values, wrong)
            for reader, values in zip(
                readers, zip(*(row for _, row in chunk), strict=True), strict=True
            )
        ]
        for number in sorted(wrong):
            bad.add(f"{file}, line {chunk[number][0]}", _described(wrong[number], bad))
        if wrong:
            good = [number for number in range(len(chunk)) if number not in wrong]
            for position, reader in enumerate(readers):
                if reader.has_options:
                    values = (chunk[number][1][position] for number in good)
                    bad.keep_good(reader.field.name, (str(each) for each in values if each))
            columns = [[column[number] for number in good] for column in columns]
        arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _converted(
    reader: Reader, values: Sequence[Any], wrong: dict[int, list[tuple[Reader, Any]]]
) -> list[Any]:
    convert = reader.convert
    # Hardly any chunk has a bad value, and a try around each value would slow down all of them.
    try:
        return [convert(value) for value in values]
    except ValueError:
        pass
    converted = []
    for number, value in enumerate(values):
        try:
            converted.append(convert(value))
        except ValueError:
            converted.append(None)
            wrong.setdefault(number, []).append((reader, value))
    return converted


def _described(values: Sequence[tuple[Reader, Any]], bad: BadRows) -> str:
    """Describe the bad values of one row."""
    problems = [
        bad.problem(
            reader.field, reader.shown(value), text=str(value) if reader.has_options else None
        )
        for reader, value in values[:_NAMED]
    ]
    if more := len(values) - len(problems):
        problems.append(f"and {more} more column{'s' * (more > 1)}")
    return ", ".join(problems)


def _stored(type_: T.DataType) -> T.DataType:
    return T.StringType() if isinstance(type_, T.CharType | T.VarcharType) else type_


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
