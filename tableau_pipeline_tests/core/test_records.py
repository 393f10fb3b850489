import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tableau_pipeline.core.checkpoint import Cutoff, Intent, Outcome, PublishMode, State, TableState
from tableau_pipeline.core.snapshot import MANIFEST, DataFile, Fingerprint, Snapshot
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline_tests.refresh.models import airlines, flights, snapshot

TEXT = st.text(max_size=8)
INSTANT = st.datetimes(
    min_value=datetime(2000, 1, 1),
    timezones=st.just(UTC),
)
# 10^10 rows with the largest hash.
FINGERPRINT = st.builds(
    Fingerprint, rows=st.integers(0, 10**12), hash_sum=st.integers(-(2**97), 2**97)
)
CUTOFF = st.builds(Cutoff, column=TEXT, days=st.integers(0, 9), as_of=TEXT, value=TEXT)
COLUMNS = st.lists(st.builds(Column, TEXT, TEXT), max_size=3).map(tuple)
FOLDER = st.text("abcÿ/ '%", min_size=1).map(Path)
STATE = st.builds(
    State,
    server=TEXT,
    site=TEXT,
    project=TEXT,
    name=TEXT,
    luid=st.none() | TEXT,
    updated_at=st.none() | INSTANT,
    declaration=TEXT,
    tables=st.dictionaries(
        TEXT,
        st.builds(
            TableState,
            columns=COLUMNS,
            folders=st.tuples(FOLDER),
            model=FINGERPRINT,
            content=FINGERPRINT,
            cutoff=st.none() | CUTOFF,
        ),
        max_size=2,
    ),
    metadata=st.none() | TEXT,
    increments=st.integers(0, 99),
    size=st.none() | st.integers(0, 2**40),
)
INTENT = st.builds(
    Intent,
    request_id=TEXT,
    recorded_at=INSTANT,
    run_id=TEXT,
    mode=st.none() | st.sampled_from(PublishMode),
    target=st.none() | STATE,
    luid=st.none() | TEXT,
    connection=st.none() | TEXT,
    batch=st.none() | TEXT,
    payload=st.none() | FOLDER,
    final=st.booleans(),
    resent_at=st.none() | INSTANT,
    job_id=st.none() | TEXT,
    outcome=st.none() | st.sampled_from(Outcome),
    note=st.none() | TEXT,
)


@given(record=st.one_of(STATE, INTENT, FINGERPRINT))
def test_records_survive_json(record: BaseModel):
    """Prevents: what one run records reads otherwise in the next."""
    kept = json.loads(json.dumps(record.model_dump(mode="json")))
    assert type(record).model_validate(kept) == record


@given(hash_sum=st.integers(-(2**97), 2**97))
def test_sums_survive_readers_that_know_floats_only(hash_sum: int):
    """Prevents: a browser or Dagster's GraphQL rounds a sum, and all content looks changed."""
    kept = Fingerprint(rows=1, hash_sum=hash_sum).model_dump(mode="json")
    read = json.loads(json.dumps(kept), parse_int=float)
    assert Fingerprint.model_validate(read).hash_sum == hash_sum


@given(one=FINGERPRINT, other=FINGERPRINT)
def test_fingerprints_add_up(one: Fingerprint, other: Fingerprint):
    """Prevents: the fingerprint of two partitions depends on their order."""
    assert one + other == other + one
    assert (one + other).rows == one.rows + other.rows


def test_unknown_fields_are_refused():
    """Prevents: an older release silently ignores what a newer one has recorded."""
    kept = Fingerprint(rows=1, hash_sum=1).model_dump(mode="json")
    with pytest.raises(ValidationError):
        Fingerprint.model_validate({**kept, "windows": []})


def test_later_format_is_refused():
    """Prevents: a state in a form that this release does not know is taken for one it does."""
    kept = State(server="", site="", project="", name="", declaration="", tables={})
    with pytest.raises(ValidationError):
        State.model_validate({**kept.model_dump(mode="json"), "format": 2})


def test_each_intent_has_a_request_id_of_its_own():
    """Prevents: two sendings share a RequestID, and the second is taken for the first."""
    state = State(server="", site="", project="", name="", declaration="", tables={})
    intents = [
        Intent(run_id="1", mode=PublishMode.CREATE, target=state, payload=Path("x"))
        for _ in range(3)
    ]
    assert len({intent.request_id for intent in intents}) == 3


def test_snapshot_is_read_back_from_wherever_it_was_moved(tmp_path: Path):
    """Prevents: a data directory that was moved or mounted elsewhere loses its snapshots."""
    written = snapshot(tmp_path / "old", flights(3))
    moved = tmp_path / "new place"
    written.folder.rename(moved)
    read = Snapshot.read(moved)
    assert read == written.model_copy(update={"folder": moved})
    assert all(Path(path).is_file() for path in read.paths)


def test_uncommitted_snapshot_is_none(tmp_path: Path):
    """Prevents: a half-written snapshot is published."""
    written = snapshot(tmp_path, flights(3))
    (written.folder / MANIFEST).unlink()
    with pytest.raises(FileNotFoundError):
        Snapshot.read(written.folder)


def test_data_version_tells_contents_apart(tmp_path: Path):
    """Prevents: Dagster takes new content for old, or starts downstream work for nothing."""
    rows = flights(3)
    same = [snapshot(tmp_path, rows), snapshot(tmp_path, rows.slice(0))]
    other = [snapshot(tmp_path, flights(3, delay=1)), snapshot(tmp_path, airlines())]
    renamed = snapshot(tmp_path, rows.rename_columns(["id", "carrier", "delay"]))
    assert len({each.data_version for each in same}) == 1
    assert len({each.data_version for each in (same[0], *other, renamed)}) == 4


def test_files_without_rows_are_left_out(tmp_path: Path):
    """Prevents: hyperd is given the empty files that Spark leaves for empty partitions."""
    written = snapshot(tmp_path, flights(1))
    assert [file.rows for file in written.files] == [1, 0]
    assert written.paths == (str(written.folder / written.files[0].name),)
    assert written.size == sum(file.size for file in written.files)
    assert DataFile(name="x", rows=0, size=0) != written.files[1]
