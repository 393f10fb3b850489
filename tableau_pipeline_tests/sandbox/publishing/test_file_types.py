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
    server = signed_in(sandbox)
    publish(server, named)
    with pytest.raises(tsc.ServerResponseError, match=r"400011.*\n.*must contain one table"):
        publish(server, tree, name="Tree")
    sandbox.stop()
    server = signed_in(start_sandbox(hyper_profile="2019.4"))
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
