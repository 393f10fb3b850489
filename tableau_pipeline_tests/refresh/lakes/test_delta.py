"""Delta tables as models, read where they are, and compared with what deltalake reads."""

import base64
import json
import shutil
import string
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap

from tableau_pipeline.core.declaration import Append, Retain
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.refresh.plan import NoChange, Publish, Update
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_order,
    published,
    rows_of,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

# From the alphabet of base85 in Python to the one in logs.
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_Z85 = bytes.maketrans(
    f"{_DIGITS}!#$%&()*+-;<=>?@^_`{{|}}~".encode(),
    f"{_DIGITS.swapcase()}.-:+=^!/*?&<>()[]{{}}@%$#".encode(),
)


@pytest.fixture
def lake(pipeline: Pipeline, tmp_path: Path) -> Path:
    """A table of four files, which is published."""
    path = tmp_path / "lake" / "orders"
    for start in (0, 10, 20, 30):
        write_deltalake(path, rows_of(range(start, start + 10)), mode="append")
    follow(pipeline, "delta", path)
    pipeline.run()
    return path


def _same(pipeline: Pipeline, path: Path) -> bool:
    return published(pipeline) == in_order(DeltaTable(path).to_pyarrow_table())


def test_the_first_version_is_published(pipeline: Pipeline, lake: Path):
    """Prevents: a table that is published with other rows than it has."""
    assert _same(pipeline, lake)
    assert isinstance(pipeline.run().plan, NoChange)


def test_appended_rows_are_sent(pipeline: Pipeline, lake: Path):
    """Prevents: a table that goes whole whenever rows are appended to it."""
    write_deltalake(lake, rows_of(range(40, 43)), mode="append")
    report = pipeline.run()
    assert report.tables == {"flights": RowCounts(deleted=0, inserted=3)}
    assert _same(pipeline, lake)


def test_merged_rows_are_sent(pipeline: Pipeline, lake: Path):
    """Prevents: all rows of a rewritten file are sent, where one of them changed."""
    merge = DeltaTable(lake).merge(
        rows_of([5, 99], "new"), "s.id = t.id", source_alias="s", target_alias="t"
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    report = pipeline.run()
    assert report.tables == {"flights": RowCounts(deleted=1, inserted=2)}
    assert _same(pipeline, lake)


def test_deleted_rows_are_deleted(pipeline: Pipeline, lake: Path):
    """Prevents: rows stay published that the table no longer has."""
    DeltaTable(lake).delete("id = 5 or id >= 30")
    report = pipeline.run()
    assert report.tables == {"flights": RowCounts(deleted=11, inserted=0)}
    assert _same(pipeline, lake)


def test_a_compacted_table_is_not_sent(pipeline: Pipeline, lake: Path):
    """Prevents: work for every compaction, which changes no row."""
    DeltaTable(lake).optimize.compact()
    report = pipeline.run()
    assert isinstance(report.plan, NoChange)
    assert "not the rows in them" in report.plan.reason
    # What follows builds on the compacted version.
    DeltaTable(lake).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    write_deltalake(lake, rows_of([50]), mode="append")
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=1)}
    assert _same(pipeline, lake)


def test_a_vacuumed_base_costs_a_whole_publish(pipeline: Pipeline, lake: Path):
    """Prevents: a refresh that fails for ever once the published files are gone."""
    DeltaTable(lake).update(updates={"word": "'x'"}, predicate="id < 20")
    DeltaTable(lake).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    report = pipeline.run()
    assert report.plan
    assert "gone" in report.plan.reason
    assert _same(pipeline, lake)


def test_another_table_in_its_place(pipeline: Pipeline, lake: Path):
    """Prevents: an update against a version of another table that has the same number."""
    versions = DeltaTable(lake).version()
    shutil.rmtree(lake)
    for number in range(versions + 2):
        write_deltalake(lake, rows_of([number, number + 100], "other"), mode="append")
    report = pipeline.run()
    assert report.plan
    assert "replaced by another one" in report.plan.reason
    assert _same(pipeline, lake)


def test_a_restored_table(pipeline: Pipeline, lake: Path):
    """Prevents: a restored version taken for that of its number."""
    DeltaTable(lake).delete("id < 10")
    pipeline.run()
    DeltaTable(lake).restore(3)
    assert isinstance(pipeline.run().plan, Update)
    assert _same(pipeline, lake)


