"""Parquet not written by Spark: values arrive unchanged, or a refusal names file and column."""

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest import read_files

_ID = UUID(int=2**127 + 5)


class Writer:
    """Parquet's own writer for Java, which has the types of Hive, Impala and Avro."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._java = spark, spark._jvm.org.apache.parquet  # ty: ignore

    def write(self, path: Path, column: str, *values: bytes | None) -> Path:
        """Write a file with one column, which must have the name `v`."""
        java, hadoop = self._java, self._spark._jvm.org.apache.hadoop.fs  # ty: ignore
        schema = java.schema.MessageTypeParser.parseMessageType(f"message m {{ {column}; }}")
        settings = self._spark._jsc.hadoopConfiguration()  # ty: ignore
        begun = java.hadoop.example.ExampleParquetWriter.builder(hadoop.Path(str(path)))
        file = begun.withType(schema).withConf(settings).build()
        rows = java.example.data.simple.SimpleGroupFactory(schema)
        for value in values:
            row = rows.newGroup()
            if value is not None:
                row.append("v", java.io.api.Binary.fromConstantByteArray(bytearray(value)))
            file.write(row)
        file.close()
        return path


@pytest.fixture
def writer(spark: SparkSession) -> Writer:
    return Writer(spark)


def rows(spark: SparkSession, path: Path) -> list[Any]:
    return [row.v for row in read_files(spark, path).collect()]


@pytest.mark.parametrize(
    ("column", "stored", "values"),
    [
        (
            "optional binary v (DECIMAL(10,2))",
            [b"\x00\x96", b"\xfb", None, b"\x00\x00\x00\x01\xe2\x40"],
            [Decimal("1.50"), Decimal("-0.05"), None, Decimal("1234.56")],
        ),
        ("optional binary v (DECIMAL(38,2))", [b"\x00\x96"], [Decimal("1.50")]),
        ("optional fixed_len_byte_array(16) v (UUID)", [_ID.bytes, None], [str(_ID), None]),
        ("optional fixed_len_byte_array(2) v (FLOAT16)", [b"\x00\x3c"], [1.0]),
        ("optional binary v (ENUM)", [b"a"], ["a"]),
        ("optional binary v (JSON)", [b"{}"], ["{}"]),
    ],
)
def test_types_of_java(
    spark: SparkSession,
    writer: Writer,
    tmp_path: Path,
    column: str,
    stored: list[bytes | None],
    values: list[Any],
):
    """Prevents: Avro's decimals or UUIDs cause a Spark error that names neither file nor column."""
    path = writer.write(tmp_path / "x.parquet", column, *stored)
    assert rows(spark, path) == values


def test_ids_within_others(spark: SparkSession, tmp_path: Path):
    """Prevents: the text of a UUID depends on whether a list or a struct contains it."""
    ids = pa.array([_ID.bytes, None], pa.uuid())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), ids)
    structs = pa.StructArray.from_arrays([ids, pa.array([1, 2])], names=["a", "b"])
    pq.write_table(pa.table({"l": lists, "s": structs}), tmp_path / "x.parquet")
    found = [tuple(row) for row in read_files(spark, tmp_path / "x.parquet").collect()]
    assert found == [([str(_ID), None], Row(a=str(_ID), b=1)), ([], Row(a=None, b=2))]


def test_intervals(spark: SparkSession, writer: Writer, tmp_path: Path):
    """Prevents: an interval causes a Spark error that names neither file nor column."""
    column = "optional fixed_len_byte_array(12) v (INTERVAL)"
    path = writer.write(tmp_path / "x.parquet", column, bytes(12))
    with pytest.raises(RefusedError, match=r'x\.parquet: column "v" is of the type interval'):
        read_files(spark, path)


def test_type_of_a_column_by_codec(spark: SparkSession, tmp_path: Path):
    """Prevents: the type of a column depends on the codec of its file."""
    moment = datetime(2024, 2, 29, 12, 30)
    table = pa.table({"v": pa.array([moment], pa.timestamp("us"))})
    kinds = set()
    for codec in ("snappy", "brotli"):
        path = tmp_path / f"{codec}.parquet"
        pq.write_table(table, path, compression=codec, use_deprecated_int96_timestamps=True)
        kinds.add(str(read_files(spark, path).schema["v"].dataType))
    assert kinds == {"TimestampType()"}


