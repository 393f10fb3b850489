from collections.abc import Callable
from pathlib import Path

import pytest
from tableauhyperapi import HyperException, HyperProcess

from tableau_pipeline.hyper.build import Relationship, build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.types import Column
from tableau_pipeline_tests.hyper.samples import build_one, rows_of, source

Failure = Callable[[HyperProcess, Path, Path], None]


def null_key(hyper: HyperProcess, path: Path, inputs: Path) -> None:
    many = source(inputs / "m", "many", {"one": [1]})
    one = source(inputs / "o", "one", {"id": [1, None]})
    build_extract(
        hyper,
        path,
        tables=[many, one],
        relationships=[Relationship("many", "one", (("one", "id"),))],
    )


def damaged_file(hyper: HyperProcess, path: Path, inputs: Path) -> None:
    good = source(inputs / "g", "good", {"id": [1, 2]})
    file = inputs / "damaged.parquet"
    file.write_bytes(Path(good.files[0]).read_bytes()[:-20])
    bad = TableSource("bad", good.columns, (*good.files, str(file)))
    build_extract(hyper, path, tables=[good, bad])


def missing_file(hyper: HyperProcess, path: Path, inputs: Path) -> None:
    table = TableSource("t", (Column("id", "int"),), (str(inputs / "gone.parquet"),))
    build_extract(hyper, path, tables=[table])


def missing_column(hyper: HyperProcess, path: Path, inputs: Path) -> None:
    table = source(inputs / "t", "t", {"id": [1]})
    build_one(hyper, path, TableSource("t", (*table.columns, Column("new", "int")), table.files))


@pytest.mark.parametrize("failure", [null_key, damaged_file, missing_file, missing_column])
def test_a_failed_build_leaves_no_trace(
    failure: Failure, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents that half an extract is published, or that a good one is lost to a bad one."""
    target, inputs = tmp_path / "out" / "x.hyper", tmp_path / "in"
    build_one(hyper, target, source(inputs / "e", "Extract", {"a": [1]}))
    before = target.read_bytes()
    for path in (target, target.with_name("new.hyper")):
        with pytest.raises(HyperException):
            failure(hyper, path, inputs)
        assert [*target.parent.iterdir()] == [target]
    assert target.read_bytes() == before


def test_the_remains_of_a_killed_build_do_no_harm(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents that a process killed while building makes every later build fail."""
    target = tmp_path / "x.hyper"
    (tmp_path / ".x.hyper.unfinished.hyper").write_bytes(b"half a file")
    build_one(hyper, target, source(tmp_path / "in", "Extract", {"a": [1]}))
    assert rows_of(hyper, target).num_rows == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in", "x.hyper"]
