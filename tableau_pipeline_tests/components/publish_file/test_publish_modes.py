"""What becomes of files beside those that were published before, or instead of them."""

from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql import SparkSession
from tableauhyperapi import TableName

from tableau_pipeline.components import publish_file as job
from tableau_pipeline.components.publish_file import PublishFileConfig
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.ingest.database import check_table
from tableau_pipeline.ingest.errors import Reading
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.read_files import load
from tableau_pipeline.objects.local import scratch
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.components.publish_file.conftest import Publish, published, write
from tableau_pipeline_tests.components.support.location import failure, metadata_of
from tableau_pipeline_tests.components.support.records import forget
from tableau_pipeline_tests.conftest import Shipped


@pytest.mark.slow
def test_files_are_added_one_by_one(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: a file that is added twice, or that drops the rows of those before it."""
    may, june = tmp_path / "may.csv", tmp_path / "june.csv"
    metadata_of(publish(path=str(write(may, "id,v", "1,a", "2,b")), name=name))
    config = {"name": name, "mode": "append"}
    found = metadata_of(publish(path=str(write(june, "id,v", "3,c")), **config))
    assert found["dagster/row_count"] == 3
    assert metadata_of(publish(path=str(june), **config))["decision"] == "no change"
    metadata_of(publish(path=str(write(june, "id,v", "3,c", "4,d")), **config))
    assert published(shipped, name)["v"].to_pylist() == ["a", "b", "c", "d"]
    metadata_of(publish(path=str(write(june, "id,v", "5,e")), name=name, accept=["shrink"]))
    assert published(shipped, name)["v"].to_pylist() == ["e"]


@pytest.mark.slow
def test_only_new_files_are_sent(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: all files that are sent again for a new one, though a column tells them apart."""
    config = {"name": name, "mode": "append", "file_column": "file"}
    rows = [f"{number},v{number}" for number in range(5000)]
    metadata_of(publish(path=str(write(tmp_path / "a+b c%20.csv", "id,v", *rows)), **config))
    found = metadata_of(publish(path=str(write(tmp_path / "ü.csv", "id,v", "5000,x")), **config))
    assert (found["decision"], found["details"]["inserted"][name]) == ("update", 1)
    files = published(shipped, name)["file"].to_pylist()
    assert (set(files[:-1]), files[-1]) == ({"a+b c%20.csv"}, "ü.csv")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mode": "merge"}, "'merge' is not one of replace, append"),
        ({"file_column": "f"}, "file_column needs mode append"),
        ({"path": "jdbc:x", "table": "t", "columns": "a int"}, "columns needs files"),
        ({"path": "jdbc:postgresql://h/d"}, "set table"),
        ({"table": "t"}, "table needs a path such as"),
        ({"path": "jdbc:x", "table": "t", "mode": "append"}, "mode append needs files"),
        ({"project": "A//B"}, '"A//B" has an empty part'),
    ],
)
def test_settings_that_do_not_fit(config: dict[str, str], message: str):
    """Prevents: a setting that is passed over in silence."""
    with pytest.raises(ValueError, match=message):
        PublishFileConfig(**{"path": "x.csv", "name": "x", **config})


@pytest.mark.parametrize(
    ("url", "reader"),
    [
        ("jdbc:postgresql://me:secret@host/d", {}),
        ("jdbc:postgresql://host/d?user=me&password=secret", {}),
        ("jdbc:sqlserver://host;databaseName=d;password=secret", {}),
        ("jdbc:postgresql://host/d", {"password": "secret"}),
        ("jdbc:postgresql://host/d", {"url": "jdbc:postgresql://me:secret@host/d"}),
        ("jdbc:oracle:thin:scott/secret@//host:1521/d", {}),
        ("jdbc:db2://host/d:user=me;password = secret;", {}),
        ("jdbc:mysql://address=(host=h)(password=secret)/d", {}),
        ("jdbc:x://host/d?sslpassword=secret", {}),
    ],
)
def test_secrets_of_a_database(url: str, reader: dict[str, str]):
    """Prevents: a password in the log, or in the message that refuses it."""
    with pytest.raises(RefusedError) as refused:
        check_table(url, "JDBC", reader)
    assert "JDBC_PASSWORD" in str(refused.value)
    assert "me:secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://host:5432/d?ssl=true",
        "jdbc:oracle:thin:@//host:1521/service",
        "jdbc:sqlserver://host;databaseName=d;encrypt=true",
    ],
)
def test_a_url_without_secrets(url: str):
    """Prevents: a database that cannot be read because its URL looks odd."""
    check_table(url, "JDBC", {"fetchsize": "10"})


def test_a_file_column_that_the_files_have(publish: Publish, name: str, tmp_path: Path):
    """Prevents: a column of the files that the names of the files replace."""
    path = write(tmp_path / "a.csv", "id,Source", "1,web")
    message = failure(publish(path=str(path), name=name, mode="append", file_column="source"))
    assert "the files already have such a column" in message


