"""Types of columns and of keys, declared or not, in publishes and updates."""

import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.core.declaration import Guard, Retain
from tableau_pipeline.core.policies import Append, Diff, Policy
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows
from tableau_pipeline_tests.refresh.support.shipping import refused, ships, table

PARIS = ZoneInfo("Europe/Paris")
# In this night, clocks in Paris repeated the hour from 02:00.
NIGHT = datetime(2024, 10, 26, 22, tzinfo=UTC)


def departures(count: int, *, late: int = 0) -> pa.Table:
    """Return one flight for each half hour; the last two leave `late` minutes later."""
    moments = [NIGHT + timedelta(minutes=30 * number) for number in range(count)]
    moments[-2:] = [moment + timedelta(minutes=late) for moment in moments[-2:]]
    return flights(count, departs=pa.array(moments, pa.timestamp("us", "UTC")))


def published(pipeline: Pipeline, column: str = "departs", by: str = "flight_id") -> list:
    """Return the published values of a column, sorted by the column `by`."""
    (item,) = pipeline.found()
    return published_rows(pipeline.eyes, str(item.id)).sort_by(by)[column].to_pylist()


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("zone", "policy", "more"),
    [
        (PARIS, Diff(("flight_id",)), {}),
        ("with_time_zone", Append("departs", "3 hours"), {}),
        (PARIS, Append("flight_id", 2), {}),
        (PARIS, Append("departs", "3 hours"), {}),
        (PARIS, Diff(("flight_id",)), {"retain": Retain("departs", 1, "max")}),
    ],
)
def test_instants(pipeline: Pipeline, zone: Any, policy: Policy, more: dict):
    """Prevents: an update ships instants in another time zone or type than the first publish."""
    pipeline.declare(timestamps=zone)
    pipeline.policy(policy, **more)
    for content in (departures(10), departures(12, late=15)):
        pipeline.model("flights", content)
        report = pipeline.run()
        moments = content["departs"].to_pylist()
        in_paris = [each.astimezone(PARIS).replace(tzinfo=None) for each in moments]
        assert published(pipeline) == (in_paris if zone is PARIS else moments)
    assert report.decision == "update"
    assert report.tables["flights"].whole is None


@pytest.mark.slow
def test_floats_are_kept_when_asked(new_pipeline: Callable[..., Pipeline]):
    """Prevents: 32-bit floats change their values, or the .hyper file has the wrong version."""
    pipeline = new_pipeline(floats="real")
    pipeline.policy(Diff(("flight_id",)))
    for count in (8, 9):
        speed = pa.array([number / 10 for number in range(count)], pa.float32())
        pipeline.model("flights", flights(count, speed=speed))
        assert pipeline.run().extract.version == 4
        assert published(pipeline, "speed") == speed.to_pylist()


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("values", "floats", "limit", "phrase"),
    [
        (pa.array([1, 2], pa.decimal128(19, 0)), "double", 2, "decimal(19,0) needs version"),
        (pa.array([1, 2], pa.float32()), "real", 3, "float as real needs ver"),
    ],
)
def test_a_file_too_new_for_its_readers(
    pipeline: Pipeline, values: pa.Array, floats: str, limit: int, phrase: str
):
    """Prevents: a new column makes a file that the company's Tableau cannot open."""
    pipeline.declare(floats=floats, max_database_version=limit)
    pipeline.model("flights", flights(2, wide=values))
    named = ('Table "flights", column "wide"', "later", f"max_database_version is {limit}")
    refused(pipeline.run, phrase, *named)
    assert pipeline.found() == []
    pipeline.declare(max_database_version=limit + 1)
    pipeline.run()


def _text(data: bytes) -> pa.Array:
    """Return a column with one text of these bytes, which need not be valid UTF-8."""
    offsets = pa.py_buffer(struct.pack("<ii", 0, len(data)))
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(data)])


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (_text(b"\xff\xfe"), "UTF-8"),
        # One half of a surrogate pair, as Java may write it in UTF-8.
        (_text(b"\xed\xa0\x80"), "UTF-8"),
        (pa.array([-(2**62)], pa.int64()).cast(pa.timestamp("us")), "Timestamp"),
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), "Date"),
    ],
)
@pytest.mark.parametrize("build_only", [False, True])
def test_values_without_a_place(
    pipeline: Pipeline, values: pa.Array, reason: str, *, build_only: bool
):
    """Prevents: a value that does not fit shows as an error of hyperd that names no column."""
    written = pipeline.model("flights", flights(1, odd=pa.nulls(1, values.type)))
    (path,) = written.paths
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.set_column(rows.schema.get_field_index("odd"), "odd", values), path)
    run = partial(pipeline.run, build_only=build_only)
    refused(run, 'table "flights", column "odd": ', reason)
    assert (pipeline.found(), pipeline.extract_files()) == ([], [])


