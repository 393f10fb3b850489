"""Every type as the key of a `diff`: what changed is found, and deleted on the server, exactly."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows
from tableau_pipeline_tests.refresh.support.shipping import ships, table

DAWN, DUSK = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
TICK = timedelta(microseconds=1)
WIDE = "9" * 38
# What goes wrong with one of these goes wrong with a wider one of its kind.
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
    """Two columns, of which the second one tells what happened."""
    return table([(key, new) for key in keys], id=type_, word=pa.string())


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        pytest.param(*each, marks=pytest.mark.slow if each[0] in LIKE_OTHERS else ())
        for each in KEYS
    ],
    ids=lambda each: str(each)[:20],
)
def test_key_of_every_type(pipeline: Pipeline, type_: pa.DataType, keys: list[Any]):
    """Prevents: a key loses digits on its way, and another row is deleted, or none."""
    some, others = keys[::2], keys[1::2]
    old = pa.concat_tables([rows(some, type_, new="old"), rows(others, type_, new="old")])
    pipeline.policy(Diff(("id",)))
    pipeline.model("flights", old)
    pipeline.run()
    shipped = ships(pipeline, rows(some, type_, new="new"))
    assert shipped == RowCounts(deleted=len(keys), inserted=len(some))
    shipped = ships(pipeline, old)
    assert shipped == RowCounts(deleted=len(some), inserted=len(keys))


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.slow
def test_numbers_that_are_none(pipeline: Pipeline, type_: pa.DataType):
    """Prevents: a key that equals nothing, or a zero of another sign, is never deleted."""
    keys = [math.nan, -0.0, 1.5]
    pipeline.policy(Diff(("id",)))
    pipeline.model("flights", rows(keys, type_, new="old"))
    pipeline.run()
    for new, left in (("new", keys), ("newer", keys[:2]), ("newest", [math.nan, 0.0])):
        pipeline.model("flights", rows(left, type_, new=new))
        pipeline.run()
        (item,) = pipeline.found()
        published = published_rows(pipeline.eyes, str(item.id))
        # Of the two zeros, which are equal, either may be published.
        found = [str(key + 0.0) for key in published["id"].to_pylist()]
        assert sorted(found) == sorted(str(key + 0.0) for key in left)
        assert set(published["word"].to_pylist()) == {new}
