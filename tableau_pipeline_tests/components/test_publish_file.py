"""Files become data sources without code, in the location that the project ships."""

import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tableauhyperapi import TableName

from tableau_pipeline.components.audit import undeclared
from tableau_pipeline.components.notifications import incidents
from tableau_pipeline.components.publish_file import PublishFileConfig, publish_file
from tableau_pipeline.components.published_files import published_files
from tableau_pipeline.components.status import statuses_of_files
from tableau_pipeline.core.identity import TAG_PREFIX
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.outcome import Status
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.components.support.corpus import REFUSED, write_corpus
from tableau_pipeline_tests.components.support.location import failure, forget, metadata_of, rows_on
from tableau_pipeline_tests.conftest import Shipped, Story
from tableau_pipeline_tests.refresh.support.pipeline import session

Publish = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """An instance for this module alone, because a status shows all files of its instance."""
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("files"))) as made:
        yield made


@pytest.fixture
def publish(shipped: Shipped, instance: dg.DagsterInstance) -> Publish:
    """A function that runs the job as the launchpad does."""

    def run(**config: Any) -> dg.ExecuteInProcessResult:
        return shipped.definitions.resolve_job_def("publish_file").execute_in_process(
            instance=instance,
            raise_on_error=False,
            run_config={"ops": {"publish_files": {"config": config}}},
        )

    return run


@pytest.fixture
def name() -> str:
    """The name of a data source that is not published yet."""
    return f"Files {uuid4().hex[:8]}"


def published(shipped: Shipped, name: str) -> pa.Table:
    return rows_on(shipped.sandbox, name)


