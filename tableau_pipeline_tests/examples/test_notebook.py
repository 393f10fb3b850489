"""The notebook, its cells run one after another as a kernel runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session
from tableau_sandbox.testing import Sandbox

NOTEBOOK = ROOT / "examples" / "refresh_from_a_notebook.ipynb"


@pytest.mark.slow
def test_every_cell(
    spark: SparkSession, tableau_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a notebook that fails, or publishes other rows than it shows."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    decisions = [names[run].partition(":")[0] for run in ("first", "again", "changed")]
    assert decisions[:2] == ["publish (create)", "no change"]
    assert decisions[2] in ("update", "publish (replace)")
    with session(tableau_sandbox) as site:
        (item,) = site.tsc.datasources.filter(name="Notebook Orders")
        published = published_rows(site, str(item.id))
    assert set(published["order_id"].to_pylist()) == set(range(1_000)) - {7}
