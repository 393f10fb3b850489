from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.snapshots.support.jobs import materialize, model, reader
from tableau_pipeline_tests.snapshots.support.samples import newest


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    "name",
    ["a b [x] 50% %20", "{a,b}*?", "it's#1:é", "year=2024", "a\\b"],
)
def test_the_data_directory_may_have_any_name(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents that Spark takes a path for a pattern, an encoded URL or a partition."""
    seen: list[DataFrame] = []
    rows = spark.range(6).repartition(2)
    materialize(tmp_path / name, [model(rows), reader(seen, "model", DataFrame)])
    assert seen[0].columns == ["id"]
    assert sorted(row.id for row in seen[0].collect()) == list(range(6))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    snapshot = newest(tmp_path / name)
    assert snapshot is not None
    table = TableSource("Extract", snapshot.columns, snapshot.paths)
    assert build_extract(hyper_process(), tmp_path / "x.hyper", tables=[table]).rows == {
        "Extract": 6
    }


def test_the_data_directory_may_be_relative(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents that Spark takes the first folder of a relative path for the name of a host."""
    monkeypatch.chdir(tmp_path)
    seen: list[DataFrame] = []
    materialize("some/data", [model(spark.range(3)), reader(seen, "model", DataFrame)])
    assert seen[0].count() == 3
    assert (tmp_path / "some" / "data").is_dir()


TYPES = [
    "CAST(1 AS tinyint)",
    "CAST('NaN' AS float)",
    "1.5BD",
    "X'00ff'",
    "date'0001-01-01'",
    "timestamp'0001-01-01 00:00:00.000001'",
    "timestamp_ntz'9999-12-31 23:59:59.999999'",
    "interval '1-2' year to month",
    "interval '1 2:03:04.5' day to second",
    "'a' COLLATE utf8_lcase",
    "array('a' COLLATE unicode_ci, NULL)",
    "map('k', array(1, NULL))",
    "parse_json('{\"a\": [1, null]}')",
]
ODD_NAMES = [
    "named_struct('a b', 1, 'c.d', named_struct('e`f', 2, 'select', 3))",
    "array(named_struct('x:y', 1))",
    "map('k', named_struct('a,b<c>', 1))",
]


def texts(frame: DataFrame) -> list[str]:
    """The rows as text: some of their values have no like in Python."""
    named = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    texts = named.select(*(named[name].cast("string") for name in named.columns))
    return sorted(str(row) for row in texts.collect())
