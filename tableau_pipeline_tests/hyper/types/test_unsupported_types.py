from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.types import Column, UnsupportedTypeError


@pytest.mark.parametrize(
    ("sql", "type_", "remedy"),
    [
        ("array(1)", "array<int>", "nested: json"),
        ("array(interval '1' day)", "array<interval day>", "nested: json"),
        ("map('a', struct(1))", "map<string,struct<col1:int>>", "nested: json"),
        ("struct(array(1) AS a)", "struct<a:array<int>>", "select its fields"),
        ("parse_json('1')", "variant", "nested: json"),
        ("NULL", "void", "cast it to the type that it should have"),
        # These arrive in Hyper silently, as numbers of months and of microseconds.
        ("interval '1-2' year to month", "interval year to month", "cast it to a number"),
        ("interval '1' month", "interval month", "cast it to a number"),
        ("interval '1 2' day to hour", "interval day to hour", "cast it to a number"),
        ("interval '1' second", "interval second", "cast it to a number"),
        ("make_interval(1, 2, 3)", "interval", "cast it to a number"),
        ("time'12:00:00'", "time(6)", "cast it in the model"),
    ],
)
def test_a_type_without_a_place_in_tableau_is_refused_by_name(
    sql: str, type_: str, remedy: str, spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents values that turn into something else, and errors that do not say what to fix."""
    found = spark.sql(f"SELECT {sql} AS v").schema["v"].dataType.simpleString()
    assert found == type_
    table = TableSource("trips", (Column("id", "int"), Column("the column", found)), ())
    folder = tmp_path / "not yet"
    with pytest.raises(UnsupportedTypeError) as refusal:
        build_extract(hyper, folder / "x.hyper", tables=[table])
    for part in ('"trips"', '"the column"', f" {type_};", remedy):
        assert part in str(refusal.value)
    assert not folder.exists()
