import stat
import subprocess
import sys
from collections.abc import Generator, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tableauhyperapi import HyperException, TableName

from tableau_pipeline.hyper import HyperFile, HyperFileError, open_hyper
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.types import UnsupportedArrowTypeError
from tableau_pipeline_tests.dagster_servers import until

TABLE = TableName("Extract", "Extract")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Generator[HyperFile]:
    """An open file without tables."""
    with open_hyper(tmp_path_factory.mktemp("files") / "x.hyper", "w", version=3) as file:
        yield file


@pytest.fixture(autouse=True)
def _no_table(file: HyperFile) -> Iterator[None]:
    yield
    file.execute(f"DROP TABLE IF EXISTS {TABLE}")


def rows(file: HyperFile) -> list[tuple]:
    return sorted(map(tuple, map(dict.values, file.read(TABLE).to_pylist())), key=str)


SAME = [
    pa.array([True, False]),
    pa.array([-(2**15), 2**15 - 1], pa.int16()),
    pa.array([-(2**31), 2**31 - 1], pa.int32()),
    pa.array([-(2**63), 2**63 - 1], pa.int64()),
    pa.array([float("nan"), float("-inf"), 5e-324], pa.float64()),
    pa.array(["", "a\0b", "\U0001f600"]),
    pa.array([b"", b"\x00\xff"], pa.binary()),
    pa.array([date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)]),
    pa.array([time(0), time(23, 59, 59, 999999)], pa.time64("us")),
    pa.array([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")),
    pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
    pa.array([Decimal("-0.01"), Decimal("9" * 36 + ".99")], pa.decimal128(38, 2)),
]
# Types that Hyper lacks, each with the type that a file stores in its place.
OTHERS = [
    (pa.array([-128, 127], pa.int8()), pa.int16()),
    (pa.array([255], pa.uint8()), pa.int16()),
    (pa.array([2**16 - 1], pa.uint16()), pa.int32()),
    (pa.array([2**32 - 1], pa.uint32()), pa.int64()),
    (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0)),
    (pa.array([0.1], pa.float32()), pa.float64()),
    (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string()),
    (pa.array(["a"], pa.large_string()), pa.string()),
    (pa.array(["a"], pa.string_view()), pa.string()),
    (pa.array([b"a"], pa.large_binary()), pa.binary()),
    (pa.array([b"ab"], pa.binary(2)), pa.binary()),
    (pa.array([datetime(2024, 1, 1)], pa.timestamp("s")), pa.timestamp("us")),
    (pa.array([datetime(2024, 1, 1)], pa.timestamp("ns")), pa.timestamp("us")),
    (
        pa.array([datetime(2024, 7, 1, 12)], pa.timestamp("ms", "Europe/Paris")),
        pa.timestamp("us", "UTC"),
    ),
    (pa.array([time(1, 2)], pa.time32("s")), pa.time64("us")),
    (pa.array([date(2024, 1, 1)], pa.date64()), pa.date32()),
    (pa.nulls(2), pa.string()),
]


@pytest.mark.parametrize(
    ("values", "type_"), [*((each, each.type) for each in SAME), *OTHERS], ids=str
)
def test_arrow_in_and_out(file: HyperFile, values: pa.Array, type_: pa.DataType) -> None:
    """Prevents: values change on their way through a file, or come back as another type."""
    values = (
        pa.concat_arrays([values, pa.nulls(1, values.type)])
        if not pa.types.is_dictionary(values.type)
        else values
    )
    numbered = pa.table({"n": range(len(values)), "v": values})
    assert file.create(TABLE, numbered) == len(values)
    found = file.read(TABLE).sort_by("n")["v"]
    expected = values.cast(type_).to_pylist()
    assert list(map(repr, found.to_pylist())) == list(map(repr, expected))
    assert found.type == type_


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.decimal256(50, 0)),
    ],
    ids=str,
)
def test_a_type_without_a_place(file: HyperFile, values: pa.Array) -> None:
    """Prevents: the error about an unsupported type names no column."""
    with pytest.raises(UnsupportedArrowTypeError, match=r'column "v": .*cast it'):
        file.create(TABLE, pa.table({"v": values}))
    assert file.tables() == []


def test_nanoseconds_are_not_cut(file: HyperFile) -> None:
    """Prevents: timestamps lose digits without a message."""
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        file.create(TABLE, pa.table({"v": pa.array([1], pa.timestamp("ns"))}))


