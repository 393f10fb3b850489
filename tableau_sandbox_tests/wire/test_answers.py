import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.faults import Refuse
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    call,
    default_project,
    publish,
    signed_in,
    wrapped_extract,
    write_package,
)
from tableau_sandbox_tests.wire.answer_check import check_json, check_xml
from tableau_sandbox_tests.wire.answer_table import ANSWERS, ELEMENTS

ADMIN = tsc.TableauAuth("admin", "admin")
TAGS = '<?xml version="1.0" encoding="UTF-8"?><tsResponse xmlns="http://tableau.com/api">%s</tsResponse>'


@pytest.mark.parametrize(
    "wrong",
    [
        '<tags><tag label="a" id="b"/></tags>',
        "<tags><tag/></tags>",
        '<tags><tag label=""/></tags>',
        "<tags><other/></tags>",
        "<tags/><tags/>",
        "<others/>",
    ],
)
def test_check_notices_what_is_wrong(wrong: str):
    # Prevents: the check of all answers accepts whatever it sees.
    check_xml((TAGS % '<tags><tag label="a"/></tags>').encode(), ["tags"], where="")
    with pytest.raises(AssertionError):
        check_xml((TAGS % wrong).encode(), ["tags"], where="")


@pytest.mark.parametrize("wrong", [{"fileSize": "x"}, {"fileSize": 1}, {"more": "1"}, {}])
def test_check_of_json_notices_it_too(wrong: dict[str, object]):
    # Prevents: answers in JSON are not compared with the table.
    good = {"uploadSessionId": "1", "fileSize": "0"}
    check_json({"fileUpload": good}, ["fileUpload"], where="", whole=True)
    bad = {**good, **wrong} if wrong else {}
    with pytest.raises(AssertionError):
        check_json({"fileUpload": bad}, ["fileUpload"], where="", whole=True)


def test_table_is_complete():
    # Prevents: an element is listed that the table does not describe.
    named = {kind for line in ANSWERS.strip().splitlines() for kind in line.split()[3:]} - {"file"}
    children = " ".join(element.partition("|")[2] for element in ELEMENTS.values())
    named |= {word.rstrip("?*").split("=")[-1] for word in children.split()}
    assert named <= set(ELEMENTS)


def test_every_list_and_record(server: tsc.Server, sandbox: Sandbox, one_row: Path):
    # Prevents: an answer lacks what real ones have, or has what they do not, in either format.
    item = publish(server, one_row)
    server.projects.create(tsc.ProjectItem("Child", parent_id=default_project(server)))
    one = f"sites/{{site}}/datasources/{item.id}"
    paths = ("sites", "sites/{site}", "sites/{site}/users", "sites/{site}/projects")
    paths += (one, f"{one}/connections", f"{one}/revisions", "sites/{site}/tasks/extractRefreshes")
    for path in (
        *paths,
        "sites/{site}/datasources",
        "sites/{site}/jobs",
        "serverInfo",
        "schedules",
    ):
        for accept in ("*/*", "application/json"):
            answer = call(sandbox, "GET", path, server=server, headers={"Accept": accept})
            assert answer.status_code == 200, answer.text


def test_attributes_of_real_answers(server: tsc.Server, one_row: Path):
    # Prevents: a client reads nothing where a real server says something.
    item = publish(server, one_row)
    (project,) = server.projects.get()[0]
    server.projects.create(tsc.ProjectItem("Child", parent_id=project.id))
    (project, _) = server.projects.get()[0]
    counts = (project.project_count, project.workbook_count, project.datasource_count)
    assert counts == (1, 0, 1)
    assert (project.owner.name, project.owner.fullname) == ("admin", "admin")
    (site,) = [site for site in server.sites.get()[0] if site.content_url == ""]
    assert (site.revision_history_enabled, site.revision_limit) == (True, 25)
    found = server.datasources.get_by_id(item.id)
    assert found.owner.name == "admin"


def test_site_without_revisions(start_sandbox: Callable[..., Sandbox]):
    # Prevents: a site claims to keep revisions that it does not keep.
    server = signed_in(start_sandbox(revisions=False), ADMIN)
    (site,) = server.sites.get()[0]
    assert site.revision_history_enabled is False


def test_notes_stand_first_in_a_refresh(
    sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path
):
    # Prevents: a client that reads elements in their order stumbles over the notes of a refresh.
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    job = server.jobs.wait_for_job(server.datasources.refresh(item), timeout=20)
    raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{job.id}", server=server).text
    assert re.search("<extractRefreshJob><notes>[^<]+</notes><datasource id=", raw)


def test_no_answer_names_a_path(server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: notes and refusals tell where a machine keeps its files.
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


@pytest.mark.parametrize(
    ("answer", "code"),
    [("none", None), ("0", "0"), ("1", "1")],
)
def test_finish_code_of_a_pending_publish(
    start_sandbox: Callable[..., Sandbox], one_row: Path, answer: str, code: str | None
):
    # Prevents: a client takes the finish code of a job that waits for its result.
    sandbox = start_sandbox(pending_publish=answer)
    server = signed_in(sandbox, ADMIN)
    with sandbox.held_jobs():
        item = tsc.DatasourceItem(default_project(server), name="X")
        job = server.datasources.publish(item, one_row, "Overwrite", as_job=True)
        raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{job.id}", server=server).text
        assert re.findall('finishCode="(.)"', raw) == ([] if code is None else [code])
    assert server.jobs.wait_for_job(job, timeout=20).finish_code == 0


@pytest.mark.parametrize("status", [503, 504])
def test_pages_of_gateways(start_sandbox: Callable[..., Sandbox], status: int):
    # Prevents: a client breaks on the page of a gateway, which is no answer of the API.
    sandbox = start_sandbox(gateway_pages=True, faults=[Refuse(status=status)])
    answer = call(sandbox, "GET", "serverInfo")
    assert answer.status_code == status
    assert answer.headers["Content-Type"].startswith("text/html")
    assert f"<h1>{status} " in answer.text
