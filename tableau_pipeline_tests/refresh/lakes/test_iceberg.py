"""Iceberg tables as models, read where they are, and compared with what pyiceberg reads."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType

from tableau_pipeline.core.declaration import Append, Policy, Replace
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.refresh.plan import NoChange, Publish, Update
from tableau_pipeline_tests.refresh.lakes.iceberg import (
    add_hive_files,
    commit_files,
    folder_of,
    in_catalog,
)
from tableau_pipeline_tests.refresh.lakes.support import (
    BY_ID,
    follow,
    in_order,
    published,
    rows_of,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


@pytest.fixture
def lake(pipeline: Pipeline, catalog: SqlCatalog) -> Table:
    """A table of four files, which is published."""
    made = catalog.create_table("db.orders", schema=rows_of([]).schema)
    for start in (0, 10, 20, 30):
        made.append(rows_of(range(start, start + 10)))
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    return made


def _same(pipeline: Pipeline, table: Table) -> bool:
    return published(pipeline) == in_order(table.scan().to_arrow())


def test_the_first_version_is_published(pipeline: Pipeline, lake: Table):
    """Prevents: a table that is published with other rows than it has."""
    assert _same(pipeline, lake)
    assert isinstance(pipeline.run().plan, NoChange)


def test_changed_rows_are_sent(pipeline: Pipeline, lake: Table):
    """Prevents: a table that goes whole whenever some of its rows change."""
    lake.append(rows_of([40, 41]))
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=2)}
    lake.delete("id = 5 or id >= 30")
    assert pipeline.run().tables == {"flights": RowCounts(deleted=13, inserted=0)}
    lake.upsert(rows_of([3, 99], "new"), join_cols=["id"])
    assert pipeline.run().tables == {"flights": RowCounts(deleted=1, inserted=2)}
    lake.overwrite(rows_of([3, 4], "over"))
    pipeline.run()
    assert _same(pipeline, lake)


def test_an_expired_base_costs_a_whole_publish(pipeline: Pipeline, lake: Table):
    """Prevents: a refresh that fails for ever once the published snapshot has expired."""
    base = lake.current_snapshot()
    assert base
    lake.append(rows_of([40]))
    lake.maintenance.expire_snapshots().by_id(base.snapshot_id).commit()
    report = pipeline.run()
    assert report.plan
    assert "gone" in report.plan.reason
    assert _same(pipeline, lake)


def test_an_empty_table(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: a failure before the first rows arrive."""
    made = catalog.create_table("db.empty", schema=rows_of([]).schema)
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    assert published(pipeline) == []
    made.append(rows_of([1]))
    pipeline.run()
    assert _same(pipeline, made)


def test_columns_come_and_go(pipeline: Pipeline, lake: Table):
    """Prevents: columns of older files that are taken for others of the same name."""
    with lake.update_schema() as change:
        change.rename_column("word", "old")
    with lake.update_schema() as change:
        change.add_column("word", LongType())
    more = pa.table({"id": [50], "old": ["x"], "word": [7]})
    lake.append(more)
    assert isinstance(pipeline.run().plan, Publish)
    assert _same(pipeline, lake)
    with lake.update_schema() as change:
        change.delete_column("old")
    pipeline.run()
    assert _same(pipeline, lake)
    with lake.update_schema() as change:
        change.add_column("new", LongType())
    pipeline.run()
    # By now, the version that is published has the columns that it was written with.
    lake.overwrite(pa.table({"id": [50, 51], "word": [7, 8], "new": [1, 2]}))
    assert isinstance(pipeline.run().plan, Update)
    assert _same(pipeline, lake)


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("policy", [BY_ID, Append("id"), Replace()])
def test_a_column_dropped_and_added_again(
    pipeline: Pipeline, lake: Table, policy: Policy, appended: bool
):
    """Prevents: values of a column that was dropped stay published under its name."""
    follow(pipeline, "iceberg", in_catalog(lake), policy)
    _again(lake, "word")
    if appended:
        lake.append(rows_of([40]))
    pipeline.run()
    assert _same(pipeline, lake)
    assert isinstance(pipeline.run().plan, NoChange)
    # What is published was read by a schema that its snapshot does not name.
    lake.append(rows_of([41]))
    _again(lake, "word")
    assert isinstance(pipeline.run().plan, Update | Publish)
    assert _same(pipeline, lake)


