from pathlib import Path

import pyarrow as pa
from tableauhyperapi import HyperProcess, TableName

from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.types import Column
from tableau_pipeline_tests.hyper.samples import build_one, rows_of, source


def test_a_single_table_is_extract_extract(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents a file that Tableau opens but finds no extract in."""
    extract = build_one(hyper, tmp_path / "x.hyper", source(tmp_path, "Extract", {"a": [1]}))
    assert list(table_columns(hyper, extract.path)) == [TableName("Extract", "Extract")]


def test_each_table_takes_its_own_rows(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents tables that get each other's rows, and counts that do not match them."""
    tables = [
        source(tmp_path, "flights", {"id": [1, 2, 3]}),
        source(tmp_path, "airlines", {"id": [4, 5]}),
        TableSource("planes", (Column("id", "int"),), ()),
    ]
    extract = build_extract(hyper, tmp_path / "x.hyper", tables=tables)
    assert extract.rows == {"flights": 3, "airlines": 2, "planes": 0}
    assert extract.size == extract.path.stat().st_size > 0
    assert rows_of(hyper, extract.path, "flights")["id"].to_pylist() == [1, 2, 3]
    assert rows_of(hyper, extract.path, "airlines")["id"].to_pylist() == [4, 5]
    assert rows_of(hyper, extract.path, "planes").num_rows == 0


def test_columns_are_matched_by_name(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents swapped columns where a file orders them otherwise, and columns left out."""
    stored = source(tmp_path, "Extract", {"a": [1], "secret": [2], "b": [3]})
    table = TableSource("Extract", (Column("b", "bigint"), Column("a", "bigint")), stored.files)
    extract = build_one(hyper, tmp_path / "x.hyper", table)
    assert rows_of(hyper, extract.path).to_pylist() == [{"b": 3, "a": 1}]


def test_files_without_rows_are_read_too(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents a failure on a Parquet file of 0 rows next to others."""
    empty = source(tmp_path, "Extract", pa.table({"a": pa.array([], pa.int64())}))
    full = source(tmp_path, "Extract", {"a": [7]})
    table = TableSource("Extract", full.columns, empty.files + full.files)
    assert build_one(hyper, tmp_path / "x.hyper", table).rows == {"Extract": 1}
    assert build_one(hyper, tmp_path / "y.hyper", empty).rows == {"Extract": 0}


def test_a_new_extract_takes_the_place_of_the_old(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents yesterday's rows below today's."""
    for value in (1, 2):
        build_one(hyper, tmp_path / "x.hyper", source(tmp_path, "Extract", {"a": [value]}))
    assert rows_of(hyper, tmp_path / "x.hyper")["a"].to_pylist() == [2]
    assert list(tmp_path.glob(".*")) == []
