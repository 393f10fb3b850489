"""Load Parquet files with Spark, or with pyarrow where Spark cannot read them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.arrow_columns import check_names
from tableau_pipeline.ingest.found import Files, digests
from tableau_pipeline.ingest.options import check_options
from tableau_pipeline.ingest.parquet.rewritten import (
    ARROW_ERRORS,
    check_int96,
    is_beyond_spark,
    opened,
    plain,
    rewrite,
)
from tableau_pipeline.ingest.reading import Reading
from tableau_pipeline.ingest.spark_errors import READ_ERRORS, reason
from tableau_pipeline.snapshots.write import exact_path


def load_parquet(spark: SparkSession, files: Files, folder: Path) -> Reading:
    """Load the rows of files. pyarrow rewrites a file that Spark cannot read, if no value changes.

    Args:
        folder: for the rewritten files; it must exist as long as the frame is used.

    Raises:
        RefusedError: the files differ in their columns, or a column has a type or values that
            cannot be preserved. The message names file and column.
    """
    check_options(files.reader, "parquet")
    before = digests(files.paths)
    beyond = _checked(files)
    paths = {
        path: _rewritten(path, number, folder) if path in beyond else path
        for number, path in enumerate(files.paths)
    }
    try:
        frame = _frame(spark, files.reader, paths.values())
    except READ_ERRORS:
        # Spark does not say which of the files it refuses, so each one is tried by itself.
        paths = _readable(paths, folder, lambda path: spark.read.parquet(exact_path(path)))
        frame = _frame(spark, files.reader, paths.values())

    def otherwise() -> Reading:
        """Rewrite files that Spark cannot read even though it accepts their schema."""

        def decode(path: Path) -> None:
            # Some files fail only when their values are decoded, so all are read, and none is kept.
            rows = spark.read.parquet(exact_path(path))
            rows.write.format("noop").mode("overwrite").save()

        readable = _readable(paths, folder, decode)
        again = _frame(spark, files.reader, readable.values())
        return replace(reading, frame=again, otherwise=None)

    reading = Reading(frame, before, otherwise=otherwise)
    return reading


def _frame(spark: SparkSession, reader: Mapping[str, str], paths: Iterable[Path]) -> DataFrame:
    return spark.read.options(**reader).parquet(*map(exact_path, paths))


def _readable(
    paths: Mapping[Path, Path], folder: Path, read: Callable[[Path], object]
) -> dict[Path, Path]:
    """Return the files to read, by the original ones: pyarrow's copies where Spark's `read` fails.

    Args:
        paths: the same so far; a copy is not tried again.
    """
    found = dict(paths)
    for number, (path, now) in enumerate(paths.items()):
        try:
            if path == now:
                read(path)
        except READ_ERRORS as error:
            found[path] = _rewritten(path, number, folder, instead_of=error)
    return found


def _rewritten(
    path: Path, number: int, folder: Path, *, instead_of: Exception | None = None
) -> Path:
    # The copy keeps the file name, which identifies the origin of each row.
    target = folder / str(number) / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        rewrite(path, target)
    except ARROW_ERRORS as error:
        first = f"; {reason(instead_of)} (Spark)" if instead_of else ""
        raise RefusedError(f"{path.name} cannot be read: {error} (pyarrow){first}") from error
    return target


def _checked(files: Files) -> set[Path]:
    """Return the files that Spark cannot read; refuse files with different columns."""
    known: tuple[Path, dict[str, pa.DataType]] | None = None
    beyond = set()
    for path in files.paths:
        try:
            with opened(path) as file:
                schema = file.schema_arrow
        except ARROW_ERRORS as error:
            raise RefusedError(
                f"{path.name} is not a Parquet file, or is damaged: {error}"
            ) from error
        check_int96(path)
        if is_beyond_spark(schema):
            beyond.add(path)
        if not schema.names:
            raise RefusedError(f"{path.name} has no columns")
        check_names(schema.names, path.name)
        types = {each.name: plain(each.type) or each.type for each in schema}
        if known is None:
            known = (path, types)
        elif files.reader.get("mergeSchema", "false").lower() != "true":
            _compare(path, types, *known)
    return beyond


def _compare(
    path: Path, types: dict[str, pa.DataType], first: Path, others: dict[str, pa.DataType]
) -> None:
    for name in [*others, *types]:
        if types.get(name) != others.get(name):
            ours, theirs = (str(each.get(name, "absent")) for each in (types, others))
            raise RefusedError(
                f'column "{name}" is {ours} in {path.name} and {theirs} in {first.name}: publish '
                "such files one by one, or, if columns are only absent, set reader: {mergeSchema: "
                '"true"}'
            )
