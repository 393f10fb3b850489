"""Records of refreshes in Dagster, made by others than the refresh that a test looks at."""

from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg
import pytest

from tableau_pipeline.components.dagster_journal import DagsterJournal, journal_event
from tableau_pipeline.core.checkpoint import Record
from tableau_pipeline_tests.components.support.location import Location

KEY = dg.AssetKey("busy")


def store(location: Location, record: Record) -> None:
    """Add a record of another process."""
    location.instance.report_runless_asset_event(journal_event(KEY, record))


def look(location: Location, times: int) -> None:
    """Add observations of the asset, as other tools and dry runs do."""
    for _ in range(times):
        location.instance.report_runless_asset_event(dg.AssetObservation(KEY))


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
