"""Deletes in lake tables: the rows that are read, and the rows that an update sends."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from tableauhyperapi import Connection

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.lake_table import LakeTable
from tableau_pipeline.core.snapshot import DataFile, Snapshot
from tableau_pipeline.extracts.affected_rows import TableChange, TableVersion
from tableau_pipeline.extracts.content import table_source
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.parquet import select_sql
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.lake import delta
from tableau_pipeline.lake.tables import LakeSnapshots
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.refresh.lakes.delta_writer import DeltaWriter
from tableau_pipeline_tests.refresh.lakes.iceberg_writer import IcebergWriter
from tableau_pipeline_tests.refresh.lakes.ledger import (
    SCHEMA,
    Ledger,
    Row,
    Writer,
    change,
    drawn_rows,
)
from tableau_pipeline_tests.refresh.lakes.support import follow, in_order, published
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import refused

Maker = Callable[[Path, random.Random], Writer]
# The columns by which a table is partitioned.
PARTITIONS = ((), (), ("day",), ("word", "price"))


def delta_table(folder: Path, draw: random.Random) -> Writer:
    """A writer of a Delta table that has no versions yet."""
    by, is_mapped = draw.choice(PARTITIONS), draw.random() < 0.5
    return DeltaWriter(folder, draw, by=by, is_mapped=is_mapped)


def iceberg_table(folder: Path, draw: random.Random) -> Writer:
    """A writer of an Iceberg table that has no versions yet."""
    return IcebergWriter(folder, draw, by=draw.choice(PARTITIONS), version=draw.choice([2, 3]))


def as_texts(rows: Iterable[Row]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(_as_text, map(row.get, SCHEMA.names))) for row in rows)


def _as_text(value: object) -> str:
    # Tableau's type for dates with times has no zone.
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)


def read(
    connection: Connection,
    snapshot: Snapshot,
    files: Iterable[DataFile] | None = None,
    only: Iterable[str] = SCHEMA.names,
) -> Counter[tuple[str, ...]]:
    """The rows that hyperd reads from files of a version, with the columns in `only`."""
    names = dict(zip(SCHEMA.names, (column.name for column in snapshot.columns), strict=True))
    shown = [names[name] for name in only]
    rows = select_sql(table_source("", snapshot, files=files, only=shown))
    texts = ", ".join(f'CAST("{name}" AS TEXT)' for name in shown)
    found = connection.execute_list_query(f"SELECT {texts} FROM {rows} source")
    return Counter(tuple(map(str, row)) for row in found)


def versions(
    writer: Writer, draw: random.Random, copies: LocalCopies, count: int = 3
) -> Iterator[tuple[Snapshot, Ledger]]:
    """Commit drawn versions; yield each version as the pipeline reads it, and its ledger."""
    source = LakeTable(**{writer.format: str(writer.location)})
    snapshots = LakeSnapshots(SnapshotStore(Path("/none")), {"t": source}, copies)
    for number in range(count):
        if isinstance(writer, DeltaWriter) and writer.is_mapped and draw.random() < 0.3:
            writer.describe(draw.choice([{}, {"word": "day", "day": "word"}, {"id": "number"}]))
        if isinstance(writer, IcebergWriter) and draw.random() < 0.2:
            writer.version = 3
        change(draw, writer, first_id=100 * number)
        newest = snapshots.newest("t")
        assert newest
        yield newest, writer.ledger.copy()


def check_table(connection: Connection, writer: Writer, draw: random.Random, copies: LocalCopies):
    """Compare each version of a drawn table, and the rows that versions share, with the ledger."""
    before: tuple[Snapshot, Ledger] | None = None
    for newest, ledger in versions(writer, draw, copies):
        rows = as_texts(ledger.rows())
        assert read(connection, newest) == rows
        assert newest.row_count == rows.total()
        # A local copy of some columns must not pass for a copy of other columns.
        days = Counter((_as_text(row["day"]),) for row in ledger.rows())
        assert read(connection, newest, only=["day"]) == days
        if before and before[0].columns == newest.columns:
            old, then = before
            columns, table = newest.columns, Table("t", model="t")
            pair = (TableVersion(each, each.fingerprint, None) for each in (newest, old))
            change_ = TableChange(table, columns, *pair, published_rows=old.row_count)
            # Rows that both versions have in the same file are read once, and count as shared.
            stay = {name: then.kept_at(name) & ledger.kept_at(name) for name in then.held}
            assert read(connection, newest, change_.shared) == as_texts(
                then.held[name][number] for name, numbers in stay.items() for number in numbers
            )
            for version, held in ((change_.new, ledger), (change_.published, then)):
                other = [
                    held.held[name][number]
                    for name in held.held
                    for number in held.kept_at(name) - stay.get(name, set())
                ]
                files = change_.unshared(version)
                assert read(connection, version.snapshot, files) == as_texts(other)
                assert sum(file.rows for file in files) == len(other)
            states = [
                ({name: each.kept_at(name) for name in each.held}, version.columns)
                for version, each in (before, (newest, ledger))
            ]
            assert (old.data_version == newest.data_version) == (states[0] == states[1])
        before = newest, ledger


@pytest.mark.slow
def test_deleted_rows_are_the_update(pipeline: Pipeline, tmp_path: Path):
    """Prevents: the pipeline reads or sends a whole file because some of its rows were deleted."""
    writer = DeltaWriter(tmp_path / "lake", random.Random(1))
    for start in (0, 500):
        writer.add(drawn_rows(writer.draw, range(start, start + 500)))
    writer.commit()
    follow(pipeline, "delta", writer.location)
    pipeline.run()
    _, second = writer.ledger.held
    for positions, shipped in (
        ({1, 7}, RowCounts(deleted=2, inserted=0)),
        ({1, 7, 8}, RowCounts(deleted=1, inserted=0)),
        # A restored version has deleted rows again.
        ({8}, RowCounts(deleted=0, inserted=2)),
    ):
        writer.delete(second, frozenset(positions))
        writer.commit()
        report = pipeline.run()
        assert report.tables == {"flights": shipped}
        assert published(pipeline) == in_order(pa.Table.from_pylist(writer.ledger.rows(), SCHEMA))
    copies = [pq.read_metadata(path) for path in (pipeline.folder / "copies").glob("*.parquet")]
    found = sorted((copy.num_rows, copy.num_columns) for copy in copies)
    # Copies of deleted and of remaining rows have only the key. Copies of new rows have all
    # columns.
    assert found == [(1, 1), (2, 1), (2, 5), (497, 1), (498, 1)]


def test_a_vector_that_is_gone(pipeline: Pipeline, tmp_path: Path):
    """Prevents: deleted rows are published because their deletion vector is missing."""
    writer = DeltaWriter(tmp_path / "lake", random.Random(1))
    writer.add(drawn_rows(writer.draw, range(9)))
    writer.commit()
    (name,) = writer.ledger.held
    writer.delete(name, frozenset([2]))
    writer.commit()
    for vectors in writer.location.glob("**/*.bin"):
        vectors.unlink()
    follow(pipeline, "delta", writer.location)
    refused(pipeline.run, "has a deletion vector that cannot be read", "restore it")


@pytest.mark.parametrize(
    ("features", "why"),
    [
        (["catalogManaged"], "catalog-managed commits (only a catalog knows"),
        (["variantType"], "table feature variantType, which is not read yet. Drop the feature"),
        (["somethingNew"], "'somethingNew' is not supported. If it has a table feature"),
        (["deletionVectors", "typeWidening"], "deletion vectors and type widening at once"),
    ],
)
def test_features_that_are_not_read(
    pipeline: Pipeline, tmp_path: Path, features: list[str], why: str
):
    """Prevents: the pipeline misreads a table with an unknown feature, or names no remedy."""
    writer = DeltaWriter(tmp_path / "lake", random.Random(1))
    writer.features = features
    writer.describe({})
    writer.add(drawn_rows(writer.draw, range(3)))
    writer.commit()
    follow(pipeline, "delta", writer.location)
    refused(pipeline.run, why, "through a Spark model")


def test_wider_types(pipeline: Pipeline, tmp_path: Path):
    """Prevents: the pipeline cannot read a column with a wider type, or names no remedy."""
    writer = DeltaWriter(tmp_path / "lake", random.Random(1))
    writer.features = ["typeWidening"]
    writer.add(drawn_rows(writer.draw, range(9)))
    follow(pipeline, "delta", writer.location)
    for wider, is_read in (("decimal(14,2)", True), ("decimal(14,4)", False)):
        writer.widened = {"price": wider}
        writer.describe({})
        writer.commit()
        if is_read:
            pipeline.run()
            rows = pa.Table.from_pylist(writer.ledger.rows(), SCHEMA)
            assert published(pipeline) == in_order(rows)
        else:
            why = f'column "price" was widened from decimal(10,2) to {wider}; files'
            refused(pipeline.run, why, "DROP FEATURE typeWidening", "a Spark model")


def iceberg(folder: Path, version: int, rows: int = 9) -> IcebergWriter:
    """An Iceberg table with one data file and one deleted row."""
    writer = IcebergWriter(folder, random.Random(1), version=version)
    writer.add(drawn_rows(writer.draw, range(rows)))
    writer.commit(at=1_600_000_000_000)
    (name,) = writer.ledger.held
    writer.delete(name, frozenset([2]))
    writer.commit(at=1_700_000_000_000)
    return writer


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_cannot_be_read(pipeline: Pipeline, tmp_path: Path, version: int):
    """Prevents: deleted rows are published because their delete file is missing or damaged."""
    writer = iceberg(tmp_path / "lake", version)
    follow(pipeline, "iceberg", writer.location)
    (file,) = (
        path for path in writer.location.glob("data/*") if path.stem not in str(writer.ledger.held)
    )
    content = file.read_bytes()
    for damaged in (content[:20], content[:10] + b"xyz" + content[13:], None):
        file.write_bytes(damaged) if damaged else file.unlink()
        refused(pipeline.run, "the deleted rows of its file", f"from file://{file}", "restore it")


def test_deletes_in_files_of_another_format(pipeline: Pipeline, tmp_path: Path):
    """Prevents: the error about an ORC delete file names a remedy that does not help."""
    writer = IcebergWriter(tmp_path / "lake", random.Random(1), version=2)
    writer.format_of_deletes = FileFormat.ORC
    writer.add(drawn_rows(writer.draw, range(9)))
    (name,) = writer.ledger.held
    writer.commit()
    writer.delete(name, frozenset([2]))
    writer.commit()
    follow(pipeline, "iceberg", writer.location)
    refused(pipeline.run, "whose format is ORC; only Parquet is read", "rewrite_data_files")


def test_deletes_by_values(pipeline: Pipeline, tmp_path: Path):
    """Prevents: rows that equality deletes remove are published, or the refusal names no remedy."""
    writer = iceberg(tmp_path / "lake", 2)
    follow(pipeline, "iceberg", writer.location)
    writer.delete_by_values("id", "word")
    writer.commit()
    refused(
        pipeline.run,
        "equality deletes on id, word, as Flink",
        "rewrite_data_files",
        "a Spark model",
    )
    # The rewritten files no longer have the deleted rows.
    (name,) = writer.ledger.held
    rows = writer.ledger.kept(name)
    writer.remove(name)
    writer.add(rows)
    writer.commit()
    pipeline.run()
    assert published(pipeline) == in_order(pa.Table.from_pylist(writer.ledger.rows(), SCHEMA))


def test_default_values(pipeline: Pipeline, tmp_path: Path):
    """Prevents: rows that are older than a column get NULL instead of its default value."""
    writer = iceberg(tmp_path / "lake", 3, rows=2)
    defaults = {
        ("int", 7): 7,
        ("string", "a'b"): "a'b",
        ("boolean", True): True,
        ("double", 0.1): 0.1,
        ("decimal(9,2)", "14.20"): Decimal("14.20"),
        ("date", "2024-02-29"): date(2024, 2, 29),
        ("timestamp", "2024-02-29T01:02:03.000004"): datetime(2024, 2, 29, 1, 2, 3, 4),
        ("timestamptz", "2024-02-29T01:02:03.000004+00:00"): datetime(2024, 2, 29, 1, 2, 3, 4),
        ("binary", "00ff"): b"\x00\xff",
    }
    writer.more = [
        {"id": 100 + n, "name": f"c{n}", "type": type_, "required": False, "initial-default": value}
        for n, (type_, value) in enumerate(defaults)
    ]
    writer.commit()
    follow(pipeline, "iceberg", writer.location)
    pipeline.run()
    rows = pa.Table.from_pylist(writer.ledger.rows(), SCHEMA)
    for n, value in enumerate(defaults.values()):
        rows = rows.append_column(f"c{n}", pa.array([value] * rows.num_rows))
    assert published(pipeline) == in_order(rows)


@pytest.mark.parametrize(
    ("more", "expected"),
    [({}, 1_700_000_000_000), ({"inCommitTimestamp": 1_800_000_000_000}, 1_800_000_000_000)],
)
def test_the_time_of_a_version(tmp_path: Path, more: dict[str, int], expected: int):
    """Prevents: a version that only deletes rows gets the time of an older file."""
    writer = DeltaWriter(tmp_path / "lake", random.Random(1))
    writer.add(drawn_rows(writer.draw, range(9)))
    writer.commit(at=1_600_000_000_000)
    (name,) = writer.ledger.held
    writer.delete(name, frozenset([2]))
    writer.commit(at=1_700_000_000_000, **more)
    copies = LocalCopies(tmp_path / "copies", limit=0)
    for number, time in ((1, expected), (0, 1_600_000_000_000)):
        found = delta.read(str(writer.location), asset_key="t", number=number, copies=copies)
        assert found
        assert found.created_at.timestamp() * 1000 == time


MAKERS = (delta_table, iceberg_table)


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
def test_rows_are_those_of_the_ledger(tmp_path: Path, make: Maker):
    """Prevents: a table with deletes publishes deleted rows, loses rows, or sends rows again."""
    check_tables(tmp_path, make, range(5))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", MAKERS)
def test_rows_of_many_tables(tmp_path: Path, make: Maker):
    """Prevents: rare combinations of features publish deleted rows, or lose or repeat rows."""
    check_tables(tmp_path, make, range(1000, 2000))


def check_tables(folder: Path, make: Maker, seeds: Iterable[int]) -> None:
    copies = LocalCopies(folder / "copies", limit=10**9)
    with connect(hyper_process()) as connection:
        for seed in seeds:
            draw = random.Random(seed)
            writer = make(folder / f"table {seed}", draw)
            try:
                check_table(connection, writer, draw, copies)
            except BaseException as error:
                error.add_note(f"the table of seed {seed}")
                raise
