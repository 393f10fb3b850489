from pathlib import Path

import requests
import tableauserverclient as tsc

from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.sandbox.samples import TIMEOUT, publish, write_hyper


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
    assert "<script>" not in page.text + overview


def test_page_of_nothing(shared_sandbox: Sandbox):
    # Prevents: a stale link ends in an error of the sandbox.
    assert requests.get(f"{shared_sandbox.url}/datasources/x", timeout=TIMEOUT).status_code == 404
