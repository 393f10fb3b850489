"""The columns of files have the types that Spark gives; other types would change the schema."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.columns import declared_columns
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.rows import Rows, read_rows
from tableau_pipeline.snapshots.write import _JSON

MOMENT, DAY = datetime(2024, 2, 29, 23, 59, 59, 123456), date(1, 1, 1)
VALUES: dict[pa.DataType, Any] = {
    pa.bool_(): True, pa.int8(): -128, pa.int16(): -1, pa.int32(): 1, pa.int64(): 2**60,
    pa.uint8(): 255, pa.uint16(): 2**16 - 1, pa.uint32(): 2**32 - 1, pa.uint64(): 2**64 - 1,
    pa.float32(): 0.5, pa.float64(): 0.1, pa.string(): "a", pa.large_string(): "a",
    pa.binary(): b"a", pa.large_binary(): b"a", pa.binary(3): b"abc", pa.date32(): DAY,
    pa.date64(): DAY, pa.timestamp("s"): MOMENT.replace(microsecond=0),
    pa.timestamp("ms"): MOMENT.replace(microsecond=0), pa.timestamp("us"): MOMENT,
    pa.timestamp("us", "UTC"): MOMENT.replace(tzinfo=UTC),
    pa.timestamp("ms", "Asia/Tokyo"): MOMENT.replace(microsecond=0, tzinfo=UTC),
    pa.decimal128(5, 2): Decimal("1.25"), pa.decimal128(18, 0): Decimal(1),
    pa.decimal128(38, 10): Decimal(1), pa.dictionary(pa.int32(), pa.string()): "a",
    pa.null(): None, pa.list_(pa.int32()): [1], pa.large_list(pa.string()): ["a"],
    pa.struct([("a", pa.int8()), ("b c", pa.list_(pa.date32()))]): {"a": 1, "b c": [DAY]},
    pa.map_(pa.string(), pa.float64()): [("a", 1.0)],
}  # fmt: skip
CODECS = ("none", "snappy", "gzip", "zstd")


def rows_of(path: Path, target: Path, *, nested: bool = False) -> Rows:
    return read_rows(Files((path,), "parquet"), target, nested=nested)


@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}])
def test_each_type_of_parquet(spark: SparkSession, tmp_path: Path, options: dict[str, bool]):
    """Prevents: an upgrade changes the types of columns for users who publish Parquet files."""
    columns = {
        f"c{at}": pa.array([value], type_) for at, (type_, value) in enumerate(VALUES.items())
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", **options)
    schema = spark.read.parquet(str(tmp_path / "x.parquet")).schema
    # Spark reads a column that is always NULL as int. Only Spark 4.1.0 and 4.1.1 read it as void
    # (SPARK-56045).
    types = [field.dataType.simpleString().replace("void", "int") for field in schema.fields]
    expected = [*zip(schema.names, types, strict=True)]
    columns = rows_of(tmp_path / "x.parquet", tmp_path / "rows").columns.columns
    assert [(column.name, column.type) for column in columns] == expected


@pytest.mark.parametrize(
    "column", [pa.array([DAY]), pa.array([[DAY]]), pa.array([{"a.b": 1, "c": DAY}])]
)
@pytest.mark.parametrize("name", ["day", "day.of.order"])
def test_times_of_an_older_calendar(tmp_path: Path, name: str, column: pa.Array):
    """Prevents: dates are some days off in a nested column, or in a column with a dot."""
    table = pa.table({"id": [1], name: column})
    old = table.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    pq.write_table(old, tmp_path / "x.parquet")
    with pytest.raises(RefusedError, match=f'column "{name}" has times before 1582-10-15'):
        rows_of(tmp_path / "x.parquet", tmp_path / "rows", nested=True)


NANOS = pa.array([1001], pa.timestamp("ns"))


@pytest.mark.parametrize(
    ("times", "is_read"),
    [
        (NANOS, False),
        (pa.ListArray.from_arrays([0, 1], NANOS), False),
        (pa.StructArray.from_arrays([pa.array([1]), NANOS], ["a", "b"]), False),
        (pa.array([-1000], pa.timestamp("ns")), True),
        # Beyond the range of nanoseconds in 64 bits.
        (pa.array([datetime(1, 1, 1, microsecond=1)]), True),
        (pa.array([datetime.max]), True),
    ],
)
def test_nanoseconds_in_int96(tmp_path: Path, times: pa.Array, *, is_read: bool):
    """Prevents: times as Hive and Impala write them lose digits without a message."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"v": times}), path, use_deprecated_int96_timestamps=True)
    if is_read:
        (file,) = rows_of(path, tmp_path / "rows").files
        found = pq.read_table(file.path).column("v").cast(pa.timestamp("us"))
        assert found.to_pylist() == times.cast(pa.timestamp("us")).to_pylist()
    else:
        with pytest.raises(RefusedError, match='column "v" has times finer than microseconds'):
            rows_of(path, tmp_path / "rows", nested=True)


def test_instants_in_other_zones(tmp_path: Path):
    """Prevents: a wall clock time passes for UTC, or files with other time zones are refused."""
    moment = datetime(2024, 7, 1, 12, tzinfo=UTC)
    paths = tuple(tmp_path / f"{number}.parquet" for number in range(2))
    for path, zone in zip(paths, ("UTC", "Europe/Paris"), strict=True):
        at = pa.array([moment], pa.timestamp("us", zone))
        pq.write_table(pa.table({"at": at, "l": pa.ListArray.from_arrays([0, 1], at)}), path)
    rows = read_rows(Files(paths, "parquet"), tmp_path / "rows", nested=True)
    found = [pq.read_table(file.path).to_pylist() for file in rows.files]
    assert found == [[{"at": moment, "_json_of_l": '["2024-07-01T12:00:00.000000Z"]'}]] * 2


