"""What is published is read back and compared, and a difference is never passed over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.refresh.reconcile import UnequalError
from tableau_pipeline_tests.refresh.models import airlines, flights
from tableau_pipeline_tests.refresh.pipeline import Pipeline


class Losing:
    """A server that does something else with the data than what it was told, once it has it."""

    def __init__(self, server: Any, damage: Callable[[], None]) -> None:
        self._server, self._damage = server, damage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def download(self, luid: str, folder: Path) -> Path:
        self._damage()
        return self._server.download(luid, folder)


def damaged(pipeline: Pipeline, sql: str) -> dict[str, Any]:
    """Around a refresh after which somebody changes the published rows."""

    def damage() -> None:
        (item,) = pipeline.found()
        path = pipeline.sandbox.hyper_file(str(item.id))
        with open_hyper(path, "a", hyper=hyper_process()) as file:
            file.execute(sql)

    return {"around_server": lambda server: Losing(server, damage)}


def test_what_is_published_is_read_back(star: Pipeline):
    """Prevents: a check that is green because nobody looked."""
    star.declare(reconcile=Reconcile(checksums=True))
    report = star.run()
    assert report.reconciliation.problem is None
    assert report.reconciliation.rows == {"flights": 8, "airlines": 2}
    assert "flights.carrier" in report.reconciliation.checksums
    assert report.state.unreconciled is None
    assert star.run().reconciliation is None


def test_lost_rows_fail_the_refresh_and_the_next_one_mends_them(pipeline: Pipeline):
    """Prevents: an increment that builds on rows that are not there, night after night."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(reconcile=Reconcile())
    pipeline.run()
    pipeline.model("flights", flights(9))
    around = damaged(pipeline, 'DELETE FROM "Extract"."Extract" WHERE "flight_id" = 1')
    with pytest.raises(UnequalError, match="flights holds 8 rows, its model 9"):
        pipeline.run(around=around)
    report = pipeline.run()
    assert "flights holds 8 rows" in report.plan.reason
    assert pipeline.wrong() == []


def test_checksums_tell_values_apart(pipeline: Pipeline):
    """Prevents: a wrong value that the number of rows does not show."""
    pipeline.declare(reconcile=Reconcile(checksums=True))
    sql = """UPDATE "Extract"."Extract" SET "carrier" = '' WHERE "flight_id" = 1"""
    around = damaged(pipeline, sql)
    with pytest.raises(UnequalError, match=r"differs from the models: flights\.carrier differs"):
        pipeline.run(around=around)
    assert pipeline.run().plan.decision == "publish (replace)"
    assert pipeline.wrong() == []


def test_a_difference_after_an_overwrite_is_mended_too(pipeline: Pipeline):
    """Prevents: a refusal in the name of analysts who edited nothing, while the rows are wrong."""
    pipeline.declare(reconcile=Reconcile())
    pipeline.run()
    pipeline.model("flights", flights(9).append_column("gate", pa.array(range(9))))
    around = damaged(pipeline, 'DELETE FROM "Extract"."Extract" WHERE "flight_id" = 1')
    with pytest.raises(UnequalError):
        pipeline.run(around=around)
    report = pipeline.run()
    assert report.plan.reason == "in full: flights holds 8 rows, its model 9"
    assert pipeline.wrong() == []


def test_a_table_that_is_missing_is_a_difference(pipeline: Pipeline):
    """Prevents: the worst of differences ending as an error that the next run forgets."""
    pipeline.declare(reconcile=Reconcile())
    with pytest.raises(UnequalError, match="it cannot be read"):
        pipeline.run(around=damaged(pipeline, 'DROP TABLE "Extract"."Extract"'))


def test_what_a_crash_left_unseen_is_looked_at_next(pipeline: Pipeline):
    """Prevents: rows that nobody ever compares because the run that sent them was killed."""
    pipeline.run()
    pipeline.declare(reconcile=Reconcile())
    around = damaged(pipeline, 'DELETE FROM "Extract"."Extract" WHERE "flight_id" = 1')
    with pytest.raises(UnequalError):
        pipeline.run(around=around)
    assert "flights holds 7 rows" in pipeline.run().plan.reason
    assert pipeline.wrong() == []
    assert pipeline.run().state.unreconciled is None


def test_what_is_too_large_is_not_called_reconciled(pipeline: Pipeline):
    """Prevents: gigabytes that are downloaded every night, or a pass for what nobody compared."""
    pipeline.declare(reconcile=Reconcile(max_bytes=1))
    report = pipeline.run()
    assert "is larger than reconcile: max_mb: 1e-06" in report.reconciliation.skipped
    assert report.state.unreconciled == report.reconciliation.skipped
    assert pipeline.run().state.unreconciled == report.state.unreconciled


def test_what_may_not_be_read_is_not_called_reconciled(pipeline: Pipeline):
    """Prevents: a refresh that fails because its user may publish, but not download."""
    pipeline.declare(reconcile=Reconcile())

    class Forbidding(Losing):
        def download(self, luid: str, folder: Path) -> Path:
            raise RefusedError("this user may not download it")

    report = pipeline.run(around={"around_server": lambda server: Forbidding(server, lambda: None)})
    assert report.reconciliation.skipped == (
        "it could not be read back: this user may not download it"
    )


def test_orphans_are_remembered(star: Pipeline):
    """Prevents: rows without a partner that seem to be gone because nothing changed."""
    star.model("airlines", airlines("UA"))
    star.run()
    assert star.run().state.orphans == {"flights -> airlines": 4}
