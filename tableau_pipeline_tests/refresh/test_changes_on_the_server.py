"""What people do on the server between two refreshes, and in the declaration about its place."""

import logging
from collections.abc import Callable

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import Accept, NoChange, Publish
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


def published(pipeline: Pipeline) -> str:
    """The LUID of the data source, published for the first time."""
    checkpoint = pipeline.run().checkpoint
    assert checkpoint is not None
    assert checkpoint.luid is not None
    return checkpoint.luid


def test_renamed(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: renaming a data source makes a second one, and dashboards show the stale first."""
    luid = published(pipeline)
    other_users.changes(pipeline, name=f"{pipeline.name} better")
    pipeline.model("flights", flights(9))
    with caplog.at_level(logging.WARNING):
        checkpoint = pipeline.run().checkpoint
    assert checkpoint is not None
    assert checkpoint.luid == luid
    assert f'renamed "{pipeline.name}" to "{pipeline.name} better"' in str(caplog.messages)
    assert pipeline.found() == []
    assert pipeline.wrong_at(luid) == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_namesake_of_a_renamed_one_is_spared(pipeline: Pipeline):
    """Prevents: somebody renames ours and takes the name, and we replace theirs."""
    luid = published(pipeline)
    other_users.changes(pipeline, name=f"{pipeline.name} better")
    hers = other_users.publishes(pipeline, flights(3))
    pipeline.model("flights", flights(9))
    pipeline.run()
    assert pipeline.wrong_at(luid) == []
    assert pipeline.wrong_at(str(hers.id)) == ["flights: 9 rows became 3"]


def test_deleted(pipeline: Pipeline):
    """Prevents: unchanged models leave a deleted data source unpublished for ever."""
    published(pipeline)
    other_users.deletes(pipeline)
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.CREATE, "the data source is gone from the server: it is published again"
    )
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_overwritten_by_hand_without_our_column(pipeline: Pipeline):
    """Prevents: a foreign schema stays for ever, and every refresh reports its rows as equal."""
    luid = published(pipeline)
    other_users.publishes(pipeline, flights(8).drop_columns("delay"), user=ADMIN)
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    for part in ('lacks the column "delay"', 'the folder "kept"', "accept: [overwrite]"):
        assert part in str(caught.value)
    pipeline.run(Accept.OVERWRITE)
    assert pipeline.wrong() == []
    assert "<remote-name>delay<" in pipeline.tds()
    assert pipeline.found()[0].id == luid
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("refreshes", [0, 1, 2])
@pytest.mark.slow
def test_calculated_field_is_not_dropped_by_a_new_column(pipeline: Pipeline, refreshes: int):
    """Prevents: a refresh after an edit takes it for its own, and a later one drops it."""
    published(pipeline)
    other_users.adds_a_calculated_field(pipeline)
    for delay in range(refreshes):
        pipeline.model("flights", flights(delay=delay + 1))
        pipeline.run()
    pipeline.model("flights", flights(8, gate=flights(8)["delay"]))
    with pytest.raises(RefusedError, match=r"accept: \[overwrite\]"):
        pipeline.run()
    assert other_users.CALCULATION[:24] in pipeline.tds()
    pipeline.run(Accept.OVERWRITE)
    assert pipeline.wrong() == []
    assert other_users.CALCULATION[:24] not in pipeline.tds()


@pytest.mark.slow
def test_new_column_where_time_stamps_come_after_the_job(new_pipeline: Callable[..., Pipeline]):
    """Prevents: what the revisions show to be ours alone passes for somebody's work."""
    pipeline = new_pipeline(on={"job_stamps": "after"})
    published(pipeline)
    pipeline.model("flights", flights(8, gate=flights(8)["delay"]))
    pipeline.run()
    assert pipeline.wrong() == []
