import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tableauhyperapi import HyperException, TableName

from tableau_pipeline.hyper import HyperFileError, open_hyper
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.waiting import until

TABLE = TableName("Extract", "Extract")
ROWS = pa.table({"id": [1, 2], "name": ["a", None]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two rows."""
    path = tmp_path / "x.hyper"
    with open_hyper(path, "w") as file:
        file.create(TABLE, ROWS, key=["id"])
    return path


def content(path: Path) -> list[dict]:
    with open_hyper(path) as file:
        return file.read(TABLE).sort_by("id").to_pylist()


def test_what_is_in_a_file(path: Path) -> None:
    """Prevents: a listing that leaves out a schema, a table, or the NULLs in its count."""
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
def test_an_error_leaves_the_file_as_it_was(path: Path, mode: str) -> None:
    """Prevents: half of a change, or nothing, where a good file was."""
    before = path.read_bytes()

    def change() -> None:
        with open_hyper(path, mode) as file:
            file.create(TableName("t"), ROWS)
            file.execute("MAKE ME A SANDWICH")

    with pytest.raises(HyperException, match="syntax"):
        change()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_sees_nothing_half_done(path: Path) -> None:
    """Prevents: a reader that sees some of the changes."""
    with open_hyper(path, "a") as file:
        file.execute(f"DELETE FROM {TABLE}")
        assert len(content(path)) == 2
    assert content(path) == []


def test_a_killed_writer_leaves_the_file(path: Path) -> None:
    """Prevents: a damaged file after a crash, or a next writer that trips over the remains."""
    script = (
        "import os, sys; from tableau_pipeline.hyper import open_hyper\n"
        f"with open_hyper({str(path)!r}, 'a') as file:\n"
        f"    file.execute('DELETE FROM {TABLE}'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    until(lambda: _unlocked(path), seconds=30, what="hyperd has outlived the one that started it")
    assert content(path) == ROWS.to_pylist()
    with open_hyper(path, "a") as file:
        file.insert(TABLE, pa.table({"id": [3]}))
    assert len(content(path)) == 3
    assert list(path.parent.iterdir()) == [path]


def _unlocked(path: Path) -> bool:
    """Its hyperd ends by itself, but some milliseconds after the one that was killed."""
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
    """Prevents: an error of hyperd that does not say which file, or a file made by looking."""
    damage(path)
    assert reason in _refused(path, mode)
    assert [each for each in path.parent.iterdir() if each != path] == []


def test_a_name_that_hyperd_does_not_open(tmp_path: Path) -> None:
    """Prevents: a file that Tableau does not take for an extract."""
    assert "end in .hyper" in _refused(tmp_path / "x.hyp", "r")


def test_a_file_that_somebody_has_open(path: Path) -> None:
    """Prevents: two writers of whom one loses, and an error that does not say why."""
    other = hyper_process(memory_limit="600m")
    with open_hyper(path, hyper=other):
        assert "locked by another process" in _refused(path)
        assert "locked by another process" in _refused(path, "a")
    with open_hyper(path, "a"):
        assert "another thread is changing it" in _refused(path, "a")
        with pytest.raises(HyperFileError, match="locked"), open_hyper(path, hyper=other):
            pass
    assert content(path) == ROWS.to_pylist()
