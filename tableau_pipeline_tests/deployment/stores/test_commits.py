"""Versions that many writers commit to an object store, and what the network may do to them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.deployment.stores.network import Fault, Network
from tableau_pipeline_tests.deployment.stores.object_server import ObjectServer
from tableau_pipeline_tests.snapshots.support.samples import rows
from tableau_pipeline_tests.snapshots.support.versions import commit
from tableau_pipeline_tests.waiting import until

pytestmark = pytest.mark.timeout(300)
WRITERS = 20


def manifests_are(fault: Fault, network: Network, *, times: int = 1000) -> None:
    """Let a fault happen to the next requests that commit a version."""
    left = [fault] * times

    def chosen(method: str, path: str) -> Fault | None:
        return left.pop() if left and method == "PUT" and "versions" in path else None

    network.fault = chosen


def test_a_store_that_is_killed_and_starts_again(
    server: ObjectServer, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a version that was confirmed and is gone, or that another one replaced."""
    if not server.outlives_a_kill:
        pytest.skip("this server confirms what it has not written")
    store = client()
    confirmed: dict[str, int] = {}
    failed: set[str] = set()
    end = threading.Event()

    def write(writer: int) -> None:
        for number in range(1000):
            key = f"{writer} {number}"
            try:
                confirmed[key] = commit(store, key).number
            except StoreError:
                failed.add(key)
            if end.is_set():
                return

    with ThreadPoolExecutor(WRITERS) as executor:
        try:
            writing = [executor.submit(write, writer) for writer in range(WRITERS)]
            until(lambda: len(confirmed) > 10, seconds=60, what="nothing is written")
            server.kill()
            until(lambda: failed, seconds=60, what="no writer noticed")
            server.start()
            before = len(confirmed)
            until(lambda: len(confirmed) > before + 10, seconds=60, what="nothing is written")
        finally:
            end.set()
    for each in writing:
        each.result()
    newest = store.newest("model")
    assert newest
    versions = {str(part.partition): part.version for part in newest.parts}
    assert versions.items() >= confirmed.items()
    assert versions.keys() - confirmed.keys() <= failed
    assert len(set(versions.values())) == len(versions)
    assert newest.missing() == []


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_to_a_commit(
    fault: Fault, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a run that fails after it has committed, or that commits twice."""
    store = client()
    manifests_are(fault, network, times=1)
    first = commit(store, "a")
    network.settle()
    assert (first.number, store.numbers("model")) == (1, [1])
    assert store.newest("model") == first
    assert commit(store, "b").number == 2


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LATE])
def test_another_writer_after_a_lost_commit(
    fault: Fault, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a writer that takes the version of another one for its own."""
    store = client()
    others = []

    def chosen(method: str, path: str) -> Fault | None:
        if method != "PUT" or "versions" not in path:
            return None
        network.up()
        others.append(commit(store, "other"))
        return fault

    network.fault = chosen
    mine = commit(store, "mine")
    network.settle()
    assert [each.number for each in others] == [1]
    assert mine.number == 2
    assert rows(store.newest("model")) == {"mine": 1, "other": 1}
