"""Files that are added to earlier files, and Parquet files that Spark cannot read."""

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.content import table_source
from tableau_pipeline.hyper.parquet import select_sql
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.ingest.file_store import FileStore
from tableau_pipeline.ingest.options import Files, matching_files
from tableau_pipeline.ingest.rows import Rows, read_rows
from tableau_pipeline.ingest.spark_reader import read_files
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.components.support.corpus import FILES
from tableau_pipeline_tests.snapshots.conftest import store
from tableau_pipeline_tests.snapshots.support import materialize, reader

__all__ = ["store"]


@pytest.fixture
def files(store: SnapshotStore, tmp_path: Path):
    """A function that writes lines to a file, and returns the file store of this file."""

    def files(name: str, *lines: str, **settings: Any) -> FileStore:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", "utf-8")

        def read(folder: Path) -> Rows:
            return read_rows(Files((path,), "csv"), folder)

        built_on, mode = settings.pop("built_on", None), settings.pop("mode", "replace")
        add_to = (lambda: built_on) if mode == "append" else None
        return FileStore(settings.get("store", store), read, "run", add_to)

    return files


@pytest.mark.slow
def test_append_to_what_is_gone(files, store: SnapshotStore):
    """Prevents: an append loses all earlier rows because their version no longer exists."""
    with pytest.raises(RefusedError, match=r"removed .* with mode replace"):
        files("a.csv", "id,v", "1,a", mode="append", built_on=7).newest("model")
    first = files("a.csv", "id,v", "1,a", mode="append").newest("model")
    Path(first.paths[0]).unlink()
    with pytest.raises(RefusedError, match="with mode replace"):
        files("b.csv", "id,v", "1,a", mode="append", built_on=1).newest("model")
    assert store.numbers("model") == [1]


@pytest.mark.slow
def test_what_is_refused_leaves_nothing(files, store: SnapshotStore):
    """Prevents: one bad file blocks all later files."""
    files("a.csv", "id,v", "1,a", mode="append").newest("model")
    with pytest.raises(RefusedError, match=r"columns differ from those of a.csv.*id \(str"):
        files("b.csv", "id,v", "x,2.5", mode="append", built_on=1).newest("model")
    with pytest.raises(RefusedError, match="1 row does not fit"):
        files("c.csv", "id,v", "1,a,b", mode="append").newest("model")
    assert store.numbers("model") == [1]
    assert len(list((store.folder("model").path / "@data").iterdir())) == 1


def test_a_file_that_changes_while_it_is_read(tmp_path: Path):
    """Prevents: a reader mixes half of an old file with half of the new file."""
    pipe = tmp_path / "a.csv"
    os.mkfifo(pipe)

    def write_and_replace() -> None:
        with pipe.open("w", encoding="utf-8") as file:
            file.write("id,v\n1,a\n")
            # While the reader waits for more, another file takes the name.
            (tmp_path / "b.csv").write_text("id,v\n1,b\n", "utf-8")
            (tmp_path / "b.csv").replace(pipe)

    writer = Thread(target=write_and_replace)
    writer.start()
    with pytest.raises(RefusedError, match="changed while it was read"):
        read_rows(Files((pipe,), "csv"), tmp_path / "rows")
    writer.join()


def test_the_digest_is_of_what_was_read(store: SnapshotStore, tmp_path: Path):
    """Prevents: the digest of a file belongs to bytes that no run has read."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,v\n1,a\n")

    def read(folder: Path) -> Rows:
        rows = read_rows(Files((path,), "csv"), folder)
        path.write_bytes(b"id,v\n1,b\n")
        return rows

    (part,) = FileStore(store, read, "run", lambda: None).newest("model").parts
    assert part.digest == hashlib.sha256(b"id,v\n1,a\n").hexdigest()
    assert part.fingerprint.rows == 1


@pytest.fixture
def stored(spark: SparkSession, tmp_path: Path) -> Callable[[str], list[tuple]]:
    """A function that stores a file of the corpus, and returns the rows of the snapshot."""

    def stored(name: str) -> list[tuple]:
        path = tmp_path / f"{name}.parquet"
        FILES[name](path)
        store = FileStore(
            SnapshotStore(tmp_path / "snapshots"),
            lambda folder: read_rows(Files((path,), "parquet"), folder),
            "run",
        )
        return [tuple(row) for row in read_frame(spark, store.newest("model")).collect()]

    return stored


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("finer than microseconds", 'column "v" has times finer than microseconds'),
        ("large decimals", 'column "v" is of the type decimal256(50, 2)'),
        ("times", 'column "v" is of the type time64[us]'),
        ("lists of times", 'column "v.list.element" is of the type time64[us]'),
        ("structs of durations", 'column "v.a" is of the type duration[us]'),
        ("twins", "columns 'a', 'a' differ only in case"),
        ("no columns", "has no columns"),
        ("damaged", "is not a Parquet file, or is damaged"),
    ],
)
def test_what_would_not_survive(stored, name: str, message: str):
    """Prevents: times lose digits, or a refusal names no column."""
    with pytest.raises(RefusedError) as refused:
        stored(name)
    assert f"{name}.parquet" in str(refused.value)
    assert message in str(refused.value)


class Geometry(pa.ExtensionType):
    """A type that pyarrow writes as Parquet's own geometry."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        """Return empty settings."""
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "Geometry":
        """Return the type, for any settings."""
        return cls()


