"""Whose data source it is: tags, instances, adoption, takeover, and what a loss of records does."""

import json
from dataclasses import replace

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX
from tableau_pipeline.core.journal import FORMAT
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import Accept, NoChange, Options, Publish
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session


def tags(pipeline: Pipeline) -> set[str]:
    """What marks a data source as that of this deployment."""
    return {pipeline.declaration.tag, f"{INSTANCE_TAG_PREFIX}{pipeline.journal.instance}"}


def forget(pipeline: Pipeline) -> None:
    """Lose all records, but not who we are, as when an asset is wiped in Dagster."""
    path = pipeline.journal.path
    path.write_text(json.dumps({"format": FORMAT, "instance": pipeline.journal.instance}), "utf-8")


def elsewhere(pipeline: Pipeline) -> Pipeline:
    """The same declaration and models in another deployment."""
    other = replace(pipeline, folder=pipeline.folder / "elsewhere")
    other.model("flights", flights())
    return other


def left_alone(pipeline: Pipeline, luid: str | None, *, refusal: str) -> None:
    """A refresh is refused, and the data source is what it was, to the byte."""
    with session(pipeline.sandbox) as site:
        before = other_users.content(site, str(luid))
        sent = {each.request_id for each in pipeline.journal.all_intents()}
        with pytest.raises(RefusedError, match=refusal):
            pipeline.run()
        assert other_users.content(site, str(luid)) == before
    assert {each.request_id for each in pipeline.journal.all_intents()} == sent
    assert [item.id for item in pipeline.found()] == [luid]


def test_foreign_data_source_is_untouched(pipeline: Pipeline):
    """Prevents: a first publish replaces the work of somebody who had the name first."""
    hers = other_users.publishes(pipeline, flights(3))
    left_alone(pipeline, hers.id, refusal="adopt: true")


def test_adopted_data_source_becomes_ours(pipeline: Pipeline):
    """Prevents: taking over a hand-made data source breaks the dashboards that hang on it."""
    hers = other_users.publishes(pipeline, flights(3))
    pipeline.declare(adopt=True)
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert report.plan.mode is PublishMode.REPLACE
    (item,) = pipeline.found()
    assert (item.id, item.tags) == (hers.id, tags(pipeline))
    assert pipeline.wrong() == []
    pipeline.declare(adopt=False)
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("user", "tag"),
    [
        (other_users.ANN, ""),
        (other_users.ADMIN, "tableau-pipeline:theirs"),
        (other_users.ADMIN, "tableau-pipeline-instance:theirs"),
    ],
    ids=["another user", "another pipeline", "another deployment"],
)
def test_create_that_was_cut_off_takes_no_foreign_one(
    pipeline: Pipeline, user: tuple[str, str], tag: str
):
    """Prevents: a create that never happened lets us replace what another put there since."""
    assert killed_before(pipeline, "publish")
    theirs = other_users.publishes(pipeline, flights(3), user=user, tag=tag)
    left_alone(pipeline, theirs.id, refusal="adopt: true")


@pytest.mark.slow
def test_create_that_was_cut_off_takes_nothing_older(pipeline: Pipeline):
    """Prevents: what our user made by hand long ago passes for what a lost create has made."""
    older = other_users.publishes(pipeline, flights(3), user=other_users.ADMIN)
    other_users.changes(pipeline, name=f"{pipeline.name} aside")
    pipeline.sandbox.advance(60)
    assert killed_before(pipeline, "publish")
    with session(pipeline.sandbox) as site:
        item = site.tsc.datasources.get_by_id(older.id)
        item.name = pipeline.name
        site.tsc.datasources.update(item)
    left_alone(pipeline, older.id, refusal="adopt: true")


def test_two_deployments_of_one_declaration(pipeline: Pipeline):
    """Prevents: staging and production overwrite each other, both of them green."""
    pipeline.run()
    (item,) = pipeline.found()
    other = elsewhere(pipeline)
    left_alone(other, item.id, refusal=r"another deployment .* accept: \[takeover\]")
    assert other.decide().startswith("refuse")
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("whole_deployment", [False, True])
@pytest.mark.slow
def test_takeover(pipeline: Pipeline, *, whole_deployment: bool):
    """Prevents: a deployment whose storage was lost can never refresh its data sources again."""
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    (before,) = pipeline.found()
    other = elsewhere(pipeline)
    if whole_deployment:
        report = refresh(replace(other.refresh(), takeover=True), Options())
    else:
        report = other.run(Accept.TAKEOVER)
    assert isinstance(report.plan, Publish)
    assert report.plan.mode is PublishMode.REPLACE
    (item,) = other.found()
    assert item.id == before.id
    assert item.tags == tags(other) != tags(pipeline)
    assert other_users.CALCULATION[:24] in other.tds()
    assert isinstance(other.run().plan, NoChange)
    left_alone(pipeline, item.id, refusal="another deployment")


def test_data_source_without_the_tag_of_an_instance(pipeline: Pipeline):
    """Prevents: what an older version published stays open to every other deployment."""
    pipeline.run()
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        site.tsc.datasources.delete_tags(item.id, list(tags(pipeline) - {pipeline.declaration.tag}))
    pipeline.decide()
    assert pipeline.found()[0].tags == {pipeline.declaration.tag}, "a dry run changes nothing"
    assert isinstance(pipeline.run().plan, NoChange)
    assert pipeline.found()[0].tags == tags(pipeline)
    assert isinstance(pipeline.run().plan, NoChange)


def test_another_url_of_the_same_server(pipeline: Pipeline):
    """Prevents: a new name of the server makes us forget what is ours, or publish it twice."""
    pipeline.run()
    path = pipeline.journal.path
    records = path.read_text("utf-8")
    path.write_text(records.replace(pipeline.sandbox.url, "http://old:8765"), "utf-8")
    assert path.read_text("utf-8") != records
    assert isinstance(pipeline.run().plan, NoChange)
