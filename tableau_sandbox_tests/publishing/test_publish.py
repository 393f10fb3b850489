from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE, VIEWER
from tableau_sandbox_tests.samples import (
    call,
    default_project,
    execute,
    multipart,
    publish,
    rows_on_server,
    signed_in,
    tds_of,
    write_hyper,
)

ONE, TWO = [[1, "one"]], [[1, "one"], [2, "two"]]


def test_create_and_read_back(server: tsc.Server, one_row: Path):
    # Prevents: what is downloaded is not what was published, or its record lacks what clients read.
    published = publish(server, one_row, name="NYC Flights (2013)")
    assert rows_on_server(server, published.id) == ONE
    read = server.datasources.get_by_id(published.id)
    assert (read.datasource_type, read.has_extracts, read.size) == ("hyper", False, 1)
    assert read.content_url == "NYCFlights2013"
    assert read.project_id == default_project(server)
    assert read.owner_id == server.user_id
    assert read.created_at == read.updated_at


def test_download_says_what_it_is(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: clients that take the name and kind of a download from its header get stuck.
    published = publish(server, one_row, name="World Indicators")
    path = f"sites/{{site}}/datasources/{published.id}/content"
    whole = call(sandbox, "GET", path, server=server).headers
    assert whole["Content-Type"] == "application/octet-stream"
    assert whole["Content-Disposition"] == (
        'name="tableau_datasource"; filename="World Indicators.tdsx"'
    )
    bare = call(sandbox, "GET", f"{path}?includeExtract=False", server=server)
    assert bare.headers["Content-Disposition"].endswith('filename="World Indicators.tds"')


def test_create_needs_a_free_name(server: tsc.Server, one_row: Path, two_rows: Path):
    # Prevents: a first publish silently replaces someone's data source.
    published = publish(server, one_row, name="Flights")
    with pytest.raises(tsc.ServerResponseError) as caught:
        publish(server, two_rows, name="FLIGHTS")
    assert caught.value.code == "403007"
    assert caught.value.detail == (
        "The datasource 'Flights' already exists and may not be overwritten without the"
        " 'overwrite' flag set to 'true'."
    )
    assert rows_on_server(server, published.id) == ONE


def test_overwrite_keeps_identity(server: tsc.Server, one_row: Path, two_rows: Path):
    # Prevents: dashboards lose their data source on a refresh, or two refreshes look like one.
    first = publish(server, one_row, mode="Overwrite")
    server.datasources.add_tags(first, ["kept"])
    times = {first.updated_at}
    for _ in range(3):
        again = publish(server, two_rows, mode="Overwrite")
        times.add(again.updated_at)
        assert (again.id, again.content_url) == (first.id, first.content_url)
    assert len(times) == 4
    assert again.tags == {"kept"}
    assert again.created_at == first.created_at
    assert rows_on_server(server, first.id) == TWO


def test_replace_changes_data_only(server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: a refresh drops the calculated fields that analysts have added.
    more = write_hyper(tmp_path / "more.hyper", "SELECT 1 AS id, 'one' AS name, 2 AS extra")
    with pytest.raises(tsc.ServerResponseError, match="404004"):
        publish(server, one_row, mode="Replace")
    first = publish(server, one_row)
    metadata = tds_of(server, first.id, tmp_path)
    publish(server, more, mode="Replace")
    assert rows_on_server(server, first.id) == [[1, "one", 2]]
    assert tds_of(server, first.id, tmp_path) == metadata
    publish(server, more, mode="Overwrite")
    assert "extra" in tds_of(server, first.id, tmp_path)


def test_same_name_in_two_projects(server: tsc.Server, one_row: Path, two_rows: Path):
    # Prevents: namesakes in different projects overwrite each other.
    other = server.projects.create(tsc.ProjectItem("Other"))
    first = publish(server, one_row)
    second = server.datasources.publish(
        tsc.DatasourceItem(other.id, name="Flights"), two_rows, "Overwrite"
    )
    assert str(second.content_url).startswith("Flights_")
    assert rows_on_server(server, first.id) == ONE
    assert rows_on_server(server, second.id) == TWO


def test_publish_without_project_goes_to_the_default_one(server: tsc.Server, one_row: Path):
    # Prevents: a data source without a project is refused or gets lost.
    item = server.datasources.publish(tsc.DatasourceItem(name="X"), one_row, "CreateNew")
    assert item.project_name == "Default"
    with pytest.raises(tsc.ServerResponseError, match="404005"):
        server.datasources.publish(tsc.DatasourceItem("nowhere", name="X"), one_row, "Overwrite")


def test_rights(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a pipeline overwrites what it does not own, or publishes without the right to.
    publish(server, one_row, name="Admin's")
    alice = signed_in(sandbox, tsc.PersonalAccessTokenAuth(*ALICE.tokens[0]))
    with pytest.raises(tsc.ServerResponseError, match="403007"):
        publish(alice, one_row, name="Admin's", mode="Overwrite")
    hers = publish(alice, one_row, name="Alice's")
    assert publish(server, one_row, name="Alice's", mode="Overwrite").owner_id == hers.owner_id
    viewer = signed_in(sandbox, tsc.TableauAuth(VIEWER.name, VIEWER.password))
    with pytest.raises(tsc.ServerResponseError, match="403007"):
        publish(viewer, one_row, name="Viewer's")


def test_any_name_is_only_a_name(server: tsc.Server, sandbox: Sandbox, one_row: Path):
    # Prevents: a name leads out of the data directory, or breaks XML, headers or packages.
    for name in ("../../escape", "a/b\\c", "Ünï ço∂é", "q\"uo'te<&>", "x" * 255, "..", "%2F"):
        published = publish(server, one_row, name=name)
        assert server.datasources.get_by_id(published.id).name == name
        assert rows_on_server(server, published.id) == ONE
        assert sandbox.hyper_file(published.id).parent == sandbox.data_dir / "content"
    assert {path.name for path in sandbox.data_dir.parent.iterdir()} == {"sandbox"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not a database at all", "not a valid database"),
        (b"", "problem publishing the file 'Flights.hyper'"),
    ],
)
def test_file_that_hyper_cannot_open(
    server: tsc.Server, tmp_path: Path, content: bytes, reason: str
):
    # Prevents: a broken file is published, and found to be broken by whoever opens a dashboard.
    file = tmp_path / "broken.hyper"
    file.write_bytes(content)
    with pytest.raises(tsc.ServerResponseError, match=reason) as caught:
        publish(server, file)
    assert caught.value.code == "400011"
    assert server.datasources.get()[0] == []


def test_file_without_tables_or_columns(server: tsc.Server, tmp_path: Path):
    # Prevents: an empty extract replaces a good one.
    with pytest.raises(tsc.ServerResponseError, match=r"400011.*\n.*contains no tables"):
        publish(server, execute(tmp_path / "empty.hyper"))
    bare = execute(tmp_path / "bare.hyper", 'CREATE TABLE "Extract"."t" ()')
    with pytest.raises(tsc.ServerResponseError, match=r'"Extract"."t" has no columns'):
        publish(server, bare)


def test_terse_and_streamed_request(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: clients that name no type, or send chunks without telling a length, cannot publish.
    body, content_type = multipart(
        ("request_payload", "", REQUEST), ("tableau_datasource", "x.hyper", one_row.read_bytes())
    )
    chunks = (body[start : start + 1000] for start in range(0, len(body), 1000))
    headers = {"Content-Type": content_type}
    response = call(
        sandbox, "POST", "sites/{site}/datasources", server=server, data=chunks, headers=headers
    )
    assert response.status_code == 201, response.text
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == ONE


REQUEST = '<tsRequest><datasource name="Raw"/></tsRequest>'
