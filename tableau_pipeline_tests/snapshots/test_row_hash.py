"""Row hashes, and the fingerprints, which are sums of row hashes."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.hyper.types import ROW_HASH
from tableau_pipeline.snapshots.write import row_hash, stored_fingerprint
from tableau_pipeline_tests.snapshots.support import store


def hashes(frame: DataFrame) -> list[int]:
    return [row[0] for row in frame.select(row_hash(frame.schema)).collect()]


# Schemas, each with rows that all differ.
ROWS: list[tuple[str, list[Any]]] = [
    ("a int, b int", [(1, None), (None, 1), (None, None), (1, 1), (0, 0), (0, None)]),
    ("a string, b string", [("ab", "c"), ("a", "bc"), ("", "abc"), (None, "abc"), ("", None)]),
    ("a string, b int", [("1", None), (None, 1), ("", 1), ("\0", 1), ("null", 1)]),
    ("a array<int>, b array<int>", [([1], [2]), ([1, 2], []), ([], [1, 2]), ([1, 2], None)]),
    ("a array<int>", [([],), (None,), ([None],), ([None, None],), ([0],), ([1, 2],), ([2, 1],)]),
    ("a array<string>", [(["a", "b"],), (['a","b'],), (["a,b"],), (["null"],), ([None],)]),
    ("a array<array<int>>", [([[1], [2]],), ([[1, 2]],), ([[1, 2], []],), ([[1], None, [2]],)]),
    ("a map<string,int>", [({},), ({"a": None},), ({"a": 1},), ({"a": 1, "b": 2},), (None,)]),
    ("a map<int,string>", [({1: "2"},), ({2: "1"},), ({12: ""},)]),
    (
        "a struct<x:int,y:struct<z:int>>",
        [(None,), ((None, None),), ((None, (None,)),), ((1, None),), ((None, (1,)),)],
    ),
    ("a struct<x:string,y:string>", [(("1", None),), ((None, "1"),), (("1", ""),)]),
    ("a binary, b binary", [(b"\0", b""), (b"", b"\0"), (b"\0\0", b""), (b"", None)]),
    ("a array<binary>", [([b"\xff"],), ([b"\xfe"],), ([b""],)]),
    ("a double, b boolean", [(1.0, True), (1.0, False), (-1.0, True), (None, True)]),
]
# Lists of SQL expressions. All expressions of a list have one type, and their values differ.
VALUES = [
    # A collation takes these texts for equal, but their characters differ.
    ["'a' COLLATE utf8_lcase", "'A' COLLATE utf8_lcase"],
    ["'a' COLLATE unicode_ci", "'A' COLLATE unicode_ci"],
    ["array('a' COLLATE utf8_lcase)", "array('A' COLLATE utf8_lcase)"],
    ["struct('a' COLLATE utf8_lcase)", "struct('A' COLLATE utf8_lcase)"],
    ["map('a' COLLATE utf8_lcase, 1)", "map('A' COLLATE utf8_lcase, 1)"],
    *(
        [wrap.format(f"timestamp'2024-01-01 00:00:00.00000{micros}'") for micros in (1, 2)]
        for wrap in ("{}", "array({})", "map('k', {})", "map({}, 1)", "struct({})")
    ),
    *(
        [wrap.format(f"timestamp_ntz'2024-01-01 00:00:00.00000{micros}'") for micros in (1, 2)]
        for wrap in ("{}", "array({})", "map('k', {})", "struct(array({}))")
    ),
    ["parse_json('{\"a\": 1}')", "parse_json('{\"a\": 2}')", "parse_json('null')", "NULL"],
    ["to_variant_object(struct(1 AS a))", "to_variant_object(struct('1' AS a))"],
    ["CAST(timestamp_micros(1) AS variant)", "CAST(timestamp_micros(2) AS variant)"],
    ["array(parse_json('[1]'))", "array(parse_json('1'))"],
    ["array(interval '1' month)", "array(interval '2' month)"],
    ["interval '1' second", "interval '1.000001' second"],
    ["array(CAST('NaN' AS double))", "array(CAST('Infinity' AS double))", "array(0D)"],
    ["CAST('NaN' AS float)", "CAST('-Infinity' AS float)", "CAST(NULL AS float)"],
]


@pytest.fixture(scope="module")
def distinct(spark: SparkSession) -> dict[str, list[int]]:
    """Return the hashes of each case above; one job computes all of them."""
    frames = {schema: spark.createDataFrame(rows, schema) for schema, rows in ROWS} | {
        values[0]: spark.sql(" UNION ALL ".join(f"SELECT {value} AS v" for value in values))
        for values in VALUES
    }
    tagged = [
        frame.select(F.lit(case).alias("case"), row_hash(frame.schema).alias("hash"))
        for case, frame in frames.items()
    ]
    found: dict[str, list[int]] = {case: [] for case in frames}
    for row in reduce(DataFrame.unionAll, tagged).collect():
        found[row["case"]].append(row["hash"])
    return found


CASES = {**dict(ROWS), **{values[0]: values for values in VALUES}}


@pytest.mark.parametrize("case", CASES)
def test_what_differs_has_different_hashes(case: str, distinct: dict[str, list[int]]) -> None:
    """Prevents: different rows get equal hashes, for example because of NULLs or collations."""
    assert len(set(distinct[case])) == len(distinct[case]) == len(CASES[case])


@pytest.mark.parametrize("name", ["a.b", "`a`.`b` é\n", "*"])
def test_a_column_may_have_any_name(name: str, spark: SparkSession) -> None:
    """Prevents: Spark takes a name for a path into a struct, and hashes the wrong column."""
    frame = spark.sql("SELECT id AS x, 7 AS y FROM range(3)").toDF(name, "a")
    plain = frame.toDF("p", "q")
    assert hashes(frame) == hashes(plain)
    assert len(set(hashes(frame))) == 3


@pytest.mark.slow
def test_equal_rows_have_equal_hashes(spark: SparkSession) -> None:
    """Prevents: the rows of an unchanged model get other hashes.

    Hashes must not depend on the order of rows, on partitions, or on whether Spark generates code
    for a query or interprets it.
    """
    frame = spark.sql(
        "SELECT id % 5 AS i, array(id % 5) AS a, map('k', id % 5) AS m, named_struct('f', id % 5,"
        " 't', timestamp_micros(id % 5)) AS s, parse_json(CAST(id % 5 AS string)) AS v"
        " FROM range(50)"
    )
    assert len(set(hashes(frame))) == 5
    assert sorted(hashes(frame)) == sorted(hashes(frame.repartition(3).orderBy(F.desc("i"))))
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        interpreted = hashes(frame)
    finally:
        spark.conf.unset("spark.sql.codegen.factoryMode")
        spark.conf.unset("spark.sql.codegen.wholeStage")
    assert sorted(interpreted) == sorted(hashes(frame))


def test_negative_zero_is_zero(spark: SparkSession) -> None:
    """Prevents: -0.0 and 0.0, which hyperd takes for equal, get different hashes."""
    found = hashes(spark.sql("SELECT -0.0D AS d, CAST('-0.0' AS float) AS f")) + hashes(
        spark.sql("SELECT 0.0D AS d, CAST('0.0' AS float) AS f")
    )
    assert found[0] == found[1]


def test_the_algorithm_is_the_one_that_its_name_says(spark: SparkSession) -> None:
    """Prevents: a changed hash keeps its name, so old and new fingerprints seem comparable."""
    frame = spark.sql("SELECT 1 AS a, 'x' AS b, CAST(NULL AS date) AS c, array(1, NULL) AS d")
    assert hashes(frame) == [7774089751728258321]


SCHEMA = "a int, b string, c array<int>, d map<string,int>, e struct<x:string,y:double>"

# There are few values, so that many rows are equal, and other rows differ by little.
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
    """Return a multiset of the rows; the order of a map's entries does not count."""
    return Counter(
        repr((a, b, c, d if d is None else sorted(d.items()), e)) for a, b, c, d, e in rows
    )