def test_two_columns_swap_their_names(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: values that stay published in each other's columns."""
    rows = pa.table({"id": [1, 2], "a": ["x", "y"], "b": ["u", "y"]})
    made = catalog.create_table("db.swapped", schema=rows.schema)
    made.append(rows)
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with made.update_schema() as change:
            change.rename_column(old, new)
    with made.update_schema() as change:
        change.move_after("b", "a")
    assert pipeline.run().tables == {"flights": RowCounts(deleted=1, inserted=1)}
    assert _same(pipeline, made)


def _again(table: Table, column: str) -> None:
    """Drop a column and add it again, in its place."""
    type_ = table.schema().find_field(column).field_type
    with table.update_schema() as change:
        change.delete_column(column)
    with table.update_schema() as change:
        change.add_column(column, type_)


def test_wider_types(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: files that cannot be read any more once the type of a column is wider."""
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "price": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
            "single": pa.array([0.1, 2.5], pa.float32()),
        }
    )
    made = catalog.create_table("db.wider", schema=rows.schema)
    made.append(rows)
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    with made.update_schema() as change:
        change.update_column("id", LongType())
        change.update_column("price", DecimalType(12, 2))
        change.update_column("single", DoubleType())
    ids = pa.array([2**40, 2**40 + 1], pa.int64())
    made.append(made.scan().to_arrow().set_column(0, "id", ids))
    pipeline.run()
    assert _same(pipeline, made)


def test_types_and_partitions(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: values of partition columns, or of some type, that come out as others."""
    rows = ROWS
    for number, by in enumerate([[], ["word"], ["day", "flag"], ["price", "plain"]]):
        made = catalog.create_table(f"db.types{number}", schema=rows.schema)
        with made.update_spec() as change:
            for column in by:
                change.add_identity(column)
        made.append(rows)
        follow(pipeline, "iceberg", in_catalog(made))
        pipeline.run(full=True)
        assert _same(pipeline, made), by


def test_files_of_others(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: files without field ids whose columns are taken by their order."""
    made = catalog.create_table("db.others", schema=rows_of([]).schema)
    file = folder_of(made) / "others.parquet"
    pq.write_table(rows_of([1, 2]).select(["word", "id"]), file)
    made.add_files([f"file://{file}"])
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    assert _same(pipeline, made)


# Iceberg has no whole numbers of fewer than 32 bits.
ROWS = values_of_all_types().drop_columns(["tiny", "small"])


@pytest.mark.few_variants(3)
@pytest.mark.parametrize("column", ROWS.schema.names[1:])
def test_partition_columns_that_files_lack(pipeline: Pipeline, catalog: SqlCatalog, column: str):
    """Prevents: NULL in place of the value that only the path of a Hive table's file had."""
    made = catalog.create_table("db.hive", schema=ROWS.schema)
    with made.update_spec() as change:
        change.add_identity(column)
    add_hive_files(made, ROWS)
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    assert _same(pipeline, made)
    made.append(ROWS.slice(0, 2).set_column(0, "id", [[11, 12]]))
    pipeline.run()
    assert _same(pipeline, made)


def test_a_month_is_no_value(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: the month of a partition in place of a day that a file lacks."""
    rows = pa.table({"id": [1], "day": pa.array([None], pa.date32())})
    made = catalog.create_table("db.months", schema=rows.schema)
    with made.update_spec() as change:
        change.add_field("day", MonthTransform(), "month")
    with made.transaction() as change:
        mapping = made.schema().name_mapping.model_dump_json()
        change.set_properties({"schema.name-mapping.default": mapping})
    commit_files(made, [(rows.drop_columns(["day"]), Record(600))])
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    assert published(pipeline) == in_order(rows)
    assert _same(pipeline, made)


def test_delete_files_are_refused(pipeline: Pipeline, lake: Table):
    """Prevents: deleted rows that are published."""
    _add_delete_file(lake)
    with pytest.raises(RefusedError, match="has delete files, which are not read yet"):
        pipeline.run()


def test_a_newer_format_is_refused(pipeline: Pipeline, lake: Table):
    """Prevents: a table is read wrong because its format is newer than the reader."""
    newest = Path(lake.metadata_location.removeprefix("file://"))
    content = json.loads(newest.read_text())
    newest.write_text(json.dumps({**content, "format-version": 3, "next-row-id": 0}))
    with pytest.raises(RefusedError, match="version 3 of the format"):
        pipeline.run()


def _add_delete_file(table: Table) -> None:
    """Delete a row by its position, as other engines do and pyiceberg does not."""
    first = next(iter(table.scan().plan_files())).file.file_path
    deletes = pa.table({"file_path": [first], "pos": pa.array([1], pa.int64())})
    commit_files(table, [(deletes, Record())], content=DataFileContent.POSITION_DELETES)