@pytest.mark.slow
def test_streams_are_not_gathered(file: HyperFile) -> None:
    """Prevents: a table that is larger than memory can be neither written nor read."""
    schema = pa.schema([("a", pa.int64())])
    alive = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal alive
        for number in range(64):
            alive = max(alive, pa.total_allocated_bytes())
            yield pa.record_batch([pa.array(range(number, number + 65536), pa.int64())], schema)

    before = pa.total_allocated_bytes()
    assert file.create(TABLE, pa.RecordBatchReader.from_batches(schema, batches())) == 64 * 65536
    assert alive - before < 8 << 20
    with file.reading(TABLE) as reader:
        seen = 0
        for batch in reader:
            seen += batch.num_rows
            assert pa.total_allocated_bytes() - before < 8 << 20
    assert seen == 64 * 65536


def test_columns_go_by_name(file: HyperFile) -> None:
    """Prevents: values land in the wrong column, or an unknown column causes no error."""
    file.create(TABLE, pa.table({"a": [1], "b": ["x"]}))
    file.insert(TABLE, pa.table({"b": ["y"], "a": [2]}))
    file.insert(TABLE, pa.table({"b": ["z"]}))
    assert rows(file) == [(1, "x"), (2, "y"), (None, "z")]
    for change in (file.insert, file.delete):
        with pytest.raises(HyperFileError, match="has no column c, d; it has a, b"):
            change(TABLE, pa.table({"c": [1], "b": ["x"], "d": [1]}))
        with pytest.raises(HyperFileError, match="the data has no columns"):
            change(TABLE, pa.table({}))


PRICE = Decimal("1.25")


@pytest.mark.parametrize(
    ("kept", "fits", "changes"),
    [
        (pa.array([1], pa.int16()), pa.array([2.0, None]), pa.array([2.5])),
        (pa.array([1]), pa.array([Decimal("2.0")]), pa.array([PRICE])),
        (pa.array([PRICE]), pa.array([0.1]), pa.array([0.125])),
        (pa.array([PRICE]), pa.array([Decimal("0.100")]), pa.array([Decimal("0.125")])),
        (pa.array([0.5]), pa.array([2**53]), pa.array([2**53 + 1])),
        (pa.array([0.5]), pa.array([-(2**63)]), pa.array([2**63 - 1])),
        (pa.array([0.5]), pa.array([PRICE]), pa.array([Decimal(2**53 + 1)])),
        (pa.array([date(1, 1, 1)]), pa.array([datetime(1, 1, 1)]), pa.array([datetime.max])),
    ],
    ids=str,
)
def test_values_that_do_not_fit(
    file: HyperFile, kept: pa.Array, fits: pa.Array, changes: pa.Array
) -> None:
    """Prevents: numbers are rounded, or times are cut off, without a message."""
    file.create(TABLE, pa.table({"id": [1], "v": kept[:1]}))
    for change in (
        file.insert,
        lambda table, data: file.update(table, data, key=["id"]),
        lambda table, data: file.upsert(table, data, key=["id"]),
    ):
        change(TABLE, pa.table({"id": range(len(fits)), "v": fits}))
        before = rows(file)
        with pytest.raises(HyperFileError, match=r'the column "v" is .*, which cannot hold'):
            change(TABLE, pa.table({"id": [1], "v": changes}))
        assert rows(file) == before


@pytest.mark.parametrize("method", ["update", "upsert"])
def test_keys(file: HyperFile, method: str) -> None:
    """Prevents: a repeated or missing key changes an arbitrary row."""
    file.create(TABLE, pa.table({"a": [1], "b": ["x"]}))
    change = getattr(file, method)
    with pytest.raises(HyperFileError, match=r"the key \(1\) is repeated in the data"):
        change(TABLE, pa.table({"a": [1, 1], "b": ["y", "z"]}), key=["a"])
    with pytest.raises(HyperFileError, match="the data has no column c, which the key names"):
        change(TABLE, pa.table({"a": [1], "b": ["y"]}), key=["c"])
    with pytest.raises(HyperFileError, match="nothing to set"):
        change(TABLE, pa.table({"a": [1]}), key=["a"])
    assert rows(file) == [(1, "x")]