def test_names_that_differ_a_little_are_different():
    """Prevents: rows of one data source that are added to another, in another project even."""
    places = [("EU", "Sales"), ("US", "Sales"), ("EU", "sales"), ("EU", "売上"), ("EU", "在庫")]
    configs = [PublishFileConfig(path="x", project=p, name=n) for p, n in places]
    assert len({config.declaration().key for config in configs}) == len(places)


@pytest.mark.slow
def test_what_is_only_built_is_not_kept(
    publish: Publish, shipped: Shipped, name: str, tmp_path: Path
):
    """Prevents: a trial whose rows go out with the next file."""
    config = {"name": name, "mode": "append"}
    metadata_of(publish(path=str(write(tmp_path / "a.csv", "id,v", "1,a")), **config))
    trial = write(tmp_path / "b.csv", "id,v", "2,b")
    for rehearsal in ({"build_only": True}, {"dry_run": True}):
        assert publish(path=str(trial), **rehearsal, **config).success
    metadata_of(publish(path=str(write(tmp_path / "c.csv", "id,v", "3,c")), **config))
    assert published(shipped, name)["v"].to_pylist() == ["a", "c"]


@pytest.mark.slow
def test_what_is_built_stays_and_the_rest_is_local(
    publish: Publish,
    shipped: Shipped,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: a file to look at that is gone, or killed runs that fill a volume of all hosts."""
    folders: list[Path] = []

    def noted(spark: SparkSession, files: Files, folder: Path) -> Reading:
        folders.append(folder)
        return load(spark, files, folder)

    monkeypatch.setattr(job, "load", noted)
    assert publish(path=str(write(tmp_path / "a.csv", "id,v", "1,a")), name=name).success
    extracts = shipped.data_dir / "extracts"
    before = {*extracts.rglob("*.hyper")}
    path = str(write(tmp_path / "b.csv", "id,v", "2,b"))
    assert publish(path=path, name=name, build_only=True).success
    (built,) = {*extracts.rglob("*.hyper")} - before
    with open_hyper(built) as file:
        assert file.read(TableName("Extract", "Extract")).to_pylist() == [{"id": 2, "v": "b"}]
    assert len(folders) == 2
    for folder in folders:
        assert folder.parent == scratch()
        assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["records", "records and snapshots"])
def test_nothing_is_added_to_what_no_record_shows(
    publish: Publish, shipped: Shipped, name: str, tmp_path: Path, lost: str
):
    """Prevents: rows that a guard has refused, or the new file alone, in place of all rows."""
    config = {"name": name, "mode": "append"}
    may, june = tmp_path / "may.csv", tmp_path / "june.csv"
    rows = [f"{number},v" for number in range(10)]
    metadata_of(publish(path=str(write(may, "id,v", *rows)), **config))
    assert "a loss of 90%" in failure(publish(path=str(write(may, "id,v", "0,v")), **config))
    key = PublishFileConfig(path=str(may), name=name).declaration().key
    forget(shipped.instance, key)
    store = SnapshotStore(shipped.data_dir / "snapshots")
    if lost == "records and snapshots":
        rmtree(store.folder(key).path)
    before = store.numbers(key)
    more = write(june, "id,v", *rows, "10,v", "11,v")
    for rehearsal in ({"dry_run": True}, {}):
        message = failure(publish(path=str(more), **config, **rehearsal))
        assert f'A data source "{name}" exists in project "Default"' in message
        assert "publish all files with mode replace first" in message
    assert (published(shipped, name).num_rows, store.numbers(key)) == (10, before)
    write(may, "id,v", *rows)
    metadata_of(publish(path=str(tmp_path / "*.csv"), name=name))
    found = metadata_of(publish(path=str(write(tmp_path / "july.csv", "id,v", "12,v")), **config))
    assert found["dagster/row_count"] == 23


@pytest.mark.slow
def test_what_was_refused_at_first_is_not_published_with_the_next_file(
    publish: Publish, shipped: Shipped, name: str, tmp_path: Path
):
    """Prevents: rows of a first publish that was refused, and go out with the next file."""
    config = {"name": name, "mode": "append"}
    refused = write(tmp_path / "a.csv", "id,v", "1,a")
    message = failure(publish(path=str(write(refused, "id,v")), **config))
    # The job has no guard to change.
    assert message.splitlines()[0].endswith("run again with accept: [shrink]")
    metadata_of(publish(path=str(write(tmp_path / "b.csv", "id,v", "2,b")), **config))
    assert published(shipped, name)["v"].to_pylist() == ["b"]


def test_a_database_without_a_driver(publish: Publish, name: str):
    """Prevents: "No suitable driver", of which nobody knows where to put it."""
    message = failure(publish(path="jdbc:nosuch://host/d", table="t", name=name))
    assert "spark.driver.extraClassPath" in message
