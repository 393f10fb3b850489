from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.build import key_problem, orphans
from tableau_pipeline.hyper.parquet import select_sql
from tableau_pipeline.hyper.tables import Column, TableSource
from tableau_pipeline_tests.hyper.samples import source, stored_source
from tableau_pipeline_tests.snapshots.support.samples import store


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"id": [1, 2, 3]}, ["id"]),
        ({"id": ["a", "A", "", " "]}, ["id"]),
        ({"id": [1, 1, 2], "part": ["x", "y", "x"]}, ["id", "part"]),
        ({"id": [1], "other": [None]}, ["id"]),
    ],
)
def test_a_key_is_a_key(
    columns: dict[str, list[Any]], key: list[str], hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents refusing good models: texts that differ by case, keys unique as a whole only."""
    table = source(tmp_path, "t", columns, files=2)
    assert key_problem(hyper, table, key) is None


@pytest.mark.parametrize("files", [1, 3])
def test_repeated_keys_are_shown(files: int, hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents a delta on a key that names two rows, also when they lie in two files."""
    table = source(tmp_path, "trips", {"id": [5, 1, 2, 1, 5, 5, 3, 3, 4, 4]}, files=files)
    assert key_problem(hyper, table, ["id"]) == (
        'table "trips": id is not unique, for instance 1 (2 times), 3 (2 times), 4 (2 times)'
    )


def test_repeated_blanks_are_shown(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents a sample that nobody sees."""
    table = source(tmp_path, "trips", {"id": ["", "a ", "", "a "]})
    assert key_problem(hyper, table, ["id"]) == (
        'table "trips": id is not unique, for instance "" (2 times), "a " (2 times)'
    )


def test_a_repeated_composite_key_is_shown_whole(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents samples that do not say which row is meant."""
    table = source(tmp_path, "trips", {"id": [1, 1, 2, 1], "part": ["x", "y", "x", "y"]})
    assert key_problem(hyper, table, ["id", "part"]) == (
        'table "trips": id, part is not unique, for instance 1 / y (2 times)'
    )


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
    ids: list[int | None],
    parts: list[str | None],
    count: str,
    hyper: HyperProcess,
    tmp_path: Path,
) -> None:
    """Prevents keys that match no row of the server, not even their own."""
    table = source(tmp_path, "trips", {"id": ids, "part": parts})
    problem = key_problem(hyper, table, ["id", "part"])
    assert problem is not None
    assert problem.startswith(f'table "trips": id or part is NULL in {count}, for instance in ')


def test_a_table_without_rows_has_no_key_problem(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents refusing a model on the day on which it is empty."""
    assert key_problem(hyper, TableSource("t", (Column("id", "int"),), ()), ["id"]) is None


def test_keys_of_sparks_own_types(spark: SparkSession, hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents key checks that fail on dates, instants and wide decimals, or compare them wrong."""
    frame = spark.sql(
        "SELECT date'2024-01-01' + CAST(id AS int) AS d, timestamp_micros(id) AS t,"
        " CAST(id AS decimal(38,9)) AS n, X'00' AS same FROM range(10)"
    )
    table = stored_source(store(frame, tmp_path), "days")
    for key in ("d", "t", "n"):
        assert key_problem(hyper, table, [key]) is None
    assert key_problem(hyper, table, ["d", "same"]) is None
    assert "is not unique" in (key_problem(hyper, table, ["same"]) or "")


def test_rows_without_a_partner_are_counted(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents: a warning for rows that point nowhere on purpose, or for a composite key's half."""
    one = source(tmp_path, "one", {"a": [1, 1, 2], "b": ["x", "y", "x"], "c": [0, 0, 0]})
    columns = {"k": [1, 1, 2, 2, None, 2], "l": ["x", "y", "x", "y", "z", None]}
    many = source(tmp_path, "many", columns, files=2)
    assert orphans(hyper, select_sql(many), select_sql(one), [("k", "a"), ("l", "b")]) == 1
    assert orphans(hyper, select_sql(many), select_sql(one), [("k", "a")]) == 0
    assert orphans(hyper, select_sql(many), select_sql(replace(one, files=())), [("l", "b")]) == 5
