from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.snapshots.row_hash import row_hash


def hashes(frame: DataFrame) -> list[int]:
    return [row[0] for row in frame.select(row_hash(frame.schema)).collect()]


# A schema, and rows of which no two are equal.
ROWS: list[tuple[str, list[Any]]] = [
    ("a int, b int", [(1, None), (None, 1), (None, None), (1, 1), (0, 0), (0, None)]),
    ("a string, b string", [("ab", "c"), ("a", "bc"), ("", "abc"), (None, "abc"), ("", None)]),
    ("a string, b int", [("1", None), (None, 1), ("", 1), ("\0", 1), ("null", 1)]),
    ("a array<int>, b array<int>", [([1], [2]), ([1, 2], []), ([], [1, 2]), ([1, 2], None)]),
    (
        "a array<int>",
        [([],), (None,), ([None],), ([None, None],), ([0],), ([1, 2],), ([2, 1],)],
    ),
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
# Values of one type, of which no two are equal, in SQL.
VALUES = [
    # A collation takes these for equal; they are other texts all the same.
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
    """The hashes of each of the cases above, all computed by one job."""
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


@pytest.mark.few_variants(5)
@pytest.mark.parametrize(("schema", "rows"), ROWS, ids=[schema for schema, _ in ROWS])
def test_different_rows_have_different_hashes(
    schema: str, rows: list[Any], distinct: dict[str, list[int]]
) -> None:
    """Prevents a changed row that passes for unchanged: NULLs skipped, bounds of values lost."""
    assert len(set(distinct[schema])) == len(distinct[schema]) == len(rows)


@pytest.mark.parametrize("values", VALUES, ids=[values[0] for values in VALUES])
def test_different_values_have_different_hashes(
    values: list[str], distinct: dict[str, list[int]]
) -> None:
    """Prevents losses on the way to the hash: case under a collation, microseconds, variants."""
    assert len(set(distinct[values[0]])) == len(distinct[values[0]]) == len(values)


@pytest.mark.parametrize("name", ["a.b", "`a`.`b` é\n", "*"])
def test_a_column_may_have_any_name(name: str, spark: SparkSession) -> None:
    """Prevents a name that Spark takes for a path into a struct, and hashes of the wrong column."""
    frame = spark.sql("SELECT id AS x, 7 AS y FROM range(3)").toDF(name, "a")
    plain = frame.toDF("p", "q")
    assert hashes(frame) == hashes(plain)
    assert len(set(hashes(frame))) == 3


def test_equal_rows_have_equal_hashes(spark: SparkSession) -> None:
    """Prevents hashes that depend on the order of rows, on partitions or on the way of computing.

    Spark evaluates expressions by generated code or by interpretation, and on rows of its own
    or of Parquet: a model that did not change must hash as before.
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
    """Prevents differences that hyperd, to which -0.0 equals 0.0, would not confirm."""
    found = hashes(spark.sql("SELECT -0.0D AS d, CAST('-0.0' AS float) AS f")) + hashes(
        spark.sql("SELECT 0.0D AS d, CAST('0.0' AS float) AS f")
    )
    assert found[0] == found[1]


def test_the_algorithm_is_the_one_that_its_name_says(spark: SparkSession) -> None:
    """Prevents another hash under the same name: old fingerprints would prove what is not so."""
    frame = spark.sql("SELECT 1 AS a, 'x' AS b, CAST(NULL AS date) AS c, array(1, NULL) AS d")
    assert hashes(frame) == [7774089751728258321]
