"""Reference pages and README: their lists and examples must agree with the code."""

import re
import runpy
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from tableau_pipeline.hyper.types import _RULES, PRODUCTS, Column, file_version, hyper_type
from tableau_pipeline.resources import SnapshotIOManager, SparkResource
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.conftest import ROOT, Story
from tableau_pipeline_tests.docs.page import README, page
from tableau_pipeline_tests.refresh.support.models import snapshot

TYPES = page("reference/types.md").whole.text
# The name that Tableau Desktop gives each type of Hyper; precisions are left out.
IN_TABLEAU = {
    "BOOLEAN": "Boolean",
    **dict.fromkeys(("SMALLINT", "INTEGER", "BIGINT"), "Number (whole)"),
    **dict.fromkeys(("DOUBLE PRECISION", "REAL", "NUMERIC"), "Number (decimal)"),
    "TEXT": "String",
    "BYTES": "(unknown)",
    "DATE": "Date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), "Date & Time"),
}
ROWS = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (.+?) \| (.*)\|$", TYPES, re.MULTILINE)


@pytest.mark.parametrize(("spark", "hyper", "tableau", "notes"), ROWS)
def test_each_row(spark: str, hyper: str, tableau: str, notes: str):
    """Prevents: the page promises another type than a column gets."""
    column = Column("c", spark)
    assert hyper_type(column, table="t") == hyper
    assert IN_TABLEAU[hyper.partition("(")[0]] == tableau
    named = re.search(r"file version (\d)", notes)
    assert file_version([column]) == (int(named[1]) if named else 2)


def test_every_type_has_a_row():
    """Prevents: the page lacks a type that the pipeline supports."""
    patterns = [re.compile(spark, re.IGNORECASE) for spark, *_ in _RULES]
    assert all(any(each.fullmatch(row[0]) for row in ROWS) for each in patterns)


def test_versions():
    """Prevents: the page names the wrong products for a file version."""
    rows = re.findall(r"^\| (\d) \| .+? \| (.+?) \|$", TYPES, re.MULTILINE)
    assert {int(version): products for version, products in rows} == PRODUCTS


SNAPSHOT = page("reference/snapshot.md").whole


@pytest.mark.parametrize(("rows", "passed"), [(999, False), (1000, True)])
def test_its_check(tmp_path: Path, rows: int, passed: bool):
    """Prevents: the check on the page starts Spark, or fails after users copy the code."""
    names: dict[str, Any] = {}
    (block,) = SNAPSHOT.blocks("python")
    exec(block, names)
    snapshot(tmp_path, pa.table({"id": pa.array(range(rows), pa.int64())}), asset_key="orders")
    spark = SparkResource(master="no such master")
    definitions = dg.Definitions(
        assets=[dg.AssetSpec("orders")],
        asset_checks=[names["enough_orders"]],
        resources={"io_manager": SnapshotIOManager(root=str(tmp_path), spark=spark)},
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    (found,) = job.execute_in_process(raise_on_error=False).get_asset_check_evaluations()
    assert (found.passed, found.metadata["rows"].value) == (passed, rows)


def test_its_attributes(tmp_path: Path):
    """Prevents: the page lists attributes that a snapshot does not have."""
    snapshot(tmp_path, pa.table({"id": pa.array([1, 2], pa.int64())}), asset_key="orders")
    found = SnapshotStore(tmp_path).newest("orders")
    listed = [name for row in SNAPSHOT.rows() for name in row["attribute"].split(", ")]
    assert found
    assert "row_count" in listed
    assert [name for name in listed if not hasattr(found, name)] == []


BLOCKS = page("reference/hyper.md").whole.blocks("python")


def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Prevents: the script on the page fails, or writes other files than the page says."""
    assert len(BLOCKS) == 6
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(BLOCKS), "hyper.md", "exec"), {})
    assert '"Extract"."Extract" 7 ' in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        *("cars.hyper", "star.hyper", "from_csv.hyper", "cars.csv")
    }


SCRIPT = runpy.run_path(str(ROOT / "scripts" / "yaml_reference.py"), run_name="yaml_reference")


def test_the_page_is_up_to_date():
    """Prevents: the page lists other keys than the code reads. `make docs` writes the page."""
    text = page("reference/yaml.md").whole.text
    assert SCRIPT["with_tables"](text) == text


_MOST_LINES = 150


def test_demo_table(story: Story):
    # Prevents: the figures in README differ from the figures of the demo.
    lines = re.findall(r"^(.*?)  +(NYC \w+)  +(.*?)  +(.*)$", README.sections["Try it"].text, re.M)
    figures = [
        (line.chapter.title, line.datasource, done.decision, done.rows, done.deleted, done.inserted)
        for line in story.lines
        for done in [line.ended]
    ]
    assert [(*row[:3], *_numbers(row[3])) for row in lines] == figures


def _numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in text.split()[:3]]


def test_it_is_short():
    # Prevents: README grows too long to read.
    assert len(README.whole.text.splitlines()) <= _MOST_LINES
