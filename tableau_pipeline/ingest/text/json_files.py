"""JSON files as columns of exact values."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.arrow_columns import Convert, Reader, batches, check_names
from tableau_pipeline.ingest.bad_rows import BadRows
from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.text.json_rows import Number, json_rows, json_text
from tableau_pipeline.ingest.values.parsers import Parser, parser

_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_STRINGS = (T.StringType, T.CharType, T.VarcharType)


def json_schema(
    paths: Sequence[Path], options: Options, declared: T.StructType | None
) -> T.StructType:
    """Return the columns of files, sorted by name unless they are declared.

    Raises:
        RefusedError: two names differ only in case; also as `json_rows`.
    """
    if declared is not None:
        return declared
    seen = _Seen()
    # Bad rows are reported when the rows are read, not during inference.
    bad = BadRows(options)
    for path in paths:
        for _, row in json_rows(path, options, bad):
            seen.see(row)
    names = sorted(seen.fields)
    if not names:
        raise RefusedError(
            f"{paths[0].name} has no objects with values: there are no columns"
            + "".join(f". {example}" for example in bad.examples[:1])
        )
    check_names(names, paths[0].name)
    return T.StructType([T.StructField(name, seen.fields[name].type) for name in names])


def json_batches(
    path: Path, options: Options, schema: T.StructType, bad: BadRows, *, seen: set[str]
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file; count those that do not fit in `bad`.

    Args:
        seen: collects the names that the objects have.

    Raises:
        RefusedError: a column has a type that JSON cannot hold; also as `json_rows`.
    """
    readers = [
        Reader(each, _convert(each, options), json_text, isinstance(each.dataType, _TIMES))
        for each in schema.fields
    ]
    names = schema.names

    def rows() -> Iterator[tuple[int, list[Any]]]:
        for line, row in json_rows(path, options, bad):
            seen.update(row)
            yield line, [row.get(name) for name in names]

    return batches(rows(), readers, file=path.name, bad=bad)


class _Seen:
    """The kinds of values seen in one place."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.fields: dict[str, _Seen] = {}
        self._element: _Seen | None = None
        self._whole = self._fits_double = True

    def see(self, value: Any) -> None:
        match value:
            case None:
                return
            case bool():
                self.kinds.add("boolean")
            # A number is kept as text, so it has to be recognized before the texts.
            case Number():
                self.kinds.add("number")
                self._see_number(value)
            case str():
                self.kinds.add("string")
            case list():
                self.kinds.add("array")
                self._element = self._element or _Seen()
                for each in value:
                    self._element.see(each)
            case dict():
                self.kinds.add("object")
                for name, each in value.items():
                    self.fields.setdefault(name, _Seen()).see(each)

    @property
    def type(self) -> T.DataType:
        """The type that holds all of them unchanged; string, with their JSON, if no other does."""
        match sorted(self.kinds):
            case ["boolean"]:
                return T.BooleanType()
            case ["number"] if self._whole:
                return T.LongType()
            case ["number"] if self._fits_double:
                return T.DoubleType()
            case ["array"] if self._element:
                return T.ArrayType(self._element.type)
            case ["object"] if self.fields:
                return T.StructType(
                    [T.StructField(name, each.type) for name, each in sorted(self.fields.items())]
                )
        return T.StringType()

    def _see_number(self, text: str) -> None:
        digits = text.removeprefix("-")
        # Python refuses to convert thousands of digits, and no bigint has twenty.
        whole = digits.isdigit() and text != "-0" and len(digits) < 20
        self._whole = self._whole and whole and -(1 << 63) <= int(text) < 1 << 63
        if self._fits_double:
            # The number is exact if its shortest representation equals the text.
            exact = text in ("NaN", "Infinity", "-Infinity") or Decimal(text) == Decimal(
                repr(float(text))
            )
            self._fits_double = exact


def _convert(field: T.StructField, options: Options) -> Convert:
    try:
        return _converter(field.dataType, options)
    except TypeError as error:
        raise RefusedError(
            f'column "{field.name}": JSON cannot hold {error}: declare it as string'
        ) from error


def _converter(type_: T.DataType, options: Options) -> Convert:
    match type_:
        case T.ArrayType():
            element = _converter(type_.elementType, options)
            return _only(list, lambda values: [element(each) for each in values])
        case T.MapType() if isinstance(type_.keyType, T.StringType):
            value_of = _converter(type_.valueType, options)
            return _only(dict, lambda row: [(name, value_of(each)) for name, each in row.items()])
        case T.StructType():
            inner = {each.name: _converter(each.dataType, options) for each in type_.fields}
            return _only(
                dict, lambda row: {name: read(row.get(name)) for name, read in inner.items()}
            )
        case T.BooleanType():
            return _only(bool, bool)
    read = parser(type_, options)
    if read is None:
        raise TypeError(type_.simpleString())
    if isinstance(type_, _STRINGS):
        return _string(read)
    return _scalar(read, as_text=isinstance(type_, _TIMES))


def _only(kind: type, read: Convert) -> Convert:
    """Return a converter of JSON values of one kind, and of null."""

    def convert(value: Any) -> object:
        if value is None:
            return None
        if not isinstance(value, kind):
            raise ValueError(value)
        return read(value)

    return convert


def _string(read: Parser) -> Convert:
    def convert(value: Any) -> str | None:
        if value is None:
            return None
        text = value if isinstance(value, str) else json_text(value)
        # A lone surrogate is not a character: encode() raises UnicodeEncodeError, a ValueError.
        text.isascii() or text.encode()
        return read(str(text))

    return convert


def _scalar(read: Parser, *, as_text: bool) -> Convert:
    def convert(value: Any) -> object:
        if value is None:
            return None
        # Times are JSON strings and other values are numbers; neither passes for the other.
        if not isinstance(value, str) or isinstance(value, Number) == as_text:
            raise ValueError(value)
        return read(str(value))

    return convert
