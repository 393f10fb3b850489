"""The least work of any way through Parquet: Spark's own write, and one bare SQL statement.

With the option `hash`, Spark also writes a 64-bit hash of each row, as this pipeline does. The SQL
statement ignores the hash.
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tableauhyperapi import Connection, CreateMode, HyperProcess, Telemetry, escape_name

from benchmarks.bare import scan
from benchmarks.peers.protocol import SCHEMA, TABLE, contend, options


def _build(frame: DataFrame, folder: Path) -> Path:
    rows, path = folder / "rows", folder / "rows.hyper"
    columns = ", ".join(map(escape_name, frame.columns))
    stored = frame.withColumn("_hash", F.xxhash64("*")) if "hash" in options() else frame
    stored.write.parquet(rows.as_uri())
    files = [str(file) for file in sorted(rows.glob("part-*.parquet"))]
    with (
        HyperProcess(Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU) as hyper,
        Connection(hyper.endpoint, path, CreateMode.CREATE_AND_REPLACE) as connection,
    ):
        connection.execute_command(f"CREATE SCHEMA {escape_name(SCHEMA)}")
        connection.execute_command(
            f"CREATE TABLE {escape_name(SCHEMA)}.{escape_name(TABLE)} AS "
            f"SELECT {columns} FROM {scan(files)}"
        )
    return path


if __name__ == "__main__":
    contend(_build)