DAWN, DUSK = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
TICK = timedelta(microseconds=1)
WIDE = "9" * 38
# Tests of wider types find the same errors, so the tests of these types are slow tests.
LIKE_OTHERS = (pa.int8(), pa.int16(), pa.int32(), pa.decimal128(4, 2), pa.decimal128(18, 0))
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127, 0]),
    (pa.int16(), [-(2**15), 2**15 - 1, 0]),
    (pa.int32(), [-(2**31), 2**31 - 1, 0]),
    (pa.int64(), [-(2**63), 2**63 - 1, 2**53, 2**53 + 1]),
    (pa.float32(), [0.1, -math.inf, 1e-40, 16777217.0]),
    (pa.float64(), [0.1, 0.1 + 2**-55, math.inf, 5e-324, 1.7976931348623157e308]),
    (pa.decimal128(4, 2), [Decimal("-99.99"), Decimal("0.01"), Decimal("0.10")]),
    (pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(10**17), Decimal(0)]),
    (pa.decimal128(38, 0), [Decimal(WIDE), Decimal(f"-{WIDE}"), Decimal(f"{WIDE[1:]}8")]),
    (pa.decimal128(38, 38), [Decimal(f"0.{WIDE}"), Decimal(f"-0.{WIDE}"), Decimal(0)]),
    (
        pa.string(),
        ["", " ", "a", "a ", "A", "\0", "a\0", "a\0b", "é", "e\u0301", "\U0001f600", "'\"\\"],
    ),
    (pa.binary(), [b"", b"\0", b"\0\0", b"\xff\xfe", "é".encode()]),
    (pa.date32(), [DAWN.date(), DUSK.date(), date(1582, 10, 15), date(1970, 1, 1)]),
    (pa.timestamp("us"), [DAWN, DUSK, DUSK - TICK, datetime(1969, 12, 31, 23, 59, 59, 999_999)]),
    (
        pa.timestamp("us", "UTC"),
        [each.replace(tzinfo=UTC) for each in (DAWN, DUSK, DAWN + TICK, datetime(2025, 3, 30, 1))],
    ),
]


def rows(keys: Sequence[Any], type_: pa.DataType, *, new: str) -> pa.Table:
    """Return rows with these keys, and with the text `new` in a second column."""
    return table([(key, new) for key in keys], id=type_, word=pa.string())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        pytest.param(*each, marks=pytest.mark.slow if each[0] in LIKE_OTHERS else ())
        for each in KEYS
    ],
    ids=lambda each: str(each)[:20],
)
def test_key_of_every_type(pipeline: Pipeline, type_: pa.DataType, keys: list[Any]):
    """Prevents: a key loses digits, and an update deletes another row or no row."""
    some = keys[::2]
    old = rows([*some, *keys[1::2]], type_, new="old")
    pipeline.policy(Diff(("id",)), guard=Guard(max_shrink=1))
    pipeline.model("flights", old)
    pipeline.run()
    for content, before, after in ((rows(some, type_, new="new"), keys, some), (old, some, keys)):
        expected = RowCounts(deleted=len(before), inserted=len(after))
        assert ships(pipeline, content) == expected


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.slow
def test_numbers_that_are_none(pipeline: Pipeline, type_: pa.DataType):
    """Prevents: an update never deletes a row whose key is NaN or a zero of another sign."""
    keys = [math.nan, -0.0, 1.5]
    pipeline.policy(Diff(("id",)))
    pipeline.model("flights", rows(keys, type_, new="old"))
    pipeline.run()
    for new, left in (("new", keys), ("newer", keys[:2]), ("newest", [math.nan, 0.0])):
        pipeline.model("flights", rows(left, type_, new=new))
        pipeline.run()
        # The two zeros are equal, so the server may show either of them.
        found = [str(key + 0.0) for key in published(pipeline, "id", by="id")]
        assert sorted(found) == sorted(str(key + 0.0) for key in left)
        assert set(published(pipeline, "word", by="id")) == {new}