def fingerprints(spark: SparkSession, groups: list[list[Any]]) -> list[Fingerprint]:
    """Return the fingerprint of each group of rows; one job computes all of them."""
    tagged = [(number, *row) for number, rows in enumerate(groups) for row in rows]
    frame = spark.createDataFrame(tagged, f"g int, {SCHEMA}")
    hashed = frame.withColumn("h", row_hash(frame.drop("g").schema).cast("decimal(20,0)"))
    found = {
        row.g: Fingerprint(rows=row.n, hash_sum=int(row.s))
        for row in hashed.groupBy("g").agg(F.count("*").alias("n"), F.sum("h").alias("s")).collect()
    }
    return [found.get(number, Fingerprint(rows=0, hash_sum=0)) for number in range(len(groups))]


@pytest.mark.slow
@given(groups=st.lists(_rows, min_size=20, max_size=40))
@settings(_settings, max_examples=4)
def test_fingerprints_are_equal_just_when_the_rows_are(
    groups: list[list[Any]], spark: SparkSession
) -> None:
    """Prevents: a refresh skips changed rows, or sends rows that did not change."""
    groups = groups + [list(reversed(rows)) for rows in groups[:3]]
    found = fingerprints(spark, groups)
    contents = [content(rows) for rows in groups]
    for i in range(len(groups)):
        for j in range(i):
            assert (found[i] == found[j]) == (contents[i] == contents[j]), (groups[i], groups[j])


