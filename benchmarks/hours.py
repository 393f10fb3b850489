"""Measure a refresh of three years of hourly partitions that finds no change."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fresh_process import in_fresh_process, peak_memory
from benchmarks.results import figure
from benchmarks.waits import waits
from tableau_pipeline.components.published_datasource import ModelSnapshots
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.journal_store import script_journal
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot, Span
from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.types import ROW_HASH, Column
from tableau_pipeline.publishing.session import PersonalAccessToken, signed_in
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.resources import SnapshotIOManager, SparkResource
from tableau_pipeline.snapshots.version_store import SnapshotStore

HOURS = 26_280
_FIRST = datetime(2023, 1, 1, tzinfo=UTC)
_PARTITIONS = dg.HourlyPartitionsDefinition("2023-01-01-00:00")
# As many columns as the table of flights in the demo.
_COLUMNS = tuple(f"column_{number}" for number in range(19))


@dataclass(frozen=True)
class Figures:
    """What a refresh took.

    Attributes:
        seconds: seconds on the clock, without the waits for the server.
        cpu: processor seconds.
        memory: the bytes by which the refresh raised the peak memory of the process.
        record: bytes of the longest record that the refresh left in the journal.
    """

    decision: str
    seconds: float
    cpu: float
    memory: int
    record: int


def measure_hours(runs: int) -> None:
    """Print what refreshes without a change take, each in a fresh process."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_hours(folder)
        with sandbox_process(folder / "sandbox", port=0) as environment:
            in_fresh_process(refreshed, folder, environment)  # the first publish
            found = [in_fresh_process(refreshed, folder, environment) for _ in range(runs)]
    if {each.decision for each in found} != {"no change"}:
        raise RuntimeError(f"a refresh found a change, so this measured something else: {found}")
    print(f"\nnothing changed in {HOURS:,} partitions, {runs} runs: median (min to max)")
    for name, values, digits in (
        ("seconds without the server's", [each.seconds for each in found], 2),
        ("processor seconds", [each.cpu for each in found], 2),
        ("MB above an idle process", [each.memory / 1e6 for each in found], 0),
        ("bytes of the longest record", [each.record for each in found], 0),
    ):
        print(f"{name}: {figure(name, values, digits)}")


def write_hours(folder: Path) -> Snapshot:
    """Store the model "hours": one partition has one row, and all others are empty.

    The figures depend on the number of partitions, not of rows: no refresh opens the files.
    """
    store = SnapshotStore(folder / "snapshots")
    write = store.new_folder()
    parts = []
    for number in range(HOURS):
        start = _FIRST + timedelta(hours=number)
        key = start.strftime(_PARTITIONS.fmt)
        rows = 0 if number else 1
        name = f"{write}/_partition={key}/part-00000-{uuid4()}-c000.snappy.parquet"
        part = Part(
            partition=key,
            span=Span(start=start, end=start + timedelta(hours=1), zone="UTC"),
            version=1,
            fingerprint=Fingerprint(rows=rows, hash_sum=rows),
            files=(DataFile(name=name, rows=rows, size=1),),
        )
        parts.append(part)
    path = Path(*store.folder("hours").paths([file.name for file in parts[0].files]))
    path.parent.mkdir(parents=True)
    row = {name: pa.array([1], pa.int64()) for name in (*_COLUMNS, ROW_HASH)}
    pq.write_table(pa.table(row), path)
    return store.commit("hours", lambda number, _: _version(store, number, parts))


def _version(store: SnapshotStore, number: int, parts: Sequence[Part]) -> Snapshot:
    return Snapshot(
        folder=store.folder("hours"),
        asset_key="hours",
        number=number,
        created_at=datetime.now(UTC),
        run_id="bench",
        columns=tuple(Column(name, "bigint") for name in _COLUMNS),
        parts=tuple(parts),
    )


def refreshed(folder: Path, environment: Mapping[str, str]) -> Figures:
    """Refresh the data source to the newest version of the model."""
    token = PersonalAccessToken(
        environment["TABLEAU_TOKEN_NAME"], environment["TABLEAU_TOKEN_VALUE"]
    )
    snapshots = SnapshotIOManager(root=str(folder / "snapshots"), spark=SparkResource())
    work = Setup(
        declaration=Declaration(
            key="hours",
            name="Hours",
            project="Default",
            tables=(Table("hours", "hours"),),
            reconcile=None,
        ),
        snapshots=ModelSnapshots(snapshots, {"hours": _PARTITIONS}),
        journal=script_journal(folder / "journal", "hours"),
        server=lambda: signed_in(environment["TABLEAU_SERVER_URL"], credentials=token),
        hyper=hyper_process,
        folder=folder,
        backups=folder / "kept",
        log=logging.getLogger(__name__),
    )
    idle, started, cpu = peak_memory(), time.perf_counter(), time.process_time()
    with waits() as waited:
        report = refresh(work, Options())
    seconds = time.perf_counter() - started - waited.uplink - waited.answers - waited.pauses
    return Figures(
        decision=report.plan.decision if report.plan else "",
        seconds=seconds,
        cpu=time.process_time() - cpu,
        memory=peak_memory() - idle,
        record=max(file.stat().st_size for file in (folder / "journal").rglob("*.json")),
    )
