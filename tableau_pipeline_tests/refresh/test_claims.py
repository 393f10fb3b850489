"""Claims: only the refresh that has the claim of a data source may send requests for it.

A refresh that has lost its claim to a newer refresh is called overtaken.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tableau_pipeline.core.journal import Claim, ClaimRelease, Owner, Record
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.errors import (
    NoProjectError,
    OvertakenError,
    RefreshError,
    RefusedError,
    UnreachableError,
)
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.refresh.claim import HeldClaim, claimed
from tableau_pipeline.refresh.decide import NoChange, Options, Publish, UpdateTables
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline_tests.refresh.stateful.journals import (
    MemoryStore,
    PublisherJournal,
    SimulatedJournal,
)
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.other_users import ANN
from tableau_pipeline_tests.refresh.support.pipeline import LOG, STAR, TIMEOUTS, Pipeline
from tableau_pipeline_tests.refresh.support.proxies import At
from tableau_pipeline_tests.refresh.support.shipping import refused


def nothing(*_: object) -> None:
    """Do nothing."""


def journal_of(run: str, others: SimulatedJournal | None = None) -> SimulatedJournal:
    """Return the journal for a run; if `others` is given, both journals share their records."""
    if others:
        stored = others.refresh.journal
    else:
        store = MemoryStore(lambda: datetime.now(UTC), Random(1))
        stored = PublisherJournal.of("ours", store, "ours", "sales")
    state: Any = SimpleNamespace(
        owner=Owner(run_id=run), journal=stored, record_count=0, killed=False, paused=False
    )
    return SimulatedJournal(state, nothing)


def append(journal: SimulatedJournal, record: Record) -> None:
    """Store a record, as another process does."""
    journal.append(lambda _: record, after=journal.history())


def claim(
    journal: SimulatedJournal, *, timeout: float = 60, asleep: Callable[[], None] = nothing
) -> AbstractContextManager[HeldClaim]:
    """Return a context manager that claims the data source.

    While another claim is open, it calls `asleep` instead of sleeping.
    """
    return claimed(journal, what="sales", timeout=timeout, sleep=lambda _: asleep(), log=LOG)


def open_claims(journal: SimulatedJournal) -> list[str]:
    """Return a list with the run that has an open claim; [] if there is no such run."""
    held = journal.history().claim
    return [held.owner.run_id] if held else []


def test_second_waits_for_the_first(caplog: pytest.LogCaptureFixture):
    """Prevents: two refreshes of one data source send at once, and the older rows win."""
    caplog.set_level(logging.INFO, LOG.name)
    one, first = journal_of("one"), ExitStack()
    first.enter_context(claim(one))
    with claim(journal_of("two", one), asleep=first.close) as second:
        assert open_claims(one) == ["two"]
        assert second.number == 2
    assert "Waiting for run one, which refreshes sales" in str(caplog.messages)
    assert open_claims(one) == []


def test_claims_at_the_same_moment():
    """Prevents: two refreshes claim at once, and both of them send or both wait for ever."""
    one, ended = journal_of("one"), ExitStack()

    def other_is_faster(point: str) -> None:
        if point == "append claim":
            one.point = nothing
            ended.enter_context(claim(journal_of("two", one)))

    one.point = other_is_faster
    with claim(one, asleep=ended.close) as second:
        assert (second.number, open_claims(one)) == (2, ["one"])


def test_failed_refresh_lets_go_of_its_claim(pipeline: Pipeline):
    """Prevents: a refused refresh blocks all later refreshes until its process ends."""
    one = journal_of("one")
    pipeline.missing = {"flights"}
    refused(lambda: pipeline.run(around={"around_journal": lambda _: one}))
    assert open_claims(one) == []


def test_error_that_cannot_be_recorded(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: an error of the store hides a refusal, and Dagster tries the refresh again."""

    def fails() -> None:
        raise StoreError("no answer")

    pipeline.missing = {"flights"}
    around = {"around_journal": lambda journal: At(journal, "append", fails)}
    refused(lambda: pipeline.run(around=around), "flights")
    assert "The claim stays open until this process ends: no answer" in caplog.messages


