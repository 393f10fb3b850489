"""What becomes of files beside those that were published before."""

import hashlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.errors import Reading
from tableau_pipeline.ingest.file_store import FileStore
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.read_files import load
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.store import SnapshotStore, TrialStore
from tableau_pipeline_tests.snapshots.support.samples import rows


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots")


@pytest.fixture
def files(spark: SparkSession, store: SnapshotStore, tmp_path: Path):
    """A file store for a file of these lines."""

    def files(name: str, *lines: str, **settings: Any) -> FileStore:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", "utf-8")

        def read() -> Reading:
            return load(spark, Files((path,), "csv"), tmp_path / uuid4().hex)

        built_on, mode = settings.pop("built_on", None), settings.pop("mode", "replace")
        add_to = (lambda: built_on) if mode == "append" else None
        return FileStore(settings.get("store", store), read, "run", add_to)

    return files


@pytest.mark.slow
def test_replace(files, store: SnapshotStore):
    """Prevents: rows of earlier files, when these are all there is; or a second version of one."""
    files("a.csv", "id,v", "1,a", "2,b").newest("model")
    source = files("b.csv", "id,v", "3,c")
    assert store.newest("model").number == 1
    found = source.newest("model")
    assert source.newest("model") is found
    assert (found.number, rows(found)) == (2, {None: 1})
    assert [source.version("model", number) for number in (1, 2)] == [
        store.version("model", 1),
        found,
    ]


@pytest.mark.slow
def test_append(files, store: SnapshotStore, spark: SparkSession, tmp_path: Path):
    """Prevents: a file that is added twice, or that drops the rows of those before it."""
    files("all.csv", "id,v", "1,a", "2,b").newest("model")
    files("june.csv", "id,v", "3,c", mode="append", built_on=1).newest("model")
    more = files("june.csv", "id,v", "3,c", "4,d", mode="append", built_on=2)
    found = more.newest("model")
    assert rows(found) == {"earlier rows": 2, "june.csv": 2}
    digest = hashlib.sha256((tmp_path / "june.csv").read_bytes()).hexdigest()
    assert [part.digest for part in found.parts] == [None, digest]
    assert [part.version for part in found.parts] == [1, 3]
    assert store.newest("model") == found
    assert {row.v for row in read_frame(spark, found).collect()} == set("abcd")


@pytest.mark.slow
def test_append_builds_on_what_was_published(files):
    """Prevents: rows that were refused, and go out with the next file."""
    published = files("a.csv", "id,v", "1,a", mode="append").newest("model")
    refused = files("b.csv", "id,v", "2,b", mode="append", built_on=1).newest("model")
    found = files("c.csv", "id,v", "3,c", mode="append", built_on=1).newest("model")
    assert [each.number for each in (published, refused, found)] == [1, 2, 3]
    assert rows(found) == {"a.csv": 1, "c.csv": 1}
    assert found.missing() == []
    first = files("d.csv", "id,v", "4,d", mode="append").newest("model")
    assert rows(first) == {"d.csv": 1}


@pytest.mark.slow
def test_append_to_what_is_gone(files, store: SnapshotStore):
    """Prevents: all rows of before gone from a data source, as its version is no longer there."""
    with pytest.raises(RefusedError, match=r"removed .* with mode replace"):
        files("a.csv", "id,v", "1,a", mode="append", built_on=7).newest("model")
    first = files("a.csv", "id,v", "1,a", mode="append").newest("model")
    Path(first.paths[0]).unlink()
    with pytest.raises(RefusedError, match="with mode replace"):
        files("b.csv", "id,v", "1,a", mode="append", built_on=1).newest("model")
    assert store.numbers("model") == [1]


def test_what_is_refused_leaves_nothing(files, store: SnapshotStore):
    """Prevents: one bad file that blocks all later ones."""
    files("a.csv", "id,v", "1,a", mode="append").newest("model")
    with pytest.raises(RefusedError, match=r"columns differ from those of a.csv.*id \(str"):
        files("b.csv", "id,v", "x,2.5", mode="append", built_on=1).newest("model")
    with pytest.raises(RefusedError, match="1 row does not fit"):
        files("c.csv", "id,v", "1,a,b", mode="append").newest("model")
    assert store.numbers("model") == [1]
    assert len(list((store.folder("model").path / "@data").iterdir())) == 1


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_file_that_changes_while_it_is_read(files, tmp_path: Path, mode: str):
    """Prevents: half of the old file and half of the new one, by the name of both."""
    source = files("a.csv", "id,v", "1,a", mode=mode)
    read = source.read

    def read_and_change() -> Reading:
        reading = read()
        (tmp_path / "a.csv").write_text("id,v\n1,b\n", "utf-8")
        return reading

    source.read = read_and_change
    with pytest.raises(RefusedError, match="changed while it was read"):
        source.newest("model")


def test_a_trial_keeps_nothing(files, store: SnapshotStore):
    """Prevents: a trial whose rows go out with the next file."""
    files("a.csv", "id,v", "1,a", mode="append").newest("model")
    trial = TrialStore(store.root)
    found = files("b.csv", "id,v", "2,b", mode="append", built_on=1, store=trial).newest("model")
    assert (found.number, rows(found)) == (2, {"a.csv": 1, "b.csv": 1})
    assert found.missing() == []
    trial.close()
    assert store.numbers("model") == [1]
    assert len(list((store.folder("model").path / "@data").iterdir())) == 1
