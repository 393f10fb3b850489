"""Files as Spark reads them: CSV, JSON and Parquet; rows that cannot be read are counted."""

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.snapshots.read import exact_path
from tableau_pipeline.snapshots.row_hash import column

Format = Literal["csv", "json", "parquet"]
FORMATS: Mapping[str, Format] = MappingProxyType(
    {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
)
# The column in which Spark leaves what it could not read.
_BAD = "_bad_row"
_DEFAULTS: Mapping[Format, Mapping[str, str]] = {
    # Without enforceSchema: false, Spark takes columns by their order, whatever the header says.
    "csv": {"header": "true", "inferSchema": "true", "enforceSchema": "false"},
    "json": {},
    "parquet": {},
}


# What Spark raises for files that it cannot read: at once, or from one of its tasks.
READ_ERRORS = (PySparkException, Py4JJavaError)


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format and schema.

    Attributes:
        options: of Spark's reader for that format, such as "sep" or "multiLine".
        columns: their types as Spark's DDL, "id bigint, day date"; None to find out, which reads
            the files twice.
    """

    paths: tuple[Path, ...]
    format: Format
    options: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The good rows of files; what was wrong is known once they were written.

    Attributes:
        paths: the files; none of what was not read from files.
    """

    frame: DataFrame
    totals: Observation | None = None
    paths: tuple[Path, ...] = ()

    @property
    def bad_rows(self) -> int:
        """How many rows could not be read as the columns' types."""
        return int(self.totals.get["bad"]) if self.totals else 0

    @property
    def sample(self) -> str:
        """One of them."""
        return str(self.totals.get["sample"]) if self.totals else ""


def found_files(pattern: str) -> tuple[Path, ...]:
    """The files that a path or pattern names; of a folder, those in it.

    Raises:
        RefusedError: there is none.
    """
    path = Path(pattern)
    found = sorted(path.iterdir()) if path.is_dir() else map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207
    files = tuple(each.absolute() for each in found if each.is_file() and each.name[0] not in "._")
    if path.is_file():
        files = (path.absolute(),)
    if not files:
        raise RefusedError(f'"{pattern}" names no file; it is relative to {Path.cwd()}')
    return files


def format_of(paths: Sequence[Path]) -> Format:
    """The format that the endings tell.

    Raises:
        RefusedError: they tell none, or several.
    """
    formats = {FORMATS.get(path.suffix.lower()) for path in paths}
    if len(formats) > 1 or None in formats:
        endings = ", ".join(sorted({path.suffix or path.name for path in paths}))
        raise RefusedError(
            f"The endings {endings} do not tell one format: say format: csv, json or parquet"
        )
    (format_,) = formats
    return format_ or "csv"


def read_files(spark: SparkSession, files: Files) -> Reading:
    """Read files, whatever characters their paths have.

    Raises:
        RefusedError: Spark cannot read the types of some columns, which it names.
    """
    if files.columns and files.format == "parquet":
        raise RefusedError("columns does not go with Parquet, whose files tell their own types")
    paths = [exact_path(path) for path in files.paths]
    reader = spark.read.options(**{**_DEFAULTS[files.format], **files.options})
    if files.format == "parquet":
        return Reading(_parquet(spark, reader, files.paths), paths=files.paths)
    if files.columns:
        reader = reader.schema(files.columns)
    fields = reader.format(files.format).load(paths).schema.fields
    with_bad = StructType([*fields, StructField(_BAD, StringType())])
    lines = (
        reader.option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", _BAD)
        .schema(with_bad)
        .format(files.format)
        .load(paths)
    )
    totals = Observation("bad rows")
    bad = F.col(_BAD)
    observed = lines.observe(
        totals, F.count(bad).alias("bad"), F.min(F.substring(bad, 1, 200)).alias("sample")
    )
    good = observed.where(bad.isNull()).select(*[column(field.name) for field in fields])
    return Reading(good, totals, files.paths)


def reason(error: Exception) -> str:
    """What is wrong, without the stack of Spark's that led to it."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage())


def _parquet(spark: SparkSession, reader: DataFrameReader, paths: Sequence[Path]) -> DataFrame:
    try:
        return reader.parquet(*map(exact_path, paths))
    except AnalysisException as error:
        problems = [problem for path in paths for problem in _illegal_columns(spark, path)]
        if problems:
            raise RefusedError("; ".join(dict.fromkeys(problems))) from error
        raise


def _illegal_columns(spark: SparkSession, path: Path) -> Iterator[str]:
    """Spark tells which type it cannot read, but not in which column: ask it of each alone."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError):
        return
    for number, each in enumerate(schema):
        with TemporaryDirectory() as folder:
            alone = Path(folder) / "alone.parquet"
            pq.write_table(pa.schema([each]).empty_table(), alone)
            try:
                spark.read.parquet(exact_path(alone))
            except AnalysisException as error:
                yield f'column "{schema.names[number]}": {error}'