@pytest.mark.parametrize("method", ["update", "upsert"])
def test_keys_that_a_collation_takes_for_equal(file: HyperFile, method: str) -> None:
    """Prevents: keys that a collation takes for equal change arbitrary rows, or add a row."""
    file.execute('CREATE SCHEMA IF NOT EXISTS "Extract"')
    file.execute(f'CREATE TABLE {TABLE} ("a" TEXT COLLATE "en_US_CI", "b" BIGINT)')
    file.insert(TABLE, pa.table({"a": ["x"], "b": [0]}))
    change = getattr(file, method)
    with pytest.raises(HyperFileError, match=r"the key \([xX]\) is repeated in the data"):
        change(TABLE, pa.table({"a": ["x", "X"], "b": [1, 2]}), key=["a"])
    change(TABLE, pa.table({"a": ["X"], "b": [1]}), key=["a"])
    assert rows(file) == [("x", 1)]


KEYS = st.none() | st.integers(0, 3)
VALUES = st.none() | st.sampled_from("xyz")
TABLES = st.lists(st.tuples(KEYS, KEYS, VALUES, VALUES), max_size=8)
DATA = st.lists(st.tuples(KEYS, KEYS, VALUES), max_size=6, unique_by=lambda row: row[:2])


def arrow(columns: dict[str, pa.DataType], rows: list[tuple]) -> pa.Table:
    schema = pa.schema(list(columns.items()))
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


NUMBER, TEXT = pa.int64(), pa.string()


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(before=TABLES, data=DATA, method=st.sampled_from(["update", "upsert", "delete", "insert"]))
@pytest.mark.slow
def test_changes_are_those_of_a_dictionary(
    file: HyperFile, before: list[tuple], data: list[tuple], method: str
) -> None:
    """Prevents: a change affects too many or too few rows, or NULL keys match wrong rows."""
    file.execute(f"DROP TABLE IF EXISTS {TABLE}")
    file.create(TABLE, arrow({"k": NUMBER, "l": NUMBER, "v": TEXT, "w": TEXT}, before))
    new = {row[:2]: row[2] for row in data}
    given_rows = arrow({"v": TEXT, "l": NUMBER, "k": NUMBER}, [row[::-1] for row in data])
    matching = [row for row in before if row[:2] in new]
    others = [row for row in before if row[:2] not in new]
    changed = [(*row[:2], new[row[:2]], row[3]) for row in matching]
    old = {row[:2] for row in before}
    added = [(*key, value, None) for key, value in new.items()]
    missing = [row for row in added if row[:2] not in old]
    match method:
        case "update":
            count = file.update(TABLE, given_rows, key=["k", "l"])
            expected, affected = others + changed, len(matching)
        case "upsert":
            count = file.upsert(TABLE, given_rows, key=["k", "l"])
            expected, affected = others + changed + missing, len(matching) + len(missing)
        case "delete":
            count = file.delete(TABLE, given_rows.select(["k", "l"]))
            expected, affected = others, len(matching)
        case _:
            count = file.insert(TABLE, given_rows)
            expected, affected = before + added, len(added)
    assert rows(file) == sorted(expected, key=str)
    assert count == affected


def test_an_upsert_that_fails_changes_nothing(file: HyperFile) -> None:
    """Prevents: an upsert keeps its updates although its inserts fail."""
    file.create(TABLE, pa.table({"a": [1], "b": [1]}))
    file.execute(f"DROP TABLE {TABLE}")
    file.execute(f'CREATE TABLE {TABLE} ("a" BIGINT, "b" BIGINT, "c" BIGINT NOT NULL)')
    file.execute(f"INSERT INTO {TABLE} VALUES (1, 1, 1)")
    with pytest.raises(HyperException, match="must be specified"):
        file.upsert(TABLE, pa.table({"a": [1, 2], "b": [5, 5]}), key=["a"])
    assert rows(file) == [(1, 1, 1)]


def test_data_frames_of_other_libraries(file: HyperFile) -> None:
    """Prevents: users of pandas must learn Arrow first."""
    import pandas as pd

    assert file.create(TABLE, pd.DataFrame({"a": [1, 2]})) == 2
    assert rows(file) == [(1,), (2,)]


