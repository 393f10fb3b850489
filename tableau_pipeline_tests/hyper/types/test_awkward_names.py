from pathlib import Path

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.hyper.samples import build_one, rows_of, source

NAMES = [
    "a b",
    "a.b",
    'say "hi"',
    "it's",
    "Ünïcödé 航班 \U0001f6eb",
    "x; DROP TABLE y --",
    "[brackets]",
    "50 %",
    "back\\slash",
    "{0}",
    "select",
    "UPPER lower",
]


@pytest.mark.parametrize("name", [name for name in NAMES if "/" not in name])
def test_files_may_lie_in_awkward_folders(name: str, hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents a pipeline that works until a user's home folder has a space or a quote in it."""
    folder = tmp_path / name
    extract = build_one(
        hyper, folder / f"{name}.hyper", source(folder / "in", "Extract", {"a": [1, 2]}, files=2)
    )
    assert extract.path == folder / f"{name}.hyper"
    assert rows_of(hyper, extract.path)["a"].to_pylist() == [1, 2]
    assert sorted(file.name for file in folder.iterdir()) == sorted([f"{name}.hyper", "in"])


def test_a_relative_path_is_one_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a file in the folder in which hyperd happened to start, and garbage left there."""
    table = source(tmp_path / "in", "Extract", {"a": [1]})
    (tmp_path / "start").mkdir()
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path / "start")
    own = hyper_process(memory_limit="700m")
    monkeypatch.chdir(tmp_path / "later")
    try:
        build_one(own, Path("x.hyper"), table)
        assert rows_of(own, tmp_path / "later" / "x.hyper").num_rows == 1
    finally:
        own.close()
    assert list((tmp_path / "start").iterdir()) == []
