"""Time the build of the flights extract, and the bare SQL that any solution would have to run."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from tableauhyperapi import Connection, CreateMode, HyperProcess, TableName

from benchmarks.bare import scan
from benchmarks.results import figure
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.defs.flights import models, raw
from tableau_pipeline.demo.story import datasources
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.snapshots.spark import spark_session
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot

RUNS = 9


def compare_with_bare_sql() -> None:
    """Print the seconds of our builds and of bare SQL, which alternate, and their ratio.

    Neither build includes the start of hyperd.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        snapshots = _snapshots(folder)
        hyper = hyper_process()
        files = Builder(
            declaration=datasources()[0],
            models=snapshots,
            snapshots=SnapshotStore(folder),
            hyper=hyper_process,
            folder=folder / "extracts",
            now=lambda: datetime.now(UTC),
            log=logging.getLogger(__name__),
        )
        tables = files.desired(None)
        bare = folder / "bare.hyper"
        ratios, seconds = list[float](), list[tuple[float, float]]()
        for run in range(RUNS + 1):
            took = _seconds(lambda: files.file(tables))
            floor = _seconds(lambda: _bare(hyper, bare, snapshots))
            if run:  # the first run warms the page cache
                ratios.append(took / floor)
                seconds.append((took, floor))
                print(f"ours {took:.3f} s   bare CTAS {floor:.3f} s   ratio {ratios[-1]:.2f}")
        ours = files.file(tables).path
        for table in snapshots:
            _assert_equal(hyper, ours, bare, table)
        name = "building the four-table extract / bare CTAS"
        print(f"{name}: {figure(name, ratios)}, {RUNS} runs, equal contents")
        for way, values in zip(("ours", "bare CTAS"), zip(*seconds, strict=True), strict=True):
            print(f"seconds, {way}: {figure(f'seconds, {way}', values)}")


def _snapshots(folder: Path) -> dict[str, Snapshot]:
    spark = spark_session(master="local[*]", remote=None, driver_memory="2g", config={})
    rows = {
        name: getattr(models, name)(raw.read(spark, name))
        for name in ("flights", "airlines", "airports", "planes")
    }
    return {
        name: write_snapshot(frame, SnapshotStore(folder), asset_key=name, run_id="bench")
        for name, frame in rows.items()
    }


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _bare(hyper: HyperProcess, path: Path, snapshots: dict[str, Snapshot]) -> None:
    with Connection(hyper.endpoint, path, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command('CREATE SCHEMA "Extract"')
        for name, snapshot in snapshots.items():
            columns = ", ".join(f'"{column.name}"' for column in snapshot.columns)
            connection.execute_command(
                f'CREATE TABLE "Extract"."{name}" AS SELECT {columns} FROM {scan(snapshot.paths)}'
            )


def _assert_equal(hyper: HyperProcess, ours: Path, bare: Path, table: str) -> None:
    """Raise an error if the two files hold different rows.

    Unlike our file, the bare file keeps time zones, so the comparison ignores the zones.
    """
    sides = []
    for path in (ours, bare):
        rows = read_table(hyper, path, TableName("Extract", table))
        naive = [
            field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
            for field in rows.schema
        ]
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in naive]))
        sides.append(rows.sort_by([(name, "ascending") for name in rows.column_names]))
    if not sides[0].equals(sides[1]):
        raise RuntimeError(f"{table} differs: the ratio would compare unlike things")