def test_a_window_moves_over_the_files(pipeline: Pipeline, tmp_path: Path):
    """Prevents: expired rows of files that nobody touched stay published."""
    path = tmp_path / "lake"
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 11)]
    for id_, day in enumerate([*days, None]):
        rows = {"id": [id_], "day": pa.array([day], pa.timestamp("us", "UTC"))}
        write_deltalake(path, pa.table(rows), mode="append")
    follow(pipeline, "delta", path, retain=Retain("day", 5))
    pipeline.run(around={"now": datetime(2026, 3, 10, 12, tzinfo=UTC)})
    assert len(published(pipeline)) == 7
    write_deltalake(
        path, pa.table({"id": [20], "day": [datetime(2026, 3, 11, tzinfo=UTC)]}), mode="append"
    )
    report = pipeline.run(around={"now": datetime(2026, 3, 12, 12, tzinfo=UTC)})
    assert report.tables == {"flights": RowCounts(deleted=2, inserted=1)}
    assert len(published(pipeline)) == 6
    # Nothing changes, and the window brings rows back.
    pipeline.run(around={"now": datetime(2026, 3, 8, 12, tzinfo=UTC)})
    assert len(published(pipeline)) == 10


def test_a_window_over_another_column(pipeline: Pipeline, tmp_path: Path):
    """Prevents: no change, where another window keeps as many rows, but others."""
    path, old, new = tmp_path / "lake", date(2026, 1, 1), date(2026, 3, 9)
    rows = pa.table({"id": [1, 2], "made": [old, new], "sent": [new, old]})
    write_deltalake(path, rows)
    around = {"now": datetime(2026, 3, 10, 12, tzinfo=UTC)}
    follow(pipeline, "delta", path, retain=Retain("made", 5))
    pipeline.run(around=around)
    follow(pipeline, "delta", path, retain=Retain("sent", 5))
    pipeline.run(around=around)
    assert published(pipeline) == in_order(rows.slice(0, 1))


def test_from_a_cursor_on(pipeline: Pipeline, lake: Path):
    """Prevents: an append that misses rows which were corrected before its start."""
    follow(pipeline, "delta", lake, Append("id"))
    write_deltalake(lake, rows_of([39, 40]), mode="append")
    assert isinstance(pipeline.run().plan, Update)
    assert _same(pipeline, lake)
    DeltaTable(lake).update(updates={"word": "'x'"}, predicate="id = 3")
    report = pipeline.run()
    assert report.plan
    assert "rows changed beyond" in report.plan.reason
    assert _same(pipeline, lake)


def test_columns_that_older_files_lack(pipeline: Pipeline, lake: Path):
    """Prevents: a table that cannot be read any more once it has a new column."""
    more = rows_of([50]).append_column("new", pa.array([Decimal("1.5")], pa.decimal128(5, 1)))
    write_deltalake(lake, more, mode="append", schema_mode="merge")
    assert isinstance(pipeline.run().plan, Publish)
    assert _same(pipeline, lake)
    write_deltalake(lake, more.set_column(0, "id", pa.array([51], pa.int64())), mode="append")
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=1)}
    assert _same(pipeline, lake)


def test_deletion_vectors_are_refused(pipeline: Pipeline, lake: Path):
    """Prevents: deleted rows that are published."""
    log = lake / "_delta_log"
    first = next(
        json.loads(line)["add"]
        for line in (log / f"{0:020}.json").read_text().splitlines()
        if '"add"' in line
    )
    # The second row of the first file, as the protocol has it: a bitmap within the log.
    bitmap = struct.pack("<iqi", 1681511377, 1, 0) + BitMap([1]).serialize()
    vector = {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(bitmap, pad=True).translate(_Z85).decode(),
        "sizeInBytes": len(bitmap),
        "cardinality": 1,
    }
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    remove = {
        "path": first["path"], "dataChange": True, "deletionTimestamp": 0,
        "partitionValues": {}, "size": first["size"],
    }  # fmt: skip
    add = {**first, "deletionVector": vector}
    actions = [{"protocol": protocol}, {"remove": remove}, {"add": add}]
    (log / f"{4:020}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(RefusedError, match="deletion vectors"):
        pipeline.run()
