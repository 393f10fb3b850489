from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tableauhyperapi import CreateMode, TableName

from tableau_pipeline.hyper import HyperFileError, open_hyper
from tableau_pipeline.hyper.process import connect, hyper_process

TABLE = TableName("Extract", "Extract")


def made(path: Path, *statements: str) -> Path:
    """A file after these statements."""
    with connect(hyper_process(), path, CreateMode.CREATE_AND_REPLACE) as connection:
        for statement in ('CREATE SCHEMA "Extract"', *statements):
            connection.execute_command(statement)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two rows."""
    table = f"CREATE TABLE {TABLE} (id BIGINT NOT NULL, name TEXT)"
    return made(tmp_path / "x.hyper", table, f"INSERT INTO {TABLE} VALUES (1, 'a'), (2, NULL)")


def test_what_is_in_a_file(path: Path) -> None:
    """Prevents: a listing that leaves out a schema, a table, or the NULLs in its count."""
    with connect(hyper_process(), path) as connection:
        for statement in (
            'CREATE SCHEMA "other schema"',
            'CREATE TABLE "other schema"."a ""table""" AS (SELECT 1.5::DOUBLE PRECISION AS x)',
            "CREATE TABLE public.empty (d DATE)",
        ):
            connection.execute_command(statement)
    with open_hyper(path) as file:
        assert [(str(each.name), each.columns, each.rows) for each in file.tables()] == [
            ('"Extract"."Extract"', {"id": "BIGINT", "name": "TEXT"}, 2),
            ('"other schema"."a ""table"""', {"x": "DOUBLE PRECISION"}, 1),
            ('"public"."empty"', {"d": "DATE"}, 0),
        ]
        assert file.read(TABLE).sort_by("id").to_pylist() == [
            {"id": 1, "name": "a"},
            {"id": 2, "name": None},
        ]


@pytest.mark.parametrize(
    ("sql", "value", "type_"),
    [
        ("DATE '1582-10-10'", date(1582, 10, 10), pa.date32()),
        ("TIMESTAMP '0001-01-01 00:00:00'", datetime(1, 1, 1), pa.timestamp("us")),
        (
            "TIMESTAMPTZ '2024-07-01 12:00:00+02'",
            datetime(2024, 7, 1, 10, tzinfo=UTC),
            pa.timestamp("us", "UTC"),
        ),
    ],
)
def test_moments(tmp_path: Path, sql: str, value: object, type_: pa.DataType) -> None:
    """Prevents: dates and time zones of a kind that other libraries do not read."""
    with open_hyper(made(tmp_path / "x.hyper")) as file:
        found = file.read(f"SELECT {sql} AS v")["v"]
    assert (found.to_pylist(), found.type) == ([value], type_)


@pytest.mark.slow
def test_rows_are_not_gathered(tmp_path: Path) -> None:
    """Prevents: a table that has to fit into memory."""
    before = pa.total_allocated_bytes()
    seen = 0
    with (
        open_hyper(made(tmp_path / "x.hyper")) as file,
        file.reading(f"SELECT * FROM generate_series(1, {64 * 65536})") as reader,
    ):
        for batch in reader:
            seen += batch.num_rows
            assert pa.total_allocated_bytes() - before < 8 << 20
    assert seen == 64 * 65536


def _refused(path: Path) -> str:
    with pytest.raises(HyperFileError) as error, open_hyper(path):
        pass
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: path.write_bytes(b"rubbish" * 99), "not a valid database"),
        (lambda path: path.write_bytes(b""), "not a valid database"),
        (lambda path: path.write_bytes(path.read_bytes()[:9999]), "truncated"),
    ],
)
def test_a_file_that_is_none(path: Path, damage, reason: str) -> None:
    """Prevents: an error of hyperd that does not say which file, or a file made by looking."""
    damage(path)
    assert reason in _refused(path)
    assert [each for each in path.parent.iterdir() if each != path] == []


def test_a_name_that_hyperd_does_not_open(tmp_path: Path) -> None:
    """Prevents: a file that Tableau does not take for an extract."""
    assert "end in .hyper" in _refused(tmp_path / "x.hyp")


def test_a_file_that_another_program_has_open(path: Path) -> None:
    """Prevents: an error that does not say why."""
    with open_hyper(path, hyper=hyper_process(memory_limit="600m")):
        assert "locked by another process" in _refused(path)