def test_files_that_differ_in_what_may_be_null(tmp_path: Path):
    """Prevents: files are refused for types that differ only in whether values may be NULL."""
    paths = tuple(tmp_path / f"{number}.parquet" for number in range(2))
    for path, is_nullable in zip(paths, (False, True), strict=True):
        type_ = pa.struct([pa.field("a", pa.int64(), nullable=is_nullable)])
        pq.write_table(pa.table({"s": pa.array([{"a": 1}], type_)}), path)
    rows = read_rows(Files(paths, "parquet"), tmp_path / "rows", nested=True)
    assert rows.columns.ddl == "s struct<a:bigint>"


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[2**62]], pa.list_(pa.timestamp("us"))),
        pa.array([[2**31 - 1]], pa.list_(pa.date32())),
        pa.StructArray.from_arrays([pa.array([1])] * 2, names=["a", "a"]),
    ],
)
def test_nested_values_without_a_text(tmp_path: Path, values: pa.Array):
    """Prevents: an error of Python names neither file nor column."""
    pq.write_table(pa.table({"v": values}), tmp_path / "x.parquet")
    with pytest.raises(RefusedError, match=r'x.parquet: column "v" has values that cannot be'):
        rows_of(tmp_path / "x.parquet", tmp_path / "rows", nested=True)


DECLARED = (
    "id bigint, day date",
    "a BOOLEAN,b byte,c TINYINT,d short,e smallint,f integer,g INT,h long,i float,j real,k double",
    "a timestamp, b timestamp_ntz, c TIMESTAMP_LTZ, d string, e binary, f char(3), g varchar(5)",
    "a decimal, b dec(5), c numeric(10, 2), d decimal(38,38)",
    "`a b``c` int not null comment 'it\\'s', `größe` string COMMENT \"x, y\"",
    "a: int, b: string", "a array<int>, b map<string,struct<x:int>>", "a string collate UNICODE",
    "a interval day to second, b void",
)  # fmt: skip


@pytest.mark.parametrize("text", DECLARED)
def test_declared_columns(spark: SparkSession, text: str):
    """Prevents: declared columns get other types than they get from Spark's parser."""
    expected = StructType.fromDDL(text)
    assert isinstance(expected, StructType)
    found = declared_columns(text)
    types = [(field.name, field.dataType.simpleString()) for field in expected.fields]
    assert [(column.name, column.type) for column in found.columns] == types
    comments = {f.name: c for f in expected.fields if (c := f.metadata.get("comment"))}
    assert found.comments == comments


@pytest.mark.parametrize(
    "text", ["", "id", "id bigint,", "id number", "a decimal(39,0)", "a decimal(2,3)", "a char",
             "a int(3)", "a int b int", "a int, A int"]
)  # fmt: skip
def test_columns_that_are_none(text: str):
    """Prevents: a mistake in the columns becomes a column of text."""
    with pytest.raises(RefusedError, match="columns"):
        declared_columns(text)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
# Java 17 does not always write the fewest digits, but it does for these numbers.
FLOATS = st.sampled_from(
    [0.0, -0.0, 1.5, 1e7, 9999999.5, 1e-3, 0.00012, 1e300, float("nan"), float("-inf")]
)
NESTED: dict[pa.DataType, st.SearchStrategy] = {
    pa.struct([("t", pa.string()), ("n", pa.int64()), ("b", pa.bool_())]): st.fixed_dictionaries(
        {"t": st.none() | TEXTS, "n": st.integers(-(2**63), 2**63 - 1), "b": st.booleans()}
    ),
    pa.list_(pa.float64()): st.lists(st.none() | FLOATS, max_size=3),
    pa.list_(pa.binary()): st.lists(st.binary(max_size=4), max_size=2),
    pa.list_(pa.decimal128(20, 10)): st.lists(
        st.decimals(-(10**9), 10**9, places=10), max_size=2
    ),
    pa.list_(pa.date32()): st.lists(st.dates(), max_size=2),
    pa.list_(pa.timestamp("us")): st.lists(st.datetimes(datetime(1900, 1, 2)), max_size=2),
    pa.list_(pa.timestamp("us", "UTC")): st.lists(
        st.datetimes(datetime(1900, 1, 2), timezones=st.just(UTC)), max_size=2
    ),
    pa.map_(pa.string(), pa.list_(pa.int8())): st.lists(
        st.tuples(TEXTS, st.lists(st.integers(-128, 127), max_size=2)), max_size=2,
        unique_by=lambda pair: pair[0],
    ),
    pa.map_(pa.date32(), pa.float32()): st.lists(
        st.tuples(st.dates(), FLOATS.filter(lambda number: abs(number) != 1e300)), max_size=1
    ),
}  # fmt: skip


@pytest.mark.slow
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_the_text_of_nested_values(spark: SparkSession, tmp_path: Path, data: st.DataObject):
    """Prevents: nested values change with an upgrade because their text changes."""
    type_ = data.draw(st.sampled_from([*NESTED]))
    values = data.draw(st.lists(st.none() | NESTED[type_], min_size=1, max_size=3))
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"v": pa.array(values, type_)}), path)
    frame = spark.read.parquet(str(path))
    expected = [row.v for row in frame.select(F.to_json("v", _JSON).alias("v")).collect()]
    (file,) = rows_of(path, tmp_path / "rows", nested=True).files
    assert pq.read_table(file.path).column(0).to_pylist() == expected
