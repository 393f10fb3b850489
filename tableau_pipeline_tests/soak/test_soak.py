"""The comparison of rows in `judge` must find differences."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tableau_pipeline.ingest.publication import FilePublication
from tableau_pipeline.scripting.files import publish_files
from tableau_pipeline_tests.soak import people
from tableau_pipeline_tests.soak.judge import differences
from tableau_pipeline_tests.soak.people import Server
from tableau_pipeline_tests.soak.project import Lake, name_of
from tableau_sandbox.testing import Sandbox


def publish(lake: Lake, folder: Path) -> None:
    """Publish the current rows of each model."""
    for number, rows in lake.rows.items():
        file = folder / f"{number}.parquet"
        pq.write_table(rows, file)
        publish_files(FilePublication(paths=(str(file),), name=name_of(number)))


@pytest.mark.slow
def test_rows_that_differ(
    tableau_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a soak is green although published rows differ."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path / "data"))
    lake = Lake(tmp_path / "lake", 4)
    publish(lake, tmp_path)
    server = Server(tableau_sandbox.url)
    wanted = {name_of(number): rows for number, rows in lake.rows.items()}
    assert differences(server, wanted) == []
    people._overwrites(server, name_of(1))
    people._deletes(server, name_of(2))
    amounts = wanted["Shop 3"]["amount"].to_pylist()
    wanted["Shop 3"] = wanted["Shop 3"].set_column(1, "amount", [[*amounts[:-1], 7]])
    assert differences(server, wanted) == [
        "Shop 1: 2,000 rows became 1",
        "Shop 2: 0 data sources have this name",
        "Shop 3: rows have other values",
    ]
