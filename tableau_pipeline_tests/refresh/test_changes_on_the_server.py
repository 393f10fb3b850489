"""What people do on the server between two refreshes, and in the declaration about its place."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.refresh.plan import Accept, NoChange, Options, Publish
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session


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
def test_moved(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: moving a data source makes a second one, and dashboards show the stale first."""
    luid = published(pipeline)
    other_users.changes(pipeline, project=f"Elsewhere {luid}")
    pipeline.model("flights", flights(9))
    with caplog.at_level(logging.WARNING):
        pipeline.run()
    assert f'moved "{pipeline.name}" out of "Default"' in str(caplog.messages)
    (item,) = pipeline.found()
    assert (item.id, item.project_name) == (luid, f"Elsewhere {luid}")
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("rows", [8, 9], ids=["same rows", "new rows"])
def test_renamed_and_moved_in_the_declaration(pipeline: Pipeline, rows: int):
    """Prevents: the old data source is left behind, stale, with everybody's workbooks on it."""
    luid, old = published(pipeline), pipeline.name
    pipeline.model("flights", flights(rows))
    project = f"Elsewhere {luid}"
    pipeline.declare(name=f"{old} better", project=project, create_project=True)
    pipeline.decide()
    assert pipeline.found() == [], "a dry run moves nothing"
    pipeline.run()
    (item,) = pipeline.found()
    assert (item.id, item.project_name) == (luid, project)
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)
    pipeline.declare(name=old)
    assert pipeline.found() == []


@pytest.mark.slow
def test_new_name_in_the_declaration_is_taken(pipeline: Pipeline):
    """Prevents: a new name in the declaration replaces the data source that had it first."""
    luid, old = published(pipeline), pipeline.name
    pipeline.declare(name=f"{old} better")
    hers = other_users.publishes(pipeline, flights(3))
    with pytest.raises(RefusedError):
        pipeline.run()
    assert [item.id for item in pipeline.found()] == [hers.id]
    pipeline.declare(name=old)
    assert [item.id for item in pipeline.found()] == [luid]
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_renamed_by_hand_then_in_the_declaration(pipeline: Pipeline):
    """Prevents: what somebody renamed on the server can never be declared to have that name."""
    luid = published(pipeline)
    other_users.changes(pipeline, name=f"{pipeline.name} better")
    pipeline.declare(name=f"{pipeline.name} better")
    pipeline.run()
    assert [item.id for item in pipeline.found()] == [luid]
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


def test_overwritten_by_hand(pipeline: Pipeline):
    """Prevents: rows that somebody else published stay, because our models did not change."""
    luid = published(pipeline)
    other_users.publishes(pipeline, flights(3), user=ADMIN)
    assert pipeline.wrong() != []
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert "that was not this pipeline" in report.plan.reason
    assert pipeline.wrong() == []
    assert pipeline.found()[0].id == luid
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
def test_new_column_after_refreshes_without_edits(pipeline: Pipeline):
    """Prevents: our own refreshes look like edits, and every new column needs a person."""
    published(pipeline)
    for delay in (1, 2):
        pipeline.model("flights", flights(delay=delay))
        pipeline.run()
    pipeline.model("flights", flights(8, gate=flights(8)["delay"]))
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert report.plan.mode is PublishMode.OVERWRITE
    assert "<remote-name>gate<" in pipeline.tds()
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_new_column_where_time_stamps_come_after_the_job(new_pipeline: Callable[..., Pipeline]):
    """Prevents: what the revisions show to be ours alone passes for somebody's work."""
    pipeline = new_pipeline(on={"job_stamps": "after"})
    published(pipeline)
    pipeline.model("flights", flights(8, gate=flights(8)["delay"]))
    pipeline.run()
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_lost_tags_are_put_back(pipeline: Pipeline):
    """Prevents: somebody tidies up the tags, and a later loss of our records ends all refreshes."""
    luid = published(pipeline)
    (before,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        site.tsc.datasources.delete_tags(luid, list(before.tags))
    assert pipeline.found()[0].tags == set()
    pipeline.model("flights", flights(9))
    pipeline.run()
    assert pipeline.found()[0].tags == before.tags


def test_renamed_while_the_file_is_built(pipeline: Pipeline):
    """Prevents: a plan of minutes ago carried out on a data source that is another by now."""
    luid = published(pipeline)
    pipeline.model("flights", flights(9))

    def meanwhile() -> HyperProcess:
        if pipeline.found():
            other_users.changes(pipeline, name=f"{pipeline.name} better")
        return hyper_process()

    refresh(replace(pipeline.refresh(), hyper=meanwhile), Options())
    given_up, sent = pipeline.journal.sendings()[-2:]
    assert (given_up.job_id, sent.name) == (None, f"{pipeline.name} better")
    assert pipeline.found() == []
    assert pipeline.wrong_at(luid) == []
