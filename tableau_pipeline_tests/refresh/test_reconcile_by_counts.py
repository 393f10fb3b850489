"""What is published is counted by the server, and a difference is never passed over."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tableau_pipeline.core.declaration import Diff, Reconcile
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.compare import ReconciliationError
from tableau_pipeline.refresh.plan import NoChange
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.other_users import changes_the_file
from tableau_pipeline_tests.refresh.support.pipeline import STAR, Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy

# No file may be downloaded.
LARGE = Reconcile(max_mb=1e-6)
FEWER = 'DELETE FROM "Extract"."Extract" WHERE "flight_id" = 1'
OTHERS = """UPDATE "Extract"."Extract" SET "carrier" = '' WHERE "flight_id" = 1"""


class Counting(Proxy):
    """A server, and what it is asked to count.

    Attributes:
        damage: what somebody does to the rows before they are counted.
        lacking: rows that it does not count, as a filter or a cache would have it.
        times: how often it does not.
    """

    def __init__(
        self, server: Any, damage: Callable[[], None], *, lacking: int = 0, times: int = 1000
    ) -> None:
        super().__init__(server)
        self._damage, self.lacking, self.times = damage, lacking, times
        self.asked: list[str] = []

    def count(
        self, luid: str, keys: Mapping[str, str | None], *, fresh: bool = False, **more: Any
    ) -> Mapping[str, int]:
        self._damage()
        self.asked.append("fresh" if fresh else "count")
        found = self.behind.count(luid, keys, fresh=fresh, **more)
        if len(self.asked) > self.times:
            return found
        return {name: rows - self.lacking for name, rows in found.items()}

    def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
        self.asked.append("download")
        return self.behind.download(luid, folder, limit=limit)


class Watched:
    """Refreshes of a data source, and what they asked the server meanwhile."""

    def __init__(self, pipeline: Pipeline, sql: str = "", **counting: Any) -> None:
        self.pipeline, self._sql, self._counting = pipeline, sql, counting
        self.servers: list[Counting] = []

    def run(self, **options: Any) -> Any:
        around = {"around_server": self._around, "sleep": lambda _: None}
        return self.pipeline.run(around=around, **options)

    @property
    def asked(self) -> list[str]:
        return self.servers[-1].asked

    def _around(self, server: Any) -> Counting:
        self.servers.append(Counting(server, self.damage, **self._counting))
        return self.servers[-1]

    def damage(self) -> None:
        if self._sql:
            changes_the_file(self.pipeline, self._sql)


def test_the_file_decides_where_it_may_be_read(pipeline: Pipeline):
    """Prevents: a red run, or a green one, by counts that a filter or a damaged file explains."""
    pipeline.declare(reconcile=Reconcile())
    watched = Watched(pipeline, lacking=1)
    assert watched.run().reconciliation.by == {"flights": "download"}
    assert watched.asked == ["count", "fresh", "download"]
    pipeline.model("flights", flights(9))
    with pytest.raises(ReconciliationError, match="flights holds 8 rows, its model 9"):
        Watched(pipeline, FEWER).run()


def test_an_old_answer_is_asked_for_once_more(pipeline: Pipeline):
    """Prevents: a cache of the server that fails a refresh, or makes it download the file."""
    pipeline.declare(reconcile=Reconcile())
    watched = Watched(pipeline, lacking=1, times=1)
    assert watched.run().reconciliation.by == {"flights": "server"}
    assert watched.asked == ["count", "fresh"]


@pytest.mark.slow
def test_values_that_cannot_be_read_are_no_success(pipeline: Pipeline):
    """Prevents: counted rows that pass for compared values; lost rows that nothing looks for."""
    pipeline.declare(reconcile=Reconcile(max_mb=1e-6, checksums=True))
    watched = Watched(pipeline)
    report = watched.run()
    assert watched.asked == ["count"]
    assert "larger than reconcile: max_mb" in report.checkpoint.unreconciled
    assert "the rows were counted, but not compared" in report.checkpoint.unreconciled
    pipeline.model("flights", flights(9))
    with pytest.raises(ReconciliationError, match="the server counts 8 rows in flights"):
        Watched(pipeline, FEWER).run()


def test_values_are_read_back_where_they_may_be(pipeline: Pipeline):
    """Prevents: counts that pass for checksums."""
    pipeline.declare(reconcile=Reconcile(checksums=True))
    watched = Watched(pipeline)
    assert watched.run().reconciliation.values
    assert watched.asked == ["download"]


class Mute(Counting):
    """A server that does not count."""

    def count(self, *_: Any, **__: Any) -> Mapping[str, int]:
        raise RefreshError("the site's budget of queries is spent")


@pytest.mark.parametrize("now", ["it answers", "larger max_mb", "rows are lost"])
def test_who_could_not_look_looks_again(pipeline: Pipeline, now: str):
    """Prevents: one failure of the server's counting, or a small max_mb, and nothing is compared
    until the rows change again, however long that takes."""
    pipeline.declare(reconcile=LARGE)
    mute = {"around_server": lambda server: Mute(server, lambda: None)}
    assert "budget of queries" in str(pipeline.run(around=mute).checkpoint.unreconciled)
    # Once a refresh, and as long as nothing is known.
    assert "budget of queries" in str(pipeline.run(around=mute).checkpoint.unreconciled)
    if now == "rows are lost":
        changes_the_file(pipeline, FEWER)
        with pytest.raises(ReconciliationError, match="7 rows in flights, its model has 8"):
            pipeline.run(around={"sleep": lambda _: None})
        assert pipeline.decide().startswith("publish (replace)")
        return
    if now == "larger max_mb":
        pipeline.declare(reconcile=Reconcile(by="download"))
    watched = Watched(pipeline)
    report = watched.run()
    assert isinstance(report.plan, NoChange)
    assert watched.asked == ["download" if now == "larger max_mb" else "count"]
    assert report.checkpoint.unreconciled is None
    assert "equal by" in report.summary
    watched.run()
    assert watched.asked == []


def test_an_older_service_counts_by_the_key(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a data source that is never compared, although its server could count its keys."""
    older = new_pipeline(
        on={"vds_schema": "20251"}, tables=("flights", "airlines"), relationships=STAR
    )
    older.model("airlines", airlines())
    fact, dimension = older.declaration.tables
    fact = replace(fact, policy=Diff(("flight_id",)))
    older.declare(tables=(fact, dimension), reconcile=LARGE)
    report = older.run()
    assert report.reconciliation.by == {"flights": "server", "airlines": "server"}
