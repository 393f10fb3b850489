from pathlib import Path

import pyarrow as pa
import pytest

from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.hyper.samples import build_one, source

BLOCKS = page("reference/hyper.md").whole.blocks("python")


def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Prevents: a page that does not do what it says."""
    rows = pa.table({"id": [1, 2], "name": ["Golf", "Ente"], "price": [480, 1800]})
    build_one(hyper_process(), tmp_path / "cars.hyper", source(tmp_path / "rows", "Extract", rows))
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(BLOCKS), "hyper.md", "exec"), {})
    assert '"Extract"."Extract" 2 ' in capsys.readouterr().out
