from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import TIMEOUT, publish, write_hyper, write_package


def test_people_can_look(sandbox: Sandbox, server: tsc.Server, tmp_path: Path):
    # Prevents: the address that clients print after a publish leads nowhere, or runs what it shows.
    query = (
        "SELECT i AS id, '<script>' AS note, NULL AS nothing FROM generate_series(1, 25) AS g(i)"
    )
    item = publish(server, write_hyper(tmp_path / "x.hyper", query), name="<b>bold</b>")
    overview = requests.get(sandbox.url, timeout=TIMEOUT).text
    assert "&lt;b&gt;bold&lt;/b&gt;" in overview
    assert "Extract (25 rows)" in overview
    page = requests.get(item.webpage_url, timeout=TIMEOUT)
    assert page.status_code == 200
    assert "Extract.Extract: 25 rows" in page.text
    assert page.text.count("&lt;script&gt;") == 10
    assert page.text.count(">NULL<") == 10
    assert "<script>" not in page.text + overview


def test_sites_as_trees(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: people cannot see where a data source is, what it was before, or why a job failed.
    sandbox, server = new_server(sites=("second",))
    outer = server.projects.create(tsc.ProjectItem("Outer"))
    inner = server.projects.create(tsc.ProjectItem("Inner", parent_id=outer.id))
    item = tsc.DatasourceItem(inner.id, name="Deep")
    for _ in range(2):
        published = server.datasources.publish(item, one_row, "Overwrite")
    broken = tmp_path / "broken.hyper"
    broken.write_bytes(b"broken")
    job = server.datasources.publish(item, broken, "Overwrite", as_job=True)
    with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException):
        server.jobs.wait_for_job(job, timeout=20)
    overview = requests.get(sandbox.url, timeout=TIMEOUT).text
    found = [overview.index(f">{name}<") for name in ("Default", "Outer", "Inner", "Deep")]
    assert found == sorted(found)
    assert "Site second" in overview
    assert "There was a problem publishing the file &#39;Deep.hyper&#39;" in overview
    page = requests.get(str(published.webpage_url), timeout=TIMEOUT)
    assert "2 (current)" in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


TDS = """<datasource version='18.1'>
  <connection class='hyper' dbname='Data/e.hyper' />
  <column caption='Margin' datatype='real' name='[c]'><calculation formula='1' /></column>
  <folders-common><folder name='Money' role='measures' /></folders-common>
</datasource>"""


def test_what_people_say_of_it(server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: who publishes captions or a certification cannot see that they arrived."""
    outer = server.projects.create(tsc.ProjectItem("Outer"))
    inner = server.projects.create(tsc.ProjectItem("Inner", parent_id=outer.id))
    package = write_package(tmp_path / "p.tdsx", {"e.tds": TDS, "Data/e.hyper": one_row})
    item = tsc.DatasourceItem(inner.id, name="Told")
    item = server.datasources.publish(item, package, "CreateNew")
    item.certified, item.certification_note = True, "Checked by Ada"
    server.datasources.update(item)
    page = requests.get(str(item.webpage_url), timeout=TIMEOUT).text
    for told in ("Outer / Inner", "Margin", "Money", "Checked by Ada", " UTC<"):
        assert told in page, told


def test_nothing_to_show(sandbox: Sandbox):
    """Prevents: an empty page looks like a broken one, or a stale link ends in an error."""
    assert "Nothing is published here yet." in requests.get(sandbox.url, timeout=TIMEOUT).text
    assert requests.get(f"{sandbox.url}/datasources/x", timeout=TIMEOUT).status_code == 404
