"""Types and names, from Spark to an extract and back."""

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tableauhyperapi import Connection, HyperException, HyperProcess

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.hyper.types import Column, TypePolicy, UnsupportedTypeError, string_literal
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.write import UnstorableError
from tableau_pipeline_tests.hyper.samples import build_one, rows_of, source, stored_source
from tableau_pipeline_tests.snapshots.support import store

NINES = "9" * 38
# For each type of Spark: values in SQL, and the values that Python reads from the extract.
VALUES: dict[str, list[tuple[str, Any]]] = {
    "boolean": [("true", True), ("false", False)],
    "tinyint": [("-128", -128), ("127", 127), ("0", 0)],
    "smallint": [("-32768", -32768), ("32767", 32767)],
    "int": [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)],
    "bigint": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
    # Widening is exact: 0.1 in 32 bits is not 0.1 in 64 bits.
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
        ("timestamp'9999-12-31 23:59:59.999999 UTC'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ("timestamp'1969-12-31 23:59:59.000001 UTC'", datetime(1969, 12, 31, 23, 59, 59, 1)),
        # Paris turned its clocks forward at 01:00 UTC: both sides of the gap.
        ("timestamp'2024-03-31 01:59:59 Europe/Paris'", datetime(2024, 3, 31, 0, 59, 59)),
        ("timestamp'2024-03-31 03:00:00 Europe/Paris'", datetime(2024, 3, 31, 1, 0, 0)),
    ],
    "timestamp_ntz": [
        ("timestamp_ntz'0001-01-01 00:00:00.000001'", datetime(1, 1, 1, 0, 0, 0, 1)),
        # A wall clock time that New York skipped in 2024.
        ("timestamp_ntz'2024-03-10 02:30:00'", datetime(2024, 3, 10, 2, 30)),
        ("timestamp_ntz'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
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
    """A column for each type, filled up with NULLs; the last row has NULLs only."""
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
    """Prevents: values are rounded, shifted or cut on their way to Tableau, or NULL is lost."""
    found = read_back[type_].to_pylist()
    if type_.startswith("decimal"):
        assert found == expected(type_)
    else:
        # Compare representations: NaN is not equal to itself, and True is equal to 1.
        assert [repr(value) for value in found] == [repr(value) for value in expected(type_)]


def test_instants_do_not_depend_on_the_machines_time_zone(
    stored: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: timestamps shift by hours where hyperd runs outside of UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    elsewhere = hyper_process(memory_limit="1g")
    try:
        build_one(elsewhere, tmp_path / "x.hyper", stored_source(stored))
        found = rows_of(elsewhere, tmp_path / "x.hyper")
    finally:
        elsewhere.close()
    for type_ in ("timestamp", "timestamp_ntz", "date"):
        # Compare texts: a shift may lead to years before 1 or after 9999, which Python lacks.
        wanted = pa.array(expected(type_), found[type_].type)
        assert found[type_].cast("string").to_pylist() == wanted.cast("string").to_pylist()


@pytest.mark.parametrize(("digits", "version"), [(18, 2), (19, 3), (38, 3)])
def test_the_file_is_as_old_as_its_decimals_allow(
    digits: int, version: int, spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents: older Tableau products refuse a file without need, or a file loses digits."""
    nines = "9" * digits
    snapshot = store(spark.sql(f"SELECT {nines}BD AS d"), tmp_path)
    extract = build_one(hyper, tmp_path / "x.hyper", stored_source(snapshot))
    assert extract.version == version
    assert rows_of(hyper, extract.path)["d"].to_pylist() == [Decimal(nines)]
    assert _holds_wide_decimals(hyper, extract.path) == (version == 3)


def _holds_wide_decimals(hyper: HyperProcess, path: Path) -> bool:
    """Whether the file itself is of version 3, regardless of the version that we report."""
    with Connection(hyper.endpoint, path) as connection:
        try:
            connection.execute_command("CREATE TABLE wide (d NUMERIC(38, 0))")
        except HyperException:
            return False
    return True


# For each type of Spark: a value in SQL, and the meaning of the value's JSON text.
NESTED = {
    "array<int>": ("array(1, NULL, 3)", [1, None, 3]),
    "array<array<string>>": (r"array(array(), array('é \" 航'))", [[], ['é " 航']]),
    "map<string,decimal(38,2)>": (
        f"map('a', CAST({'9' * 36}.25BD AS DECIMAL(38,2)))",
        {"a": int("9" * 36 + "25")},
    ),
    "struct<a:int,b:timestamp>": (
        "struct(CAST(NULL AS INT) AS a, timestamp'2024-03-31 01:00:00.000001 UTC' AS b)",
        {"a": None, "b": "2024-03-31T01:00:00.000001Z"},
    ),
    # The name of a field may hold any character.
    "struct<line\nbreak:int>": ("named_struct('line\\nbreak', 7)", {"line\nbreak": 7}),
    "variant": ("""parse_json('{"k": [1, "x"]}')""", {"k": [1, "x"]}),
}


@pytest.mark.slow
def test_nested_values_are_their_json(
    spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents: the text loses digits, microseconds or NULLs, or a NULL becomes "null"."""
    names = [f"the `column`.{number}" for number in range(len(NESTED))]
    cells, nulls = ", ".join(sql for sql, _ in NESTED.values()), ", NULL" * len(NESTED)
    frame = spark.sql(f"SELECT 1, {cells} UNION ALL SELECT 2{nulls}")
    snapshot = store(frame.toDF("id", *names), tmp_path)
    assert [column.type for column in snapshot.columns] == ["int", *NESTED]
    columns = tuple(map(TypePolicy(nested="json").apply, snapshot.columns))
    table = TableSource("Extract", columns, snapshot.paths)
    build_one(hyper, tmp_path / "x.hyper", table)
    found = rows_of(hyper, tmp_path / "x.hyper")
    digits = {"parse_float": lambda text: int(text.replace(".", ""))}
    for name, (type_, (_, meant)) in zip(names, NESTED.items(), strict=True):
        text, nothing = found[name].to_pylist()
        assert nothing is None, type_
        assert json.loads(text, **(digits if "decimal" in type_ else {})) == meant, type_
    # The column of text is internal: a model that reads the snapshot does not see this column.
    assert read_frame(spark, snapshot).columns == ["id", *names]


def test_a_column_by_the_name_of_our_text(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: an internal column overwrites a column of the model."""
    frame = spark.sql("SELECT array(1) AS tags, 'mine' AS _JSON_of_tags")
    with pytest.raises(UnstorableError, match="'_JSON_of_tags' is reserved"):
        store(frame, tmp_path)


def test_comments_reach_the_extract(
    spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents: the extract loses the comments on the columns of a model."""
    frame = spark.sql("SELECT 1 AS a, 2 AS `b c`, 3 AS d")
    comments = {"a": 'it\'s the "first"', "b c": "航班\nsecond line"}
    for name, comment in comments.items():
        frame = frame.withMetadata(name, {"comment": comment})
    snapshot = store(frame, tmp_path)
    assert snapshot.comments == comments
    source = stored_source(snapshot)
    build_one(hyper, tmp_path / "x.hyper", source)
    with Connection(hyper.endpoint, tmp_path / "x.hyper") as connection:
        found = connection.execute_list_query(
            "SELECT attname, description FROM pg_catalog.pg_description "
            "JOIN pg_catalog.pg_attribute ON attrelid = objoid AND attnum = objsubid"
        )
    assert dict(found) == comments


@pytest.mark.parametrize(
    ("sql", "type_", "remedy"),
    [
        ("array(1)", "array<int>", "nested: json"),
        ("array(interval '1' day)", "array<interval day>", "nested: json"),
        ("map('a', struct(1))", "map<string,struct<col1:int>>", "nested: json"),
        ("struct(array(1) AS a)", "struct<a:array<int>>", "select its fields"),
        ("parse_json('1')", "variant", "nested: json"),
        ("NULL", "void", "cast it to the type that it should have"),
        # Hyper would take these types without an error, as numbers of months or of microseconds.
        ("interval '1-2' year to month", "interval year to month", "cast it to a number"),
        ("interval '1' month", "interval month", "cast it to a number"),
        ("interval '1 2' day to hour", "interval day to hour", "cast it to a number"),
        ("interval '1' second", "interval second", "cast it to a number"),
        ("make_interval(1, 2, 3)", "interval", "cast it to a number"),
        ("time'12:00:00'", "time(6)", "cast it in the model"),
    ],
)
def test_a_type_without_a_place_in_tableau_is_refused_by_name(
    sql: str, type_: str, remedy: str, spark: SparkSession, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents: values turn into something else, or an error does not say what to fix."""
    found = spark.sql(f"SELECT {sql} AS v").schema["v"].dataType.simpleString()
    assert found == type_
    table = TableSource("trips", (Column("id", "int"), Column("the column", found)), ())
    folder = tmp_path / "not yet"
    with pytest.raises(UnsupportedTypeError) as refusal:
        build_extract(hyper, folder / "x.hyper", tables=[table])
    for part in ('"trips"', '"the column"', f" {type_};", remedy):
        assert part in str(refusal.value)
    assert not folder.exists()


SPELT = {
    "BOOL": "BOOLEAN",
    "INT2": "SMALLINT",
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "FLOAT8": "DOUBLE PRECISION",
    "REAL": "REAL",
    "DECIMAL(10, 2)": "NUMERIC(10,2)",
    "NUMERIC(18,0)": "NUMERIC(18,0)",
    "TEXT": "TEXT",
    'TEXT COLLATE "en_US_CI"': 'TEXT COLLATE "en_US_CI"',
    "CHARACTER VARYING(9)": "VARCHAR(9)",
    "CHAR(3)": "CHAR(3)",
    'CHAR(3) COLLATE "de"': 'CHAR(3) COLLATE "de"',
    "BYTEA": "BYTES",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "INTERVAL": "INTERVAL",
    "JSON": "JSON",
    "OID": "OID",
    "TABLEAU.TABGEOGRAPHY": "GEOGRAPHY",
    "UUID": "UNSUPPORTED(2950)",
}


def test_every_type_has_one_spelling(hyper: HyperProcess, tmp_path: Path):
    # Prevents: a type counts as another type, or a file with a rare type cannot be read.
    path = tmp_path / "file.hyper"
    with connect(hyper) as connection:
        # Only the newest version of files has REAL.
        connection.execute_command(f'CREATE DATABASE "{path}" WITH VERSION 4')
    with connect(hyper, path) as connection:
        columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(SPELT))
        connection.execute_command(f"CREATE TABLE t ({columns})")
    (types,) = table_columns(hyper, path).values()
    assert list(types.values()) == list(SPELT.values())


@pytest.mark.slow
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
@example("\x1f0")
@example("\x007\\'")
@example("E'\\x41'")
def test_texts_arrive_as_they_are(text: str):
    """Prevents: a condition on a text with a control character fails, or means another text."""
    with connect(hyper_process()) as connection:
        assert connection.execute_scalar_query(f"SELECT {string_literal(text)}") == text


NAMES = (
    *(
        "a b",
        "a.b",
        'say "hi"',
        "it's",
        "Ünïcödé 航班 \U0001f6eb",
        "x; DROP TABLE y --",
        "[brackets]",
    ),
    *("50 %", "back\\slash", "{0}", "select", "UPPER lower"),
)


@pytest.mark.parametrize("name", NAMES)
def test_files_may_lie_in_awkward_folders(name: str, hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents: a refresh fails because a user's home folder has a space or a quote in its name."""
    folder = tmp_path / name
    extract = build_one(
        hyper, folder / f"{name}.hyper", source(folder / "in", "Extract", {"a": [1, 2]}, files=2)
    )
    assert extract.path == folder / f"{name}.hyper"
    assert rows_of(hyper, extract.path)["a"].to_pylist() == [1, 2]
    assert sorted(file.name for file in folder.iterdir()) == sorted([f"{name}.hyper", "in"])


def test_a_relative_path_is_one_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a relative path leads to the folder in which hyperd started."""
    table = source(tmp_path / "in", "Extract", {"a": [1]})
    (tmp_path / "start").mkdir()
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path / "start")
    own = hyper_process(memory_limit="700m")
    monkeypatch.chdir(tmp_path / "later")
    try:
        build_one(own, Path("x.hyper"), table)
        assert rows_of(own, tmp_path / "later" / "x.hyper").num_rows == 1
    finally:
        own.close()
    assert list((tmp_path / "start").iterdir()) == []
