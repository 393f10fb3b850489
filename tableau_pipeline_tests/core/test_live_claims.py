"""How a refresh decides whether a claim (a lock) counts: by process, Dagster or heartbeat."""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tableau_pipeline.core import journal_store
from tableau_pipeline.core.deployment import NO_ID
from tableau_pipeline.core.journal import Claim, History, Owner
from tableau_pipeline.core.journal_store import BEAT, SILENCE, owner_here, script_journal
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.objects.storage import Entry, LocalStorage
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.refresh.claim import claimed
from tableau_pipeline_tests.core.test_journal import claim
from tableau_pipeline_tests.core.test_journal_store import (
    counted,
    file,
    journal_in,
    objects,
    program,
    refreshes,
    root,
)
from tableau_pipeline_tests.dagster_servers import until
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.snapshots.support import age

__all__ = ["root"]

LOG = logging.getLogger(__name__)
# One minute, in days.
MINUTE = 1 / (24 * 60)
ELSEWHERE = Claim(refresh=2, owner=Owner(run_id="other", boot="another machine", pid=1))


@pytest.fixture(params=[LocalStorage, objects], ids=["on a disk", "objects"])
def storage(request: pytest.FixtureRequest, root: Path) -> Any:
    """A store with the records of one data source, in the folder `root`."""
    storage = request.param(root)
    refreshes(journal_in(storage), 1)
    return storage


def pass_minutes(root: Path, minutes: float) -> None:
    """Make all files of the store this many minutes older."""
    age(root, minutes * MINUTE)


HOLD = """
import logging, time
from tableau_pipeline.refresh.claim import claimed

with claimed(
    journal, what="sales", timeout=0, sleep=time.sleep, log=logging.getLogger()
) as held:
    print(held.claim.model_dump_json(), flush=True)
    input()
"""


def test_one_refreshes_at_a_time_and_the_dead_hold_nothing(root: Path):
    """Prevents: two scripts refresh at once, or a killed script blocks all others."""
    mine = script_journal(root, "sales")

    def hold() -> History:
        with claimed(mine, what="sales", timeout=0.1, sleep=time.sleep, log=LOG) as held:
            return held.history

    with program(HOLD, root) as process:
        assert process.stdout
        other_claim = Claim.model_validate_json(next(process.stdout))
        with pytest.raises(RefreshError, match="unlock sales") as refused:
            hold()
        assert f"process {process.pid} on " in str(refused.value)
        # A refresh of another data source, or in another folder, does not wait.
        for other in (script_journal(root, "other"), script_journal(root.parent, "sales")):
            with claimed(other, what="", timeout=0, sleep=time.sleep, log=LOG):
                assert not mine.has_ended(other_claim)
        process.kill()
    assert mine.has_ended(other_claim)
    assert hold().number == 2


def test_an_owner_on_another_host_is_not_sought_among_processes_here(storage: Any):
    """Prevents: a refresh on another host counts as ended because its PID is free here."""
    gone = owner_here("gone").model_copy(update={"pid": 2**22 + 1})
    journal = journal_in(storage)
    assert journal.has_ended(Claim(refresh=2, owner=gone))
    for change in ({"boot": "another"}, {"namespace": "pid:[1]"}):
        assert not journal.has_ended(Claim(refresh=2, owner=gone.model_copy(update=change)))


def test_a_process_of_another_user_is_alive(storage: Any, monkeypatch: pytest.MonkeyPatch):
    """Prevents: two users of the same host refresh the same data source at once."""

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert not journal_in(storage).has_ended(Claim(refresh=2, owner=owner_here("other")))


@pytest.mark.parametrize("has_ended", [True, False])
def test_dagster_knows_whether_a_run_has_ended(storage: Any, root: Path, has_ended: bool):
    """Prevents: a refresh does not ask Dagster whether the run of a claim has ended."""
    asked = []

    def ask(owner: Owner) -> bool:
        asked.append(owner)
        return has_ended

    pass_minutes(root, 60)
    journal = journal_in(storage, ask=ask)
    assert journal.has_ended(ELSEWHERE) is has_ended
    assert asked == [ELSEWHERE.owner]
    # If the process is gone, the journal does not ask Dagster.
    gone = owner_here("gone").model_copy(update={"pid": 2**22 + 1})
    assert journal.has_ended(Claim(refresh=2, owner=gone))
    assert len(asked) == 1


@pytest.mark.parametrize("host_is_ahead", [-1000, 0, 1000], ids="host by {} min".format)
def test_without_dagster_the_heartbeat_decides(
    storage: Any, root: Path, monkeypatch: pytest.MonkeyPatch, host_is_ahead: float
):
    """Prevents: a wrong clock ends a running refresh's claim, or a lost host keeps its claim."""
    moment = time.time() + host_is_ahead * 60
    monkeypatch.setattr(journal_store, "time", SimpleNamespace(time=lambda: moment))
    journal = journal_in(storage)
    assert timedelta(minutes=10) == SILENCE > 5 * BEAT
    before = sorted(root.rglob("*"))
    assert not journal.has_ended(ELSEWHERE)
    pass_minutes(root, 9.5)
    assert not journal.has_ended(ELSEWHERE)
    pass_minutes(root, 1)
    assert journal.has_ended(ELSEWHERE)
    # The records are old, but the heartbeat is new.
    storage.replace(file(journal, 0).replace("000000000.json", "heartbeat"), b"")
    assert not journal.has_ended(ELSEWHERE)
    pass_minutes(root, 10.5)
    assert journal.has_ended(ELSEWHERE)
    heartbeat = root / file(journal, 0).replace("000000000.json", "heartbeat")
    assert sorted(root.rglob("*")) == sorted([*before, heartbeat])