def test_models_are_read_once_the_claim_holds(pipeline: Pipeline):
    """Prevents: a refresh that waited publishes older rows than the refresh before it."""
    one = journal_of("one")
    append(one, Claim(refresh=1, owner=one.owner))

    def meanwhile(_: float) -> None:
        pipeline.model("flights", flights(9))
        one.refresh.journal.ended.add("one")

    around = {"around_journal": lambda _: journal_of("two", one), "sleep": meanwhile}
    assert pipeline.run(around=around).extract.rows == {"Extract": 9}


def test_claim_that_a_user_has_ended():
    """Prevents: after `unlock`, the process that hung still sends during the next refresh."""
    one = journal_of("one")
    with claim(one) as first:
        append(one, ClaimRelease(refresh=1, claim=first.claim.id, unlocked_by="ann"))
        with pytest.raises(OvertakenError, match="ended its claim"):
            first.check_fence()
        with claim(journal_of("two", one)) as second:
            assert second.number == 2


def test_refresh_that_hangs_is_told(pipeline: Pipeline):
    """Prevents: a refresh waits for ever behind a refresh that hangs, and shows no message."""
    one, timeouts = journal_of("one"), replace(TIMEOUTS, claim=0.2)
    around = {"timeouts": timeouts, "around_journal": lambda _: journal_of("two", one)}
    with claim(one):
        parts = ("has been refreshed by run one", f"unlock {pipeline.declaration.key}")
        refused(lambda: pipeline.run(around=around), *parts, error=RefreshError)
    pipeline.run(around=around)
    assert pipeline.wrong() == []


