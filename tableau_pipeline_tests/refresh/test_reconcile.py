"""Reconciliation: a refresh compares published rows with its models, and reports differences."""

import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Doubt
from tableau_pipeline.refresh.decide import NoChange
from tableau_pipeline.refresh.reconcile import ReconciliationError
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.support.crashes import killed_for_real
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.other_users import changes_the_file, publishes
from tableau_pipeline_tests.refresh.support.pipeline import STAR, Pipeline
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy

DOWNLOAD = Reconcile(by="download")
# Every file is larger than this limit.
LARGE = Reconcile(max_mb=1e-6)
FEWER = 'DELETE FROM "Extract"."Extract" WHERE "flight_id" = 1'
OTHERS = """UPDATE "Extract"."Extract" SET "carrier" = '' WHERE "flight_id" = 1"""


@pytest.mark.slow
def test_checksums_tell_values_apart(pipeline: Pipeline):
    """Prevents: a reconciliation compares only numbers of rows, and misses a wrong value."""
    pipeline.declare(reconcile=Reconcile(checksums=True, by="download"))

    def damaged(server: Any) -> Proxy:
        return At(server, "download", lambda: changes_the_file(pipeline, OTHERS))

    differs = r"differs from the models: the rows of flights differ"
    with pytest.raises(ReconciliationError, match=differs):
        pipeline.run(around={"around_server": damaged})
    assert pipeline.journal.checkpoint().distrust.code is Doubt.DIFFERS
    assert pipeline.run().decision == "publish (replace)"
    assert pipeline.wrong() == []


def reading(pipeline: Pipeline, write: Callable[[Path], object]) -> Refreshed:
    """Refresh; `write` provides the file that the refresh reads back."""

    class Server(Proxy):
        def download(self, luid: str, folder: Path, **_: object) -> Path:
            write(folder / "flights.tdsx")
            return folder / "flights.tdsx"

    return pipeline.run(around={"around_server": Server})


def test_a_file_that_nobody_can_open_is_a_difference(pipeline: Pipeline):
    """Prevents: a broken file counts as a file that the user may not read, and stays broken."""
    pipeline.declare(reconcile=DOWNLOAD)
    with pytest.raises(ReconciliationError, match="the published file cannot be read"):
        reading(pipeline, lambda path: path.write_bytes(b"no archive"))
    assert isinstance(pipeline.run().plan, NoChange)
    assert pipeline.journal.checkpoint().distrust is None


@pytest.mark.slow
def test_what_cannot_be_read_is_not_called_reconciled(pipeline: Pipeline):
    """Prevents: reading a file back fills the disk, or a forbidden download fails the refresh."""
    pipeline.declare(reconcile=Reconcile(by="download", max_mb=1))

    def forbid(path: Path) -> None:
        raise RefusedError("this user may not download it")

    def bomb(path: Path) -> None:
        with ZipFile(path, "w", ZIP_DEFLATED) as package:
            package.writestr("Data/flights.hyper", bytes(5 * 10**6))

    unpacks = "its .hyper file unpacks to 5.00 MB, more than 1.00 MB"
    for write, why in ((forbid, "this user may not download it"), (bomb, unpacks)):
        found = reading(pipeline, write).reconciliation
        assert found.skipped == f"the file could not be read back: {why}"
        pipeline.model("flights", flights(9))


