"""Columns of Delta tables: their types, names and places."""

from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.refresh.plan import Update
from tableau_pipeline_tests.refresh.lakes.mapped_delta import MappedDelta
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_order,
    published,
    rows_of,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

_MAPPED = {"id": "long", "word": "string", "region": "string"}


def test_types_and_partitions(pipeline: Pipeline, tmp_path: Path):
    """Prevents: values of partition columns, or of some type, that come out as others."""
    rows = values_of_all_types()
    columns = rows.schema.names
    for number, by in enumerate(
        [[], ["word"], ["day", "flag"], ["plain", "tiny"], ["at", "local"], ["raw", "single"]]
    ):
        path = tmp_path / f"lake{number}"
        write_deltalake(path, rows, partition_by=by or None)
        follow(pipeline, "delta", path)
        pipeline.run(full=True)
        held = DeltaTable(path).to_pyarrow_table().select(columns)
        assert published(pipeline) == in_order(held), by


def test_a_change_of_any_column(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a change of a value that no comparison of columns sees."""
    schema = values_of_all_types().schema
    values = values_of_all_types().drop_columns("id")
    usual, *_ = values.to_pylist()
    # In each row, one column changes, from each of its values to each other one.
    pairs = [
        ({**usual, name: before}, {**usual, name: after})
        for name in values.schema.names
        for before, after in permutations({None, *values[name].to_pylist()}, 2)
    ]
    path = tmp_path / "lake"
    follow(pipeline, "delta", path)
    for rows in zip((usual, usual), *pairs, strict=True):
        numbered = [{"id": id_, **row} for id_, row in enumerate(rows)]
        write_deltalake(path, pa.Table.from_pylist(numbered, schema), mode="overwrite")
        report = pipeline.run()
    assert report.tables == {"flights": RowCounts(deleted=len(pairs), inserted=len(pairs))}
    assert published(pipeline) == in_order(DeltaTable(path).to_pyarrow_table())


def test_mapped_columns(pipeline: Pipeline, tmp_path: Path):
    """Prevents: renamed columns that are taken for missing ones."""
    lake = MappedDelta(tmp_path / "lake", _MAPPED, partition_by=("region",))
    lake.append(pa.table({"id": [1, 2], "word": ["a", None], "region": ["north", "north"]}))
    follow(pipeline, "delta", lake.path)
    pipeline.run()
    assert published(pipeline) == [str([1, "north", "a"]), str([2, "north", None])]
    lake.rename({"word": "said", "region": "place"})
    pipeline.run()
    assert published(pipeline) == in_order(lake.rows())


@pytest.mark.parametrize("appended", [False, True])
def test_a_column_dropped_and_added_again(pipeline: Pipeline, tmp_path: Path, appended: bool):
    """Prevents: values of a column that was dropped stay published under its name."""
    lake = MappedDelta(tmp_path / "lake", _MAPPED)
    lake.append(pa.table({"id": [1, 2], "word": ["a", None], "region": ["north", "south"]}))
    follow(pipeline, "delta", lake.path)
    pipeline.run()
    lake.drop("region")
    lake.add("region", "string")
    if appended:
        lake.append(pa.table({"id": [3], "word": ["c"], "region": ["east"]}))
    pipeline.run()
    assert published(pipeline) == in_order(lake.rows())
    lake.rename({"word": "region", "region": "word"})
    lake.reorder(["id", "word", "region"])
    assert isinstance(pipeline.run().plan, Update)
    assert published(pipeline) == in_order(lake.rows())


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("tags", [["a"]], 'column "tags" is of the type array'),
        ("_row_hash", [1], 'column "_row_hash" has the name of the hashes'),
    ],
)
def test_columns_that_are_refused(
    pipeline: Pipeline, tmp_path: Path, column: str, values: list, why: str
):
    """Prevents: a failure of hyperd where a message could name the column."""
    write_deltalake(tmp_path / "lake", rows_of([1]).append_column(column, pa.array(values)))
    follow(pipeline, "delta", tmp_path / "lake")
    pipeline.declare(nested="json")
    with pytest.raises(RefusedError, match=why):
        pipeline.run()


def test_instants_in_a_zone(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a declared zone that shifts no instant of a lake, or keeps updates from it."""
    lake, winter = tmp_path / "lake", datetime(2024, 1, 1, 12, tzinfo=UTC)
    at = pa.array([winter], pa.timestamp("us", "UTC"))
    write_deltalake(lake, rows_of([1]).append_column("at", at))
    follow(pipeline, "delta", lake)
    pipeline.declare(timestamps=ZoneInfo("Europe/Paris"))
    pipeline.run()
    write_deltalake(lake, rows_of([2]).append_column("at", at), mode="append")
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=1)}
    shown = winter.replace(hour=13, tzinfo=None)
    assert published(pipeline) == [str([shown, 1, "a1"]), str([shown, 2, "a2"])]
