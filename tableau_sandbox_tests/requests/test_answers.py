"""What answers hold where the contract cannot look: quirks, files, and refused jobs."""

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    default_project,
    publish,
    tds_of,
    wrapped_extract,
    write_package,
)


def test_refresh(sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: clients stumble over a progress in the answer, or over notes that come last."""
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    answer = call(sandbox, "POST", f"sites/{{site}}/datasources/{item.id}/refresh", server=server)
    assert "progress" not in answer.text
    (luid,) = re.findall('<job id="([^"]+)"', answer.text)
    server.jobs.wait_for_job(luid, timeout=20)
    raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{luid}", server=server).text
    assert "progress=" in raw
    assert re.search("<extractRefreshJob><notes>[^<]+</notes><datasource id=", raw)


def test_no_answer_names_a_path(server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: notes and refusals tell where a machine keeps its files."""
    broken, parquet = tmp_path / "broken.hyper", tmp_path / "broken.parquet"
    broken.write_bytes(one_row.read_bytes()[:50_000])
    parquet.write_bytes(b"PAR1")
    package = write_package(tmp_path / "p.tdsx", {"a.tds": "<datasource/>", "b.hyper": broken})
    for file in (broken, package, parquet):
        item = tsc.DatasourceItem(default_project(server), name="X")
        job = server.datasources.publish(item, str(file), "Overwrite", as_job=True)
        with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException) as caught:
            server.jobs.wait_for_job(job, timeout=20)
        (note,) = caught.value.job.status_notes
        with pytest.raises(tsc.ServerResponseError, match="400011") as refused:
            publish(server, file, name="X")
        assert note["value"] == "400011"
        assert "/" not in note["text"] + refused.value.detail


@pytest.mark.parametrize(
    ("quirks", "codes"),
    [
        ({"pending_publish": "none"}, []),
        ({"pending_publish": "1"}, ["1"]),
        ({"early_finish_code": True}, ["0"]),
        ({"early_finish_code": True, "pending_publish": "1"}, ["1"]),
    ],
)
def test_finish_code_of_a_pending_publish(
    new_server: NewServer, one_row: Path, quirks: dict[str, Any], codes: list[str]
):
    """Prevents: a client takes the finish code of a job that waits for its result."""
    sandbox, server = new_server(**quirks)
    with sandbox.held_jobs():
        item = tsc.DatasourceItem(default_project(server), name="X")
        job = server.datasources.publish(item, one_row, "Overwrite", as_job=True)
        raw = call(sandbox, "GET", f"sites/{{site}}/jobs/{job.id}", server=server).text
        assert re.findall('finishCode="(.)"', raw) == codes
    assert server.jobs.wait_for_job(job, timeout=20).finish_code == 0


def test_bare_download_may_be_a_package(
    sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path
):
    """Prevents: a pipeline reads XML where servers send a zip file."""
    item = publish(server, one_row)
    tds = tds_of(server, item.id, tmp_path)
    sandbox.set_quirks(download_without_extract="tdsx")
    path = server.datasources.download(item.id, str(tmp_path / "bare"), include_extract=False)
    assert path.endswith("bare.tdsx")
    with zipfile.ZipFile(path) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            "Flights.tds": tds
        }
