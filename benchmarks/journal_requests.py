"""What the journal costs in an object store: requests, and seconds where each takes 50 ms.

`python -m benchmarks.journal_requests` reads the records of 40 and 500 data sources as `status`
does, and claims and releases one data source as a refresh without a change does; with ten records
each, and with 10,000 that were made.
"""

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg

from tableau_pipeline.components.journal import histories, journal_of
from tableau_pipeline.core.journal import Claim, ClaimRelease, History
from tableau_pipeline.core.journal_store import StoredJournal, script_journal
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline.refresh.claim import claimed

_SECONDS = 0.05
_OPERATIONS = ("put", "replace", "read", "list", "delete")


@contextmanager
def delayed() -> Generator[Counter[str]]:
    """Let each operation of a store take as long as a request does; count them."""
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
    """Store what so many refreshes without a change leave: two records each."""
    history = journal.history()
    for _ in range(refreshes):
        claim = Claim(refresh=history.refresh + 1, owner=journal.owner)
        release = ClaimRelease(refresh=claim.refresh, claim=claim.id)
        for record in (claim, release):
            created = journal.create(record, after=history)
            if created is None:
                raise RuntimeError("nobody else writes here")
            history: History = created


def main() -> None:
    """Print the figures."""
    log = logging.getLogger(__name__)
    print("data sources  records  operation          requests each  seconds")
    for count, refreshes in ((40, 5), (500, 5), (1, 5), (1, 5000)):
        with tempfile.TemporaryDirectory() as folder, dg.instance_for_test() as instance:
            os.environ["PIPELINE_DATA_DIR"] = folder
            keys = [f"source_{number}" for number in range(count)]
            for key in keys:
                fill(script_journal(Path(folder) / "journal", key), refreshes)
            with delayed() as counts:
                began = time.perf_counter()
                histories(instance, keys)
                took = time.perf_counter() - began
            shown = f"{count:12}  {2 * refreshes:7}"
            each = counts.total() / count
            print(f"{shown}  status             {each:13.2f}  {took:7.2f}")
            journal = journal_of(instance, keys[0])
            with delayed() as counts:
                began = time.perf_counter()
                with claimed(journal, what="", timeout=0, sleep=time.sleep, log=log) as held:
                    held.close()
                took = time.perf_counter() - began
            total = counts.total()
            print(f"{shown}  claim and release  {total:13}  {took:7.2f}")


if __name__ == "__main__":
    main()
