"""What Spark cannot read of Parquet is read by pyarrow, if no value changes; or refused."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.file_store import FileStore
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.read_files import load, read_files
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.components.support.corpus import FILES

MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456)


@pytest.fixture
def stored(spark: SparkSession, tmp_path: Path) -> Callable[[str], list[tuple]]:
    """The rows of a file of the corpus, as a snapshot has them."""

    def stored(name: str) -> list[tuple]:
        path = tmp_path / f"{name}.parquet"
        FILES[name](path)
        store = FileStore(
            SnapshotStore(tmp_path / "snapshots"),
            lambda: load(spark, Files((path,), "parquet"), tmp_path / "waiting"),
            "run",
        )
        return [tuple(row) for row in read_frame(spark, store.newest("model")).collect()]

    return stored


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("nanoseconds", [(0, MOMENT)]),
        ("half floats", [(0, 0.5), (1, None)]),
    ],
)
@pytest.mark.slow
def test_types_that_spark_refuses(stored, name: str, rows: list[tuple]):
    """Prevents: a file of pandas, or of a model's weights, that cannot be published."""
    assert stored(name) == rows


@pytest.mark.slow
def test_pages_that_spark_cannot_read(stored):
    """Prevents: a codec that Spark lacks, named by a class that it has not found."""
    assert stored("compressed by brotli")[:2] == [
        (1, "x", 0.5),
        (2, None, pytest.approx(float("nan"), nan_ok=True)),
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("finer than microseconds", 'column "v" has times finer than microseconds'),
        ("large decimals", 'column "v" is of the type decimal256(50, 2)'),
        ("times", 'column "v" is of the type time64[us]'),
        ("twins", "columns 'a', 'a' differ only in case"),
        ("no columns", "has no columns"),
        ("damaged", "is not a Parquet file, or is damaged"),
    ],
)
def test_what_would_not_survive(stored, name: str, message: str):
    """Prevents: digits of a moment that are cut off, and refusals that name no column."""
    with pytest.raises(RefusedError) as refused:
        stored(name)
    assert f"{name}.parquet" in str(refused.value)
    assert message in str(refused.value)


class Geometry(pa.ExtensionType):
    """What pyarrow writes as Parquet's own geometry."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        """No settings."""
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "Geometry":
        """The same, whatever its settings."""
        return cls()


def test_geospatial_values_are_refused_by_column(spark: SparkSession, tmp_path: Path):
    """Prevents: a geometry that is published as bytes, or a refusal that names no column."""
    shapes = pa.ExtensionArray.from_storage(Geometry(), pa.array([b""], pa.binary()))
    pa.register_extension_type(Geometry())
    try:
        pq.write_table(pa.table({"id": [1], "shape": shapes}), tmp_path / "map.parquet")
    finally:
        pa.unregister_extension_type("geoarrow.wkb")
    with pytest.raises(RefusedError, match=r'map\.parquet: column "shape" holds geospatial values'):
        read_files(spark, tmp_path / "map.parquet")


def test_files_that_differ(spark: SparkSession, tmp_path: Path):
    """Prevents: a column that is dropped because the first of the files has it not."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["y"]}), tmp_path / "y.parquet")
    with pytest.raises(RefusedError, match=r'"b" is string in y.parquet and absent in x.parquet'):
        read_files(spark, tmp_path)
    frame = read_files(spark, tmp_path, reader={"mergeSchema": "true"})
    assert sorted(map(tuple, frame.collect())) == [(1, None), (2, "y")]
