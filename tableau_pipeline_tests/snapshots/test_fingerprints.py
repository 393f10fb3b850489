from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.snapshots.row_hash import row_hash
from tableau_pipeline_tests.snapshots.support.samples import store

SCHEMA = "a int, b string, c array<int>, d map<string,int>, e struct<x:string,y:double>"

# Few values, so that equal rows are common and rows that differ, differ by little.
_int = st.sampled_from([None, 0, 1, 2])
_text = st.sampled_from([None, "", "0", "1", '",', "null"])
_row = st.tuples(
    _int,
    _text,
    st.none() | st.lists(_int, max_size=2),
    st.none() | st.dictionaries(st.sampled_from(["", "0"]), _int, max_size=2),
    st.none() | st.tuples(_text, st.sampled_from([None, 0.0, 1.0, float("inf")])),
)
_rows = st.lists(_row, max_size=4)

_settings = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)


def content(rows: list[Any]) -> Counter[str]:
    """A multiset of rows; a map has no order."""
    return Counter(
        repr((a, b, c, d if d is None else sorted(d.items()), e)) for a, b, c, d, e in rows
    )


def fingerprints(spark: SparkSession, groups: list[list[Any]]) -> list[Fingerprint]:
    """The fingerprint of each group of rows, all computed by one job."""
    tagged = [(number, *row) for number, rows in enumerate(groups) for row in rows]
    frame = spark.createDataFrame(tagged, f"g int, {SCHEMA}")
    hashed = frame.withColumn("h", row_hash(frame.drop("g").schema).cast("decimal(20,0)"))
    found = {
        row.g: Fingerprint(rows=row.n, hash_sum=int(row.s))
        for row in hashed.groupBy("g").agg(F.count("*").alias("n"), F.sum("h").alias("s")).collect()
    }
    return [found.get(number, Fingerprint(rows=0, hash_sum=0)) for number in range(len(groups))]


@given(groups=st.lists(_rows, min_size=20, max_size=40))
@settings(_settings, max_examples=4)
def test_fingerprints_are_equal_just_when_the_rows_are(
    groups: list[list[Any]], spark: SparkSession
) -> None:
    """Prevents a refresh skipped over changed rows, and refreshes of rows that did not change."""
    groups = groups + [list(reversed(rows)) for rows in groups[:3]]
    found = fingerprints(spark, groups)
    contents = [content(rows) for rows in groups]
    for i in range(len(groups)):
        for j in range(i):
            assert (found[i] == found[j]) == (contents[i] == contents[j]), (groups[i], groups[j])


def test_what_a_model_draws_at_random_is_hashed_as_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents hashes of values that were computed a second time, and came out otherwise."""
    frame = spark.sql("SELECT id, rand() AS r, uuid() AS u FROM range(100)").repartition(3)
    snapshot = store(frame, tmp_path)
    stored = spark.read.parquet(*snapshot.paths)
    assert _of_stored(stored) == snapshot.fingerprint
    assert stored.where(row_hash(stored.drop("_row_hash").schema) != F.col("_row_hash")).isEmpty()


def test_no_sum_of_hashes_is_too_large(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents an overflow: a few equal rows with a large hash pass 2^63."""
    snapshot = store(spark.sql("SELECT 3 AS a FROM range(1000)"), tmp_path)
    one = store(spark.sql("SELECT 3 AS a"), tmp_path).fingerprint.hash_sum
    assert snapshot.fingerprint == Fingerprint(rows=1000, hash_sum=1000 * one)
    assert abs(snapshot.fingerprint.hash_sum) > 2**63


def _of_stored(stored: DataFrame) -> Fingerprint:
    """What the stored hashes add up to."""
    hash_sum = F.sum(F.col("_row_hash").cast("decimal(38,0)"))
    row = stored.agg(F.count("*").alias("n"), hash_sum.alias("s")).first()
    assert row is not None
    return Fingerprint(rows=row.n, hash_sum=int(row.s))
