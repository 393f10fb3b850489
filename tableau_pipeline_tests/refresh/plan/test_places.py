"""Where a data source is, and whose key it has: what a dry run says is what the run does."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.core.journal import FORMAT
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import Accept, NoChange, Publish, Refuse
from tableau_pipeline_tests.refresh.plan.test_ownership import elsewhere, forget, left_alone
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session


def luid_of(pipeline: Pipeline) -> str:
    (item,) = pipeline.found()
    return str(item.id)


def test_rename_and_move_are_part_of_the_plan(pipeline: Pipeline):
    """Prevents: "no change, nothing sent", and dashboards find another name on the server."""
    pipeline.run()
    old, luid = pipeline.name, luid_of(pipeline)
    pipeline.declare(name=f"{old} better", project=f"Shop {luid}", create_project=True)
    planned, done = pipeline.run(dry_run=True), pipeline.run()
    for report in (planned, done):
        assert isinstance(report.plan, NoChange)
        assert report.decision == "rename, move"
        for part in (f'renamed from "{old}" to "{old} better"', f'moved to "Shop {luid}"'):
            assert part in report.reason
            assert part in report.summary
        assert "no change" not in report.summary
    assert luid_of(pipeline) == luid
    assert pipeline.run().decision == "no change"


def test_refused_rows_rename_nothing(pipeline: Pipeline):
    """Prevents: a refusal that says "nothing was changed", and dashboards find another name."""
    pipeline.run()
    old = pipeline.name
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(name=f"{old} better")
    rows = flights(9)
    pipeline.model("flights", pa.concat_tables([rows, rows.slice(0, 1)]))
    with pytest.raises(RefusedError, match="is not unique"):
        pipeline.run(full=True)
    pipeline.declare(name=old)
    assert len(pipeline.found()) == 1


def test_taken_name_shows_in_a_dry_run(pipeline: Pipeline):
    """Prevents: a dry run is fine, and the run is refused."""
    pipeline.run()
    old = pipeline.name
    pipeline.declare(name=f"{old} better")
    pipeline.model("flights", flights(9))
    hers = other_users.publishes(pipeline, flights(3))
    plan = pipeline.run(dry_run=True).plan
    assert isinstance(plan, Refuse)
    for part in (f'"{old}" is to be renamed', f'"{old} better"', '"Default"'):
        assert part in plan.reason
    left_alone(pipeline, hers.id, refusal="is to be renamed")


def test_new_case_of_a_name_is_not_taken(pipeline: Pipeline):
    """Prevents: a data source is in the way of itself, since names do not differ by case."""
    pipeline.run()
    pipeline.declare(name=pipeline.name.upper())
    assert pipeline.run().decision == "rename"


def test_second_deployment_makes_no_twin(pipeline: Pipeline):
    """Prevents: a second instance publishes a copy in another project, which people mix up."""
    pipeline.run()
    luid = luid_of(pipeline)
    other = elsewhere(pipeline)
    other.declare(project=f"Shop {luid}", create_project=True)
    plan = other.run(dry_run=True).plan
    assert isinstance(plan, Refuse)
    for part in ("another deployment", "accept: [takeover]", "`key`", luid):
        assert part in plan.reason
    left_alone(other, luid, refusal="another deployment")
    report = other.run(Accept.TAKEOVER)
    assert isinstance(report.plan, Publish)
    assert "stays where it is" in report.plan.reason
    assert luid_of(other) == luid
    assert isinstance(other.run().plan, NoChange)
    left_alone(pipeline, luid, refusal="another deployment")


def test_tag_that_no_record_names_makes_no_twin(pipeline: Pipeline):
    """Prevents: after a wipe, a renamed data source is left behind, stale, with its dashboards."""
    pipeline.run()
    luid, old = luid_of(pipeline), pipeline.name
    forget(pipeline)
    pipeline.declare(name=f"{old} better")
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    for part in (f'"{old}"', luid, pipeline.declaration.tag, "accept: [takeover]", "no record"):
        assert part in str(caught.value)
    assert pipeline.found() == []
    pipeline.run(Accept.TAKEOVER)
    assert pipeline.found() == []
    assert pipeline.wrong_at(luid) == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_several_data_sources_with_one_tag(pipeline: Pipeline):
    """Prevents: the takeover of one of two copies, whichever the server lists first."""
    pipeline.run()
    luid, old, tag = luid_of(pipeline), pipeline.name, pipeline.declaration.tag
    pipeline.declare(name=f"{old} copy")
    copy = other_users.publishes(pipeline, flights(3), tag=tag)
    forget(pipeline)
    pipeline.declare(name=f"{old} better")
    with pytest.raises(RefusedError) as caught:
        pipeline.run(Accept.TAKEOVER)
    for part in (luid, str(copy.id), "Remove the tag"):
        assert part in str(caught.value)


def test_tag_of_a_key_that_begins_alike(new_pipeline: Callable[..., Pipeline]):
    """Prevents: `sales` cannot be published, since `sales_2024` is."""
    one = new_pipeline()
    other = new_pipeline(key=f"{one.declaration.key}_2024")
    other.run()
    report = one.run()
    assert isinstance(report.plan, Publish)
    assert report.plan.mode == "create"


def of_the_same_instance(pipeline: Pipeline, key: str) -> Pipeline:
    """Another key of the same deployment, which has no records yet."""
    other = replace(pipeline, declaration=replace(pipeline.declaration, key=key))
    path = other.journal.path
    path.write_text(json.dumps({"format": FORMAT, "instance": pipeline.journal.instance}), "utf-8")
    return other


@pytest.mark.parametrize("adopt", [False, True])
def test_another_key_of_this_deployment_is_left_alone(pipeline: Pipeline, *, adopt: bool):
    """Prevents: two declarations with one name replace each other in turns: 10, 25, 10, 25 rows."""
    pipeline.run()
    luid = luid_of(pipeline)
    other = of_the_same_instance(pipeline, f"{pipeline.declaration.key}_2")
    other.declare(adopt=adopt)
    key = pipeline.declaration.key
    refusal = rf'"{key}", by this deployment .* `key` .* accept: \[takeover\]'
    left_alone(other, luid, refusal=refusal)
    other_users.adds_a_calculated_field(pipeline)
    other.run(Accept.TAKEOVER)
    assert luid_of(other) == luid
    assert other_users.CALCULATION[:24] in other.tds()
    assert other.declaration.tag in other.found()[0].tags
    assert pipeline.declaration.tag not in other.found()[0].tags
    assert isinstance(other.run().plan, NoChange)
    left_alone(pipeline, luid, refusal=refusal.replace(key, f"{key}_2"))


def test_tag_of_another_key_by_hand(pipeline: Pipeline):
    """Prevents: a tag that shows two publishers is not noticed by the first of them."""
    pipeline.run()
    with session(pipeline.sandbox) as site:
        site.tag(luid_of(pipeline), ["tableau-pipeline:other"])
    left_alone(pipeline, luid_of(pipeline), refusal='"other"')


def test_renamed(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: renaming a data source makes a second one, and dashboards show the stale first."""
    pipeline.run()
    luid = luid_of(pipeline)
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


def test_deleted(pipeline: Pipeline):
    """Prevents: unchanged models leave a deleted data source unpublished for ever."""
    pipeline.run()
    other_users.deletes(pipeline)
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.CREATE, "the data source is gone from the server: it is published again"
    )
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)