def test_a_waiting_refresh_gives_no_sign_of_life(storage: Any, root: Path):
    """Prevents: files of waiting refreshes count as the heartbeat of a dead refresh."""
    pass_minutes(root, 11)
    journal = journal_in(storage)
    folder = (root / file(journal, 1)).parent
    (folder / "clock-of-another").touch()
    (folder / ".0123").touch()
    assert journal.has_ended(ELSEWHERE)


class Late(Proxy):
    """A store whose listings lack the new files that show the store's clock."""

    def list(self, prefix: str) -> Iterator[Entry]:
        return (each for each in self.behind.list(prefix) if "clock" not in each.key)


def test_a_late_listing_ends_nothing(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: if listings are late, the clock of this host decides about a claim."""
    storage = objects(root)
    refreshes(journal_in(storage), 1)
    ahead = SimpleNamespace(time=lambda: time.time() + 3600)
    monkeypatch.setattr(journal_store, "time", ahead)
    assert not journal_in(Late(storage)).has_ended(ELSEWHERE)


class ReadOnly(Proxy):
    """A store that this user may only read."""

    def __init__(self, behind: Any, error: type[Exception]) -> None:
        super().__init__(behind)
        self.error = error

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name in ("put", "replace", "delete"):
            raise self.error("no right to write")


@pytest.mark.parametrize("error", [StoreError, PermissionError])
def test_a_user_who_may_only_read(root: Path, error: type[Exception]):
    """Prevents: a command that only reads the journal needs the right to write."""
    storage = objects(root)
    journal = journal_in(ReadOnly(storage, error))
    assert (journal.history(), journal.instance) == (History(), NO_ID)
    newest = refreshes(journal_in(storage), 1)
    assert journal.history() == journal.latest(newest) == newest
    assert not journal.has_ended(ELSEWHERE)
    pass_minutes(root, 9)
    assert not journal.has_ended(ELSEWHERE)
    pass_minutes(root, 2)
    assert journal.has_ended(ELSEWHERE)
    with pytest.raises(error):
        journal.create(claim(2), after=newest)
    assert journal_in(storage).history() == newest


class Flaky(Proxy):
    """A store in which `replace` raises prepared errors."""

    errors: Sequence[Exception] = ()

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "replace" and self.errors:
            first, *self.errors = self.errors
            raise first


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make heartbeats frequent."""
    monkeypatch.setattr(journal_store, "BEAT", timedelta(seconds=0.02))


def hearts() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "heartbeat" in thread.name]


def heartbeat(root: Path) -> Path:
    """The file of the heartbeat."""
    return root / file(journal_in(LocalStorage(root)), 0).replace("000000000.json", "heartbeat")


@pytest.mark.usefixtures("quick")
def test_a_heartbeat_goes_on_and_ends(root: Path):
    """Prevents: a running refresh counts as dead, or its thread continues after its end."""
    storage = Flaky(LocalStorage(root))
    refreshes(journal_in(LocalStorage(root)), 1)
    pass_minutes(root, 60)
    storage.errors = [StoreError("away"), OSError("away"), StoreError("away")]
    journal, file = journal_in(LocalStorage(root)), heartbeat(root)
    journal.place.deployment()
    journal.place.storage = storage  # ty: ignore
    with journal.heartbeat():
        until(file.exists, seconds=10, what="no heartbeat")
        seen = file.stat().st_mtime_ns
        until(lambda: file.stat().st_mtime_ns > seen, seconds=10, what="no second heartbeat")
        assert not journal.has_ended(ELSEWHERE)
        assert len(hearts()) == 1
    assert (storage.errors, hearts()) == ([], [])
    pass_minutes(root, 60)
    time.sleep(0.1)
    assert journal.has_ended(ELSEWHERE)


@pytest.mark.usefixtures("quick")
def test_a_heart_beats_for_as_long_as_a_claim_holds(root: Path):
    """Prevents: a claim has no heartbeat, or a failed refresh leaves its thread behind."""
    journal = journal_in(LocalStorage(root))
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(RefreshError, match="the line went dead"))
        stack.enter_context(claimed(journal, what="", timeout=0, sleep=time.sleep, log=LOG))
        until(heartbeat(root).exists, seconds=10, what="no heartbeat")
        assert len(hearts()) == 1
        raise RefreshError("the line went dead")
    assert hearts() == []
    assert journal.history().claim is None


def test_a_look_at_a_live_claim_costs_little(root: Path):
    """Prevents: a refresh that waits for another refresh sends hundreds of requests."""
    storage = objects(root)
    refreshes(journal_in(storage), *range(1, 20))
    calls = counted(storage, lambda journal: journal.has_ended(ELSEWHERE))
    assert calls == {"replace": 1, "list": 1, "delete": 1}
