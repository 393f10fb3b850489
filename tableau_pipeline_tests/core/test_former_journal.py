"""Journals as the version before wrote them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import Closing, Former
from tableau_pipeline.scripting.file_journal import FileJournal
from tableau_pipeline_tests.core.test_file_journal import intent
from tableau_pipeline_tests.refresh.support.states import checkpoint

ROWS = {"rows": 100, "hash_sum": "7", "algorithm": "xxhash64-nulls-1"}
STATE: dict[str, Any] = {
    "format": 1,
    "server": "http://tableau",
    "site": "",
    "project": "Curated",
    "name": "Sales",
    "luid": "luid-1",
    "updated_at": "2025-03-01T12:00:00Z",
    "declaration": "0123456789abcdef",
    "tables": {
        "orders": {
            "columns": [{"name": "id", "type": "bigint"}],
            "folders": ["/data/snapshots/orders/v-1"],
            "model": ROWS | {"rows": 120},
            "content": ROWS,
            "cutoff": None,
            "key": [],
        }
    },
    "metadata": "digest-1",
    "increments": 3,
    "size": 1000,
    "grown": 0,
    "orphans": {},
    "unreconciled": None,
}
INTENT = {
    "request_id": "first",
    "recorded_at": "2025-03-01T12:00:00Z",
    "run_id": "test",
    "mode": None,
    "target": STATE,
    "luid": "luid-1",
    "connection": None,
    "batch": "{}",
    "payload": "/data/x.hyper",
    "final": True,
    "resent_at": None,
    "job_id": "job-1",
    "outcome": None,
    "note": None,
    "unequal": None,
}
FORMER = Former(
    server="http://tableau",
    site="",
    project="Curated",
    name="Sales",
    luid="luid-1",
    rows={"orders": 100},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sales.json"


def written(path: Path, state: Any) -> None:
    """A journal with that state, and something that was sent since."""
    content = {"format": 1, "state": state, "intents": [INTENT]}
    path.write_text(json.dumps(content), encoding="utf-8")


def test_identity_and_rows_are_read(path: Path):
    # Prevents: an upgrade after which nothing is ours, or a table may lose all its rows unasked.
    written(path, STATE)
    before = path.read_bytes()
    assert list(FileJournal(path).records()) == [FORMER]
    assert path.read_bytes() == before


def test_records_go_on_from_there(path: Path):
    # Prevents: a refresh that is cut off after an upgrade, and what was published is forgotten.
    written(path, STATE)
    FileJournal(path).append(intent("second"))
    assert list(FileJournal(path).records()) == [FORMER, intent("second")]
    FileJournal(path).append(Closing(refresh=1, claim="a", checkpoint=checkpoint()))
    assert FORMER not in FileJournal(path).records()


@pytest.mark.parametrize(
    "state",
    [None, {}, STATE | {"luid": None}, STATE | {"tables": {"orders": {}}}, STATE | {"tables": 7}],
    ids=["none", "empty", "no luid", "no content", "no tables"],
)
def test_what_tells_nothing_is_none(path: Path, state: Any):
    # Prevents: an upgrade that fails for the sake of what it would have been nice to know.
    written(path, state)
    assert list(FileJournal(path).records()) == []
    FileJournal(path).append(intent("second"))
    assert list(FileJournal(path).records()) == [intent("second")]


def test_name_of_the_instance_stays(path: Path):
    # Prevents: the first refresh after an upgrade tags the data source as another deployment's.
    written(path, STATE)
    journal = FileJournal(path)
    named = journal.instance
    journal.append(intent("second"))
    assert FileJournal(path).instance == named
