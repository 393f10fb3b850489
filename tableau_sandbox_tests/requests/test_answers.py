import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.faults import Refuse
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.answer_check import check_xml
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    default_project,
    publish,
    wrapped_extract,
    write_package,
)

TAGS = '<?xml version="1.0" encoding="UTF-8"?><tsResponse xmlns="http://tableau.com/api">%s</tsResponse>'


@pytest.mark.parametrize(
    "wrong",
    [
        '<tags><tag label="a" id="b"/></tags>',
        "<tags><tag/></tags>",
        '<tags><tag label=""/></tags>',
        "<tags><other/></tags>",
        '<error code="400000"><detail/><summary/></error>',
        '<fileUpload uploadSessionId="1" fileSize="x"/>',
    ],
)
def test_check_notices_what_is_wrong(wrong: str):
    """Prevents: the check of all answers accepts whatever it sees."""
    check_xml((TAGS % '<tags><tag label="a"/></tags>').encode())
    with pytest.raises(AssertionError):
        check_xml((TAGS % wrong).encode())


def test_attributes_of_real_answers(server: tsc.Server, one_row: Path):
    """Prevents: a client reads nothing where a real server says something."""
    item = publish(server, one_row)
    server.projects.create(tsc.ProjectItem("Child", parent_id=default_project(server)))
    (project, _) = server.projects.get()[0]
    counts = (project.project_count, project.workbook_count, project.datasource_count)
    assert counts == (1, 0, 1)
    assert (project.owner.name, project.owner.fullname) == ("admin", "admin")
    assert server.datasources.get_by_id(item.id).owner.name == "admin"


@pytest.mark.parametrize("keeps", [True, False])
def test_site_says_whether_it_keeps_revisions(new_server: NewServer, keeps: bool):
    """Prevents: a site claims to keep revisions that it does not keep."""
    _, server = new_server(revisions=keeps)
    site = server.sites.get_by_id(server.site_id)
    assert site.revision_history_enabled is keeps


def test_refresh(sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: clients stumble over a progress in the answer, or over notes that come last."""
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    path = f"sites/{{site}}/datasources/{item.id}/refresh"
    answer = call(sandbox, "POST", path, server=server).text
    assert "progress" not in answer
    (luid,) = re.findall('<job id="([^"]+)"', answer)
    server.jobs.wait_for_job(luid, timeout=20)
    raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{luid}", server=server).text
    assert "progress=" in raw
    assert re.search("<extractRefreshJob><notes>[^<]+</notes><datasource id=", raw)


def test_no_answer_names_a_path(server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: notes and refusals tell where a machine keeps its files."""
    broken = tmp_path / "broken.hyper"
    broken.write_bytes(one_row.read_bytes()[:50_000])
    package = write_package(tmp_path / "p.tdsx", {"a.tds": "<datasource/>", "b.hyper": broken})
    parquet = tmp_path / "broken.parquet"
    parquet.write_bytes(b"PAR1")
    for file in (broken, package, parquet):
        item = tsc.DatasourceItem(default_project(server), name="X")
        job = server.datasources.publish(item, str(file), "Overwrite", as_job=True)
        with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException) as caught:
            server.jobs.wait_for_job(job, timeout=20)
        (note,) = caught.value.job.status_notes
        assert note["value"] == "400011"
        assert "/" not in note["text"], note
        with pytest.raises(tsc.ServerResponseError, match="400011") as refused:
            publish(server, file, name="X")
        assert "/" not in refused.value.detail


@pytest.mark.parametrize(("answer", "code"), [("none", None), ("0", "0"), ("1", "1")])
def test_finish_code_of_a_pending_publish(
    new_server: NewServer, one_row: Path, answer: str, code: str | None
):
    """Prevents: a client takes the finish code of a job that waits for its result."""
    sandbox, server = new_server(pending_publish=answer)
    with sandbox.held_jobs():
        item = tsc.DatasourceItem(default_project(server), name="X")
        job = server.datasources.publish(item, one_row, "Overwrite", as_job=True)
        raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{job.id}", server=server).text
        assert re.findall('finishCode="(.)"', raw) == ([] if code is None else [code])
    assert server.jobs.wait_for_job(job, timeout=20).finish_code == 0


@pytest.mark.parametrize("status", [503, 504])
def test_pages_of_gateways(start_sandbox: Callable[..., Sandbox], status: int):
    """Prevents: a client breaks on the page of a gateway, which is no answer of the API."""
    sandbox = start_sandbox(gateway_pages=True, faults=[Refuse(status=status)])
    answer = call(sandbox, "GET", "serverInfo")
    assert answer.status_code == status
    assert answer.headers["Content-Type"].startswith("text/html")
    assert f"<h1>{status} " in answer.text
