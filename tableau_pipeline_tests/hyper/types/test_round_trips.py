"""From Spark to the extract and back, by two readers: random columns of all types."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pantab
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tableauhyperapi import HyperProcess, TableName

from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.tables import TableSource
from tableau_pipeline.hyper.types import TypePolicy
from tableau_pipeline_tests.snapshots.support.samples import store

NAIVE, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
POLICIES = st.builds(
    TypePolicy,
    timestamps=st.sampled_from(["utc", "with_time_zone", ZoneInfo("Europe/Paris")]),
    floats=st.sampled_from(["double", "real"]),
)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    # Arithmetic of decimals would round to 28 digits.
    digits = st.lists(st.integers(0, 9), min_size=precision, max_size=precision)
    parts = st.tuples(st.integers(0, 1), digits)
    return parts.map(lambda found: Decimal((found[0], tuple(found[1]), -scale)))


TYPES: dict[pa.DataType, st.SearchStrategy] = {
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    pa.binary(): st.binary(max_size=30),
    pa.date32(): st.dates(),
    NAIVE: st.datetimes(FIRST, LAST),
    # In Paris, the first and the last day have hours outside of Python's years.
    INSTANT: st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
    pa.decimal128(1, 0): decimals(1, 0),
    pa.decimal128(18, 4): decimals(18, 4),
    pa.decimal128(19, 19): decimals(19, 19),
    pa.decimal128(38, 0): decimals(38, 0),
    pa.decimal128(38, 38): decimals(38, 38),
}


@dataclass(frozen=True)
class Case:
    rows: pa.Table
    policy: TypePolicy

    def expected(self) -> pa.Table:
        """What must be in the extract."""
        columns = [_expected(column, self.policy) for column in self.rows.columns]
        return pa.table(columns, names=self.rows.column_names)


def _expected(column: pa.ChunkedArray, policy: TypePolicy) -> pa.ChunkedArray:
    if column.type == pa.int8():
        return column.cast(pa.int16())
    if column.type == pa.float32() and policy.floats == "double":
        return column.cast(pa.float64())
    if column.type == INSTANT and policy.timestamps != "with_time_zone":
        zone = UTC if policy.timestamps == "utc" else policy.timestamps
        values = [value and value.astimezone(zone) for value in column.to_pylist()]
        naive = [value and value.replace(tzinfo=None) for value in values]
        return pa.chunked_array([pa.array(naive, NAIVE)])
    return column


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
    folded = st.lists(names, min_size=1, max_size=8, unique_by=str.casefold)
    length = draw(st.integers(0, 6))
    columns = {"n": pa.array(range(length), pa.int32())}
    for name in draw(folded):
        if name.casefold() != "n":
            type_ = draw(st.sampled_from(list(TYPES)))
            values = st.lists(st.none() | TYPES[type_], min_size=length, max_size=length)
            columns[name] = pa.array(draw(values), type_)
    return Case(pa.table(columns), draw(POLICIES))


def every(value: object, type_: pa.DataType, *more: object) -> Case:
    values = [value, *more]
    columns = {"n": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, type_)}
    return Case(pa.table(columns), PLAIN)


PLAIN = TypePolicy()
EXTRACT = TableName("Extract", "Extract")


@settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases())
@example(case=every("x" * 5_000_000, pa.string()))
@example(case=every("\U0010ffff\u0000\ufeff e\u0301", pa.string()))
@example(case=every(date(1582, 10, 10), pa.date32()))
@example(case=every(FIRST, NAIVE))
@example(case=every(LAST, NAIVE))
@example(case=every(0.0, pa.float64(), -0.0))
@pytest.mark.slow
def test_what_two_readers_find(case: Case, spark: SparkSession, hyper: HyperProcess) -> None:
    """Prevents: any value that changes on its way, whatever stands beside it."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(case.rows, folder / "model.parquet")
        snapshot = store(spark.read.parquet(str(folder / "model.parquet")), folder)
        columns = tuple(map(case.policy.apply, snapshot.columns))
        table = TableSource("Extract", columns, snapshot.paths)
        path = build_extract(hyper, folder / "x.hyper", tables=[table]).path
        ours = read_table(hyper, path, EXTRACT)
        theirs = pantab.frame_from_hyper(path, table=("Extract", "Extract"), return_type="pyarrow")
    expected = case.expected()
    for found in (ours, theirs):
        assert found.column_names == expected.column_names
        found = found.sort_by("n")
        for name in expected.column_names:
            wanted = expected[name]
            assert shown(found[name].cast(wanted.type)) == shown(wanted), name


def shown(column: pa.ChunkedArray) -> list[str]:
    """Each value by its representation, as NaN is not equal to itself.

    Of 0.0 and -0.0, which are equal, hyperd stores only one in a column that has both.
    """
    return [repr(v + 0.0 if isinstance(v, float) else v) for v in column.to_pylist()]
