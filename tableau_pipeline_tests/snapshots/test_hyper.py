from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from tableauhyperapi import TableName

from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.snapshots.load import read_hyper

TABLE = TableName("Extract", "Extract")


def test_an_extract_as_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: a model that starts from an extract and gets other values, or other types."""
    rows = {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([1, None], pa.int16()),
        "text": pa.array(["航 \0", None]),
        "exact": pa.array([Decimal("9" * 36 + ".25"), None], pa.decimal128(38, 2)),
        "day": pa.array([date(1582, 10, 10), None]),
        "wall": pa.array([datetime(1, 1, 1, 2, 30), None], pa.timestamp("us")),
        "instant": pa.array([datetime(2024, 1, 1), None], pa.timestamp("us", "UTC")),
        "ratio": pa.array([float("inf"), None], pa.float64()),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "flag": pa.array([True, None]),
    }
    path = tmp_path / "x.hyper"
    with open_hyper(path, "w", version=3) as file:
        file.create(TABLE, pa.table(rows))
    frame = read_hyper(spark, path, TABLE, folder=tmp_path / "a [folder] {of} *?")
    assert [kind for _, kind in frame.dtypes] == [
        *("bigint", "smallint", "string", "decimal(38,2)", "date"),
        *("timestamp_ntz", "timestamp", "double", "binary", "boolean"),
    ]
    found = frame.orderBy("id").toArrow().to_pydict()
    assert found == pa.table(rows).to_pydict()
    query = f'SELECT COUNT(*) AS "n" FROM {TABLE}'
    assert read_hyper(spark, path, query, folder=tmp_path).collect() == [(2,)]
