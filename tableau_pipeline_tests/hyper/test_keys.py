from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.build import key_problem, orphans
from tableau_pipeline.hyper.parquet import TableSource, select_sql
from tableau_pipeline.hyper.types import Column
from tableau_pipeline_tests.hyper.samples import source


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


@pytest.mark.parametrize(
    ("columns", "files", "found"),
    [
        ({"id": [5, 1, 2, 1, 5, 5, 3, 3, 4, 4]}, 1, "1 (2 times), 3 (2 times), 4 (2 times)"),
        ({"id": [5, 1, 2, 1, 5, 5, 3, 3, 4, 4]}, 3, "1 (2 times), 3 (2 times), 4 (2 times)"),
        ({"id": ["", "a ", "", "a "]}, 1, '"" (2 times), "a " (2 times)'),
        ({"id": [1, 1, 2, 1], "part": ["x", "y", "x", "y"]}, 1, "1 / y (2 times)"),
    ],
    ids=["a file", "several files", "blanks", "composite"],
)
def test_repeated_keys_are_shown(
    columns: dict[str, list[Any]], files: int, found: str, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents a delta on a key that names two rows, and samples that do not show which."""
    table = source(tmp_path, "trips", columns, files=files)
    assert key_problem(hyper, table, list(columns)) == (
        f'table "trips": {", ".join(columns)} is not unique, for instance {found}'
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


def test_rows_without_a_partner_are_counted(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents: a warning for rows that point nowhere on purpose, or for a composite key's half."""
    one = source(tmp_path, "one", {"a": [1, 1, 2], "b": ["x", "y", "x"], "c": [0, 0, 0]})
    columns = {"k": [1, 1, 2, 2, None, 2], "l": ["x", "y", "x", "y", "z", None]}
    many = source(tmp_path, "many", columns, files=2)
    assert orphans(hyper, select_sql(many), select_sql(one), [("k", "a"), ("l", "b")]) == 1
    assert orphans(hyper, select_sql(many), select_sql(one), [("k", "a")]) == 0
    assert orphans(hyper, select_sql(many), select_sql(replace(one, files=())), [("l", "b")]) == 5
