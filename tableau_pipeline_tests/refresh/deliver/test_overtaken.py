"""A refresh whose run was ended while its process went on, and what it does beside the next one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tableau_pipeline.core.journal import Claim
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.plan import NoChange, Options, Publish, Update
from tableau_pipeline.refresh.refresh import Setup, refresh
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ANN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.shared_records import SharedJournal


class At(Proxy):
    """A server that lets something happen once: right before its nth call of a name, or after."""

    def __init__(
        self,
        behind: Any,
        call: str,
        happens: Callable[[], object],
        *,
        nth: int = 1,
        when: str = "after",
    ) -> None:
        super().__init__(behind)
        self._call, self._happens, self._left, self._when = call, happens, nth, when

    def before(self, name: str, args: Sequence[Any]) -> None:
        self._left -= name == self._call
        self._meet(name, "before")

    def after(self, name: str, answer: Any) -> None:
        self._meet(name, "after")

    def _meet(self, name: str, when: str) -> None:
        if (name, when, self._left) == (self._call, self._when, 0):
            self._left = -1
            self._happens()


@dataclass
class Zombie:
    """Run "one", which Dagster takes for dead; another run refreshes at a moment of its refresh."""

    pipeline: Pipeline
    journal: SharedJournal

    def refresh(self, run: str, **around: Any) -> Setup:
        journal = self.journal.of(run)
        return self.pipeline.refresh(around_journal=lambda _: journal, **around)

    def run(self, run: str) -> Report:
        return refresh(self.refresh(run), Options())

    def goes_on(self, call: str, *, nth: int = 1, when: str = "after") -> None:
        """Run "one" refreshes, and run "two" with newer rows right after this call, or before."""

        def newer_refresh() -> None:
            self.journal.ended.add("one")
            self.pipeline.model("flights", flights(10))
            self.run("two")

        zombie = self.refresh(
            "one", around_server=lambda server: At(server, call, newer_refresh, nth=nth, when=when)
        )
        with pytest.raises(RefreshError, match="overtaken by run two"):
            refresh(replace(zombie, sleep=lambda _: None), Options())


@pytest.mark.parametrize("stop", ["overtaken", "no network"])
def test_what_was_not_sent_holds_off_no_later_run(new_pipeline: Callable[..., Pipeline], stop: str):
    """Prevents: for a user who may not list jobs, the next run waits for hours for a request that
    an overtaken refresh, or one that had no network for its last look, never sent."""
    pipeline = new_pipeline(user=ANN)
    zombie = Zombie(pipeline, SharedJournal("zero"))
    zombie.run("zero")
    pipeline.model("flights", flights(9))

    def stops() -> None:
        zombie.journal.ended.add("one")
        if stop == "no network":
            raise RefreshError("the server does not answer")
        zombie.journal.ended.add("two")
        zombie.journal.append(Claim(refresh=3, owner=zombie.journal.of("two").owner))

    one = zombie.refresh(
        "one", around_server=lambda server: At(server, "find_by_luid", stops, nth=2)
    )
    with pytest.raises(RefreshError, match=r"overtaken|does not answer"):
        refresh(replace(one, sleep=lambda _: None), Options())
    assert isinstance(zombie.run("three").plan, Update)
    assert pipeline.wrong() == []


def test_overtaken_while_it_sends(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a zombie that is paused between its last look and its call changes newer rows, and
    nobody ever notices where neither time stamp nor revision shows an update."""
    pipeline = new_pipeline(on={"updates_move_stamp": "never", "revisions": False})
    zombie = Zombie(pipeline, SharedJournal("zero"))
    zombie.run("zero")
    pipeline.model("flights", flights(9, delay=1))
    zombie.goes_on("update", when="before")
    assert pipeline.wrong() != []
    report = zombie.run("three")
    assert isinstance(report.plan, Publish)
    assert "the update of run one took effect after a later refresh" in report.plan.reason
    assert pipeline.wrong() == []
    assert isinstance(zombie.run("four").plan, NoChange)


@pytest.mark.few_variants(1)
def test_wiped_while_the_first_publish_is_sent(pipeline: Pipeline):
    """Prevents: a guard that takes the published rows for none, as no record tells of them."""
    zombie = Zombie(pipeline, SharedJournal("zero"))
    wipe = zombie.journal.stored.clear
    first = zombie.refresh(
        "one", around_server=lambda server: At(server, "publish", wipe, when="before")
    )
    with pytest.raises(RefreshError, match="removed its records during its publish"):
        refresh(replace(first, sleep=lambda _: None), Options())
    pipeline.model("flights", flights(1))
    with pytest.raises(RefusedError, match="1 rows where 8 are published"):
        zombie.run("two")
    pipeline.model("flights", flights(9))
    assert isinstance(zombie.run("three").plan, Publish)
    assert pipeline.wrong() == []
    assert isinstance(zombie.run("four").plan, NoChange)


def test_overtaken_refresh_moves_nothing(pipeline: Pipeline):
    """Prevents: a zombie gives a data source its old name back, which the newer one had changed."""
    zero = SharedJournal("zero")
    one = zero.of("one")
    refresh(pipeline.refresh(around_journal=lambda _: zero), Options())
    old = pipeline.name
    pipeline.declare(name=f"{old} better")

    def newer_refresh() -> None:
        zero.ended.add("one")
        zero.append(Claim(refresh=3, owner=zero.of("two").owner))

    zombie = pipeline.refresh(
        around_journal=lambda _: one,
        around_server=lambda server: At(server, "find_by_luid", newer_refresh, when="after"),
    )
    with pytest.raises(RefreshError, match="overtaken"):
        refresh(replace(zombie, sleep=lambda _: None), Options())
    assert pipeline.found() == []
    pipeline.declare(name=old)
    assert len(pipeline.found()) == 1
