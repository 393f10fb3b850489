"""Builds: keys and relationships are checked, and every finished file has all its tables."""

import re
import resource
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tableauhyperapi import CreateMode, HyperProcess, TableName

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.hyper.build import build_extract, key_problem, saved
from tableau_pipeline.hyper.hyper_file import HyperFile
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.relationships import Relationship, tree_problem
from tableau_pipeline_tests.hyper.samples import process_id, rows_of, source


@pytest.mark.parametrize(
    ("ids", "parts", "count"),
    [
        ([1, None], ["x", "y"], "1 row"),
        ([None, None], ["x", "y"], "2 rows"),
        ([1, None], [None, "y"], "2 rows"),
        ([None, 1], [None, "y"], "1 row"),
    ],
)
def test_null_in_any_part_of_a_key_is_counted(
    ids: list[int | None], parts: list[str | None], count: str, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents: a refresh publishes a key with NULL, which later changes cannot match."""
    table = source(tmp_path, "trips", {"id": ids, "part": parts})
    problem = key_problem(hyper, table, ["id", "part"], samples=True)
    assert problem is not None
    assert problem.startswith(f'table "trips": id or part is NULL in {count}, for instance in ')


ON = (("id", "id"),)


def problem(tables: str, *edges: str) -> str | None:
    """Return the problem of a data model with tables such as "a b" and edges such as "a>b"."""
    related = [Relationship(*edge.split(">"), on=ON) for edge in edges]
    return tree_problem(tables.split(), related)


@pytest.mark.parametrize(
    ("tables", "edges", "phrases"),
    [
        ("a b", [], ['"a", "b"', "exactly one fact table"]),
        ("a b c", ["a>b"], ['"a", "c"', "Connect every table"]),
        ("a b c", ["a>c", "b>c"], ['"c"', '"a"', '"b"', "one path"]),
        ("a b c d", ["a>b", "a>c", "b>d", "c>d"], ['"d"', '"b"', '"c"', "second copy"]),
        ("a b", ["a>b", "b>a"], ["circle: b -> a -> b. Leave one of"]),
        ("a b c d", ["b>c", "c>d", "d>b"], ["circle: c -> d -> b -> c"]),
        ("a", ["a>a"], ["circle: a -> a"]),
        ("a b", ["a>b", "a>b"], ['"b"', "two relationships"]),
    ],
)
def test_other_shapes_are_explained(tables: str, edges: list[str], phrases: list[str]):
    """Prevents: Tableau refuses a finished file, in words that name no table."""
    found = problem(tables, *edges)
    assert found is not None
    for phrase in phrases:
        assert phrase in found


@given(data=st.data(), size=st.integers(1, 8))
def test_every_tree_passes_and_no_longer_does_with_one_edge_less(data: st.DataObject, size: int):
    """Prevents: the check depends on the order or number of the tables."""
    names = [f"t{number}" for number in range(size)]
    edges = [
        Relationship(names[data.draw(st.integers(0, number - 1))], names[number], ON)
        for number in range(1, size)
    ]
    shuffled = data.draw(st.permutations(names)), data.draw(st.permutations(edges))
    assert tree_problem(*shuffled) is None
    if edges:
        assert tree_problem(shuffled[0], shuffled[1][1:]) is not None


ROWS = 20_000
TABLES = ("first", "second")
# In bytes. With the smaller sizes, the INSERT fails. With the larger sizes, the INSERT succeeds,
# but hyperd cannot write the end of the file, and does not report this failure by itself.
ROOM = (100_000, 400_000, 900_000, 1_200_000, 1_500_000)
ENOUGH = 20_000_000
NO_SPACE = r"No space is left for x\.hyper: hyperd could not write .+ MB are free in "


def hyperd_with(room: int) -> HyperProcess:
    """A hyperd that cannot make a file larger than `room` bytes."""
    hyper = Hyperd(memory=2**29, telemetry=False)
    resource.prlimit(process_id(hyper), resource.RLIMIT_FSIZE, (room, room))
    return hyper


def random_rows(folder: Path) -> list[TableSource]:
    """Tables with random text, which compression cannot make much smaller."""
    random = Random(1)
    values = [str(random.getrandbits(256)) for _ in range(ROWS)]
    return [source(folder, name, {"a": values}) for name in TABLES]


def built(hyper: HyperProcess, folder: Path, tables: list[TableSource]) -> bool:
    """Build a file; return False if there was no space.

    A built file must be complete. A refusal must say why, and leave no file.
    """
    path, said = folder / "x.hyper", ""
    try:
        build_extract(hyper, path, tables=tables)
    except RefreshError as error:
        said = str(error)
    if said:
        assert re.match(NO_SPACE, said), said
        assert not [*folder.iterdir()]
        return False
    assert [rows_of(hyper, path, name).num_rows for name in TABLES] == [ROWS, ROWS]
    return True


@pytest.mark.parametrize("room", [*ROOM, ENOUGH])
def test_no_file_without_its_tables(tmp_path: Path, room: int):
    """Prevents: on a full disk, a file without tables replaces a good file."""
    tables = random_rows(tmp_path / "in")
    (tmp_path / "out").mkdir()
    assert built(hyperd_with(room), tmp_path / "out", tables) == (room == ENOUGH)


@pytest.mark.parametrize("mode", ["w", "a"])
def test_no_change_that_loses_the_file(tmp_path: Path, mode: str):
    """Prevents: on a full disk, a change removes the tables of a file."""
    path = tmp_path / "x.hyper"
    with open_hyper(path, "w") as file:
        file.create(TableName("t"), pa.table({"a": [1]}))
    before = path.read_bytes()
    random = Random(1)
    more = pa.table({"a": [str(random.getrandbits(256)) for _ in range(2 * ROWS)]})

    def change() -> None:
        with open_hyper(path, mode, hyper=hyperd_with(1_500_000)) as file:
            file.create(TableName("more"), more)

    with pytest.raises(RefreshError, match="No space is left"):
        change()
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("holds", ["nothing", "no tables", "other rows"])
def test_a_file_that_is_not_what_was_written(hyper: HyperProcess, tmp_path: Path, holds: str):
    """Prevents: hyperd silently writes a wrong file, and a refresh publishes the file."""
    saved_to = tmp_path / "saved.hyper"
    if holds == "nothing":
        saved_to.write_bytes(b"")
    else:
        with open_hyper(saved_to, "w") as file:
            if holds == "other rows":
                file.create(TableName("t"), pa.table({"a": [1, 2]}))
    connection = connect(hyper, tmp_path / "x.hyper", CreateMode.CREATE)
    with (
        pytest.raises(RefreshError, match=r"did not save x\.hyper correctly: expected .*, found "),
        saved(hyper, saved_to, connection, name="x.hyper"),
    ):
        HyperFile(connection).create(TableName("t"), pa.table({"a": [1]}))
