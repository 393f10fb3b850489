"""Parquet files, and what servers of older releases accept."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tableauserverclient as tsc

from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.sandbox.publishing.test_rules import STAR
from tableau_pipeline_tests.sandbox.samples import (
    execute,
    publish,
    rows_on_server,
    signed_in,
)
from tableau_pipeline_tests.sandbox.updates.test_update_data import (
    CLEAR,
    JobFailed,
    finished,
    update,
)


def test_parquet_becomes_hyper(server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: a Parquet file is refused, or cannot be updated as other data in Hyper can.
    file = tmp_path / "flights.parquet"
    types = {"id": pa.int32(), "name": pa.string()}
    pq.write_table(pa.table({"id": [2], "name": [None]}, schema=pa.schema(types)), file)
    item = publish(server, file)
    assert (item.datasource_type, item.has_extracts) == ("hyper", False)
    assert rows_on_server(server, item.id) == [[2, None]]
    server.datasources.populate_connections(item)
    assert [connection.connection_type for connection in item.connections] == ["hyper"]
    publish(server, one_row, mode="Append")
    assert rows_on_server(server, item.id) == [[1, "one"], [2, None]]


def test_broken_parquet(server: tsc.Server, tmp_path: Path):
    # Prevents: a broken file ends in an error of the sandbox, or tells where its data are.
    file = tmp_path / "broken.parquet"
    file.write_bytes(b"PAR1 and no more PAR1")
    with pytest.raises(tsc.ServerResponseError, match="400011") as caught:
        publish(server, file)
    assert str(tmp_path) not in str(caught.value)
    assert list((tmp_path / "sandbox" / "incoming").iterdir()) == []


def test_profiles_of_older_servers(
    start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path
):
    # Prevents: what works against the sandbox is refused by an older server.
    tree = execute(tmp_path / "tree.hyper", *STAR)
    named = execute(tmp_path / "named.hyper", 'CREATE TABLE "Extract"."flights" AS (SELECT 1 AS a)')
    sandbox = start_sandbox(hyper_profile="2020.1")
    server = signed_in(sandbox, tsc.TableauAuth("admin", "admin"))
    publish(server, named)
    with pytest.raises(tsc.ServerResponseError, match=r"400011.*\n.*must contain one table"):
        publish(server, tree, name="Tree")
    sandbox.stop()
    server = signed_in(start_sandbox(hyper_profile="2019.4"), tsc.TableauAuth("admin", "admin"))
    publish(server, one_row, name="Extract")
    for file in (named, tree):
        with pytest.raises(tsc.ServerResponseError, match=r"exactly the table \"Extract\"."):
            publish(server, file, name=file.stem)


def test_nested_parquet(server: tsc.Server, tmp_path: Path):
    # Prevents: a column type without a counterpart is silently dropped.
    file = tmp_path / "nested.parquet"
    pq.write_table(pa.table({"id": [1], "list": [[1, 2]]}), file)
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, file)
    assert server.datasources.get()[0] == []


LIVE = "<datasource><connection class='postgres' server='db' dbname='x'/></datasource>"


def test_model_alone(sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: a live data source cannot be published, or seems to hold data that it has not.
    file = tmp_path / "live.tds"
    file.write_text(LIVE, "utf-8")
    item = publish(server, file, name="Live")
    found = server.datasources.get_by_id(item.id)
    assert (found.datasource_type, found.has_extracts, found.size) == ("postgres", False, 0)
    downloaded = Path(server.datasources.download(item.id, str(tmp_path / "downloaded")))
    assert (downloaded.suffix, downloaded.read_text("utf-8")) == (".tds", LIVE)
    for mode, refused in {"Append": file, "Replace": one_row}.items():
        with pytest.raises(tsc.ServerResponseError, match=r"400011(.|\n)*no data of its own"):
            publish(server, refused, name="Live", mode=mode)
    with pytest.raises(tsc.ServerResponseError, match="409090"):
        server.datasources.refresh(item)
    with pytest.raises(JobFailed):
        finished(server, update(server, item, CLEAR))
    assert list((sandbox.data_dir / "content").iterdir()) == []
    # It becomes one with data, and back.
    publish(server, one_row, name="Live", mode="Overwrite")
    assert rows_on_server(server, item.id) == [[1, "one"]]
    publish(server, file, name="Live", mode="Overwrite")
    server.datasources.download_revision(item.id, "1", str(tmp_path / "first"))


@pytest.mark.parametrize(
    "tds",
    [
        "<datasource/>",
        "<workbook/>",
        LIVE.replace("postgres", "hyper"),
        LIVE.replace("</d", "<extract/></d"),
        pytest.param("<datasource>" + " " * (16 << 20) + "</datasource>", id="too large"),
    ],
)
def test_models_of_data_that_are_missing(server: tsc.Server, tmp_path: Path, tds: str):
    # Prevents: a model is published whose data nobody has.
    file = tmp_path / "live.tds"
    file.write_text(tds, "utf-8")
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, file, name="Live")
