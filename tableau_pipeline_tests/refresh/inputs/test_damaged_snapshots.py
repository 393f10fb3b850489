"""Snapshots whose files are there, but are not what was written: cut off, or overwritten."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tableau_pipeline.core.declaration import Diff, Reconcile, Table
from tableau_pipeline.errors import DamagedSnapshotError, RefusedError
from tableau_pipeline.refresh.plan import NoChange, Update
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


def files_of(pipeline: Pipeline, model: str, number: int = 1) -> list[Path]:
    found = pipeline.version(model, number)
    assert found
    return [Path(path) for path in found.paths]


def manifest_of(pipeline: Pipeline, model: str, number: int = 1) -> Path:
    return pipeline.folder / "snapshots" / pipeline.store.manifest(model, number)


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


def empty(path: Path) -> None:
    path.write_bytes(b"")


def newer_release(path: Path) -> None:
    path.write_text(path.read_text().replace("{", '{"deleted_rows":[],', 1))


@pytest.mark.parametrize("damage", [cut, zeros, noise])
def test_a_base_with_a_damaged_file_is_none(star: Pipeline, damage: Callable[[Path], None]):
    """Prevents: one file that a disk has damaged makes each refresh fail, whatever the models."""
    diffs = (
        Table("flights", "flights", policy=Diff(("flight_id",))),
        Table("airlines", "airlines", policy=Diff(("carrier",))),
    )
    star.declare(tables=diffs)
    star.run()
    path = files_of(star, "flights")[1]
    damage(path)
    star.model("flights", flights(9))
    star.model("airlines", airlines("AA", "UA", "DL"))
    assert "cannot be read" in star.decide()
    report = star.run()
    assert isinstance(report.plan, Update)
    assert report.tables["airlines"].whole is None
    why = str(report.tables["flights"].whole)
    assert why.startswith(f"a file of the snapshot that is published cannot be read ({path}: ")
    assert star.wrong() == []
    assert isinstance(star.run().plan, NoChange)


@pytest.mark.parametrize("damage", [cut, empty, newer_release])
def test_a_base_with_a_damaged_manifest_is_none(pipeline: Pipeline, damage: Callable[[Path], None]):
    """Prevents: a manifest that was cut off makes each refresh fail, without a word which."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    manifest = manifest_of(pipeline, "flights")
    pipeline.model("flights", flights(9))
    damage(manifest)
    report = pipeline.run()
    assert isinstance(report.plan, Update)
    assert str(manifest) in str(report.tables["flights"].whole)
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.parametrize("damage", [cut, empty, newer_release])
def test_a_damaged_newest_version_is_named(pipeline: Pipeline, damage: Callable[[Path], None]):
    """Prevents: older rows under a green run, or an error that does not say what to remove."""
    pipeline.run()
    pipeline.model("flights", flights(9))
    manifest = manifest_of(pipeline, "flights", 2)
    damage(manifest)
    for stops in (pipeline.run, pipeline.decide, lambda: pipeline.model("flights", flights(10))):
        with pytest.raises(DamagedSnapshotError) as error:
            stops()
        assert f'Version 2 of the model "flights" cannot be read: {manifest}' in str(error.value)
        assert "Restore the file from a backup" in str(error.value)
    manifest.unlink()
    pipeline.model("flights", flights(10))
    assert isinstance(pipeline.run().plan, Update)
    assert pipeline.wrong() == []


def test_a_damaged_base_does_not_accuse_the_server(new_pipeline: Callable[..., Pipeline]):
    """Prevents: what is published counts as damaged, where the snapshot to compare with is."""
    pipeline = new_pipeline(reconcile=Reconcile(by="download"))
    pipeline.run()
    path = files_of(pipeline, "flights")[0]
    pipeline.model("flights", flights(9))
    cut(path)
    other_users.describes(pipeline)
    plan = pipeline.decide()
    assert "publish" in plan
    assert "it cannot be read" not in plan


def test_a_damaged_model_is_named(pipeline: Pipeline):
    """Prevents: values that Hyper cannot hold are blamed for a file that a disk has damaged."""
    path = files_of(pipeline, "flights")[0]
    cut(path)
    with pytest.raises(RefusedError) as error:
        pipeline.run()
    assert str(error.value) == (
        f'The model "flights" cannot be read: {path}: file is not a Parquet file. Materialize it '
        "again, or restore the file."
    )


def test_a_missing_file_of_a_model_is_named(pipeline: Pipeline):
    """Prevents: values that Hyper cannot hold are blamed for a file that somebody has deleted."""
    path = files_of(pipeline, "flights")[1]
    path.unlink()
    with pytest.raises(RefusedError) as error:
        pipeline.run()
    assert str(error.value) == (
        f'The model "flights" cannot be read: {path}: the file is gone. Materialize it again, or '
        "restore the file."
    )
