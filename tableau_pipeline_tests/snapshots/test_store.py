import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from tableau_pipeline.core.snapshot import MANIFEST, DataFile, Fingerprint, Snapshot
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.snapshots.store import commit, is_committed, new_folder
from tableau_pipeline_tests.snapshots.samples import newest_one, store


def snapshot_in(folder: Path, *, hash_sum: int = 0) -> Snapshot:
    """A snapshot that nobody has committed yet."""
    folder.mkdir(parents=True)
    return Snapshot(
        folder=folder,
        asset_key="model",
        created_at=datetime.now(UTC),
        run_id="run",
        columns=(Column('say "hi"', "decimal(38,2)"),),
        fingerprint=Fingerprint(rows=3, hash_sum=hash_sum),
        files=(DataFile(name="part-0.parquet", rows=3, size=2**40),),
    )


def test_the_manifest_is_the_commit(tmp_path: Path) -> None:
    """Prevents reading a snapshot whose files are still being written."""
    first = snapshot_in(new_folder(tmp_path, "model"))
    assert not is_committed(first.folder)
    assert newest_one(tmp_path, "model") is None
    with pytest.raises(FileNotFoundError):
        Snapshot.read(first.folder)
    commit(first)
    assert is_committed(first.folder)
    assert [path.name for path in first.folder.iterdir()] == [MANIFEST]
    snapshot_in(new_folder(tmp_path, "model"))
    assert newest_one(tmp_path, "model") == first


def test_the_newest_snapshot_wins(tmp_path: Path) -> None:
    """Prevents loading an older state of a model than the last that was stored."""
    for _ in range(5):
        last = snapshot_in(new_folder(tmp_path, "model"))
        commit(last)
        assert newest_one(tmp_path, "model") == last
        time.sleep(0.001)
    assert newest_one(tmp_path, "other") is None
    assert newest_one(tmp_path / "nowhere", "model") is None


def test_a_model_below_another_is_not_its_snapshot(tmp_path: Path) -> None:
    """Prevents that "sales/v-1" passes for a snapshot of "sales"."""
    below = snapshot_in(new_folder(tmp_path, "sales/v-1"))
    commit(below)
    assert newest_one(tmp_path, "sales") is None
    assert newest_one(tmp_path, "sales/v-1") == below


@pytest.mark.parametrize("hash_sum", [0, -1, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, -(10**30)])
def test_the_manifest_keeps_every_digit(hash_sum: int, tmp_path: Path) -> None:
    """Prevents fingerprints that change on their way through JSON, also in a browser's."""
    snapshot = snapshot_in(tmp_path / "v", hash_sum=hash_sum)
    commit(snapshot)
    read = Snapshot.read(snapshot.folder)
    assert read == snapshot
    assert read.data_version == snapshot.data_version
    in_browser = json.loads(snapshot.manifest(), parse_int=float)
    assert int(in_browser["fingerprint"]["hash_sum"]) == hash_sum


def test_an_unknown_manifest_is_not_half_understood(tmp_path: Path) -> None:
    """Prevents that a field of a later version, which changes the meaning, is overlooked."""
    snapshot = snapshot_in(tmp_path / "v")
    manifest = json.loads(snapshot.manifest()) | {"deleted_rows": [1]}
    (snapshot.folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ValidationError, match="deleted_rows"):
        Snapshot.read(snapshot.folder)


def test_a_data_directory_may_move(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents snapshots that are lost with the name of the folder they were written to."""
    stored = store(spark.range(3), tmp_path / "old")
    shutil.move(tmp_path / "old", tmp_path / "new place")
    moved = newest_one(tmp_path / "new place", "model")
    assert moved is not None
    assert moved == stored.model_copy(update={"folder": moved.folder})
    assert moved.folder.is_relative_to(tmp_path / "new place")
    assert moved.data_version == stored.data_version
    assert spark.read.parquet(*(f"file://{path}" for path in moved.paths)).count() == 3


def test_fingerprints_of_another_algorithm_are_different() -> None:
    """Prevents that two hashes of different making prove two contents equal."""
    ours = Fingerprint(rows=1, hash_sum=5)
    assert ours != ours.model_copy(update={"algorithm": "other"})
    assert ours + ours == Fingerprint(rows=2, hash_sum=10)