def test_geospatial_values_are_refused_by_column(spark: SparkSession, tmp_path: Path):
    """Prevents: a geometry is published as bytes, or a refusal names no column."""
    shapes = pa.ExtensionArray.from_storage(Geometry(), pa.array([b""], pa.binary()))
    pa.register_extension_type(Geometry())
    try:
        pq.write_table(pa.table({"id": [1], "shape": shapes}), tmp_path / "map.parquet")
    finally:
        pa.unregister_extension_type("geoarrow.wkb")
    with pytest.raises(RefusedError, match=r'map\.parquet: column "shape" holds geospatial values'):
        read_files(spark, tmp_path / "map.parquet")


@pytest.mark.slow
def test_files_that_differ(spark: SparkSession, tmp_path: Path):
    """Prevents: a column is dropped because the first file does not have it."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["y"]}), tmp_path / "y.parquet")
    with pytest.raises(RefusedError, match=r'"b" is string in y.parquet and absent in x.parquet'):
        read_files(spark, tmp_path)
    frame = read_files(spark, tmp_path, reader={"mergeSchema": "true"})
    assert sorted(map(tuple, frame.collect())) == [(1, None), (2, "y")]


NAMES = (
    "_eu.csv",
    ".sales.csv",
    "a b%20+é.csv",
    "it's \\ 'q'.csv",
    "export_2026-01-31T10:00:00.csv",
)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_files_of_any_name(spark: SparkSession, store: SnapshotStore, tmp_path: Path, ending: str):
    """Prevents: a file loses its rows, or cannot be read, because of its name."""
    paths = []
    for number, name in enumerate([*NAMES, "_metadata.parquet", "_SUCCESS", "plain.csv"]):
        path = tmp_path / name.replace(".csv", f".{ending}")
        if ending == "parquet":
            pq.write_table(pa.table({"id": [number]}), path)
        else:
            path.write_text(f"id\n{number}\n" if ending == "csv" else f'{{"id": {number}}}\n')
        paths.append(path)
    format_: Any = {"jsonl": "json"}.get(ending, ending)
    frames = [read_files(spark, path, format=format_) for path in paths]
    assert [[row.id for row in frame.collect()] for frame in frames] == [[n] for n in range(8)]

    def read(folder: Path) -> Rows:
        return read_rows(Files(tuple(paths), format_), folder)

    file_store = FileStore(store, read, "run", lambda: None, file_column="file")
    newest = file_store.newest("model")
    with connect(hyper_process()) as connection:
        found = connection.execute_list_query(
            f"SELECT file, id FROM {select_sql(table_source('', newest))} rows"
        )
    rows = {str(name): number for name, number in found}
    assert rows == {path.name: number for number, path in enumerate(paths)}
    assert {part.partition: part.fingerprint.rows for part in newest.parts} == dict.fromkeys(
        rows, 1
    )


def test_what_a_pattern_passes_over(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Prevents: files are left out without a message."""
    for name in ("a.csv", "_b.csv", ".c.csv", "_SUCCESS"):
        (tmp_path / name).touch()
    with caplog.at_level(logging.WARNING, "tableau_pipeline"):
        assert [path.name for path in matching_files(str(tmp_path))] == ["a.csv"]
    assert "skipped .c.csv, _SUCCESS, _b.csv, as Spark does; name such a file" in caplog.text
    assert [path.name for path in matching_files(f"{tmp_path}/_*.csv")] == ["_b.csv"]
    assert [path.name for path in matching_files(f"{tmp_path}/_b.csv")] == ["_b.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [False, True])
def test_a_model_that_returns_the_rows_of_a_file(
    spark: SparkSession, tmp_path: Path, *, changes: bool
):
    """Prevents: Spark rewrites unchanged rows, or a model's changes or column comments are lost."""
    path = tmp_path / "a.csv"
    path.write_text("id,v\n1,a\n2,\n", "utf-8")

    @dg.asset
    def rows() -> DataFrame:
        frame = read_files(spark, path, columns="id int COMMENT 'it\\'s', v varchar(3)")
        return frame.where("id = 1") if changes else frame

    seen: list[Any] = []
    assets = [rows, reader(seen, "rows", DataFrame)]
    assert materialize(tmp_path / "snapshots", assets).success
    newest = SnapshotStore(tmp_path / "snapshots").newest("rows")
    assert newest
    assert newest.columns == (Column("id", "int"), Column("v", "string"))
    assert newest.comments == {"id": "it's"}
    assert newest.fingerprint.is_additive == changes
    (frame,) = seen
    assert [tuple(row) for row in frame.collect()] == [(1, "a"), (2, None)][: 2 - changes]
    assert frame.schema["id"].metadata == {"comment": "it's"}