ROWS = pa.table({"id": [1, 2], "name": ["a", None]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table of two rows."""
    path = tmp_path / "x.hyper"
    with open_hyper(path, "w") as file:
        file.create(TABLE, ROWS, key=["id"])
    return path


def content(path: Path) -> list[dict]:
    with open_hyper(path) as file:
        return file.read(TABLE).sort_by("id").to_pylist()


def test_what_is_in_a_file(path: Path) -> None:
    """Prevents: a listing omits a schema or a table, or its count omits rows with NULL."""
    with open_hyper(path, "a") as file:
        file.create(TableName("other schema", 'a "table"'), pa.table({"x": [1.5]}))
        file.create(TableName("public", "empty"), pa.schema([("d", pa.date32())]).empty_table())
    with open_hyper(path) as file:
        assert [(str(each.name), each.columns, each.rows) for each in file.tables()] == [
            ('"Extract"."Extract"', {"id": "BIGINT", "name": "TEXT"}, 2),
            ('"other schema"."a ""table"""', {"x": "DOUBLE PRECISION"}, 1),
            ('"public"."empty"', {"d": "DATE"}, 0),
        ]


@pytest.mark.parametrize("mode", ["a", "w"])
def test_a_file_that_is_replaced(path: Path, mode: Any) -> None:
    """Prevents: a change lets other users read a private file, or replaces a link by a file."""
    path.chmod(0o600)
    link = path.with_name("link.hyper")
    link.symlink_to(path)
    with open_hyper(link, mode) as file:
        file.create(TableName("public", "more"), ROWS)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with open_hyper(path) as file:
        assert len(file.table_names()) == {"a": 2, "w": 1}[mode]


def test_a_reader_sees_nothing_half_done(path: Path) -> None:
    """Prevents: a reader sees some of the changes of an unfinished writer."""
    with open_hyper(path, "a") as file:
        file.execute(f"DELETE FROM {TABLE}")
        assert len(content(path)) == 2
    assert content(path) == []


@pytest.mark.slow
def test_a_killed_writer_leaves_the_file(path: Path) -> None:
    """Prevents: a crash damages a file, or the remains of a crash stop the next writer."""
    script = (
        "import os, sys; from tableau_pipeline.hyper import open_hyper\n"
        f"with open_hyper({str(path)!r}, 'a') as file:\n"
        f"    file.execute('DELETE FROM {TABLE}'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    until(
        lambda: _unlocked(path), seconds=30, what="hyperd has outlived the process that started it"
    )
    assert content(path) == ROWS.to_pylist()
    with open_hyper(path, "a") as file:
        file.insert(TABLE, pa.table({"id": [3]}))
    assert len(content(path)) == 3
    assert list(path.parent.iterdir()) == [path]


def _unlocked(path: Path) -> bool:
    """Whether the hyperd of the killed writer has ended, some milliseconds after the writer."""
    try:
        with open_hyper(path):
            return True
    except HyperFileError as error:
        if "locked by another process" not in str(error):
            raise
        return False


def _refused(path: Path, mode: str = "r") -> str:
    with pytest.raises(HyperFileError) as error, open_hyper(path, mode):
        pass
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: path.write_bytes(b"rubbish" * 99), "not a valid database"),
        (lambda path: path.write_bytes(b""), "not a valid database"),
        (lambda path: path.write_bytes(path.read_bytes()[:9999]), "truncated"),
    ],
)
def test_a_file_that_is_none(path: Path, damage, reason: str, mode: str) -> None:
    """Prevents: an error of hyperd does not name the file, or opening a file creates the file."""
    damage(path)
    assert reason in _refused(path, mode)
    assert [each for each in path.parent.iterdir() if each != path] == []


def test_a_name_that_hyperd_does_not_open(tmp_path: Path) -> None:
    """Prevents: users write a file that Tableau does not take for an extract."""
    assert "end in .hyper" in _refused(tmp_path / "x.hyp", "r")


def test_a_file_that_somebody_has_open(path: Path) -> None:
    """Prevents: one of two writers loses its changes, or the error does not say why."""
    other = hyper_process(memory_limit="600m")
    with open_hyper(path, hyper=other):
        assert "locked by another process" in _refused(path)
        assert "locked by another process" in _refused(path, "a")
    with open_hyper(path, "a"):
        assert "another thread is changing it" in _refused(path, "a")
        with pytest.raises(HyperFileError, match="locked"), open_hyper(path, hyper=other):
            pass
    assert content(path) == ROWS.to_pylist()
