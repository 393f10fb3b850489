"""Files of lakes that delta-rs and pyiceberg never write: they are read right, or refused."""

import base64
import json
import string
import struct
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType
from pyroaring import BitMap

from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.refresh.lakes.iceberg import (
    add_hive_files,
    commit_files,
    folder_of,
    in_catalog,
)
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_order,
    published,
    rows_of,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

# From the alphabet of base85 in Python to the one in logs.
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_Z85 = bytes.maketrans(
    f"{_DIGITS}!#$%&()*+-;<=>?@^_`{{|}}~".encode(),
    f"{_DIGITS.swapcase()}.-:+=^!/*?&<>()[]{{}}@%$#".encode(),
)
# Iceberg has no whole numbers of fewer than 32 bits.
ROWS = values_of_all_types().drop_columns(["tiny", "small"])


def is_published(pipeline: Pipeline, table: Table) -> bool:
    follow(pipeline, "iceberg", in_catalog(table))
    pipeline.run()
    return published(pipeline) == in_order(table.scan().to_arrow())


def test_deletion_vectors_are_refused(pipeline: Pipeline, tmp_path: Path):
    """Prevents: deleted rows that are published."""
    write_deltalake(tmp_path / "lake", rows_of(range(10)))
    log = tmp_path / "lake" / "_delta_log"
    lines = map(json.loads, (log / f"{0:020}.json").read_text().splitlines())
    first = next(line["add"] for line in lines if "add" in line)
    # The second row of the first file, as the protocol has it: a bitmap within the log.
    bitmap = struct.pack("<iqi", 1681511377, 1, 0) + BitMap([1]).serialize()
    inline = base64.b85encode(bitmap, pad=True).translate(_Z85).decode()
    vector = {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(bitmap)}
    vector["cardinality"] = 1
    features = {key: ["deletionVectors"] for key in ("readerFeatures", "writerFeatures")}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    remove = {"path": first["path"], "dataChange": True, "deletionTimestamp": 0}
    remove |= {"partitionValues": {}, "size": first["size"]}
    actions = [
        {"protocol": protocol},
        {"remove": remove},
        {"add": {**first, "deletionVector": vector}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))
    follow(pipeline, "delta", tmp_path / "lake")
    with pytest.raises(RefusedError, match="deletion vectors"):
        pipeline.run()


@pytest.mark.parametrize("is_newer", [False, True], ids=["delete file", "format 3"])
def test_iceberg_that_is_not_read_yet(pipeline: Pipeline, catalog: SqlCatalog, *, is_newer: bool):
    """Prevents: deleted rows that are published; a table read wrong as its format is newer."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    table.append(rows_of(range(10)))
    assert is_published(pipeline, table)
    if is_newer:
        newest = Path(table.metadata_location.removeprefix("file://"))
        content = json.loads(newest.read_text())
        newest.write_text(json.dumps({**content, "format-version": 3, "next-row-id": 0}))
    else:
        # A row is deleted by its position.
        first = next(iter(table.scan().plan_files())).file.file_path
        deletes = pa.table({"file_path": [first], "pos": pa.array([1], pa.int64())})
        commit_files(table, [(deletes, Record())], content=DataFileContent.POSITION_DELETES)
    why = "version 3 of the format" if is_newer else "has delete files, which are not read yet"
    with pytest.raises(RefusedError, match=why):
        pipeline.run()


def test_an_empty_table(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: a failure before the first rows arrive."""
    made = catalog.create_table("db.empty", schema=rows_of([]).schema)
    assert is_published(pipeline, made)
    assert published(pipeline) == []
    made.append(rows_of([1]))
    assert is_published(pipeline, made)


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
    assert is_published(pipeline, made)
    with made.update_schema() as change:
        change.update_column("id", LongType())
        change.update_column("price", DecimalType(12, 2))
        change.update_column("single", DoubleType())
    ids = pa.array([2**40, 2**40 + 1], pa.int64())
    made.append(made.scan().to_arrow().set_column(0, "id", ids))
    assert is_published(pipeline, made)


def test_files_without_field_ids(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: files without field ids whose columns are taken by their order."""
    made = catalog.create_table("db.others", schema=rows_of([]).schema)
    file = folder_of(made) / "others.parquet"
    pq.write_table(rows_of([1, 2]).select(["word", "id"]), file)
    made.add_files([f"file://{file}"])
    assert is_published(pipeline, made)


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("column", ROWS.schema.names[1:])
def test_partition_columns_that_files_lack(pipeline: Pipeline, catalog: SqlCatalog, column: str):
    """Prevents: NULL in place of the value that only the path of a Hive table's file had."""
    made = catalog.create_table("db.hive", schema=ROWS.schema)
    with made.update_spec() as change:
        change.add_identity(column)
    add_hive_files(made, ROWS)
    assert is_published(pipeline, made)
    made.append(ROWS.slice(0, 2).set_column(0, "id", [[11, 12]]))
    assert is_published(pipeline, made)


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
    assert is_published(pipeline, made)
    assert published(pipeline) == in_order(rows)
