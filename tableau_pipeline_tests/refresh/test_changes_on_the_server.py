import logging
from dataclasses import replace

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.refresh.plan import Accept, NoChange, Options, Publish
from tableau_pipeline_tests.refresh import analyst
from tableau_pipeline_tests.refresh.models import flights
from tableau_pipeline_tests.refresh.pipeline import Pipeline, session


def published(pipeline: Pipeline) -> str:
    """The LUID of the data source, published for the first time."""
    state = pipeline.run().state
    assert state is not None
    assert state.luid is not None
    return state.luid


def test_renamed(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: renaming a data source makes a second one, and dashboards show the stale first."""
    luid = published(pipeline)
    analyst.changes(pipeline, name=f"{pipeline.name} better")
    pipeline.model("flights", flights(9))
    with caplog.at_level(logging.WARNING):
        state = pipeline.run().state
    assert state is not None
    assert state.luid == luid
    assert f'renamed "{pipeline.name}" to "{pipeline.name} better"' in caplog.text
    assert pipeline.found() == []
    assert pipeline.wrong_at(luid) == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_moved(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: moving a data source makes a second one, and dashboards show the stale first."""
    luid = published(pipeline)
    analyst.changes(pipeline, project=f"Elsewhere {luid}")
    pipeline.model("flights", flights(9))
    with caplog.at_level(logging.WARNING):
        pipeline.run()
    assert f'moved "{pipeline.name}" out of "Default"' in caplog.text
    (item,) = pipeline.found()
    assert (item.id, item.project_name) == (luid, f"Elsewhere {luid}")
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_namesake_of_a_renamed_one_is_spared(pipeline: Pipeline):
    """Prevents: somebody renames ours and takes the name, and we replace theirs."""
    luid = published(pipeline)
    analyst.changes(pipeline, name=f"{pipeline.name} better")
    hers = analyst.publishes(pipeline, flights(3))
    pipeline.model("flights", flights(9))
    pipeline.run()
    assert pipeline.wrong_at(luid) == []
    assert pipeline.wrong_at(str(hers.id)) == ["flights: 9 rows became 3"]


def test_deleted(pipeline: Pipeline):
    """Prevents: unchanged models leave a deleted data source unpublished for ever."""
    luid = published(pipeline)
    analyst.deletes(pipeline)
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.CREATE, f"the data source {luid} is gone from the server: published anew"
    )
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_overwritten_by_hand(pipeline: Pipeline):
    """Prevents: rows that somebody else published stay, because our models did not change."""
    luid = published(pipeline)
    analyst.publishes(pipeline, flights(3), user=("admin", "admin"))
    assert pipeline.wrong() != []
    report = pipeline.run()
    assert report.plan is not None
    assert "changed hands" in report.plan.reason
    assert pipeline.wrong() == []
    assert pipeline.found()[0].id == luid
    assert isinstance(pipeline.run().plan, NoChange)


def test_calculated_field_outlives_refreshes(pipeline: Pipeline):
    """Prevents: the nightly refresh drops what analysts added by day."""
    published(pipeline)
    analyst.adds_a_calculated_field(pipeline)
    for delay in (1, 2):
        pipeline.model("flights", flights(delay=delay))
        pipeline.run()
    assert pipeline.wrong() == []
    assert analyst.CALCULATION[:24] in pipeline.tds()


@pytest.mark.parametrize("refreshes", [0, 1, 2])
def test_calculated_field_is_not_dropped_by_a_new_column(pipeline: Pipeline, refreshes: int):
    """Prevents: a refresh after an edit takes it for its own, and a later one drops it."""
    published(pipeline)
    analyst.adds_a_calculated_field(pipeline)
    for delay in range(refreshes):
        pipeline.model("flights", flights(delay=delay + 1))
        pipeline.run()
    pipeline.model("flights", flights(8, gate=flights(8)["delay"]))
    with pytest.raises(RefusedError, match=r"accept: \[overwrite\]"):
        pipeline.run()
    assert analyst.CALCULATION[:24] in pipeline.tds()
    pipeline.run(Accept.OVERWRITE)
    assert pipeline.wrong() == []
    assert analyst.CALCULATION[:24] not in pipeline.tds()


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


def test_lost_tag_is_put_back(pipeline: Pipeline):
    """Prevents: somebody tidies up the tags, and a later loss of our records ends all refreshes."""
    luid, tag = published(pipeline), pipeline.declaration.tag
    with session(pipeline.sandbox) as site:
        site.tsc.datasources.delete_tags(luid, tag)
    assert pipeline.found()[0].tags == set()
    pipeline.model("flights", flights(9))
    pipeline.run()
    assert pipeline.found()[0].tags == {tag}


def test_renamed_while_the_file_is_built(pipeline: Pipeline):
    """Prevents: a plan of minutes ago carried out on a data source that is another by now."""
    luid = published(pipeline)
    pipeline.model("flights", flights(9))

    def meanwhile() -> HyperProcess:
        if pipeline.found():
            analyst.changes(pipeline, name=f"{pipeline.name} better")
        return hyper_process()

    with pytest.raises(RefreshError, match="was changed on the server while"):
        replace(pipeline.refresh(), hyper=meanwhile).run(Options())
    assert pipeline.found() == []
    pipeline.run()
    assert pipeline.wrong_at(luid) == []


def test_rows_that_come_while_a_refresh_waits_are_published(pipeline: Pipeline):
    """Prevents: a refresh that waited for another one putting older rows over its newer ones."""
    luid = published(pipeline)
    waiting = pipeline.refresh()
    pipeline.model("flights", flights(9))
    waiting.run(Options())
    assert pipeline.wrong_at(luid) == []
