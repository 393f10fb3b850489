"""Nested values as the JSON text that a data source may declare for them."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tableauhyperapi import Connection, HyperProcess

from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.types import TypePolicy
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.write import UnstorableError
from tableau_pipeline_tests.hyper.samples import build_one, rows_of, stored_source
from tableau_pipeline_tests.snapshots.support.samples import store

# By Spark's type: a value in SQL, and what its JSON text means.
VALUES = {
    "array<int>": ("array(1, NULL, 3)", [1, None, 3]),
    "array<array<string>>": (r"array(array(), array('é \" 航'))", [[], ['é " 航']]),
    "map<string,decimal(38,2)>": (
        f"map('a', CAST({'9' * 36}.25BD AS DECIMAL(38,2)))",
        {"a": int("9" * 36 + "25")},
    ),
    "struct<a:int,b:timestamp>": (
        "struct(CAST(NULL AS INT) AS a, timestamp'2024-03-31 01:00:00.000001 UTC' AS b)",
        {"a": None, "b": "2024-03-31T01:00:00.000001Z"},
    ),
    "variant": ("""parse_json('{"k": [1, "x"]}')""", {"k": [1, "x"]}),
}


def test_nested_values_are_their_json(
    spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents text that lost digits, microseconds or NULLs, and a NULL that became "null"."""
    names = [f"the `column`.{number}" for number in range(len(VALUES))]
    cells, nulls = ", ".join(sql for sql, _ in VALUES.values()), ", NULL" * len(VALUES)
    frame = spark.sql(f"SELECT 1, {cells} UNION ALL SELECT 2{nulls}")
    snapshot = store(frame.toDF("id", *names), tmp_path)
    assert [column.type for column in snapshot.columns] == ["int", *VALUES]
    columns = tuple(map(TypePolicy(nested="json").apply, snapshot.columns))
    table = TableSource("Extract", columns, snapshot.paths)
    build_one(hyper, tmp_path / "x.hyper", table)
    found = rows_of(hyper, tmp_path / "x.hyper")
    digits = {"parse_float": lambda text: int(text.replace(".", ""))}
    for name, (type_, (_, meant)) in zip(names, VALUES.items(), strict=True):
        text, nothing = found[name].to_pylist()
        assert nothing is None, type_
        assert json.loads(text, **(digits if "decimal" in type_ else {})) == meant, type_
    # The text is ours alone: the model that reads the snapshot does not see it.
    assert read_frame(spark, snapshot).columns == ["id", *names]


def test_a_column_by_the_name_of_our_text(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents a column of the model that is overwritten by one of ours."""
    frame = spark.sql("SELECT array(1) AS tags, 'mine' AS _JSON_of_tags")
    with pytest.raises(UnstorableError, match="'_JSON_of_tags' is reserved"):
        store(frame, tmp_path)


def test_comments_reach_the_extract(
    spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents the loss of what a column means, which the model says."""
    frame = spark.sql("SELECT 1 AS a, 2 AS `b c`, 3 AS d")
    comments = {"a": 'it\'s the "first"', "b c": "航班\nsecond line"}
    for name, comment in comments.items():
        frame = frame.withMetadata(name, {"comment": comment})
    snapshot = store(frame, tmp_path)
    assert snapshot.comments == comments
    source = stored_source(snapshot)
    build_one(hyper, tmp_path / "x.hyper", source)
    with Connection(hyper.endpoint, tmp_path / "x.hyper") as connection:
        found = connection.execute_list_query(
            "SELECT attname, description FROM pg_catalog.pg_description "
            "JOIN pg_catalog.pg_attribute ON attrelid = objoid AND attnum = objsubid"
        )
    assert dict(found) == comments
