"""Snapshots whose files are there, but are not what was written: cut off, or overwritten."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tableau_pipeline.core.declaration import Diff, Reconcile, Table
from tableau_pipeline.errors import DamagedSnapshotError, RefusedError
from tableau_pipeline.refresh.plan import NoChange, UpdateTables
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


def file_of(pipeline: Pipeline, number: int = 0) -> Path:
    found = pipeline.version("flights", 1)
    assert found
    return Path(found.paths[number])


def manifest_of(pipeline: Pipeline, number: int = 1) -> Path:
    return pipeline.folder / "snapshots" / pipeline.store.manifest("flights", number)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def zeros(path: Path) -> None:
    """What a power failure may leave: the size is right."""
    path.write_bytes(b"\0" * path.stat().st_size)


def noise(path: Path) -> None:
    """A file that opens, but whose rows are not what they were."""
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 4] = b"\xff" * (len(content) // 4 - 4)
    path.write_bytes(content)


def newer_release(path: Path) -> None:
    path.write_text(path.read_text().replace("{", '{"deleted_rows":[],', 1))


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("damage", [noise, cut, zeros])
def test_a_base_with_a_damaged_file_is_none(star: Pipeline, damage: Callable[[Path], None]):
    """Prevents: one file that a disk has damaged makes each refresh fail, whatever the models."""
    diffs = (
        Table("flights", "flights", policy=Diff(("flight_id",))),
        Table("airlines", "airlines", policy=Diff(("carrier",))),
    )
    star.declare(tables=diffs)
    star.run()
    path = file_of(star, 1)
    damage(path)
    star.model("flights", flights(9))
    star.model("airlines", airlines("AA", "UA", "DL"))
    assert "cannot be read" in star.decide()
    report = star.run()
    assert isinstance(report.plan, UpdateTables)
    assert report.tables["airlines"].whole is None
    why = str(report.tables["flights"].whole)
    assert why.startswith(f"a file of the snapshot that is published cannot be read ({path}: ")
    assert star.wrong() == []
    assert isinstance(star.run().plan, NoChange)


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("damage", [cut, newer_release, zeros])
def test_damaged_manifests(pipeline: Pipeline, damage: Callable[[Path], None]):
    """Prevents: a manifest that was cut off makes each refresh fail, without a word which; older
    rows under a green run where it is that of the newest version."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    pipeline.model("flights", flights(9))
    damage(manifest_of(pipeline))
    report = pipeline.run()
    assert isinstance(report.plan, UpdateTables)
    assert str(manifest_of(pipeline)) in str(report.tables["flights"].whole)
    assert pipeline.wrong() == []
    pipeline.model("flights", flights(10))
    newest = manifest_of(pipeline, 3)
    damage(newest)
    for stops in (pipeline.run, pipeline.decide, lambda: pipeline.model("flights", flights(10))):
        with pytest.raises(DamagedSnapshotError) as error:
            stops()
        assert f'Version 3 of the model "flights" cannot be read: {newest}' in str(error.value)
        assert "Restore the file from a backup" in str(error.value)
    newest.unlink()
    pipeline.model("flights", flights(10))
    assert isinstance(pipeline.run().plan, UpdateTables)
    assert pipeline.wrong() == []


def test_a_damaged_base_does_not_accuse_the_server(pipeline: Pipeline):
    """Prevents: what is published counts as damaged, where the snapshot to compare with is."""
    pipeline.declare(reconcile=Reconcile(by="download"))
    pipeline.run()
    path = file_of(pipeline)
    pipeline.model("flights", flights(9))
    cut(path)
    other_users.describes(pipeline)
    plan = pipeline.decide()
    assert "publish" in plan
    assert "it cannot be read" not in plan


@pytest.mark.parametrize(
    ("damage", "why"), [(cut, "file is not a Parquet file"), (Path.unlink, "the file is gone")]
)
def test_a_damaged_model_is_named(pipeline: Pipeline, damage: Callable, why: str):
    """Prevents: values that Hyper cannot hold are blamed for a file that a disk has damaged."""
    path = file_of(pipeline)
    damage(path)
    with pytest.raises(RefusedError) as error:
        pipeline.run()
    assert str(error.value) == (
        f'The model "flights" cannot be read: {path}: {why}. Materialize it again, or restore the '
        "file."
    )
