from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    default_project,
    publish,
    rows_on_server,
    send_parts,
    tds_of,
    write_hyper,
)
from tableau_sandbox_tests.updates.test_update_data import APPEND, CLEAR, update

ONE, TWO = [1, "one"], [2, "two"]


@pytest.mark.parametrize("by_upload", [False, True])
@pytest.mark.slow
def test_every_mode_as_a_job(
    sandbox: Sandbox,
    server: tsc.Server,
    one_row: Path,
    two_rows: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    by_upload: bool,
):
    # Prevents: publishing in the background does something else than publishing at once.
    if by_upload:
        monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", "0")
        monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    luids = set()
    for mode, file, rows in (
        ("CreateNew", one_row, [ONE]),
        ("Overwrite", two_rows, [ONE, TWO]),
        ("Replace", one_row, [ONE]),
        ("Append", two_rows, [ONE, ONE, TWO]),
    ):
        item = tsc.DatasourceItem(default_project(server), name="Flights")
        job = server.datasources.publish(item, file, mode, as_job=True)
        sandbox.wait_until_idle()
        found = server.jobs.get_by_id(job.id)
        assert (found.type, found.finish_code, found.datasource_name) == (
            "PublishDatasource",
            0,
            "Flights",
        )
        luids.add(found.datasource_id)
        assert rows_on_server(server, found.datasource_id) == rows
    (item,) = server.datasources.get()[0]
    assert luids == {item.id}
    publish(server, one_row, name="At once")
    listed = server.jobs.filter()
    assert {(job.type, job.title, job.status) for job in listed} == {
        ("publish_datasource", "Flights", "Success")
    }
    assert len(listed) == 4
    assert all(job.created_at and job.started_at and job.ended_at for job in listed)
    assert list((sandbox.data_dir / "uploads").iterdir()) == []


def test_unfinished_jobs_may_have_a_finish_code(
    new_server: NewServer, one_row: Path, two_rows: Path
):
    # Prevents: a pipeline takes a job for done by its finish code, and reads old data.
    sandbox, server = new_server(early_finish_code=True, job_delay=60)
    item = publish(server, one_row)
    job = update(server, item, APPEND, payload=two_rows)
    assert (job.finish_code, job.completed_at) == (0, None)
    sandbox.wait_until_running()
    raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{job.id}", server=server).text
    assert 'finishCode="0"' in raw
    assert "startedAt" in raw
    assert "completedAt" not in raw
    server.jobs.cancel(job)
    assert server.jobs.get_by_id(job.id).finish_code == 2


def test_replace_may_be_refused(new_server: NewServer, one_row: Path, two_rows: Path):
    # Prevents: a pipeline has no other way on servers that do not know the mode.
    sandbox, server = new_server(replace="refused")
    item = publish(server, one_row)
    for as_job in (False, True):
        again = tsc.DatasourceItem(default_project(server), name="Flights")
        with pytest.raises(tsc.ServerResponseError, match="400000"):
            server.datasources.publish(again, two_rows, "Replace", as_job=as_job)
    assert list(server.jobs.filter()) == []
    assert rows_on_server(server, item.id) == [ONE]
    # An upload outlives the refusal.
    upload = server.fileuploads.upload(str(two_rows))
    request = ("request_payload", "", '<tsRequest><datasource name="Flights"/></tsRequest>')
    for mode, status in (("replace", 400), ("overwrite", 201)):
        query = f"uploadSessionId={upload}&datasourceType=hyper&{mode}=true"
        path = f"sites/{{site}}/datasources?{query}"
        answer = send_parts(sandbox, server, "POST", path, request)
        assert answer.status_code == status, answer.text


def test_replace_may_be_like_overwrite(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: the pipeline is tested against one of two readings of Replace only.
    _, server = new_server(replace="like-overwrite")
    first = publish(server, one_row)
    more = write_hyper(tmp_path / "more.hyper", "SELECT 1 AS id, 2 AS extra")
    publish(server, more, mode="Replace")
    assert "extra" in tds_of(server, first.id, tmp_path)
    with pytest.raises(tsc.ServerResponseError, match="404004"):
        publish(server, more, name="Unknown", mode="Replace")


def test_renamed_and_moved(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a pipeline that follows a declaration loses its data source on the way.
    other = server.projects.create(tsc.ProjectItem("Other"))
    item, taken = publish(server, one_row), publish(server, one_row, name="Taken")
    path = f"sites/{{site}}/datasources/{item.id}"

    def put(attributes: str, *children: str) -> str:
        body = f"<tsRequest><datasource {attributes}>{''.join(children)}</datasource></tsRequest>"
        answer = call(sandbox, "PUT", path, server=server, data=body)
        return "" if answer.ok else code_of(answer)

    moved = f'<project id="{other.id}"/>'
    assert put('name="TAKEN"') == "409015"
    assert put('name="Renamed"', '<project id="nowhere"/>') == "404005"
    assert server.datasources.get_by_id(item.id).name == "Flights"
    # In another project, the name is free; the own name is, in any case of letters.
    assert put('name="FLIGHTS"') == ""
    assert put('name="Taken"', moved) == ""
    found = server.datasources.get_by_id(item.id)
    assert (found.name, found.project_id, found.project_name) == ("Taken", other.id, "Other")
    assert found.content_url == item.content_url
    assert put("", f'<project id="{taken.project_id}"/>') == "409015"
    assert put('name="Renamed"') == ""
    listed = {found.name: found.size for found in server.datasources.get()[0]}
    assert listed == {"Renamed": 1, "Taken": 1}
    assert all(found.created_at for found in server.datasources.get()[0])
    job = update(server, item, CLEAR)
    sandbox.wait_until_idle()
    assert [job.title for job in server.jobs.filter()] == ["Renamed"]
    found = server.jobs.get_by_id(job.id)
    assert (found.datasource_id, found.datasource_name) == (item.id, "Renamed")
