"""Files become data sources without code, in the location that the project ships."""

from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.components.publish_file import publish_file
from tableau_pipeline_tests.components.publish_file.conftest import Publish, published, write
from tableau_pipeline_tests.components.support.location import failure, metadata_of
from tableau_pipeline_tests.conftest import Shipped, Story
from tableau_pipeline_tests.refresh.support.pipeline import session


def test_csv_to_a_data_source(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: a file that takes code to publish; a blank that becomes a zero or a word; rows
    that the server does not count."""
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
def test_only_changed_rows_are_sent(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: a large file that is sent whole for one row, although its key is known."""
    rows = [f"{number},v{number}" for number in range(5000)]
    path = tmp_path / "x.csv"
    path.write_text("id,v\n" + "\n".join(rows), "utf-8")
    metadata_of(publish(path=str(path), name=name, key=["id"]))
    path.write_text("id,v\n" + "\n".join([*rows[:-1], "4999,new"]), "utf-8")
    found = metadata_of(publish(path=str(path), name=name, key=["id"]))
    assert (found["decision"], found["details"]["inserted"][name]) == ("update", 1)
    assert published(shipped, name)["v"].to_pylist()[-1] == "new"


@pytest.mark.slow
def test_bad_rows(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: rows that vanish, or turn to NULL, because they could not be read."""
    path = tmp_path / "x.csv"
    path.write_text("id,day\n1,2024-01-01\nzwei,2024-01-02\n3,gestern\n", "utf-8")
    config = {"path": str(path), "name": name, "columns": "id bigint, day date"}
    message = failure(publish(**config))
    for part in (
        "2 rows do not fit the columns id bigint, day date",
        'x.csv, line 3: column "id": "zwei" is not a valid bigint',
        'x.csv, line 4: column "day": "gestern" is not a valid date',
        "bad_rows: drop",
    ):
        assert part in message
    with session(shipped.sandbox) as site:
        assert not list(site.tsc.datasources.filter(name=name))
    found = metadata_of(publish(**config, bad_rows="drop"))
    assert found["bad rows"] == 2
    assert published(shipped, name).to_pylist() == [{"id": 1, "day": date(2024, 1, 1)}]


@pytest.mark.slow
def test_options_of_the_reader(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: files of other habits that cannot be read."""
    path = tmp_path / "export.txt"
    path.write_bytes("1|31.12.2023 23:30|Grün\n".encode("latin-1"))
    metadata_of(
        publish(
            path=str(path),
            name=name,
            format="csv",
            columns="id int, `at time` timestamp_ntz, colour string",
            reader={
                "sep": "|",
                "header": "false",
                "encoding": "ISO-8859-1",
                "timestampFormat": "dd.MM.yyyy HH:mm",
            },
        )
    )
    assert published(shipped, name).to_pylist() == [
        {"id": 1, "at time": datetime(2023, 12, 31, 23, 30), "colour": "Grün"}
    ]


@pytest.mark.slow
def test_json(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: lines of JSON that cannot be published, or broken ones that vanish."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1, "tags": ["x"]}\n{"a": 2}\n', "utf-8")
    metadata_of(publish(path=str(path), name=name))
    rows = published(shipped, name).to_pylist()
    assert rows == [{"a": 1, "tags": '["x"]'}, {"a": 2, "tags": None}]
    path.write_text('{"a": 1}\n{"a": \n', "utf-8")
    message = failure(publish(path=str(path), name=name, columns="a bigint"))
    assert "1 row does not fit" in message


@pytest.mark.slow
def test_parquet_in_awkward_places(publish: Publish, shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: a path that Spark takes for a pattern."""
    folder = tmp_path / "a [b] {c}"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "x y.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".x.crc").touch()
    metadata_of(publish(path=str(folder), name=name))
    assert published(shipped, name).to_pylist() == [{"a": 1}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "path", "parts"),
    [
        ({}, "*.csv", ('*.csv" matches no file', "relative to")),
        (
            {"a.csv": "a\n1\n", "b.parquet": ""},
            "",
            ("do not determine one format", ".csv, .parquet"),
        ),
        ({"a.xlsx": "x"}, "", (".xlsx do not determine one format",)),
        ({"a.csv": "a,A\n1,2\n"}, "", ("a", "A")),
    ],
)
def test_what_is_no_set_of_files(
    publish: Publish,
    name: str,
    tmp_path: Path,
    files: dict[str, str],
    path: str,
    parts: tuple[str, ...],
):
    """Prevents: an error of Spark's where one of ours says what to do."""
    for file, text in files.items():
        (tmp_path / file).write_text(text, "utf-8")
    message = failure(publish(path=str(tmp_path / path), name=name))
    for part in parts:
        assert part in message


def test_the_data_source_of_somebody_else(publish: Publish, story: Story, tmp_path: Path):
    """Prevents: a declared data source that a file overwrites by its name."""
    path = write(tmp_path / "x.csv", "a", "1")
    with session(story.sandbox) as site:
        before = next(iter(site.tsc.datasources.filter(name="NYC Flights"))).updated_at
    message = failure(publish(path=str(path), name="NYC Flights", project="Aviation"))
    assert 'is published under the key "nyc_flights' in message
    with session(story.sandbox) as site:
        after = next(iter(site.tsc.datasources.filter(name="NYC Flights"))).updated_at
    assert after == before


def test_the_launchpad_shows_what_to_fill_in():
    """Prevents: an empty launchpad, or one whose resources hide the two keys that a run needs."""
    shown = {"ops": {"publish_files": {"config": {"name": "", "path": ""}}}}
    assert publish_file.run_config == shown


@pytest.mark.slow
def test_secrets_as_the_launchpad_sends_them(shipped: Shipped, name: str, tmp_path: Path):
    """Prevents: a run from the launchpad that signs in by the asterisks that stand for a token."""
    path = write(tmp_path / "x.csv", "a", "1")
    shown = {
        "server_url": {"env": "TABLEAU_SERVER_URL"},
        "token_name": {"env": "TABLEAU_TOKEN_NAME"},
        **dict.fromkeys(("token_value", "password", "connected_app_secret_value"), "********"),
    }
    result = shipped.definitions.resolve_job_def("publish_file").execute_in_process(
        instance=shipped.instance,
        run_config={
            "ops": {"publish_files": {"config": {"path": str(path), "name": name}}},
            "resources": {"tableau": {"config": shown}},
        },
    )
    assert metadata_of(result)["decision"] == "publish (create)"
