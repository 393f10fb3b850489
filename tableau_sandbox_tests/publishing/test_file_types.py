"""Parquet files, and what servers of older releases accept."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    code_of,
    publish,
    rows_on_server,
    send_parts,
    wrapped_extract,
)
from tableau_sandbox_tests.updates.test_update_data import (
    CLEAR,
    JobFailed,
    finished,
    update,
)


def test_broken_parquet(server: tsc.Server, tmp_path: Path):
    # Prevents: a broken file ends in an error of the sandbox, or tells where its data are.
    file = tmp_path / "broken.parquet"
    file.write_bytes(b"PAR1 and no more PAR1")
    with pytest.raises(tsc.ServerResponseError, match="400011") as caught:
        publish(server, file)
    assert str(tmp_path) not in str(caught.value)
    assert list((tmp_path / "sandbox" / "incoming").iterdir()) == []


def test_nested_parquet(server: tsc.Server, tmp_path: Path):
    # Prevents: a column type without a counterpart is silently dropped.
    file = tmp_path / "nested.parquet"
    pq.write_table(pa.table({"id": [1], "list": [[1, 2]]}), file)
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, file)
    assert server.datasources.get()[0] == []


@pytest.mark.parametrize(
    ("filename", "query"),
    [
        ("x.tdsx", "&datasourceType=hyper"),
        ("x.hyper", "&datasourceType=tdsx"),
        ("x", "&datasourceType=hyper"),
        ("x.csv", "&datasourceType=hyper"),
        ("x.hyper", "&datasourceType="),
        ("x", ""),
    ],
)
def test_names_that_belie_the_type(
    shared_sandbox: Sandbox, shared_server: tsc.Server, one_row: Path, filename: str, query: str
):
    """Prevents: a file whose name and type contradict each other is published here only."""
    refused = publish_raw(
        shared_sandbox, shared_server, filename=filename, query=query, file=one_row
    )
    assert code_of(refused) == "400010"


def test_content_of_another_type(
    shared_sandbox: Sandbox, shared_server: tsc.Server, tmp_path: Path, one_row: Path
):
    """Prevents: a file passes for what its name says, although it is something else."""
    parquet = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": [1]}), parquet)
    files = {
        "hyper": one_row,
        "tdsx": wrapped_extract(tmp_path / "x.tdsx", one_row),
        "parquet": parquet,
    }
    for claimed in files:
        for kind, file in files.items():
            if kind != claimed:
                refused = publish_raw(
                    shared_sandbox, shared_server, filename=f"x.{claimed}", file=file
                )
                assert code_of(refused) == "400011", (claimed, kind)


def publish_raw(
    sandbox: Sandbox, server: tsc.Server, *, filename: str, file: Path, query: str = ""
):
    payload = '<tsRequest><datasource name="Claimed"/></tsRequest>'
    path = f"sites/{{site}}/datasources?overwrite=true{query}"
    parts = ("request_payload", "", payload), ("tableau_datasource", filename, file.read_bytes())
    return send_parts(sandbox, server, "POST", path, *parts)


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