def write(path: Path, *lines: str) -> Path:
    """Write a file with these lines."""
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.slow
def test_csv_to_a_data_source(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: users need code to publish a file, or a blank becomes a zero or a word."""
    (tmp_path / "a.csv").write_text("id,day,note,ratio\n1,2024-02-29,航,0.5\n2,,,\n", "utf-8")
    (tmp_path / "b.csv").write_text("id,day,note,ratio\n3,2024-03-01,x,1\n", "utf-8")
    found = metadata_of(publish(path=str(tmp_path), name=name))
    assert found["decision"] == "publish (create)"
    assert found["dagster/row_count"] == 3
    assert found["comparison"] == "equal by count on the server"
    assert found["bad rows"] == 0
    assert published(shipped, name).to_pylist() == [
        {"id": 1, "day": date(2024, 2, 29), "note": "航", "ratio": 0.5},
        {"id": 2, "day": None, "note": None, "ratio": None},
        {"id": 3, "day": date(2024, 3, 1), "note": "x", "ratio": 1.0},
    ]
    assert metadata_of(publish(path=str(tmp_path), name=name))["decision"] == "no change"


@pytest.mark.slow
def test_how_they_are(
    publish: Publish,
    shipped: Shipped,
    instance: dg.DagsterInstance,
    name: str,
    tmp_path: Path,
):
    """Prevents: a failed publish counts as fresh, or a file's data source as undeclared."""
    config = {"path": str(write(tmp_path / "a.csv", "id,n", "1,1", "2,2")), "name": name}
    key = PublishFileConfig(**config).declaration().key

    def state() -> tuple[Status, str, str]:
        found = statuses_of_files(instance)[key]
        assert found.name == name
        return found.state, found.why, found.remedy

    broken = {**config, "columns": "id date, n int"}
    assert not publish(**broken).success
    found, why, remedy = state()
    assert (found, remedy) == (Status.REFUSED, "publish the file again")
    assert "a.csv" in why
    assert publish(**config).success
    assert publish(**broken, dry_run=True, accept=["shrink"]) is not None
    assert state() == (Status.FRESH, "", "")
    write(tmp_path / "a.csv", "id,n", "1,1")
    assert not publish(**config).success
    found, why, remedy = state()
    assert (found, remedy) == (Status.REFUSED, "publish the file again, with accept: [shrink]")
    (incident,) = [e for e in incidents(instance, ()) if e.subject == key]
    assert incident.text.startswith(f'"{name}" was refused: ')
    with session(shipped.sandbox) as site:
        tagged = [each for each in site.tagged(TAG_PREFIX) if each.name == name]
        assert undeclared(instance, tagged, ()) != []
        assert undeclared(instance, tagged, published_files(instance)) == []
    audited = shipped.definitions.resolve_job_def("audit").execute_in_process(
        instance=instance, raise_on_error=False
    )
    assert re.search(rf"\| \[{name}\]\([^)]+\) \| equal \|", str(audited.all_events))


@pytest.mark.slow
def test_bad_rows(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: unreadable rows vanish or turn to NULL, or a file with "|" cannot be read."""
    path = tmp_path / "x.txt"
    path.write_text("id|day\n1|2024-01-01\nzwei|2024-01-02\n3|gestern\n", "utf-8")
    config = {"path": str(path), "name": name, "columns": "id bigint, day date"}
    config |= {"reader": {"sep": "|"}, "format": "csv"}
    message = failure(publish(**config))
    for part in (
        "2 rows do not fit the columns id bigint, day date",
        'x.txt, line 3: column "id": "zwei" is not a valid bigint',
        'x.txt, line 4: column "day": "gestern" is not a valid date',
        "bad_rows: drop",
    ):
        assert part in message
    with session(shipped.sandbox) as site:
        assert not list(site.tsc.datasources.filter(name=name))
    found = metadata_of(publish(**config, bad_rows="drop"))
    assert found["bad rows"] == 2
    assert published(shipped, name).to_pylist() == [{"id": 1, "day": date(2024, 1, 1)}]


@pytest.mark.slow
def test_parquet_in_awkward_places(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: a publish fails because it reads the path of a file as a pattern."""
    folder = tmp_path / "a [b] {c}"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "x y.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".x.crc").touch()
    metadata_of(publish(path=str(folder), name=name))
    assert published(shipped, name).to_pylist() == [{"a": 1}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "path", "said"),
    [
        ({}, "*.csv", r'\*\.csv" matches no file.*relative to'),
        ({"a.csv": "a\n1\n", "b.parquet": ""}, "", r"\.csv, \.parquet do not determine one format"),
        ({"a.xlsx": "x"}, "", r"\.xlsx do not determine one format"),
    ],
)
def test_what_is_no_set_of_files(
    publish: Publish, name: str, tmp_path: Path, files: dict[str, str], path: str, said: str
):
    """Prevents: users see an error of Spark, which does not say what to do."""
    for file, text in files.items():
        write(tmp_path / file, text)
    assert re.search(said, failure(publish(path=str(tmp_path / path), name=name)), re.DOTALL)


def test_the_data_source_of_somebody_else(publish: Publish, story: Story, tmp_path: Path):
    """Prevents: a file overwrites a declared data source that has the same name."""
    path = write(tmp_path / "x.csv", "a", "1")
    with session(story.sandbox) as site:
        before = next(iter(site.tsc.datasources.filter(name="NYC Flights"))).updated_at
    message = failure(publish(path=str(path), name="NYC Flights", project="Aviation"))
    assert 'is published under the key "nyc_flights' in message
    with session(story.sandbox) as site:
        after = next(iter(site.tsc.datasources.filter(name="NYC Flights"))).updated_at
    assert after == before


def test_the_launchpad_shows_what_to_fill_in():
    """Prevents: the launchpad is empty, or hides the two keys that a run needs."""
    shown = {"ops": {"publish_files": {"config": {"name": "", "path": ""}}}}
    assert publish_file.run_config == shown


@pytest.mark.slow
def test_secrets_as_the_launchpad_sends_them(
    shipped: Shipped, instance: dg.DagsterInstance, name: str, tmp_path: Path
):
    """Prevents: a run from the launchpad signs in with the asterisks that hide the token."""
    path = write(tmp_path / "x.csv", "a", "1")
    shown = {
        "server_url": {"env": "TABLEAU_SERVER_URL"},
        "token_name": {"env": "TABLEAU_TOKEN_NAME"},
        **dict.fromkeys(("token_value", "password", "connected_app_secret_value"), "********"),
    }
    result = shipped.definitions.resolve_job_def("publish_file").execute_in_process(
        instance=instance,
        run_config={
            "ops": {"publish_files": {"config": {"path": str(path), "name": name}}},
            "resources": {"tableau": {"config": shown}},
        },
    )
    assert metadata_of(result)["decision"] == "publish (create)"


@pytest.mark.slow
def test_files_are_added_one_by_one(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: a file is added twice, or drops the rows of earlier files."""
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
    """Prevents: one new file makes a refresh send all earlier files again."""
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
        ({"project": "A//B"}, '"A//B" has an empty part'),
    ],
)
def test_settings_that_do_not_fit(config: dict[str, str], message: str):
    """Prevents: the job ignores a wrong setting without a message."""
    with pytest.raises(ValueError, match=message):
        PublishFileConfig(**{"path": "x.csv", "name": "x", **config})


def test_a_file_column_that_the_files_have(publish: Publish, name: str, tmp_path: Path):
    """Prevents: the names of the files replace a column that the files already have."""
    path = write(tmp_path / "a.csv", "id,Source", "1,web")
    message = failure(publish(path=str(path), name=name, mode="append", file_column="source"))
    assert "the files already have such a column" in message


def test_names_that_differ_a_little_are_different():
    """Prevents: rows go to a data source with a similar name, even in another project."""
    places = [("EU", "Sales"), ("US", "Sales"), ("EU", "sales"), ("EU", "売上"), ("EU", "在庫")]
    configs = [PublishFileConfig(path="x", project=p, name=n) for p, n in places]
    assert len({config.declaration().key for config in configs}) == len(places)


@pytest.mark.slow
def test_what_is_only_built_is_not_kept(
    publish: Publish, shipped: Shipped, name: str, tmp_path: Path
):
    """Prevents: the next file publishes the rows of a trial, or the store keeps these rows."""
    config = {"name": name, "mode": "append"}
    metadata_of(publish(path=str(write(tmp_path / "a.csv", "id,v", "1,a")), **config))
    trial = write(tmp_path / "b.csv", "id,v", "2,b")
    snapshots = shipped.data_dir / "snapshots"
    stored = {*snapshots.rglob("*.parquet"), *snapshots.rglob("*.json")}
    for rehearsal in ({"build_only": True}, {"dry_run": True}):
        assert publish(path=str(trial), **rehearsal, **config).success
        assert {*snapshots.rglob("*.parquet"), *snapshots.rglob("*.json")} == stored
    metadata_of(publish(path=str(write(tmp_path / "c.csv", "id,v", "3,c")), **config))
    assert published(shipped, name)["v"].to_pylist() == ["a", "c"]


@pytest.mark.slow
def test_what_is_built_stays_and_the_rest_is_local(
    publish: Publish, shipped: Shipped, name: str, tmp_path: Path
):
    """Prevents: a built file disappears, or killed runs fill the volume that hosts share."""
    assert publish(path=str(write(tmp_path / "a.csv", "id,v", "1,a")), name=name).success
    extracts = shipped.data_dir / "extracts"
    before = {*extracts.rglob("*.hyper")}
    path = str(write(tmp_path / "b.csv", "id,v", "2,b"))
    assert publish(path=path, name=name, build_only=True).success
    (built,) = {*extracts.rglob("*.hyper")} - before
    with open_hyper(built) as file:
        assert file.read(TableName("Extract", "Extract")).to_pylist() == [{"id": 2, "v": "b"}]
    assert not [*scratch().glob("files *")]


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["records", "records and snapshots"])
def test_nothing_is_added_to_what_no_record_shows(
    publish: Publish,
    shipped: Shipped,
    instance: dg.DagsterInstance,
    name: str,
    tmp_path: Path,
    lost: str,
):
    """Prevents: after a loss of records, an append publishes refused rows or one file alone."""
    config = {"name": name, "mode": "append"}
    may, june = tmp_path / "may.csv", tmp_path / "june.csv"
    rows = [f"{number},v" for number in range(10)]
    metadata_of(publish(path=str(write(may, "id,v", *rows)), **config))
    assert "a loss of 90%" in failure(publish(path=str(write(may, "id,v", "0,v")), **config))
    key = PublishFileConfig(path=str(may), name=name).declaration().key
    forget(instance, key)
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
    """Prevents: the next file publishes rows of a refused first publish."""
    config = {"name": name, "mode": "append"}
    refused = write(tmp_path / "a.csv", "id,v", "1,a")
    message = failure(publish(path=str(write(refused, "id,v")), **config))
    # The message omits the guard's setting, because this job has no such setting.
    assert message.splitlines()[0].endswith("run again with accept: [shrink]")
    metadata_of(publish(path=str(write(tmp_path / "b.csv", "id,v", "2,b")), **config))
    assert published(shipped, name)["v"].to_pylist() == ["b"]


@pytest.mark.slow
def test_corpus(tmp_path: Path, publish: Publish, shipped: Shipped):
    """Prevents: a file of another writer crashes the job, or arrives with other values."""
    write_corpus(tmp_path)
    wrong, refused = [], []
    for path in sorted(tmp_path.glob("*.parquet")):
        name = path.stem
        result = publish(path=str(path), name=f"Corpus {name}", accept=["shrink"])
        if result.success:
            wrong += _differences(name, path, published(shipped, f"Corpus {name}"))
        else:
            refused.append(name)
            assert path.name in failure(result)
    assert not wrong, "\n".join(wrong)
    assert sorted(refused) == sorted(REFUSED)


def _differences(name: str, path: Path, found: pa.Table) -> Iterator[str]:
    expected = pq.read_table(path, partitioning=None)
    if expected.column_names != found.column_names or len(expected) != len(found):
        yield f"{name}: {expected.schema} of {len(expected)} became {found.schema} of {len(found)}"
        return
    try:
        before, after = rows(expected), rows(found)
    except pa.ArrowException as error:
        # An error in one file must not hide the differences of other files.
        yield f"{name}: {error}"
        return
    if before != after:
        yield f"{name}: {before[:3]} became {after[:3]}"


def rows(table: pa.Table) -> list[tuple[str, ...]]:
    """The sorted rows as text. As text, NaN equals NaN; instants are in UTC, without a zone."""
    return sorted(zip(*map(_as_text, table.columns), strict=True))


def _as_text(column: pa.ChunkedArray) -> list[str]:
    type_ = column.type
    if pa.types.is_timestamp(type_):
        column = column.cast(pa.timestamp("us", type_.tz)).cast(pa.timestamp("us"))
    elif pa.types.is_floating(type_):
        column = column.cast(pa.float64())
    values = column.to_pylist()
    if pa.types.is_decimal(type_) and type_.scale == 0:
        values = [None if value is None else int(value) for value in values]
    return list(map(repr, values))
