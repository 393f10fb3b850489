"""CSV files as columns of exact values."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import CharType, DataType, StringType, StructField, StructType, VarcharType

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.arrow_columns import Convert, Reader, batches, check_names
from tableau_pipeline.ingest.bad_rows import BadRows, printable
from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.text.csv_rows import Record, csv_rows
from tableau_pipeline.ingest.text.inference import Guess
from tableau_pipeline.ingest.values.parsers import parser

_OTHER_SEPARATORS = (";", "\t", "|", ",")


def csv_schema(
    paths: Sequence[Path], options: Options, declared: StructType | None, *, separator_is_set: bool
) -> StructType:
    """Return the columns of files that must all have the same ones.

    Args:
        declared: their names and types, to be compared with the header; None to infer them.
        separator_is_set: whether the separator was set explicitly.

    Raises:
        RefusedError: headers differ from each other or from the declared columns, or the
            separator is wrong.
    """
    names = _names(paths[0], options, separator_is_set=separator_is_set)
    for path in paths[1:]:
        others = _names(path, options, separator_is_set=separator_is_set)
        if others != names:
            raise RefusedError(
                f"The header of {path.name} ({', '.join(others)}) differs from that of "
                f"{paths[0].name} ({', '.join(names)}): publish such files one by one, or give "
                "them one header"
            )
    if declared is not None:
        _compare(names, declared, paths[0], options)
        return declared
    check_names(names, paths[0].name)
    types: Sequence[DataType] = [StringType()] * len(names)
    if options.infer:
        types = _guessed(paths, options, len(names))
    return StructType([StructField(*each) for each in zip(names, types, strict=True)])


def csv_batches(
    path: Path, options: Options, schema: StructType, bad: BadRows
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file; count those that do not fit in `bad`.

    Raises:
        RefusedError: a column has a type that text cannot hold; also as `csv_rows`.
    """
    readers = [
        Reader(field, _convert(field, options), '"{}"'.format, True) for field in schema.fields
    ]
    rows = _full_rows(path, options, len(readers), bad)
    return batches(rows, readers, file=path.name, bad=bad)


def _names(path: Path, options: Options, *, separator_is_set: bool) -> list[str]:
    first = next((values for _, values in csv_rows(path, options) if values), None)
    if first is None:
        raise RefusedError(
            f"{path.name} is empty: it has no {'header' if options.header else 'rows'}"
        )
    # With the wrong separator a whole file would be published as one column of text.
    if len(first) == 1 and first[0] and not separator_is_set:
        for separator in _OTHER_SEPARATORS:
            if separator != options.separator and separator in first[0]:
                raise RefusedError(
                    f'{path.name} has only one column with the separator {options.separator!r}, "'
                    f'{first[0][:80]}": set reader: {{sep: {separator!r}}}, or, if that is right, '
                    f"reader: {{sep: {options.separator!r}}}"
                )
    if not options.header:
        return [f"_c{number}" for number in range(len(first))]
    # Spark's names for unnamed columns; pandas, for example, writes its index without a name.
    return [name or f"_c{number}" for number, name in enumerate(first)]


def _compare(names: Sequence[str], declared: StructType, path: Path, options: Options) -> None:
    if not options.header:
        names = declared.names if len(names) == len(declared.names) else names
    if [name.casefold() for name in names] != [name.casefold() for name in declared.names]:
        what = "header" if options.header else "first line"
        raise RefusedError(
            f"The {what} of {path.name} has {len(names)} columns ({', '.join(names)}), but "
            f"columns declares {', '.join(declared.names)}: declare all, in the order "
            "of the file"
        )


def _guessed(paths: Sequence[Path], options: Options, width: int) -> list[DataType]:
    guesses = [Guess(options) for _ in range(width)]
    # Bad rows are reported when the rows are read, not during inference.
    ignored = BadRows(options)
    for path in paths:
        chunk: list[Sequence[str | None]] = []
        for _, values in _full_rows(path, options, width, ignored):
            chunk.append(values)
            if len(chunk) == 20_000:
                _see(guesses, chunk)
                chunk = []
        _see(guesses, chunk)
    return [guess.type for guess in guesses]


def _see(guesses: Sequence[Guess], rows: Sequence[Sequence[str | None]]) -> None:
    # Without rows there are no columns to pair with.
    for guess, values in zip(guesses, zip(*rows, strict=True), strict=False):
        guess.see(values)


def _full_rows(path: Path, options: Options, width: int, bad: BadRows) -> Iterator[Record]:
    """Yield the records that have a value for each column."""
    header = options.header
    for line, values in csv_rows(path, options):
        if header and values:
            header = False
        elif len(values) == width:
            yield line, values
        elif not values and width == 1:
            bad.add(
                f"{path.name}, line {line}",
                'a blank line, which may be NULL or no row: write "" for an empty text',
            )
        elif values:
            shown = printable(options.separator.join(value or "" for value in values)[:80])
            bad.add(
                f"{path.name}, line {line}",
                f"{len(values)} value{'s' * (len(values) > 1)} for {width} "
                f'column{"s" * (width > 1)}, "{shown}"',
            )


def _convert(field: StructField, options: Options) -> Convert:
    type_ = field.dataType
    read = parser(type_, options)
    if read is None:
        raise RefusedError(
            f'column "{field.name}": text cannot hold {type_.simpleString()}: declare it as string'
        )
    if type(type_) is StringType and options.null is None:
        return lambda text: text
    null, is_text = options.null, isinstance(type_, StringType | CharType | VarcharType)

    def convert(text: str | None) -> object:
        # An empty value in quotes is NULL too, except in a string column.
        if text is None or text == null or not (text or is_text):
            return None
        return read(text)

    return convert
