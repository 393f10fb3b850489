"""Columns of Delta tables: their types, names and places."""

import json
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.updates.delta import RowCounts
from tableau_pipeline.hyper.types.type_policy import TypePolicy
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_order,
    published,
    rows_of,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


def test_types_and_partitions(pipeline: Pipeline, tmp_path: Path):
    """Prevents: values of partition columns, or of some type, that come out as others."""
    rows = values_of_all_types()
    columns = rows.schema.names
    for number, by in enumerate(
        [[], ["word"], ["day", "flag"], ["plain", "tiny"], ["at", "local"]]
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
    path = tmp_path / "lake"
    _write_mapped(path)
    follow(pipeline, "delta", path)
    pipeline.run()
    assert published(pipeline) == [str([1, "north", "a"]), str([2, "north", None])]


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
    pipeline.declare(types=TypePolicy(nested="json"))
    with pytest.raises(RefusedError, match=why):
        pipeline.run()


def test_instants_in_a_zone(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a declared zone that shifts no instant of a lake, or keeps updates from it."""
    lake, winter = tmp_path / "lake", datetime(2024, 1, 1, 12, tzinfo=UTC)
    at = pa.array([winter], pa.timestamp("us", "UTC"))
    write_deltalake(lake, rows_of([1]).append_column("at", at))
    follow(pipeline, "delta", lake)
    pipeline.declare(types=TypePolicy(timestamps=ZoneInfo("Europe/Paris")))
    pipeline.run()
    write_deltalake(lake, rows_of([2]).append_column("at", at), mode="append")
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=1)}
    shown = winter.replace(hour=13, tzinfo=None)
    assert published(pipeline) == [str([shown, 1, "a1"]), str([shown, 2, "a2"])]


def _write_mapped(path: Path) -> None:
    """Write a table whose columns are mapped by name, which deltalake cannot."""

    def field(name: str, type_: str, id_: int) -> dict[str, object]:
        metadata = {"delta.columnMapping.id": id_, "delta.columnMapping.physicalName": f"col-{id_}"}
        return {"name": name, "type": type_, "nullable": True, "metadata": metadata}

    fields = [field("id", "long", 1), field("word", "string", 2), field("region", "string", 3)]
    file = "col-3=north/part-0.parquet"
    (path / file).parent.mkdir(parents=True)
    pq.write_table(pa.table({"col-1": [1, 2], "col-2": ["a", None]}), path / file)
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "6f1c1d2e-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["region"],
                "configuration": {
                    "delta.columnMapping.mode": "name",
                    "delta.columnMapping.maxColumnId": "3",
                },
            }
        },
        {
            "add": {
                "path": file,
                "partitionValues": {"col-3": "north"},
                "size": (path / file).stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
            }
        },
    ]
    (path / "_delta_log").mkdir()
    (path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
