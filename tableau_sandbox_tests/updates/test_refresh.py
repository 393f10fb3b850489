from pathlib import Path

import tableauserverclient as tsc

from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    publish,
    rows_on_server,
    wrapped_extract,
)


def test_refresh_of_an_extract(server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: the job of a refresh never ends, or does not say which data source it was for.
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    job = server.datasources.refresh(item)
    assert (job.type, job.finish_code, job.datasource_id) == ("RefreshExtract", -1, item.id)
    done = server.jobs.wait_for_job(job, timeout=20)
    assert (done.finish_code, done.datasource_name) == (0, "Flights")
    assert "data stay as they are" in done.notes[0]
    assert rows_on_server(server, item.id) == [[1, "one"]]
    (listed,) = server.jobs.filter(job_type="refresh_extracts")
    assert listed.id == job.id


def test_one_refresh_at_a_time(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: refreshes pile up, which real servers do not let them do.
    sandbox, server = new_server(job_delay=0.5)
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    # Older clients send no body.
    path = f"sites/{{site}}/datasources/{item.id}/refresh"
    assert call(sandbox, "POST", path, server=server).status_code == 202
    assert server.datasources.refresh(item) is None
    again = call(sandbox, "POST", path, server=server)
    assert (again.status_code, 'code="409093"' in again.text) == (409, True)
