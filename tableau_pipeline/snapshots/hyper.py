"""Read extracts as Spark DataFrames, for models that start from one."""

from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from tableauhyperapi import TableName

from tableau_pipeline.hyper.open_file import open_hyper
from tableau_pipeline.hyper.types.literals import string_literal
from tableau_pipeline.snapshots.files.spark_paths import exact_path


def read_hyper(
    spark: SparkSession, path: Path | str, what: TableName | str, *, folder: Path
) -> DataFrame:
    """Read the rows of a table of a `.hyper` file, or of a query on it.

    Args:
        folder: where hyperd stores the rows as Parquet. Every executor must be able to read it,
            and it must exist as long as the frame is used.

    Raises:
        HyperFileError: the file does not exist, is not a .hyper file, is damaged, or is in use.
    """
    rows = folder.absolute() / f"{uuid4().hex}.parquet"
    rows.parent.mkdir(parents=True, exist_ok=True)
    query = f"SELECT * FROM {what}" if isinstance(what, TableName) else what  # noqa: S608
    with open_hyper(path) as file:
        target = string_literal(str(rows))
        file.execute(f"COPY ({query}) TO {target} WITH (FORMAT PARQUET)")
    return spark.read.parquet(exact_path(rows))
