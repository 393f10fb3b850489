"""Read snapshots, and tables of `.hyper` files, with Spark."""

import json
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType
from tableauhyperapi import TableName

from tableau_pipeline.core.snapshot import DataFile, Snapshot
from tableau_pipeline.hyper.hyper_file import open_hyper
from tableau_pipeline.hyper.types import string_literal
from tableau_pipeline.objects.arrow_files import SPARK_SCHEMA, ObjectReader
from tableau_pipeline.objects.stores import ObjectFolder
from tableau_pipeline.snapshots.spark import plain_names, ship_by_value
from tableau_pipeline.snapshots.write import column, exact_path

_NULLABLE = {"nullable", "containsNull", "valueContainsNull"}


def read_frame(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Return the rows of a snapshot, without the columns for internal use.

    Raises:
        RefusedError: the partitions of the snapshot have different columns.
    """
    snapshot.check_columns()
    columns = snapshot.columns
    files = [file for part in snapshot.parts for file in part.files]
    if not files:
        schema = ", ".join(f"`{field.name.replace('`', '``')}` {field.type}" for field in columns)
        return spark.createDataFrame([], schema)
    names = [field.name for field in columns]
    if isinstance(snapshot.folder, ObjectFolder):
        return _read_objects(spark, snapshot.folder, files, names)
    # Give no schema, so that Spark uses the schema that it has stored in the files. A schema as DDL
    # text would lose the quotes of field names inside a struct. The select drops the columns for
    # internal use, and the column that Spark adds for a partition folder.
    frame = spark.read.parquet(*map(exact_path, map(Path, snapshot.paths_of(files))))
    return frame.select(*[column(name) for name in names])


def _read_objects(
    spark: SparkSession, folder: ObjectFolder, files: list[DataFile], names: list[str]
) -> DataFrame:
    """Read each file with pyarrow in a task, so that Spark needs no connector for the store."""
    (path,) = folder.paths([min(files, key=lambda file: file.size).name])
    schema = (pq.read_metadata(path).metadata or {})[SPARK_SCHEMA]
    # Make every value nullable, like Spark's own reader.
    stored = StructType.fromJson(
        json.loads(schema, object_hook=lambda item: item | dict.fromkeys(_NULLABLE & {*item}, True))
    )
    plain, fields = plain_names(len(names)), [stored[name] for name in names]
    schema = StructType(
        [StructField(name, field.dataType) for name, field in zip(plain, fields, strict=True)]
    )
    keys = [(f"{folder.key}/{file.name}",) for file in files]
    listing = spark.createDataFrame(keys, "key string")
    read = ship_by_value(ObjectReader(folder.url, names, plain))
    frame = listing.repartition(len(files)).mapInArrow(read, schema)
    return frame.select(
        *[
            frame[name].alias(field.name, metadata=field.metadata)
            for name, field in zip(plain, fields, strict=True)
        ]
    )


def read_hyper(
    spark: SparkSession, path: Path | str, what: TableName | str, *, folder: Path
) -> DataFrame:
    """Return a table of a `.hyper` file, or the result of an SQL query on the file.

    Args:
        folder: the folder in which hyperd stores the rows as Parquet. Every executor must be able
            to read this folder. The folder must exist as long as the frame is used.

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
