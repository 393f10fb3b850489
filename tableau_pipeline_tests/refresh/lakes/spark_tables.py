"""Write Delta and Iceberg tables with Spark itself: `python spark_tables.py FOLDER`.

Run this script in an environment with a version of Spark for which both formats have a jar. The
script writes tables into the folders `delta` and `iceberg`. The folders `delta.rows` and
`iceberg.rows` get the rows that Spark reads from the tables.
"""

import random
import sys

from pyspark.sql import SparkSession

_JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0,org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
)
_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
)
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
_DELETE = "DELETE FROM {path} WHERE id = 3"
_NO_VECTORS = "'delta.enableDeletionVectors' = 'false'"
_VECTORS = "'delta.enableDeletionVectors' = 'true'"
# For each table: its partitioning, its properties, and the statements that change it.
_DELTA = {
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
    "vectors": ("", _VECTORS, [_DELETE]),
    "purged": (
        "",
        _VECTORS,
        [_DELETE, "REORG TABLE {path} APPLY (PURGE)"],
    ),
    "widened": (
        "",
        f"{_NO_VECTORS}, 'delta.enableTypeWidening' = 'true'",
        ["ALTER TABLE {path} ALTER COLUMN tiny TYPE INT"],
    ),
    "rescaled": (
        "",
        f"{_NO_VECTORS}, 'delta.enableTypeWidening' = 'true'",
        ["ALTER TABLE {path} ALTER COLUMN tiny TYPE DOUBLE"],
    ),
    "tracked": (
        "PARTITIONED BY (day)",
        f"{_VECTORS}, 'delta.enableRowTracking' = 'true', 'delta.columnMapping.mode' = 'name'",
        [
            _MERGE,
            "ALTER TABLE {path} RENAME COLUMN word TO name",
            "DELETE FROM {path} WHERE id = 3",
        ],
    ),
}
_ON_READ = ", ".join(
    f"'write.{kind}.mode' = 'merge-on-read'" for kind in ("delete", "update", "merge")
)
_SECOND, _THIRD = "'format-version' = '2'", "'format-version' = '3'"
_ICEBERG = {
    "plain": ("", _SECOND, [f"INSERT INTO {{path}} {_MORE} WHERE id > 19"]),
    "first": ("", "'format-version' = '1'", [_MERGE, _DELETE]),
    "merged": ("", _SECOND, [_MERGE, _DELETE, "CALL {rewrite}"]),
    "parted": (
        "PARTITIONED BY (months(day), bucket(4, id), word, flag)",
        _SECOND,
        [_MERGE, "ALTER TABLE {path} DROP PARTITION FIELD flag", "DELETE FROM {path} WHERE id < 2"],
    ),
    "evolved": (
        "PARTITIONED BY (day)",
        _SECOND,
        [
            "ALTER TABLE {path} RENAME COLUMN word TO name",
            "ALTER TABLE {path} DROP COLUMN flag",
            "ALTER TABLE {path} ADD COLUMN word BIGINT",
            "ALTER TABLE {path} ALTER COLUMN tiny TYPE BIGINT",
            "ALTER TABLE {path} ALTER COLUMN price TYPE DECIMAL(22, 6)",
            "INSERT INTO {path} (id, name, day, word) VALUES (99, 'last', DATE'2024-01-01', 7)",
        ],
    ),
    "on_read": ("", f"{_SECOND}, {_ON_READ}", [_DELETE]),
    "vectors": ("", f"{_THIRD}, {_ON_READ}", [_DELETE]),
    "parted_vectors": (
        "PARTITIONED BY (day, bucket(2, id))",
        f"{_THIRD}, {_ON_READ}",
        [_MERGE, _DELETE, "DELETE FROM {path} WHERE id = 5"],
    ),
    "rewritten": ("", f"{_SECOND}, {_ON_READ}", [_DELETE, "CALL {rewrite}"]),
}


# How many tables of each format are drawn at random.
DRAWN = 50
_WRITTEN = 40


def drawn(format_: str, number: int) -> tuple[str, str, list[str], set[int]]:
    """Draw a table: its partitioning, properties and statements, and the ids that remain."""
    draw = random.Random(f"{format_} {number}")
    by = draw.choice(["", "PARTITIONED BY (day)", "PARTITIONED BY (word, flag)"])
    version = draw.choice([_SECOND, _THIRD])
    properties = _VECTORS if format_ == "delta" else f"{version}, {_ON_READ}"
    if format_ == "delta" and draw.random() < 0.5:
        properties += ", 'delta.columnMapping.mode' = 'name'"
    kept, statements = {*range(20)}, []
    for _ in range(draw.randint(1, 3)):
        gone = {*draw.sample(range(_WRITTEN), draw.randint(1, 20))}
        if draw.random() < 0.3:
            start = draw.randrange(20, _WRITTEN)
            statements.append(f"INSERT INTO {{path}} {_COLUMNS} RANGE({start}, {_WRITTEN})")
            kept = {*kept, *range(start, _WRITTEN)}
            break
        statements.append(f"DELETE FROM {{path}} WHERE id IN ({', '.join(map(str, gone))})")
        kept -= gone
    return by, properties, statements, kept


def _session(folder: str) -> SparkSession:
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", _JARS)
        .config("spark.sql.extensions", _EXTENSIONS)
        .config("spark.sql.catalog.spark_catalog", catalog)
        .config("spark.sql.catalog.ice", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.ice.type", "hadoop")
        .config("spark.sql.catalog.ice.warehouse", folder)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def _write(folder: str) -> None:
    spark = _session(folder)
    for format_, tables in (("delta", _DELTA), ("iceberg", _ICEBERG)):
        more = {f"drawn{number}": drawn(format_, number)[:3] for number in range(DRAWN)}
        for name, (partitioning, properties, statements) in (tables | more).items():
            path = f"delta.`{folder}/delta/{name}`" if format_ == "delta" else f"ice.iceberg.{name}"
            spark.sql(
                f"CREATE TABLE {path} USING {format_} {partitioning} "
                f"TBLPROPERTIES ({properties}) AS {_FIRST}"
            )
            for statement in statements:
                spark.sql(statement.format(path=path, rewrite=_rewrite(name)))
            if name not in more:
                spark.sql(f"SELECT * FROM {path}").write.parquet(f"{folder}/{format_}.rows/{name}")
    spark.stop()


def _rewrite(name: str) -> str:
    options = "map('rewrite-all', 'true', 'delete-file-threshold', '1')"
    return f"ice.system.rewrite_data_files(table => 'iceberg.{name}', options => {options})"


if __name__ == "__main__":
    _write(sys.argv[1])
