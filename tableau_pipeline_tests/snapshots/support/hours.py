"""A model of many hourly partitions, without files."""

from datetime import UTC, datetime, timedelta

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot, Span
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.snapshots.support.versions import COLUMNS

FIRST = datetime(2023, 1, 1, tzinfo=UTC)


def hours(count: int) -> tuple[Part, ...]:
    """Consecutive hours in UTC, each of one file with a row."""
    starts = [FIRST + timedelta(hours=number) for number in range(count)]
    return tuple(
        Part(
            partition=f"{start:%Y-%m-%d-%H:%M}",
            span=Span(start=start, end=start + timedelta(hours=1), zone="UTC"),
            version=1,
            fingerprint=Fingerprint(rows=1, hash_sum=number),
            files=(DataFile(name=f"@data/{number:032x}/part-0.parquet", rows=1, size=1),),
        )
        for number, start in enumerate(starts)
    )


def commit_hours(store: SnapshotStore, count: int) -> Snapshot:
    """A version of nothing but these hours."""

    def make(number: int, before: Snapshot | None) -> Snapshot:
        return Snapshot(
            folder=store.folder("model"),
            asset_key="model",
            number=number,
            created_at=FIRST,
            run_id="test",
            columns=COLUMNS,
            parts=hours(count),
        )

    return store.commit("model", make)
