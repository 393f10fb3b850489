from collections.abc import Callable

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import NoChange, Publish
from tableau_pipeline_tests.refresh import analyst
from tableau_pipeline_tests.refresh.crashes import killed_after
from tableau_pipeline_tests.refresh.models import flights
from tableau_pipeline_tests.refresh.pipeline import Pipeline, session

ADMIN = ("admin", "admin")


def left_alone(pipeline: Pipeline, luid: str | None, *, refusal: str) -> None:
    """A refresh is refused, and the data source is what it was, to the byte."""
    with session(pipeline.sandbox) as site:
        before = analyst.content(site, str(luid))
        records = pipeline.journal.all_intents()
        with pytest.raises(RefusedError, match=refusal):
            pipeline.run()
        assert analyst.content(site, str(luid)) == before
    assert pipeline.journal.all_intents() == records
    assert [item.id for item in pipeline.found()] == [luid]


def test_foreign_data_source_is_untouched(pipeline: Pipeline):
    """Prevents: a first publish replaces the work of somebody who had the name first."""
    hers = analyst.publishes(pipeline, flights(3))
    left_alone(pipeline, hers.id, refusal="adopt: true")


def test_adopted_data_source_becomes_ours(pipeline: Pipeline):
    """Prevents: taking over a hand-made data source breaks the dashboards that hang on it."""
    hers = analyst.publishes(pipeline, flights(3))
    pipeline.declare(adopt=True)
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert report.plan.mode is PublishMode.OVERWRITE
    (item,) = pipeline.found()
    assert (item.id, item.tags) == (hers.id, {"tableau-pipeline:nyc_flights"})
    assert pipeline.wrong() == []
    pipeline.declare(adopt=False)
    assert isinstance(pipeline.run().plan, NoChange)


def test_adoption_that_was_cut_off_and_withdrawn(pipeline: Pipeline):
    """Prevents: an adoption that never happened still lets us replace foreign work."""
    hers = analyst.publishes(pipeline, flights(3))
    pipeline.declare(adopt=True)
    assert killed_after(pipeline, 1)
    pipeline.declare(adopt=False)
    left_alone(pipeline, hers.id, refusal="adopt: true")


def test_another_took_the_name_of_a_deleted_one(pipeline: Pipeline):
    """Prevents: our state of a data source that is gone lets us replace its namesake."""
    pipeline.run()
    analyst.deletes(pipeline)
    hers = analyst.publishes(pipeline, flights(3))
    left_alone(pipeline, hers.id, refusal="adopt: true")


@pytest.mark.parametrize("user", [analyst.ANN, ADMIN], ids=["another user", "our user"])
def test_create_that_was_cut_off_takes_no_stranger(pipeline: Pipeline, user: tuple[str, str]):
    """Prevents: a create that never happened lets us replace what another put there since."""
    assert killed_after(pipeline, 1)
    theirs = analyst.publishes(pipeline, flights(3), user=user, tag="tableau-pipeline:theirs")
    left_alone(pipeline, theirs.id, refusal="adopt: true")


def test_lost_state_finds_its_data_source_by_the_tag(pipeline: Pipeline):
    """Prevents: after a wipe of Dagster's storage nothing can be refreshed, or edits are lost."""
    pipeline.run()
    analyst.adds_a_calculated_field(pipeline)
    (before,) = pipeline.found()
    forget(pipeline)
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert report.plan.mode is PublishMode.REPLACE
    assert "the journal is empty" in report.plan.reason
    assert [item.id for item in pipeline.found()] == [before.id]
    assert pipeline.wrong() == []
    assert analyst.CALCULATION[:24] in pipeline.tds()
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.parametrize("other", [{"server": "http://old:8765"}, {"site": "sales"}])
def test_state_of_another_server(pipeline: Pipeline, other: dict[str, str]):
    """Prevents: after a move to a new server, unchanged models are never published there."""
    state = pipeline.run().state
    assert state is not None
    analyst.deletes(pipeline)
    pipeline.journal.keep(state.model_copy(update=other))
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert report.plan.mode is PublishMode.CREATE
    assert next(iter(other.values())) in report.plan.reason
    assert pipeline.wrong() == []


def test_two_pipelines_with_one_name(new_pipeline: Callable[..., Pipeline]):
    """Prevents: two data sources that were declared with one name replace each other in turns."""
    one = new_pipeline(key="one")
    one.run()
    two = new_pipeline(one.name, key="two")
    two.model("flights", flights(5))
    left_alone(two, one.found()[0].id, refusal="did not publish")
    assert isinstance(one.run().plan, NoChange)


def forget(pipeline: Pipeline) -> None:
    """Lose all records."""
    pipeline.journal.path.unlink()
