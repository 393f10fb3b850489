"""Read snapshots with Spark."""

import json
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from tableau_pipeline.core.snapshot import DataFile, Snapshot
from tableau_pipeline.objects.arrow_files import SPARK_SCHEMA, Reader
from tableau_pipeline.objects.object_folder import ObjectFolder
from tableau_pipeline.snapshots.files.spark_paths import exact_path
from tableau_pipeline.snapshots.objects.sending import plain_names, sent_along
from tableau_pipeline.snapshots.row_hash import column

_NULLABLE = {"nullable", "containsNull", "valueContainsNull"}


def read_frame(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Read the rows of a snapshot, without the columns for internal use.

    Raises:
        RefusedError: the columns of its partitions differ.
    """
    snapshot.check_columns()
    columns = snapshot.columns
    files = [file for part in snapshot.parts for file in part.files]
    if not files:
        schema = ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in columns)
        return spark.createDataFrame([], schema)
    names = [each.name for each in columns]
    if isinstance(snapshot.folder, ObjectFolder):
        return _from_objects(spark, snapshot.folder, files, names)
    # Without a schema, Spark uses its own, stored in the files; as DDL text, field names inside a
    # struct would lose their quotes. The select drops the column that Spark adds for a partition
    # folder.
    frame = spark.read.parquet(*map(exact_path, map(Path, snapshot.paths_of(files))))
    return frame.select(*[column(name) for name in names])


def _from_objects(
    spark: SparkSession, folder: ObjectFolder, files: list[DataFile], names: list[str]
) -> DataFrame:
    """Read files in as many tasks; Spark needs no connector of the store."""
    (path,) = folder.paths([min(files, key=lambda file: file.size).name])
    stored = _spark_schema(path)
    plain, fields = plain_names(len(names)), [stored[name] for name in names]
    schema = StructType(
        [StructField(name, field.dataType) for name, field in zip(plain, fields, strict=True)]
    )
    keys = [(f"{folder.key}/{file.name}",) for file in files]
    listing = spark.createDataFrame(keys, "key string")
    read = sent_along(Reader(folder.url, names, plain))
    frame = listing.repartition(len(files)).mapInArrow(read, schema)
    return frame.select(
        *[
            frame[name].alias(field.name, metadata=field.metadata)
            for name, field in zip(plain, fields, strict=True)
        ]
    )


def _spark_schema(path: str) -> StructType:
    """Return the schema that Spark stored in a Parquet file."""
    text = (pq.read_metadata(path).metadata or {})[SPARK_SCHEMA]
    # Spark's own reader takes every value for nullable, too.
    return StructType.fromJson(
        json.loads(
            text, object_hook=lambda found: found | dict.fromkeys(_NULLABLE & {*found}, True)
        )
    )