@pytest.mark.slow
def test_what_a_model_draws_at_random_is_hashed_as_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents: Spark draws random values again for the hash, and stores other values."""
    frame = spark.sql("SELECT id, rand() AS r, uuid() AS u FROM range(100)").repartition(3)
    snapshot = store(frame, tmp_path)
    stored = spark.read.parquet(*snapshot.paths)
    assert _of_stored(stored) == snapshot.fingerprint
    assert stored.where(row_hash(stored.drop("_row_hash").schema) != F.col("_row_hash")).isEmpty()


def test_no_sum_of_hashes_is_too_large(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: the sum of a few equal hashes overflows 64 bits."""
    snapshot = store(spark.sql("SELECT 3 AS a FROM range(1000)"), tmp_path)
    one = store(spark.sql("SELECT 3 AS a"), tmp_path).fingerprint.hash_sum
    assert snapshot.fingerprint == Fingerprint(rows=1000, hash_sum=1000 * one)
    assert abs(snapshot.fingerprint.hash_sum) > 2**63


def _of_stored(stored: DataFrame) -> Fingerprint:
    """Return the fingerprint that the stored hashes add up to."""
    hash_sum = F.sum(F.col("_row_hash").cast("decimal(38,0)"))
    row = stored.agg(F.count("*").alias("n"), hash_sum.alias("s")).first()
    assert row is not None
    return Fingerprint(rows=row.n, hash_sum=int(row.s))


_MANY = 3_000_000


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Prevents: the driver holds the hashes of a whole partition in memory."""
    needed = []
    for rows in (_MANY // 10, _MANY):
        path = tmp_path / f"{rows}.parquet"
        hashes = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, rows)
        pq.write_table(pa.table({ROW_HASH: hashes}), path, row_group_size=rows)
        with measured() as pool:
            assert stored_fingerprint([path]).rows == rows
        needed.append(pool.max_memory())
    few, many = needed
    assert 0 < many < 1.2 * few < _MANY * 8 / 2


@contextmanager
def measured() -> Iterator[pa.MemoryPool]:
    """Let Arrow use a new pool during the block; the pool knows its highest use of memory."""
    former = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(former)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(former)
