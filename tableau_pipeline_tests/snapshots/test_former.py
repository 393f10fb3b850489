"""Stores that an older release has written."""

import json
from pathlib import Path

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.snapshots.retention import collect
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.snapshots.support.samples import rows
from tableau_pipeline_tests.snapshots.support.versions import COLUMNS, age, commit, models

SPAN = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z", "zone": "UTC"}


def old_write(
    root: Path, day: int, partition: str | None = None, *, rows: int = 1, column: str = "id"
) -> Path:
    """A snapshot as release 1 wrote it, on a day of January."""
    folder = root / "area" / "model" / f"v-202601{day:02}T101112.345678-0a1b2c"
    if partition:
        folder /= f"_partition={partition}"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_text("x")
    manifest = {
        "asset_key": "area/model",
        "partition": partition,
        "span": SPAN if partition else None,
        "created_at": f"2026-01-{day:02}T10:12:00Z",
        "run_id": "old",
        "columns": [{"name": column, "type": "bigint"}],
        "fingerprint": {"rows": rows, "hash_sum": str(rows), "algorithm": "xxhash64-nulls-1"},
        "files": [{"name": "part-0.parquet", "rows": rows, "size": 1}],
        "comments": {},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return folder


def newest(store: SnapshotStore) -> Snapshot:
    found = store.newest("area/model")
    assert found
    assert found.missing() == []
    assert store.version("area/model", found.number) == found
    return found


def test_an_old_model_is_version_zero(store: SnapshotStore):
    """Prevents: models that have to be materialized again after an upgrade."""
    old_write(store.root, 1, rows=9)
    old_write(store.root, 2, rows=3)
    found = newest(store)
    assert (found.number, found.run_id, found.columns) == (0, "old", COLUMNS)
    assert rows(found) == {None: 3}
    assert models(store) == {"area/model"}
    assert (commit(store, asset_key="area/model").number, store.numbers("area/model")) == (
        1,
        [0, 1],
    )
    assert store.version("area/model", 0) == found


def test_old_partitions_are_built_on(store: SnapshotStore):
    """Prevents: years of partitions that are gone after the first new one."""
    old_write(store.root, 1, rows=9)
    old_write(store.root, 2, "jan", rows=2, column="key")
    old_write(store.root, 2, "feb", rows=2)
    (old_write(store.root, 3, "mar") / "manifest.json").unlink()
    old_write(store.root, 4, "feb", rows=4)
    found = newest(store)
    assert rows(found) == {"feb": 4, "jan": 2}
    assert [part.columns for part in found.parts] == [None, (Column("key", "bigint"),)]
    span = found.parts[0].span
    assert span
    assert span.model_dump(mode="json") == SPAN
    commit(store, "mar", asset_key="area/model")
    assert rows(newest(store)) == {"feb": 4, "jan": 2, "mar": 1}
    assert [part.version for part in newest(store).parts] == [0, 0, 1]


def test_old_folders_go_with_the_last_version_that_names_them(store: SnapshotStore):
    """Prevents: the files of older releases on the disk for ever, or gone below a version."""
    hidden = old_write(store.root, 1, rows=9)
    jan, feb = old_write(store.root, 2, "jan"), old_write(store.root, 2, "feb")
    age(store.root, 30)
    before = newest(store)
    assert collect(store, keep_days=14, referenced=set) == []
    assert newest(store) == before
    assert not hidden.exists()
    commit(store, "feb", asset_key="area/model")
    age(store.root, 30)
    commit(store, "mar", asset_key="area/model")
    assert collect(store, keep_days=14, referenced=set) == [("area/model", 0)]
    assert rows(newest(store)) == {"feb": 1, "jan": 1, "mar": 1}
    assert jan.exists()
    assert not feb.exists()
    commit(store, asset_key="area/model")
    age(store.root, 30)
    collect(store, keep_days=14, referenced=set)
    assert not jan.parent.exists()
