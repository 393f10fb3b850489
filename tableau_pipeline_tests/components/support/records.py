"""Records of refreshes in Dagster, made by others than the refresh that a test looks at."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from tableau_pipeline.components.journal import JOURNAL, DagsterJournal, journal_event
from tableau_pipeline.core.journal import Record
from tableau_pipeline_tests.components.support.location import Location

KEY = dg.AssetKey("busy")


def store(location: Location, record: Record) -> None:
    """Add a record of another process."""
    location.instance.report_runless_asset_event(journal_event("busy", record))


def look(location: Location, times: int) -> None:
    """Add observations of the asset, as other tools and dry runs do."""
    for _ in range(times):
        location.instance.report_runless_asset_event(dg.AssetObservation(KEY))


def forget(instance: dg.DagsterInstance, key: str) -> None:
    """Lose the records of one data source, as a wipe of the journal loses those of all."""
    storage: Any = instance.event_log_storage
    lost = "DELETE FROM event_logs WHERE asset_key = :journal AND partition LIKE :key"
    with storage.index_connection() as connection:
        connection.execute(text(lost), {"journal": JOURNAL.to_string(), "key": f"%:{key}"})


@contextmanager
def withheld(*kinds: type, monkeypatch: pytest.MonkeyPatch) -> Generator[list[Record]]:
    """Records of these kinds are not stored; they are kept for the test to do so."""
    kept: list[Record] = []
    append = DagsterJournal.append

    def late(journal: DagsterJournal, record: Record) -> None:
        if isinstance(record, kinds):
            kept.append(record)
        else:
            append(journal, record)

    with monkeypatch.context() as patch:
        patch.setattr(DagsterJournal, "append", late)
        yield kept
