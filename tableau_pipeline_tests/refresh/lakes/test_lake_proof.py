"""An update of a table of a lake is proved by counting the rows that are equal."""

from collections.abc import Generator
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from tableauhyperapi import Connection

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.extracts.affected import (
    KeyTable,
    NotProvedError,
    TableChange,
    TableVersion,
    find_affected,
    in_payload,
)
from tableau_pipeline.extracts.delta import prove
from tableau_pipeline.hyper.build import new_file
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.lake.delta import read_delta
from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline_tests.refresh.lakes.support import BY_ID, rows_of

MEMORY = 2**28


@pytest.fixture
def change(tmp_path: Path) -> TableChange:
    """Of two files with ten rows each, a row of the second one differs, one is gone, one new."""
    lake = tmp_path / "lake"
    for start in (0, 10):
        write_deltalake(lake, rows_of(range(start, start + 10)), mode="append")
    merge = DeltaTable(lake).merge(
        rows_of([15, 20], "new"), "s.id = t.id", source_alias="s", target_alias="t"
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(lake).delete("id = 16")
    old, new = (_version(lake, number) for number in (1, 3))
    return TableChange(
        table=Table("orders", "orders", policy=BY_ID),
        columns=new.snapshot.columns,
        new=new,
        old=old,
        published_rows=20,
    )


def _version(lake: Path, number: int) -> TableVersion:
    copies = LocalCopies(lake.with_name("copies"), limit=0)
    snapshot = read_delta(str(lake), asset_key="orders", number=number, copies=copies)
    assert snapshot
    return TableVersion(snapshot, snapshot.fingerprint, None)


@pytest.fixture
def payload(tmp_path: Path) -> Generator[Connection]:
    with (
        Hyperd(memory=MEMORY, telemetry=False) as hyper,
        new_file(hyper, tmp_path / "payload.hyper", version=2) as connection,
    ):
        yield connection


def _found(payload: Connection, change: TableChange) -> tuple[list[KeyTable], int | None]:
    return find_affected(payload, change, BY_ID, {}, memory=MEMORY)


def test_equal_rows_are_counted(payload: Connection, change: TableChange):
    """Prevents: a comparison that counts rows of shared files, or pairs of rows that differ."""
    keys, equal = _found(payload, change)
    assert equal == 8
    assert prove(payload, change, keys, equal=equal) == (2, 2, 0)


@pytest.mark.parametrize("lost", [15, 16, 20], ids=["changed", "gone", "new"])
def test_a_key_is_missing(payload: Connection, change: TableChange, lost: int):
    """Prevents: a changed row that the comparison loses is not sent, under a green run."""
    keys, equal = _found(payload, change)
    payload.execute_command(f"DELETE FROM {in_payload('keys', change)} WHERE id = {lost}")
    with pytest.raises(NotProvedError, match="rows changed beyond those"):
        prove(payload, change, keys, equal=equal)


def test_rows_were_not_compared(payload: Connection, change: TableChange):
    """Prevents: rows that no slice held count as equal."""
    keys, equal = _found(payload, change)
    assert equal
    with pytest.raises(NotProvedError, match="8 rows that it leaves alone, 7 equal"):
        prove(payload, change, keys, equal=equal - 1)