@pytest.mark.slow
def test_the_file_is_read_back_on_the_local_disk(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Prevents: files that killed runs have read back fill a shared volume or a disk."""
    pipeline.declare(reconcile=DOWNLOAD)
    local = tmp_path / "local"
    local.mkdir()
    monkeypatch.setenv("TMPDIR", str(local))
    monkeypatch.setattr(tempfile, "tempdir", str(local))
    assert killed_for_real(pipeline, before="download") == -signal.SIGKILL
    (found,) = tmp_path.rglob("read back *")
    assert found.is_relative_to(local)
    pipeline.run()
    assert [*tmp_path.rglob("read back *")] == []


def test_what_is_too_large_is_not_called_reconciled(pipeline: Pipeline):
    """Prevents: a refresh downloads gigabytes every night, or claims to have compared the rows."""
    pipeline.declare(reconcile=Reconcile(max_mb=1e-6, by="download"))
    report, again = pipeline.run(), pipeline.run()
    assert "is larger than reconcile: max_mb: 1e-06" in report.reconciliation.skipped
    for each in (report, again):
        assert each.checkpoint.unreconciled == report.reconciliation.skipped
        assert ", not compared: the published file of up to 0.07 MB is larger" in each.summary


@pytest.mark.slow
def test_what_somebody_published_is_judged_by_its_rows(pipeline: Pipeline):
    """Prevents: rows of another user pass for ours, or a refresh publishes equal rows again."""
    pipeline.declare(reconcile=DOWNLOAD)
    pipeline.run()
    swapped = flights()["delay"].take([1, 0, *range(2, 8)])
    for rows, reason in (
        (flights(), ""),
        (flights().take(list(reversed(range(8)))), ""),
        (flights(7), "flights holds 7 rows, its model 8"),
        (flights().set_column(2, "delay", swapped), "the rows of flights differ"),
    ):
        publishes(pipeline, rows, user=("", ""))
        report = pipeline.run()
        assert pipeline.wrong() == []
        assert report.decision == ("publish (replace)" if reason else "no change")
        assert reason in report.reason
        holds = "It still holds what the last refresh left"
        assert [holds in each for each in report.warnings] == ([] if reason else [True])
        after = pipeline.run()
        assert (after.decision, after.warnings) == ("no change", ())


def watched(
    pipeline: Pipeline, sql: str = "", *, lacking: int = 0, times: int = 1000
) -> tuple[Refreshed, list[str]]:
    """Refresh; return the report and the requests that read rows from the server.

    Args:
        sql: a statement that changes the rows before the server counts them.
        lacking: how many rows are missing in a count, as with a filter or a cache.
        times: in how many counts these rows are missing.
    """
    asked: list[str] = []

    class Counting(Proxy):
        def count(
            self, luid: str, keys: Mapping[str, str | None], *, fresh: bool = False, **more: Any
        ) -> Mapping[str, int]:
            if sql:
                changes_the_file(pipeline, sql)
            asked.append("fresh" if fresh else "count")
            found = self.behind.count(luid, keys, fresh=fresh, **more)
            less = lacking if len(asked) <= times else 0
            return {name: rows - less for name, rows in found.items()}

        def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
            asked.append("download")
            return self.behind.download(luid, folder, limit=limit)

    return pipeline.run(around={"around_server": Counting, "sleep": lambda _: None}), asked


@pytest.mark.slow
def test_the_file_decides_where_it_may_be_read(pipeline: Pipeline):
    """Prevents: a refresh trusts a count that a filter, a cache or a damaged file makes wrong."""
    pipeline.declare(reconcile=Reconcile())
    report, asked = watched(pipeline, lacking=1)
    assert report.reconciliation.by == {"flights": "download"}
    assert asked == ["count", "fresh", "download"]
    pipeline.model("flights", flights(10))
    report, asked = watched(pipeline, lacking=1, times=1)
    assert report.reconciliation.by == {"flights": "server"}
    assert asked == ["count", "fresh"]
    pipeline.model("flights", flights(9))
    with pytest.raises(ReconciliationError, match="flights holds 8 rows, its model 9"):
        watched(pipeline, FEWER)


@pytest.mark.slow
def test_values_that_cannot_be_read_are_no_success(pipeline: Pipeline):
    """Prevents: a count passes for a comparison of values, or a refresh misses lost rows."""
    pipeline.declare(reconcile=Reconcile(max_mb=1e-6, checksums=True))
    report, asked = watched(pipeline)
    assert asked == ["count"]
    for part in ("larger than reconcile: max_mb", "the rows were counted, but not compared"):
        assert part in report.checkpoint.unreconciled
    pipeline.model("flights", flights(9))
    with pytest.raises(ReconciliationError, match="the server counts 8 rows in flights"):
        watched(pipeline, FEWER)


def test_values_are_read_back_where_they_may_be(pipeline: Pipeline):
    """Prevents: a count passes for a comparison of checksums."""
    pipeline.declare(reconcile=Reconcile(checksums=True))
    report, asked = watched(pipeline)
    assert report.reconciliation.values
    assert asked == ["download"]


class Mute(Proxy):
    """A server that refuses to count rows."""

    def count(self, *_: Any, **__: Any) -> Mapping[str, int]:
        raise RefreshError("the site's budget of queries is spent")


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("now", ["it answers", "larger max_mb", "rows are lost"])
def test_who_could_not_look_looks_again(pipeline: Pipeline, now: str):
    """Prevents: after one failed count, no refresh compares the rows while models are unchanged."""
    pipeline.declare(reconcile=LARGE)
    # Each refresh tries one count, until a comparison succeeds.
    for _ in range(2):
        mute = pipeline.run(around={"around_server": Mute})
        assert "budget of queries" in str(mute.checkpoint.unreconciled)
    if now == "rows are lost":
        changes_the_file(pipeline, FEWER)
        with pytest.raises(ReconciliationError, match="7 rows in flights, its model has 8"):
            pipeline.run(around={"sleep": lambda _: None})
        assert pipeline.decide().startswith("publish (replace)")
        return
    if now == "larger max_mb":
        pipeline.declare(reconcile=DOWNLOAD)
    report, asked = watched(pipeline)
    assert report.decision == "no change"
    assert asked == ["download" if now == "larger max_mb" else "count"]
    assert report.checkpoint.unreconciled is None
    assert "equal by" in report.summary
    assert watched(pipeline)[1] == []


@pytest.mark.slow
def test_an_older_service_counts_by_the_key(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a refresh never compares rows, although an older server could count their keys."""
    older = new_pipeline(
        on={"vds_schema": "20251"}, tables=("flights", "airlines"), relationships=STAR
    )
    older.model("airlines", airlines())
    fact, dimension = older.declaration.tables
    fact = replace(fact, policy=Diff(("flight_id",)))
    older.declare(tables=(fact, dimension), reconcile=LARGE)
    assert older.run().reconciliation.by == {"flights": "server", "airlines": "server"}
