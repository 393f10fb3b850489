from pathlib import Path

import pytest

from tableau_pipeline_tests.docs.page import page

BLOCKS = page("reference/hyper.md").whole.blocks("python")


def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Prevents: a page that does not do what it says."""
    assert len(BLOCKS) == 6
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(BLOCKS), "hyper.md", "exec"), {})
    assert '"Extract"."Extract" 7 ' in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        *("cars.hyper", "star.hyper", "from_csv.hyper", "cars.csv")
    }
