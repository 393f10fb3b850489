"""What is published is read back and compared, and a difference is never passed over."""

import signal
import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.compare import ReconciliationError
from tableau_pipeline.refresh.plan import NoChange
from tableau_pipeline_tests.refresh.support.crashes import killed_for_real
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import changes_the_file, publishes
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import BeforeDownload, Proxy


def damaged(pipeline: Pipeline, sql: str) -> dict[str, Any]:
    """Around a refresh after which somebody changes the published rows."""
    return {
        "around_server": lambda server: BeforeDownload(
            server, lambda: changes_the_file(pipeline, sql)
        )
    }


def test_checksums_tell_values_apart(pipeline: Pipeline):
    """Prevents: a wrong value that the number of rows does not show."""
    pipeline.declare(reconcile=Reconcile(checksums=True, by="download"))
    sql = """UPDATE "Extract"."Extract" SET "carrier" = '' WHERE "flight_id" = 1"""
    around = damaged(pipeline, sql)
    with pytest.raises(
        ReconciliationError, match=r"differs from the models: the rows of flights differ"
    ):
        pipeline.run(around=around)
    assert pipeline.run().plan.decision == "publish (replace)"
    assert pipeline.wrong() == []


def test_a_file_that_nobody_can_open_is_a_difference(pipeline: Pipeline):
    """Prevents: a broken file passes for one that may not be read, and nobody fixes it."""
    pipeline.declare(reconcile=Reconcile(by="download"))

    class Spoiling(Proxy):
        def download(self, luid: str, folder: Path, **_: object) -> Path:
            path = folder / "flights.tdsx"
            path.write_bytes(b"no archive")
            return path

    with pytest.raises(ReconciliationError, match="it cannot be read"):
        pipeline.run(around={"around_server": Spoiling})
    assert isinstance(pipeline.run().plan, NoChange)
    assert pipeline.journal.checkpoint().distrust is None


def test_a_small_package_with_a_huge_file_is_not_unpacked(pipeline: Pipeline):
    """Prevents: a few megabytes that unpack to thousands, and fill the disk."""
    pipeline.declare(reconcile=Reconcile(by="download", max_mb=1))

    class Bomb(Proxy):
        def download(self, luid: str, folder: Path, **_: object) -> Path:
            path = folder / "flights.tdsx"
            with ZipFile(path, "w", ZIP_DEFLATED) as package:
                package.writestr("Data/flights.hyper", bytes(5 * 10**6))
            return path

    report = pipeline.run(around={"around_server": Bomb})
    assert report.reconciliation.skipped == (
        "it could not be read back: its .hyper file unpacks to 5.00 MB, more than 1.00 MB"
    )


def test_the_file_is_read_back_on_the_local_disk(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Prevents: a volume that hosts share, or a disk, that fills with what killed runs read."""
    pipeline.declare(reconcile=Reconcile(by="download"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "local"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()

    def left() -> list[Path]:
        return [*tmp_path.rglob("read back *")]

    assert killed_for_real(pipeline, before="download") == -signal.SIGKILL
    (found,) = left()
    assert found.is_relative_to(tmp_path / "local")
    pipeline.run()
    assert left() == []


def test_what_is_too_large_is_not_called_reconciled(pipeline: Pipeline):
    """Prevents: gigabytes that are downloaded every night, or a pass for what nobody compared."""
    pipeline.declare(reconcile=Reconcile(max_mb=1e-6, by="download"))
    report = pipeline.run()
    assert "is larger than reconcile: max_mb: 1e-06" in report.reconciliation.skipped
    assert report.checkpoint.unreconciled == report.reconciliation.skipped
    again = pipeline.run()
    assert again.checkpoint.unreconciled == report.checkpoint.unreconciled
    for summary in (report.summary, again.summary):
        assert ", not compared: its file of up to 0.07 MB is larger" in summary


def test_what_may_not_be_read_is_not_called_reconciled(pipeline: Pipeline):
    """Prevents: a refresh that fails because its user may publish, but not download."""
    pipeline.declare(reconcile=Reconcile(by="download"))

    class Forbidding(Proxy):
        def download(self, luid: str, folder: Path, **_: object) -> Path:
            raise RefusedError("this user may not download it")

    report = pipeline.run(around={"around_server": Forbidding})
    assert report.reconciliation.skipped == (
        "it could not be read back: this user may not download it"
    )


SWAPPED = flights().set_column(2, "delay", flights()["delay"].take([1, 0, *range(2, 8)]))


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (flights(), None),
        (flights().take(list(reversed(range(8)))), None),
        (flights(7), "flights holds 7 rows, its model 8"),
        (SWAPPED, "the rows of flights differ"),
    ],
    ids=["equal", "order", "fewer", "swapped"],
)
@pytest.mark.slow
def test_what_somebody_published_is_judged_by_its_rows(
    pipeline: Pipeline, rows: pa.Table, reason: str | None
):
    """Prevents: rows of others that pass for ours, or a publish of what is there already."""
    pipeline.declare(reconcile=Reconcile(by="download"))
    pipeline.run()
    publishes(pipeline, rows, user=("", ""))
    report = pipeline.run()
    assert pipeline.wrong() == []
    if reason is None:
        assert isinstance(report.plan, NoChange)
        (warning,) = report.warnings
        assert "It still holds what the last refresh left" in warning
    else:
        assert report.plan.decision == "publish (replace)"
        assert reason in report.plan.reason
    after = pipeline.run()
    assert isinstance(after.plan, NoChange)
    assert after.warnings == ()
