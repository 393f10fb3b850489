"""Files that earlier releases have published with Spark, and that this release refreshes."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.core.declaration import in_environment
from tableau_pipeline.core.identity import key_below
from tableau_pipeline.core.journal_store import StoredJournal, owner_here
from tableau_pipeline.errors import SettingError
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.ingest.publication import FilePublication
from tableau_pipeline.publishing.settings import ServerSettings
from tableau_pipeline.refresh import refresh as refreshes
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.scripting.environment import (
    cache_bytes,
    journal_place,
    shared_place,
    work_dir,
)
from tableau_pipeline.scripting.files import publish_files
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_partitions, write_snapshot
from tableau_pipeline_tests.components.support.location import rows_on
from tableau_sandbox.testing import Sandbox, running_sandbox

LOG = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture
def folder(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TABLEAU_SERVER_URL", sandbox.url)
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", sandbox.token_name)
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", sandbox.token_secret)
    return tmp_path


def published_by_spark(spark: SparkSession, publication: FilePublication, path: Path) -> None:
    """Publish a file as earlier releases did, which stored its rows with Spark."""
    declaration = publication.declaration()
    store = SnapshotStore(Path(shared_place("snapshots")))
    (model,) = declaration.models
    frame = spark.read.schema("id int, v string, x double").option("header", True).csv(str(path))
    if publication.file_column:
        frame = frame.withColumn(publication.file_column, F.lit(path.name))
    options: dict[str, Any] = {"asset_key": model, "run_id": "before"}
    if publication.mode == "append":
        write_partitions(
            frame, store, expression=f"'{path.name}'", partitions=[path.name], **options
        )
    else:
        write_snapshot(frame, store, **options)
    server = ServerSettings.from_environment()
    journal = StoredJournal(journal_place(), key_below(declaration.key, ""), owner_here("before"))
    refreshes.refresh(
        Setup(
            declaration=in_environment(declaration, ""),
            snapshots=store,
            journal=journal,
            server=lambda: server.session(LOG),
            hyper=hyper_process,
            folder=work_dir(keep=False),
            backups=shared_place("kept"),
            log=LOG,
        )
    )


def lines(path: Path, rows: dict[int, str]) -> Path:
    content = [f"{key},{value},{key / 8}" for key, value in rows.items()]
    path.write_text("\n".join(["id,v,x", *content]) + "\n", "utf-8")
    return path


BEFORE = {number: f"v{number}" for number in range(200)}
AFTER = BEFORE | {7: "changed", 300: "new"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"key": ("id",)}, {}], ids=["keyed", "whole"])
def test_a_file_after_an_upgrade(
    spark: SparkSession, sandbox: Sandbox, folder: Path, options: dict[str, Any]
):
    """Prevents: after an upgrade, a refresh compares two kinds of hashes, and misses changes."""
    path = lines(folder / "a.csv", BEFORE)
    publication = FilePublication(paths=(str(path),), name=f"Before {uuid4().hex[:8]}", **options)
    published_by_spark(spark, publication, path)
    lines(path, AFTER)
    done = publish_files(publication).done
    assert isinstance(done, Refreshed)
    if options:
        (counts,) = done.tables.values()
        assert (done.decision, counts.deleted, counts.inserted) == ("update", 1, 2)
    rows = rows_on(sandbox, publication.name).to_pylist()
    assert [(row["id"], row["v"]) for row in rows] == sorted(AFTER.items())


@pytest.mark.slow
def test_a_file_that_did_not_change_at_an_upgrade(
    spark: SparkSession, sandbox: Sandbox, folder: Path
):
    """Prevents: after an upgrade, a refresh sends all rows although no row has changed."""
    path = lines(folder / "a.csv", BEFORE)
    name = f"Same {uuid4().hex[:8]}"
    publication = FilePublication(paths=(str(path),), name=name, key=("id",))
    published_by_spark(spark, publication, path)
    done = publish_files(publication).done
    assert isinstance(done, Refreshed)
    assert sum(counts.inserted + counts.deleted for counts in done.tables.values()) == 0
    assert publish_files(publication).done.decision == "no change"


@pytest.mark.slow
@pytest.mark.parametrize("file_column", ["file", None])
def test_a_file_that_is_added_after_an_upgrade(
    spark: SparkSession, sandbox: Sandbox, folder: Path, file_column: str | None
):
    """Prevents: a file that is added after an upgrade removes the rows of earlier files."""
    path = lines(folder / "a.csv", BEFORE)
    name = f"Added {uuid4().hex[:8]}"
    options: dict[str, Any] = {"name": name, "mode": "append", "file_column": file_column}
    published_by_spark(spark, FilePublication(paths=(str(path),), **options), path)
    added = lines(folder / "b.csv", {500: "b"})
    done = publish_files(FilePublication(paths=(str(added),), **options)).done
    if file_column:
        assert isinstance(done, Refreshed)
        (counts,) = done.tables.values()
        assert (done.decision, counts.deleted, counts.inserted) == ("update", 0, 1)
    rows = rows_on(sandbox, name).to_pylist()
    assert [(row["id"], row["v"]) for row in rows] == sorted((BEFORE | {500: "b"}).items())
    changed = lines(folder / "a.csv", AFTER)
    publish_files(FilePublication(paths=(str(changed),), **options))
    rows = rows_on(sandbox, name).to_pylist()
    assert [(row["id"], row["v"]) for row in rows] == sorted((AFTER | {500: "b"}).items())


@pytest.mark.parametrize("text", ["much", "-1", "inf", "nan"])
def test_a_size_of_copies_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str):
    """Prevents: a mistyped value of a variable shows as a stack trace."""
    monkeypatch.setenv("PIPELINE_CACHE_GB", text)
    with pytest.raises(SettingError, match=f"PIPELINE_CACHE_GB is '{text}': set it to a number"):
        cache_bytes()
    monkeypatch.setenv("PIPELINE_CACHE_GB", "1.5")
    assert cache_bytes() == 1_500_000_000