def test_other_data_sources_do_not_wait(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a refresh waits for the refresh of another data source."""
    one = new_pipeline()
    other = new_pipeline(key=f"{one.declaration.key}/eu")
    with claimed(one.journal, what="one", timeout=0, sleep=nothing, log=LOG):
        other.run(around={"timeouts": replace(TIMEOUTS, claim=0)})
    assert other.wrong() == []


@dataclass
class Zombie:
    """Refreshes by several runs; run "one" goes on although Dagster takes it for dead."""

    pipeline: Pipeline
    journal: SimulatedJournal = field(default_factory=lambda: journal_of("zero"))

    def run(self, run: str) -> Refreshed:
        return refresh(self._setup(run), Options())

    def stops(self, call: str, happens: Callable[[], object], why: str, **at: Any) -> None:
        """Refresh as run "one"; call `happens` at the server's method `call`; expect an error."""
        setup = self._setup("one", around_server=lambda server: At(server, call, happens, **at))
        with pytest.raises((OvertakenError, UnreachableError), match=why):
            refresh(replace(setup, sleep=nothing), Options())

    def _setup(self, run: str, **around: Any) -> Setup:
        journal = journal_of(run, self.journal)
        return self.pipeline.refresh(around_journal=lambda _: journal, **around)


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("stop", ["overtaken", "no network"])
def test_what_was_not_sent_holds_off_no_later_run(new_pipeline: Callable[..., Pipeline], stop: str):
    """Prevents: a run waits for hours for a request that an earlier run has never sent."""
    pipeline = new_pipeline(user=ANN, on={"job_access": "own-jobs"})
    zombie = Zombie(pipeline)
    zombie.run("zero")
    pipeline.model("flights", flights(9))

    def stops() -> None:
        zombie.journal.refresh.journal.ended.add("one")
        if stop == "no network":
            raise UnreachableError("the server does not answer")
        zombie.journal.refresh.journal.ended.add("two")
        append(zombie.journal, Claim(refresh=3, owner=Owner(run_id="two")))

    zombie.stops("find_by_luid", stops, "overtaken|does not answer", nth=2, when="after")
    assert isinstance(zombie.run("three").plan, UpdateTables)
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_wiped_while_the_first_publish_is_sent(pipeline: Pipeline):
    """Prevents: after a wipe of the records, a guard allows the loss of published rows."""
    zombie = Zombie(pipeline)
    wipe = zombie.journal.refresh.journal.wipe
    zombie.stops("publish", wipe, r"removed its records, .* during its publish")
    pipeline.model("flights", flights(1))
    with pytest.raises(RefusedError, match="1 rows where 8 are published"):
        zombie.run("two")
    pipeline.model("flights", flights(9))
    assert isinstance(zombie.run("three").plan, Publish)
    assert pipeline.wrong() == []
    assert isinstance(zombie.run("four").plan, NoChange)


def test_overtaken_refresh_moves_nothing(pipeline: Pipeline):
    """Prevents: an overtaken refresh still renames the data source."""
    zombie = Zombie(pipeline)
    zombie.run("zero")
    old = pipeline.name
    pipeline.declare(name=f"{old} better")

    def newer_refresh() -> None:
        zombie.journal.refresh.journal.ended.add("one")
        append(zombie.journal, Claim(refresh=3, owner=Owner(run_id="two")))

    zombie.stops("find_by_luid", newer_refresh, "overtaken", when="after")
    assert pipeline.found() == []
    pipeline.declare(name=old)
    assert len(pipeline.found()) == 1


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_overtaken_while_it_packs_its_file(new_pipeline: Callable[..., Pipeline]):
    """Prevents: an overtaken refresh reports missing files, which a newer refresh has removed."""
    on = {"job_access": "own-jobs"}
    pipeline = new_pipeline(user=ANN, on=on, tables=("flights", "airlines"), relationships=STAR)
    pipeline.model("airlines", airlines())
    zombie = Zombie(pipeline)

    def newer_refresh() -> None:
        zombie.journal.refresh.journal.ended.add("one")
        zombie.run("two")

    zombie.stops("may_read_jobs", newer_refresh, "overtaken", when="after")
    assert pipeline.wrong() == []


def test_overtaken_refresh_is_not_refused(pipeline: Pipeline):
    """Prevents: an overtaken refresh is refused for a loss of rows, and users accept the loss."""
    zombie = Zombie(pipeline)
    pipeline.model("flights", flights(1))

    def newer_refresh() -> None:
        zombie.journal.refresh.journal.ended.add("one")
        pipeline.model("flights", flights(8))
        zombie.run("two")

    zombie.stops("find_by_name", newer_refresh, "overtaken")
    assert pipeline.wrong() == []


def test_overtaken_refresh_is_not_refused_by_the_server(pipeline: Pipeline):
    """Prevents: an overtaken refresh asks users to repair what a newer refresh has changed."""
    zombie = Zombie(pipeline)

    def newer_refresh() -> None:
        zombie.journal.refresh.journal.ended.add("one")
        zombie.run("two")
        raise NoProjectError('There is no project "Sales": create it')

    zombie.stops("find_by_name", newer_refresh, "overtaken")
    assert pipeline.wrong() == []


@pytest.mark.parametrize("error", [StoreError("No answer"), OSError("Stale file handle")])
@pytest.mark.parametrize("fails", [("latest",), ("latest", "append")])
def test_refused_while_the_store_of_the_journal_fails(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, fails: Sequence[str], error: Exception
):
    """Prevents: a failure of the journal's store hides a refusal."""

    def fail(*_: object, **__: object) -> None:
        raise error

    def refuse() -> None:
        for name in fails:
            monkeypatch.setattr(StoredJournal, name, fail)
        raise NoProjectError('There is no project "Sales": create it')

    around = {"around_server": lambda server: At(server, "find_by_name", refuse)}
    with pytest.raises(NoProjectError):
        pipeline.run(around=around)
