"""Write Delta tables with Spark itself, into a folder: `python -m ... FOLDER`.

In a process of its own, as Delta's jar must be there when a JVM starts. Beside each table, the
folder `<table>.rows` has its rows as Spark reads them.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

_JAR = "io.delta:delta-spark_2.13:4.3.0"
_COLUMNS = """
    SELECT id, CONCAT('w', id) AS word, DATE_ADD(DATE'2024-02-27', CAST(id % 4 AS INT)) AS day,
        TIMESTAMP'2024-03-31 01:59:59.999999 UTC' AS at, CAST(id AS DECIMAL(12, 3)) / 8 AS price,
        CAST(id % 3 AS TINYINT) AS tiny, id % 2 = 0 AS flag, CAST(NULL AS FLOAT) AS single
    FROM RANGE
"""


def write(folder: Path) -> None:
    """Write all tables."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", _JAR)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    plain = "'delta.enableDeletionVectors' = 'false'"

    def table(name: str, *statements: str, by: str = "", properties: str = plain) -> None:
        path = f"delta.`{folder}/{name}`"
        spark.sql(
            f"CREATE TABLE {path} USING delta {by} TBLPROPERTIES ({properties}) AS "
            f"{_COLUMNS.replace('RANGE', 'RANGE(0, 20, 1, 4)')}"
        )
        for statement in statements:
            spark.sql(statement.format(path=path, more=_COLUMNS.replace("RANGE", "RANGE(18, 25)")))
        spark.sql(f"SELECT * FROM {path}").write.parquet(f"{folder}/{name}.rows")

    merge = (
        "MERGE INTO {path} t USING ({more}) s ON s.id = t.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    table("plain", "INSERT INTO {path} {more}")
    table("merged", merge, "DELETE FROM {path} WHERE id = 3", "OPTIMIZE {path}")
    table("parted", merge, "DELETE FROM {path} WHERE id < 2", by="PARTITIONED BY (day, word, flag)")
    table(
        "mapped",
        "ALTER TABLE {path} RENAME COLUMN word TO name",
        "ALTER TABLE {path} DROP COLUMN tiny",
        "ALTER TABLE {path} ADD COLUMN word BIGINT",
        "INSERT INTO {path} (id, name, day, word) VALUES (99, 'last', DATE'2024-01-01', 7)",
        by="PARTITIONED BY (day)",
        properties=f"{plain}, 'delta.columnMapping.mode' = 'name'",
    )
    vectors = "'delta.enableDeletionVectors' = 'true'"
    table("vectors", "DELETE FROM {path} WHERE id = 3", properties=vectors)
    table("purged", "DELETE FROM {path} WHERE id = 3", "REORG TABLE {path} APPLY (PURGE)",
          properties=vectors)  # fmt: skip
    table(
        "widened",
        "ALTER TABLE {path} ALTER COLUMN tiny TYPE INT",
        properties=f"{plain}, 'delta.enableTypeWidening' = 'true'",
    )
    spark.stop()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
