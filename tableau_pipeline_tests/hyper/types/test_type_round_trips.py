from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tableauhyperapi import Connection, HyperException, HyperProcess

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.hyper.samples import build_one, rows_of, stored_source
from tableau_pipeline_tests.snapshots.support.samples import store

NINES = "9" * 38
# By Spark's type: values in SQL, and the same as Python reads them back from the extract.
VALUES: dict[str, list[tuple[str, Any]]] = {
    "boolean": [("true", True), ("false", False)],
    "tinyint": [("-128", -128), ("127", 127), ("0", 0)],
    "smallint": [("-32768", -32768), ("32767", 32767)],
    "int": [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)],
    "bigint": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
    # Widened exactly: 0.1 of 32 bits is not 0.1 of 64.
    "float": [("0.1", 0.10000000149011612), ("16777217", 16777216.0), ("'NaN'", float("nan"))],
    "double": [
        ("0.1D", 0.1),
        ("'NaN'", float("nan")),
        ("'Infinity'", float("inf")),
        ("'-Infinity'", float("-inf")),
        ("4.9E-324D", 5e-324),
        ("1.7976931348623157E308D", 1.7976931348623157e308),
    ],
    "string": [
        ("''", ""),
        (r"'a\u0000b'", "a\0b"),
        (r"'\U0001F600 e\u0301 ẞ'", "\U0001f600 e\u0301 ẞ"),
        ("' padded '", " padded "),
        (r"""'it\'s "x"'""", 'it\'s "x"'),
    ],
    "string collate utf8_lcase": [("'Abc'", "Abc"), ("'aBC'", "aBC")],
    "binary": [("X''", b""), ("X'00FF80'", b"\x00\xff\x80")],
    "date": [
        ("date'0001-01-01'", date(1, 1, 1)),
        ("date'9999-12-31'", date(9999, 12, 31)),
        ("date'1582-10-10'", date(1582, 10, 10)),
        ("date'2024-02-29'", date(2024, 2, 29)),
    ],
    "timestamp": [
        ("timestamp'0001-01-01 00:00:00 UTC'", datetime(1, 1, 1)),
        (
            "timestamp'9999-12-31 23:59:59.999999 UTC'",
            datetime(9999, 12, 31, 23, 59, 59, 999999),
        ),
        ("timestamp'1969-12-31 23:59:59.000001 UTC'", datetime(1969, 12, 31, 23, 59, 59, 1)),
        # Paris turned its clocks forward at 01:00 UTC: both sides of the gap.
        ("timestamp'2024-03-31 01:59:59 Europe/Paris'", datetime(2024, 3, 31, 0, 59, 59)),
        ("timestamp'2024-03-31 03:00:00 Europe/Paris'", datetime(2024, 3, 31, 1, 0, 0)),
    ],
    "timestamp_ntz": [
        ("timestamp_ntz'0001-01-01 00:00:00.000001'", datetime(1, 1, 1, 0, 0, 0, 1)),
        # A wall clock that New York skipped in 2024.
        ("timestamp_ntz'2024-03-10 02:30:00'", datetime(2024, 3, 10, 2, 30)),
        (
            "timestamp_ntz'9999-12-31 23:59:59.999999'",
            datetime(9999, 12, 31, 23, 59, 59, 999999),
        ),
    ],
    "decimal(1,0)": [("-9", Decimal(-9))],
    "decimal(18,4)": [("99999999999999.9999", Decimal("99999999999999.9999"))],
    "decimal(19,2)": [("-0.01", Decimal("-0.01"))],
    "decimal(38,0)": [(f"{NINES}BD", Decimal(NINES)), (f"-{NINES}BD", Decimal(f"-{NINES}"))],
    "decimal(38,38)": [(f"0.{NINES}BD", Decimal(f"0.{NINES}")), ("0", Decimal(0))],
}
LONGEST = max(len(values) for values in VALUES.values())


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A column of each type, filled up with NULLs; the last row has nothing else."""
    rows = []
    for number in range(LONGEST + 1):
        cells = [
            f"CAST({values[number][0] if number < len(values) else 'NULL'} AS {type_})"
            for type_, values in VALUES.items()
        ]
        rows.append(f"SELECT {number} AS row, " + ", ".join(cells))
    names = ["row", *VALUES]
    frame = spark.sql(" UNION ALL ".join(rows)).toDF(*names).repartition(2)
    return store(frame, tmp_path_factory.mktemp("types"))


@pytest.fixture(scope="module")
def read_back(
    stored: Snapshot, hyper: HyperProcess, tmp_path_factory: pytest.TempPathFactory
) -> pa.Table:
    path = tmp_path_factory.mktemp("extract") / "types.hyper"
    build_one(hyper, path, stored_source(stored))
    return rows_of(hyper, path)


def expected(type_: str) -> list[Any]:
    values = [value for _, value in VALUES[type_]]
    return values + [None] * (LONGEST + 1 - len(values))


@pytest.mark.parametrize("type_", VALUES)
def test_a_type_survives_from_spark_to_the_extract(type_: str, read_back: pa.Table) -> None:
    """Prevents values that change on their way to Tableau: rounded, shifted, cut, or not NULL."""
    found = read_back[type_].to_pylist()
    if type_.startswith("decimal"):
        assert found == expected(type_)
    else:
        # By their representation: NaN is not equal to itself, and True is equal to 1.
        assert [repr(value) for value in found] == [repr(value) for value in expected(type_)]


def test_the_row_hash_stays_behind(read_back: pa.Table) -> None:
    """Prevents a column of ours among the analysts' fields."""
    assert read_back.column_names == ["row", *VALUES]


def test_instants_do_not_depend_on_the_machines_time_zone(
    stored: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents timestamps shifted by hours where hyperd runs outside of UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    elsewhere = hyper_process(memory_limit="1g")
    try:
        build_one(elsewhere, tmp_path / "x.hyper", stored_source(stored))
        found = rows_of(elsewhere, tmp_path / "x.hyper")
    finally:
        elsewhere.close()
    for type_ in ("timestamp", "timestamp_ntz", "date"):
        # As text: years before 1 and after 9999, where a shift may lead, have no Python value.
        wanted = pa.array(expected(type_), found[type_].type)
        assert found[type_].cast("string").to_pylist() == wanted.cast("string").to_pylist()


@pytest.mark.parametrize(("digits", "version"), [(18, 2), (19, 3), (38, 3)])
def test_the_file_is_as_old_as_its_decimals_allow(
    digits: int, version: int, spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents files that older Tableau products refuse without need, or that lose digits."""
    nines = "9" * digits
    snapshot = store(spark.sql(f"SELECT {nines}BD AS d"), tmp_path)
    extract = build_one(hyper, tmp_path / "x.hyper", stored_source(snapshot))
    assert extract.version == version
    assert rows_of(hyper, extract.path)["d"].to_pylist() == [Decimal(nines)]
    assert _holds_wide_decimals(hyper, extract.path) == (version == 3)


def _holds_wide_decimals(hyper: HyperProcess, path: Path) -> bool:
    """Whether the file itself, whatever we say of it, is of version 3."""
    with Connection(hyper.endpoint, path) as connection:
        try:
            connection.execute_command("CREATE TABLE wide (d NUMERIC(38, 0))")
        except HyperException:
            return False
    return True