LEAVES: dict[pa.DataType, st.SearchStrategy] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1).map(Decimal),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    pa.large_string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    pa.binary(): st.binary(max_size=3),
    pa.float16(): st.floats(width=16, allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.decimal128(20, 3): st.decimals(-(10**16), 10**16, places=3),
    pa.decimal256(30, 1): st.decimals(-(10**28), 10**28, places=1),
    pa.timestamp("ms"): st.datetimes(datetime(1900, 1, 2)).map(
        lambda it: it.replace(microsecond=it.microsecond // 1000 * 1000, fold=0)
    ),
    pa.timestamp("ns"): st.datetimes(datetime(1900, 1, 2), datetime(2200, 1, 1)).map(
        lambda it: it.replace(fold=0)
    ),
    pa.uuid(): st.uuids(),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", "b"]),
    # The types from here on are refused.
    pa.time64("us"): st.times(),
    pa.duration("us"): st.timedeltas(timedelta(-9), timedelta(9)),
    pa.decimal256(50, 2): st.decimals(-(10**40), 10**40, places=2),
}
REFUSED = {pa.time64("us"), pa.duration("us"), pa.decimal256(50, 2)}
OPTIONS = {
    "compression": st.sampled_from(["none", "snappy", "zstd", "brotli"]),
    "use_dictionary": st.booleans(),
    "version": st.sampled_from(["1.0", "2.4", "2.6"]),
    "data_page_version": st.sampled_from(["1.0", "2.0"]),
}


@st.composite
def columns(draw: st.DrawFn, count: int) -> tuple[pa.Array, list[Any], bool]:
    """A column, its values in Python, and whether the reader must refuse the column."""
    leaf = draw(st.sampled_from([*LEAVES]))
    form = draw(st.sampled_from(["plain", "plain", "list", "large list", "struct", "map"]))
    # pa.array() cannot build nested arrays of UUIDs or dictionaries from Python values.
    if form != "plain" and (leaf == pa.uuid() or isinstance(leaf, pa.DictionaryType)):
        leaf = pa.string()
    one = st.none() | LEAVES[leaf]
    type_, values = {
        "plain": (leaf, one),
        "list": (pa.list_(leaf), st.none() | st.lists(one, max_size=2)),
        "large list": (pa.large_list(leaf), st.lists(one, max_size=2)),
        "struct": (pa.struct([("a", leaf), ("b", pa.int32())]), one.map(lambda it: {"a": it})),
        "map": (pa.map_(pa.string(), leaf), one.map(lambda it: [("k", it)])),
    }[form]
    drawn = draw(st.lists(values, min_size=count, max_size=count))
    change = {pa.uint64(): int, pa.uuid(): lambda it: it.bytes}.get(leaf, lambda it: it)
    return pa.array(_mapped(drawn, change), type_), drawn, leaf in REFUSED


TABLES = st.integers(1, 3).flatmap(lambda count: st.lists(columns(count), min_size=1, max_size=5))


def _mapped(value: Any, change: Any) -> Any:
    """A value in which `change` has replaced each innermost value."""
    match value:
        case None:
            return None
        case list():
            return [_mapped(each, change) for each in value]
        case tuple():
            return value[0], _mapped(value[1], change)
        case dict():
            return {key: _mapped(each, change) for key, each in value.items()}
    return change(value)


def _arrived(value: Any) -> Any:
    """A value as Spark's collect returns it."""
    match value:
        case UUID():
            return str(value)
        case [tuple(), *_]:
            return {key: _arrived(each) for key, each in value}
        case list():
            return [_arrived(each) for each in value]
        case dict():
            return {"a": _arrived(value["a"]), "b": None}
    return value


@pytest.mark.slow
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=TABLES, options=st.fixed_dictionaries(OPTIONS))
def test_all_arrives_or_is_refused(spark: SparkSession, tmp_path: Path, drawn, options):
    """Prevents: a type, codec or nesting changes a value, or a Spark error names no column."""
    path = tmp_path / "x.parquet"
    table = pa.table({f"c{number}": column for number, (column, *_) in enumerate(drawn)})
    pq.write_table(table, path, **options)
    if refused := [f"c{number}" for number, (*_, is_refused) in enumerate(drawn) if is_refused]:
        with pytest.raises(RefusedError, match=rf'x\.parquet: column "{refused[0]}\b'):
            read_files(spark, path)
        return
    found = [tuple(row) for row in read_files(spark, path).collect()]
    wanted = [*zip(*([_arrived(each) for each in values] for _, values, _ in drawn), strict=True)]
    assert repr(found) == repr([*map(_as_rows, wanted)])


def _as_rows(values: Any) -> Any:
    """The values, with structs as rows of Spark."""
    match values:
        case {"a": a, "b": b}:
            return Row(a=a, b=b)
        case tuple():
            return tuple(map(_as_rows, values))
    return values
