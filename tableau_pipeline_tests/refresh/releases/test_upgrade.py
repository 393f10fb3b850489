"""Refreshes go on with the files that earlier releases stored, and lose nothing."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tableau_pipeline.core.hold import end_hold
from tableau_pipeline.errors import HeldError, RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.refresh.approval import Approval
from tableau_pipeline.refresh.plan_file import read_plan_file
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline_tests.refresh.releases.keep import FOLDER, held, opened, star
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.test_rollback import back

_WRITTEN = time.time() - 3600
RELEASES = sorted(file.stem for file in FOLDER.glob("*.zip"))


@pytest.fixture(params=RELEASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The data folder and the server that a release has left, moved to another place."""
    with ZipFile(FOLDER / f"{request.param}.zip") as archive:
        archive.extractall(tmp_path)
    # Make the files so old that the processes that wrote them count as ended.
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        os.utime(file, (_WRITTEN, _WRITTEN))
    return tmp_path


@pytest.fixture
def pipeline(store: Path) -> Iterator[Pipeline]:
    with opened(store, star()) as pipeline:
        yield pipeline


def moved(pipeline: Pipeline) -> Pipeline:
    """Confirm that the files belong to the deployment, as a person does after a move."""
    place = pipeline.journal.place
    deployment = place.recorded()
    assert deployment
    place.keep(deployment)
    return pipeline


def test_there_is_a_store_of_a_release():
    """Prevents: the tests of upgrades find no bug because no earlier release's files are kept."""
    assert "1.0.0" in RELEASES


@pytest.mark.slow
def test_a_refresh_goes_on(pipeline: Pipeline):
    """Prevents: a refresh after an upgrade is refused, publishes all rows or loses metadata."""
    with pytest.raises(RefusedError, match="this is a copy, or it was moved"):
        pipeline.run()
    moved(pipeline)
    assert [checkpoint.refresh for checkpoint in pipeline.journal.checkpoints()] == [2, 1]
    done = pipeline.run()
    assert (done.decision, done.tables["flights"].deleted) == ("update", 1)
    assert pipeline.wrong() == []
    assert "Lateness" in pipeline.tds()
    assert pipeline.run().decision == "no change"
    back(pipeline, 1)
    end_hold(pipeline.journal.place, pipeline.journal.key)
    assert pipeline.run().decision == "update"
    assert pipeline.wrong() == []


def test_agreements_hold(pipeline: Pipeline, store: Path):
    """Prevents: an upgrade makes approvals and saved plans useless."""
    moved(pipeline)
    key = pipeline.declaration.key
    approval = read_plan_file(store / "approval.json", Approval)[key]
    plan = read_plan_file(store / "plan.json", SavedPlan)[key]
    assert pipeline.run(approval=approval, saved=plan).decision == "update"
    pipeline.model("flights", flights(2))
    with pytest.raises(RefusedError) as refused:
        pipeline.run(approval=approval)
    assert [refusal.code for refusal in refused.value.refusals] == [Code.NOT_APPROVED]


def test_a_hold_and_an_open_request_are_understood(store: Path):
    """Prevents: a refresh after an upgrade sends a request again, or ends a hold by itself."""
    with opened(store, held()) as pipeline:
        moved(pipeline)
        with pytest.raises(HeldError, match="by ann: looks odd"):
            pipeline.run()
        end_hold(pipeline.journal.place, pipeline.journal.key)
        before = len([*pipeline.eyes.tsc.jobs.filter()])
        assert pipeline.run().decision == "no change"
        assert len([*pipeline.eyes.tsc.jobs.filter()]) == before > 0
        assert pipeline.wrong() == []
