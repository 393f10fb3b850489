"""hyperd's English messages: if an upgrade changes a message, the test for its cause fails."""

import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tableauhyperapi import CreateMode, HyperException, HyperProcess

from tableau_pipeline.hyper import messages
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline_tests.hyper.samples import process_id

MB = 2**20
READ = "SELECT COUNT(a) FROM EXTERNAL({}, FORMAT => 'parquet')"


def said(hyper: HyperProcess, query: str) -> HyperException:
    """The error of hyperd for a query that fails."""
    with connect(hyper) as connection, pytest.raises(HyperException) as caught:
        connection.execute_list_query(query)
    return caught.value


def test_too_little_memory():
    with Hyperd(memory=32 * MB, telemetry=False) as hyper:
        text = "LENGTH(STRING_AGG(REPEAT('x', 10000000), ''))"
        error = said(hyper, f"SELECT {text} FROM GENERATE_SERIES(1, 32)")
    assert messages.is_out_of_memory(error)
    assert not messages.is_disk_full(error)
    assert not messages.may_be_damaged(error)


def fill(hyper: HyperProcess, path: Path) -> None:
    with connect(hyper, path, CreateMode.CREATE) as connection:
        rows = "SELECT RANDOM() AS a FROM GENERATE_SERIES(1, 1000000)"
        connection.execute_command(f"CREATE TABLE t AS ({rows})")
        connection.catalog.detach_all_databases()


def test_a_full_disk(tmp_path: Path):
    with Hyperd(memory=512 * MB, telemetry=False) as hyper:
        resource.prlimit(process_id(hyper), resource.RLIMIT_FSIZE, (MB, MB))
        with pytest.raises(HyperException) as caught:
            fill(hyper, tmp_path / "x.hyper")
    assert messages.is_disk_full(caught.value)
    assert not messages.is_out_of_memory(caught.value)


@pytest.mark.parametrize("damage", ["no Parquet", "a changed page"])
def test_damaged_files(hyper: HyperProcess, tmp_path: Path, damage: str):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(1000)}), file, compression="snappy", use_dictionary=False)
    content = bytearray(file.read_bytes())
    if damage == "no Parquet":
        content[-4:] = b"none"
    else:
        content[40:200] = bytes(160)
    file.write_bytes(content)
    error = said(hyper, READ.format(f"'{file}'"))
    assert messages.may_be_damaged(error)
    assert not messages.is_out_of_memory(error)


def test_values_that_hyperd_cannot_hold(hyper: HyperProcess):
    error = said(hyper, "SELECT CAST('x' AS INTEGER)")
    assert not messages.may_be_damaged(error)
    assert not messages.is_disk_full(error)


def test_files_that_cannot_be_opened(hyper: HyperProcess, tmp_path: Path):
    (tmp_path / "x.hyper").write_text("nothing")
    with pytest.raises(HyperException) as caught, connect(hyper, tmp_path / "x.hyper"):
        pass
    reason = messages.reason_not_opened(caught.value)
    assert reason
    assert reason != str(caught.value.main_message)
    assert "x.hyper" not in reason
