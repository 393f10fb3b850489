"""A data source whose model is a table of a lake, and the rows that both hold."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from tableau_pipeline.core.declaration import Diff, Guard, Policy, Reconcile
from tableau_pipeline.core.lake_table import InCatalog, LakeFormat, LakeTable
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows

LAX = Guard(min_rows=0, max_shrink=1)
BY_ID = Diff(("id",))


def follow(
    pipeline: Pipeline,
    format_: LakeFormat,
    location: Path | str | InCatalog,
    policy: Policy = BY_ID,
    **more: object,
) -> None:
    """Declare that the one table of a data source is a table of a lake."""
    where = location if isinstance(location, InCatalog) else str(location)
    source = LakeTable(**{format_: where})
    (table,) = pipeline.declaration.tables
    # Published rows are compared one by one below.
    pipeline.declare(
        tables=(replace(table, source=source, policy=policy, guard=LAX, **more),),
        reconcile=Reconcile(),
        on_schema_change="publish",
    )


def published(pipeline: Pipeline) -> list[str]:
    """The rows of the published data source, in an order of their own."""
    (item,) = pipeline.found()
    return in_order(published_rows(pipeline.eyes, str(item.id)))


def in_order(rows: pa.Table) -> list[str]:
    """Rows as texts, which all writers of a table agree on."""
    columns = sorted(rows.schema.names)
    return sorted(str([_plain(row[name]) for name in columns]) for row in rows.to_pylist())


def _plain(value: object) -> object:
    tz = getattr(value, "tzinfo", None)
    # Tableau's date and time has no zone.
    return value.replace(tzinfo=None) if tz else value


def rows_of(ids: Iterable[int], word: str = "a") -> pa.Table:
    """Rows with an id and a word."""
    ids = list(ids)
    words = pa.array([f"{word}{n}" for n in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "word": words})


def values_of_all_types() -> pa.Table:
    """Rows with values that writers and readers may take for others."""
    moment = datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC)
    prices = [Decimal("-0.01"), Decimal("99999999.99"), None, Decimal(0)]
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "word": ["a b", "c%d/é='\\", "", None],
            "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1)]),
            "at": pa.array([moment, None, moment, moment], pa.timestamp("us", "UTC")),
            "local": pa.array([moment.replace(tzinfo=None)] * 4, pa.timestamp("us")),
            "price": pa.array(prices, pa.decimal128(10, 2)),
            "big": pa.array([Decimal("1e30")] * 4, pa.decimal128(38, 4)),
            "tiny": pa.array([-128, 127, None, 0], pa.int8()),
            "small": pa.array([-32768, 32767, None, 0], pa.int16()),
            "plain": pa.array([-(2**31), 2**31 - 1, None, 0], pa.int32()),
            "single": pa.array([1.5, float("inf"), None, -0.0], pa.float32()),
            "double": pa.array([1e300, float("-inf"), None, 0.1]),
            "flag": [True, False, None, True],
            "raw": pa.array([b"\x00\xff", b"", None, b"x"]),
        }
    )
