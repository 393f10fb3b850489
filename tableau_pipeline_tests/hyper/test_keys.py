from dataclasses import replace
from pathlib import Path

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.build import key_problem, orphan_keys, orphans
from tableau_pipeline.hyper.parquet import select_sql
from tableau_pipeline_tests.hyper.samples import source


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


def test_rows_without_a_partner_are_counted(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents: a warning for rows that point nowhere on purpose, or for a composite key's half;
    or one that leaves a person to find out for which."""
    one = source(tmp_path, "one", {"a": [1, 1, 2], "b": ["x", "y", "x"], "c": [0, 0, 0]})
    columns = {"k": [1, 1, 2, 2, None, 2], "l": ["x", "y", "x", "y", "z", None]}
    many = source(tmp_path, "many", columns, files=2)
    both = [("k", "a"), ("l", "b")]
    assert orphans(hyper, select_sql(many), select_sql(one), both) == 1
    assert orphan_keys(hyper, select_sql(many), select_sql(one), both) == "2 / y"
    assert orphans(hyper, select_sql(many), select_sql(one), [("k", "a")]) == 0
    assert orphans(hyper, select_sql(many), select_sql(replace(one, files=())), [("l", "b")]) == 5
