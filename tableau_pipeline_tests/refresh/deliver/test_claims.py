"""One refresh of a data source at a time: claims, withdrawing, and the fence before a call."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

import pytest

from tableau_pipeline.core.journal import Claim, ClaimRelease, read_history
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.claim import HeldClaim, claimed
from tableau_pipeline.refresh.plan import NoChange, Options, Publish
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import LOG, TIMEOUTS, Pipeline
from tableau_pipeline_tests.refresh.support.shared_records import SharedJournal, nothing


def claim(
    journal: SharedJournal,
    *,
    timeout: float = 60,
    asleep: Callable[[], None] = nothing,
) -> AbstractContextManager[HeldClaim]:
    """A claim; `asleep` happens whenever its refresh waits, which takes no time."""
    return claimed(journal, what="sales", timeout=timeout, sleep=lambda _: asleep(), log=LOG)


def open_claims(journal: SharedJournal) -> list[str]:
    """The runs that have claims."""
    return [each.owner.run_id for each in read_history(journal.records()).open_claims]


def test_second_waits_for_the_first(caplog: pytest.LogCaptureFixture):
    """Prevents: two refreshes of one data source send at once, and the older rows win."""
    caplog.set_level(logging.INFO, LOG.name)
    one, first = SharedJournal("one"), ExitStack()
    first.enter_context(claim(one))
    with claim(one.of("two"), asleep=first.close) as second:
        assert open_claims(one) == ["two"]
        assert second.number == 2
    assert "Run one refreshes sales: waiting for it" in str(caplog.messages)
    assert open_claims(one) == []


def test_run_that_goes_on_is_named():
    """Prevents: a refresh waits for ever behind one that hangs, and nobody is told which."""
    one = SharedJournal("one")
    with (
        claim(one),
        pytest.raises(RefreshError, match=r"Run one .* sales .* 60 s.* terminate that run"),
        claim(one.of("two")),
    ):
        pass
    assert open_claims(one) == []


def test_claims_that_collide_for_ever():
    """Prevents: refreshes that withdraw in turns go on so without end, or name the wrong cause."""
    one = SharedJournal("one")

    def other_comes() -> None:
        one.stored.append(Claim(refresh=1, owner=one.of("two").owner))

    def other_withdraws() -> None:
        for each in read_history(one.records()).open_claims:
            one.stored.append(ClaimRelease(refresh=1, claim=each.id, withdrawn=True))

    one.before_append = other_comes
    with (
        pytest.raises(RefreshError, match=r"came first for 60 s\. Run again"),
        claim(one, asleep=other_withdraws),
    ):
        pass
    assert "one" not in open_claims(one)


def test_failed_refresh_lets_go_of_its_claim(pipeline: Pipeline):
    """Prevents: one refused refresh blocks all later ones until the process ends."""
    one = SharedJournal("one")
    pipeline.missing = {"flights"}
    with pytest.raises(RefusedError):
        refresh(pipeline.refresh(around_journal=lambda _: one), Options())
    assert open_claims(one) == []
    pipeline.missing = set()
    two = one.of("two")
    refresh(pipeline.refresh(around_journal=lambda _: two), Options())
    assert one.records()[-1] == two.records()[-1]


def test_models_are_read_once_the_claim_holds(pipeline: Pipeline):
    """Prevents: a refresh that waited for another one puts older rows over its newer ones."""
    one = SharedJournal("one")
    one.append(Claim(refresh=1, owner=one.owner))

    def meanwhile(_: float) -> None:
        pipeline.model("flights", flights(9))
        one.ended.add("one")

    two = one.of("two")
    waiting = replace(pipeline.refresh(around_journal=lambda _: two), sleep=meanwhile)
    report = refresh(waiting, Options())
    assert report.extract
    assert report.extract.rows == {"Extract": 9}


@pytest.mark.parametrize("late", [1, 4])
def test_fence_waits_for_one_that_withdraws(late: int):
    """Prevents: a claim that was stored late, and is withdrawn, ends the refresh that holds."""
    one = SharedJournal("one")
    intruder = Claim(refresh=1, owner=one.of("two").owner)
    looks: list[None] = []

    def withdraws() -> None:
        looks.append(None)
        if len(looks) == late:
            one.append(ClaimRelease(refresh=1, claim=intruder.id, withdrawn=True))

    with claim(one, asleep=withdraws) as first:
        one.append(intruder)
        first.check_fence()
    assert len(looks) == late


def test_started_at_the_same_time(pipeline: Pipeline):
    """Prevents: two scripts at the same time cost two uploads, or make two data sources."""
    with ThreadPoolExecutor(2) as executor:
        both = list(executor.map(lambda _: pipeline.run(), range(2)))
    assert {type(report.plan) for report in both} == {Publish, NoChange}
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_script_that_hangs_is_told(pipeline: Pipeline):
    """Prevents: a script waits for ever behind one that hangs, and nobody is told."""
    timeouts = replace(TIMEOUTS, claim=0.2)
    with pipeline.journal.lock(0), pytest.raises(RefreshError) as caught:
        pipeline.run(around={"timeouts": timeouts})
    for part in (str(pipeline.journal.path), "a process that hangs"):
        assert part in str(caught.value)
    pipeline.run(around={"timeouts": timeouts})
    assert pipeline.wrong() == []


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("suffix", ["_eu", "/eu"])
def test_other_data_sources_do_not_wait(new_pipeline: Callable[..., Pipeline], suffix: str):
    """Prevents: all data sources queue up behind the largest."""
    one = new_pipeline()
    other = new_pipeline(key=f"{one.declaration.key}{suffix}")
    with one.journal.lock(0):
        other.run(around={"timeouts": replace(TIMEOUTS, claim=0)})
    assert other.wrong() == []
