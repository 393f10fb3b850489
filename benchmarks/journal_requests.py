"""What the journal costs in an object store: requests, and seconds if a request takes 50 ms.

The journal records what refreshes have done; a claim in it keeps other refreshes out.

The benchmark reads the records of 40 and of 500 data sources, as `status` does. It also claims and
releases one data source, as a refresh without a change does. Beforehand, it fills the journal: with
ten records of each data source, or with 10,000 records of a single data source.
"""

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg

from benchmarks.results import figure
from tableau_pipeline.components.journal import histories, journal_of
from tableau_pipeline.core.journal import Claim, ClaimRelease, History
from tableau_pipeline.core.journal_store import StoredJournal, script_journal
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline.refresh.claim import claimed

_SECONDS = 0.05
_OPERATIONS = ("put", "replace", "read", "list", "folders", "delete")
# Each pair has the number of data sources, and the number of refreshes of each data source.
_SIZES = ((40, 5), (500, 5), (1, 5), (1, 5000))


@contextmanager
def delayed() -> Generator[Counter[str]]:
    """Delay each operation of a store by the time of a request; yield the operations' counts."""
    counts = Counter[str]()

    def slow(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counts[name] += 1
            time.sleep(_SECONDS)
            return usual(*args)

        return call

    with ExitStack() as stack:
        for name in _OPERATIONS:
            call = slow(name, getattr(LocalStorage, name))
            stack.enter_context(mock.patch.object(LocalStorage, name, call))
        yield counts


def fill(journal: StoredJournal, refreshes: int) -> None:
    """Store two records for each refresh, as refreshes without a change do."""
    history = journal.history()
    for _ in range(refreshes):
        claim = Claim(refresh=history.refresh + 1, owner=journal.owner)
        release = ClaimRelease(refresh=claim.refresh, claim=claim.id)
        for record in (claim, release):
            created = journal.create(record, after=history)
            if created is None:
                raise RuntimeError("another process writes to this journal")
            history: History = created


def measure_journal(sizes: Sequence[tuple[int, int]] = _SIZES) -> None:
    """Print a table of requests and seconds.

    Args:
        sizes: pairs of the number of data sources and the number of refreshes of each.
    """
    log = logging.getLogger(__name__)
    print("\n| data sources | records | operation | requests of each | seconds |")
    print(f"{'| --- ' * 5}|")
    for count, refreshes in sizes:
        with (
            tempfile.TemporaryDirectory() as folder,
            dg.instance_for_test() as instance,
            mock.patch.dict(os.environ, {"PIPELINE_DATA_DIR": folder}),
        ):
            keys = [f"source_{number}" for number in range(count)]
            for key in keys:
                fill(script_journal(Path(folder) / "journal", key), refreshes)
            with delayed() as counts:
                began = time.perf_counter()
                histories(instance, keys)
                took = time.perf_counter() - began
            _print(count, 2 * refreshes, "status", (counts.total() / count, took))
            journal = journal_of(instance, keys[0])
            with delayed() as counts:
                began = time.perf_counter()
                with claimed(journal, what="", timeout=0, sleep=time.sleep, log=log) as held:
                    held.close()
                took = time.perf_counter() - began
            _print(count, 2 * refreshes, "claim and release", (counts.total(), took))


def _print(count: int, records: int, operation: str, taken: tuple[float, float]) -> None:
    name = f"{operation}, {count} data sources, {records} records"
    for what, value in zip(("requests of each", "seconds"), taken, strict=True):
        figure(f"{name}: {what}", [value])
    print(f"| {count} | {records} | {operation} | {taken[0]:.2f} | {taken[1]:.2f} |", flush=True)
