"""The corpus: small Parquet files with the peculiarities of many writers."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456)
PLAIN = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "a.b c": pa.array(["x", None, "航\0"]),
        "Größe": pa.array([0.5, float("nan"), None]),
    }
)

FINE = pa.table({"id": [1], "v": pa.array([1], pa.timestamp("ns"))})


def _write(table: pa.Table, **options: object) -> Callable[[Path], None]:
    return lambda path: pq.write_table(table, path, **options)


def _one(type_: pa.DataType, *values: object) -> Callable[[Path], None]:
    return _write(pa.table({"id": range(len(values)), "v": pa.array(values, type_)}))


def _damaged(path: Path) -> None:
    pq.write_table(PLAIN, path)
    path.write_bytes(path.read_bytes()[:-20])


FILES: dict[str, Callable[[Path], None]] = {
    **{
        f"compressed by {codec}": _write(PLAIN, compression=codec)
        for codec in ("none", "gzip", "zstd", "lz4")
    },
    "old": _write(PLAIN, version="1.0", use_dictionary=False, write_statistics=False),
    "many row groups": _write(
        pa.table({"n": range(1000), "t": [str(n) for n in range(1000)]}), row_group_size=7
    ),
    "no rows": _write(PLAIN.slice(0, 0)),
    "int96": _write(
        pa.table({"t": pa.array([MOMENT, None], pa.timestamp("us"))}),
        use_deprecated_int96_timestamps=True,
    ),
    "unsigned": _write(
        pa.table(
            {
                "a": pa.array([255], pa.uint8()),
                "b": pa.array([2**16 - 1], pa.uint16()),
                "c": pa.array([2**32 - 1], pa.uint32()),
                "d": pa.array([2**64 - 1], pa.uint64()),
            }
        )
    ),
    "small integers": _write(
        pa.table({"a": pa.array([-128], pa.int8()), "b": pa.array([-32768], pa.int16())})
    ),
    "moments": _write(
        pa.table(
            {
                "ms": pa.array([MOMENT.replace(microsecond=123000)], pa.timestamp("ms")),
                "us": pa.array([MOMENT], pa.timestamp("us")),
                "at": pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "Asia/Tokyo")),
                "day": pa.array([date(1582, 10, 4)]),
            }
        )
    ),
    "decimals": _write(
        pa.table(
            {
                "a": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
                "b": pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)),
            }
        ),
        store_decimal_as_integer=True,
    ),
    "codes": _write(pa.table({"c": pa.array(["a", "b", "a"]).dictionary_encode()})),
    "fixed": _one(pa.binary(3), b"abc", None),
    "floats": _one(pa.float32(), 0.1, float("-inf"), None),
    "nothing": _one(pa.null(), None),
    # Spark refuses these files, but pyarrow reads them.
    "nanoseconds": _one(pa.timestamp("ns"), MOMENT),
    "half floats": _one(pa.float16(), 0.5, None),
    "compressed by brotli": _write(PLAIN, compression="brotli"),
    # The pipeline refuses all files from here on.
    "finer than microseconds": _write(FINE),
    "large decimals": _one(pa.decimal256(50, 2), Decimal("1.25")),
    "times": _one(pa.time64("us"), time(12)),
    "lists of times": _one(pa.list_(pa.time64("us")), [time(12)]),
    "structs of durations": _one(pa.struct([("a", pa.duration("us"))]), {"a": 1}),
    "lists": _one(pa.list_(pa.int64()), [1]),
    "structs": _one(pa.struct([("a", pa.int64())]), {"a": 1}),
    "maps": _one(pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "case twins": _write(pa.table({"a": [1], "A": [2]})),
    "twins": _write(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])),
    "no columns": _write(pa.table({})),
    "damaged": _damaged,
    "text": lambda path: path.write_text("id,v\n1,2\n", "utf-8") and None,
    "empty": lambda path: path.touch(),
}
REFUSED = list(FILES)[list(FILES).index("finer than microseconds") :]


def write_corpus(folder: Path) -> None:
    """Write each file of the corpus into a folder."""
    for name, write in FILES.items():
        write(folder / f"{name}.parquet")
