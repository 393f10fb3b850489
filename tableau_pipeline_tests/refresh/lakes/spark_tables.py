"""Write Delta tables with Spark itself: `python spark_tables.py FOLDER`.

Runs alone, in an environment with a Spark for which Delta has a jar. Beside each table, the folder
`<table>.rows` has its rows as Spark reads them.
"""

import sys

from pyspark.sql import SparkSession

_JAR = "io.delta:delta-spark_4.1_2.13:4.3.0"
_COLUMNS = """
    SELECT id, CONCAT('w', id) AS word, DATE_ADD(DATE'2024-02-27', CAST(id % 4 AS INT)) AS day,
        TIMESTAMP'2024-03-31 01:59:59.999999 UTC' AS at, CAST(id AS DECIMAL(12, 3)) / 8 AS price,
        CAST(id % 3 AS TINYINT) AS tiny, id % 2 = 0 AS flag, CAST(NULL AS FLOAT) AS single
    FROM
"""
_FIRST, _MORE = f"{_COLUMNS} RANGE(0, 20, 1, 4)", f"{_COLUMNS} RANGE(18, 25)"
_MERGE = (
    f"MERGE INTO {{path}} t USING ({_MORE}) s ON s.id = t.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
_NO_VECTORS = "'delta.enableDeletionVectors' = 'false'"
_VECTORS = "'delta.enableDeletionVectors' = 'true'"
# By table: its partitioning, its properties, and what happens to it.
_TABLES = {
    "plain": ("", _NO_VECTORS, [f"INSERT INTO {{path}} {_MORE} WHERE id > 19"]),
    "merged": ("", _NO_VECTORS, [_MERGE, "DELETE FROM {path} WHERE id = 3", "OPTIMIZE {path}"]),
    "parted": (
        "PARTITIONED BY (day, word, flag)",
        _NO_VECTORS,
        [_MERGE, "DELETE FROM {path} WHERE id < 2"],
    ),
    "mapped": (
        "PARTITIONED BY (day)",
        f"{_NO_VECTORS}, 'delta.columnMapping.mode' = 'name'",
        [
            "ALTER TABLE {path} RENAME COLUMN word TO name",
            "ALTER TABLE {path} DROP COLUMN tiny",
            "ALTER TABLE {path} ADD COLUMN word BIGINT",
            "INSERT INTO {path} (id, name, day, word) VALUES (99, 'last', DATE'2024-01-01', 7)",
        ],
    ),
    "vectors": ("", _VECTORS, ["DELETE FROM {path} WHERE id = 3"]),
    "purged": (
        "",
        _VECTORS,
        ["DELETE FROM {path} WHERE id = 3", "REORG TABLE {path} APPLY (PURGE)"],
    ),
    "widened": (
        "",
        f"{_NO_VECTORS}, 'delta.enableTypeWidening' = 'true'",
        ["ALTER TABLE {path} ALTER COLUMN tiny TYPE INT"],
    ),
}


def _session(folder: str) -> SparkSession:
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", _JAR)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", catalog)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def _write(folder: str) -> None:
    spark = _session(folder)
    for name, (partitioning, properties, statements) in _TABLES.items():
        path = f"delta.`{folder}/{name}`"
        spark.sql(
            f"CREATE TABLE {path} USING delta {partitioning} TBLPROPERTIES ({properties}) "
            f"AS {_FIRST}"
        )
        for statement in statements:
            spark.sql(statement.format(path=path))
        spark.sql(f"SELECT * FROM {path}").write.parquet(f"{folder}/{name}.rows")
    spark.stop()


if __name__ == "__main__":
    _write(sys.argv[1])
