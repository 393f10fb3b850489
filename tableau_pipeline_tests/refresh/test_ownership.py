"""Ownership, names and projects of data sources, and the work of users in them."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.fields import FieldMetadata
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX
from tableau_pipeline.core.policies import Diff, ReplaceAll
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.metadata.contents import read_metadata
from tableau_pipeline.objects.stores import store_at
from tableau_pipeline.outcome import Accept, Code, Status
from tableau_pipeline.publishing.properties import find_named, set_properties
from tableau_pipeline.refresh.decide import NoChange, Options, Publish, UpdateTables
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline_tests.deployment.object_stores import S3Server
from tableau_pipeline_tests.differences import tds_in
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN, ANN
from tableau_pipeline_tests.refresh.support.pipeline import WHOLE, Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy

FIELD = other_users.CALCULATION[:24]
OTHER_SCHEMA = flights(gate=flights()["delay"])


def luid_of(pipeline: Pipeline) -> str:
    (item,) = pipeline.found()
    return str(item.id)


def tags(pipeline: Pipeline) -> set[str]:
    """Return the tags that a refresh sets: one for the key, and one for the deployment."""
    return {pipeline.declaration.tag, f"{INSTANCE_TAG_PREFIX}{pipeline.journal.instance}"}


def left_alone(pipeline: Pipeline, luid: str | None, *, refusal: str) -> None:
    """Check that a refresh is refused, sends nothing and leaves the data source unchanged."""
    with session(pipeline.sandbox) as site:
        before = other_users.content(site, str(luid))
        sent = {each.request_id for each in pipeline.journal.all_intents()}
        with pytest.raises(RefusedError, match=refusal):
            pipeline.run()
        assert other_users.content(site, str(luid)) == before
    assert {each.request_id for each in pipeline.journal.all_intents()} == sent
    assert [item.id for item in pipeline.found()] == [luid]


def test_foreign_data_source_is_untouched(pipeline: Pipeline):
    """Prevents: a first publish replaces the data source of another user with the same name."""
    hers = other_users.publishes(pipeline, flights(3))
    left_alone(pipeline, hers.id, refusal="adopt: true")


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("user", "tag"),
    [
        pytest.param(ANN, "", id="another user"),
        pytest.param(ADMIN, "tableau-pipeline:theirs", id="another pipeline"),
        pytest.param(ADMIN, "tableau-pipeline-instance:theirs", id="another deployment"),
    ],
)
def test_create_that_was_cut_off_takes_no_foreign_one(
    pipeline: Pipeline, user: tuple[str, str], tag: str
):
    """Prevents: after an interrupted create, a refresh replaces another user's data source."""
    assert killed_before(pipeline, "publish")
    theirs = other_users.publishes(pipeline, flights(3), user=user, tag=tag)
    left_alone(pipeline, theirs.id, refusal="adopt: true")


@pytest.mark.slow
def test_create_that_was_cut_off_takes_nothing_older(pipeline: Pipeline):
    """Prevents: a refresh takes a data source made by hand for the result of a lost create."""
    older = other_users.publishes(pipeline, flights(3), user=ADMIN)
    other_users.changes(pipeline, name=f"{pipeline.name} aside")
    pipeline.sandbox.advance(60)
    assert killed_before(pipeline, "publish")
    with session(pipeline.sandbox) as site:
        item = site.tsc.datasources.get_by_id(older.id)
        item.name = pipeline.name
        site.tsc.datasources.update(item)
    left_alone(pipeline, older.id, refusal="adopt: true")


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("whole_deployment", [False, True])
def test_second_deployment(pipeline: Pipeline, *, whole_deployment: bool):
    """Prevents: two deployments overwrite each other's data sources, or publish copies of them."""
    pipeline.run()
    luid = luid_of(pipeline)
    other = replace(pipeline, folder=pipeline.folder / "elsewhere")
    other.model("flights", flights())
    left_alone(other, luid, refusal=r"another deployment .* accept: \[takeover\]")
    other.declare(project=f"Shop {luid}", create_project=True)
    message = other.decide()
    for part in ("refused: ", "another deployment", "accept: [takeover]", "`key`", luid):
        assert part in message
    left_alone(other, luid, refusal="another deployment")
    assert isinstance(pipeline.run().plan, NoChange)
    other_users.adds_a_calculated_field(pipeline)
    if whole_deployment:
        report = refresh(replace(other.refresh(), takeover=True), Options())
    else:
        report = other.run(Accept.TAKEOVER)
    assert report.plan.mode is PublishMode.REPLACE
    assert "stays where it is" in report.plan.reason
    (item,) = other.found()
    assert (item.id, item.tags) == (luid, tags(other))
    assert tags(other) != tags(pipeline)
    assert FIELD in other.tds()
    assert isinstance(other.run().plan, NoChange)
    left_alone(pipeline, luid, refusal="another deployment")


@pytest.mark.slow
def test_data_source_without_the_tag_of_an_instance(pipeline: Pipeline):
    """Prevents: an old data source gets no deployment tag, and another deployment takes it over."""
    pipeline.run()
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        site.tsc.datasources.delete_tags(item.id, list(tags(pipeline) - {pipeline.declaration.tag}))
    pipeline.decide()
    assert pipeline.found()[0].tags == {pipeline.declaration.tag}, "a dry run changes nothing"
    for _ in range(2):
        assert isinstance(pipeline.run().plan, NoChange)
        assert pipeline.found()[0].tags == tags(pipeline)


def test_another_url_of_the_same_server(pipeline: Pipeline):
    """Prevents: after a change of the server's URL, a refresh publishes its data source again."""
    pipeline.run()
    newest = pipeline.journal.files()[-1]
    record = newest.read_text("utf-8")
    newest.write_text(record.replace(pipeline.sandbox.url, "http://old:8765"), "utf-8")
    assert newest.read_text("utf-8") != record
    assert isinstance(pipeline.run().plan, NoChange)


def test_rename_and_move_are_part_of_the_plan(pipeline: Pipeline):
    """Prevents: a report says "no change" after a rename, or a rename that changes case fails."""
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
    pipeline.declare(name=pipeline.name.upper())
    assert pipeline.run().decision == "rename"


def test_refused_rows_rename_nothing(pipeline: Pipeline):
    """Prevents: a refused refresh still renames the data source."""
    pipeline.run()
    old = pipeline.name
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(name=f"{old} better")
    pipeline.model("flights", pa.concat_tables([flights(9), flights(1)]))
    with pytest.raises(RefusedError, match="is not unique"):
        pipeline.run(full=True)
    pipeline.declare(name=old)
    assert len(pipeline.found()) == 1


@pytest.mark.slow
def test_rename_before_a_refused_publish(pipeline: Pipeline):
    """Prevents: a run that passes for refused, and so for one that changed nothing, although it has
    renamed the data source before the server refused its rows."""
    pipeline.declare(**WHOLE)
    pipeline.run()
    old = pipeline.name
    pipeline.declare(name=f"{old} better")
    pipeline.model("flights", flights(9))

    class Refusing(Proxy):
        def publish(self, *_: Any, **__: Any) -> None:
            raise RefusedError("no whole files today", code=Code.SERVER)

    with pytest.raises(RefreshError, match="no whole files today") as caught:
        pipeline.run(around={"around_server": Refusing})
    assert f'"{old}" was renamed to "{pipeline.name}"' in str(caught.value)
    failure = pipeline.journal.history().failure
    assert failure
    assert failure.status is Status.FAILED
    assert len(pipeline.found()) == 1
    pipeline.run()
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_tag_before_a_refusal(pipeline: Pipeline):
    """Prevents: a run that passes for refused, and so for one that changed nothing, although it has
    tagged the data source before another user published columns that an overwrite would drop."""
    pipeline.run()
    luid = str(pipeline.found()[0].id)
    pipeline.eyes.untag(luid, [pipeline.declaration.tag])

    def meanwhile() -> None:
        other_users.publishes(pipeline, OTHER_SCHEMA, user=ADMIN)

    around = {"around_server": lambda server: At(server, "tag", meanwhile, when="after")}
    with pytest.raises(RefreshError, match=r"was tagged\. After that, the refresh was refused: "):
        pipeline.run(around=around)
    failure = pipeline.journal.history().failure
    assert failure
    assert failure.status is Status.FAILED


@pytest.mark.slow
def test_owner_before_a_refusal(new_pipeline: Callable[..., Pipeline]):
    """Prevents: the same, after the data source was given back to its former owner."""
    pipeline = new_pipeline(on={"publisher_owns": True})
    pipeline.declare(**WHOLE)
    pipeline.run()
    remote = pipeline.eyes.find_by_luid(str(pipeline.found()[0].id))
    assert remote
    ann = find_named(pipeline.eyes, "user", ANN[0])
    set_properties(pipeline.eyes, remote.luid, owner=ann)
    pipeline.model("flights", flights(9))
    assert killed_before(pipeline, "ask")

    def meanwhile() -> None:
        other_users.publishes(pipeline, OTHER_SCHEMA, user=ADMIN)

    around = {"around_server": lambda server: At(server, "ask", meanwhile, when="after")}
    with pytest.raises(RefreshError, match=r"got another owner\. After that, the refresh was"):
        pipeline.run(around=around)


def test_taken_name_shows_in_a_dry_run(pipeline: Pipeline):
    """Prevents: a dry run succeeds, but the refresh is refused because the new name is taken."""
    pipeline.run()
    old = pipeline.name
    pipeline.declare(name=f"{old} better")
    pipeline.model("flights", flights(9))
    hers = other_users.publishes(pipeline, flights(3))
    message = pipeline.decide()
    for part in ("refused: ", f'"{old}" is to be renamed', f'"{old} better"', '"Default"'):
        assert part in message
    left_alone(pipeline, hers.id, refusal="is to be renamed")


@pytest.mark.slow
def test_tag_that_no_record_names_makes_no_twin(pipeline: Pipeline):
    """Prevents: after a loss of records, a refresh publishes a copy of a renamed data source."""
    pipeline.run()
    luid, old, tag = luid_of(pipeline), pipeline.name, pipeline.declaration.tag
    pipeline.declare(name=f"{old} copy")
    copy = other_users.publishes(pipeline, flights(3), tag=tag)
    pipeline.journal.forget()
    pipeline.declare(name=f"{old} better")
    with pytest.raises(RefusedError) as several:
        pipeline.run(Accept.TAKEOVER)
    for part in (luid, str(copy.id), "Remove the tag"):
        assert part in str(several.value)
    pipeline.eyes.untag(str(copy.id), {tag})
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    for part in (f'"{old}"', luid, tag, "accept: [takeover]", "no record"):
        assert part in str(caught.value)
    pipeline.run(Accept.TAKEOVER)
    assert pipeline.found() == []
    assert pipeline.wrong_at(luid) == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_created_while_it_is_looked_for(pipeline: Pipeline):
    """Prevents: a refresh is refused because another run creates the data source meanwhile."""

    def another(server: Any) -> At:
        tag = pipeline.declaration.tag
        return At(server, "tagged", lambda: other_users.publishes(pipeline, flights(3), tag=tag))

    pipeline.run(Accept.SHRINK, around={"around_server": another})
    assert pipeline.wrong() == []


def test_tag_of_a_key_that_begins_alike(new_pipeline: Callable[..., Pipeline]):
    """Prevents: the tag of the key `sales_2024` keeps `sales` from being published."""
    one = new_pipeline()
    new_pipeline(key=f"{one.declaration.key}_2024").run()
    assert one.run().decision == "publish (create)"


@pytest.mark.slow
def test_another_key_of_this_deployment_is_left_alone(pipeline: Pipeline):
    """Prevents: two declarations with the same name replace each other's rows in turns."""
    pipeline.run()
    luid, key = luid_of(pipeline), pipeline.declaration.key
    other = replace(pipeline, declaration=replace(pipeline.declaration, key=f"{key}_2"))
    refusal = rf'"{key}", by this deployment .* `key` .* accept: \[takeover\]'
    for adopt in (False, True):
        other.declare(adopt=adopt)
        left_alone(other, luid, refusal=refusal)
    other_users.adds_a_calculated_field(pipeline)
    other.run(Accept.TAKEOVER)
    assert luid_of(other) == luid
    assert FIELD in other.tds()
    found = other.found()[0].tags
    assert (other.declaration.tag in found, pipeline.declaration.tag in found) == (True, False)
    assert isinstance(other.run().plan, NoChange)
    left_alone(pipeline, luid, refusal=refusal.replace(key, f"{key}_2"))


def test_renamed(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: a user renames a data source, and the next refresh publishes a copy of it."""
    pipeline.run()
    luid = luid_of(pipeline)
    other_users.changes(pipeline, name=f"{pipeline.name} better")
    pipeline.model("flights", flights(9))
    with caplog.at_level(logging.WARNING):
        assert pipeline.run().checkpoint.luid == luid
    assert f'renamed "{pipeline.name}" to "{pipeline.name} better"' in str(caplog.messages)
    assert pipeline.found() == []
    assert pipeline.wrong_at(luid) == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_deleted(pipeline: Pipeline):
    """Prevents: a deleted data source stays unpublished as long as no model changes."""
    pipeline.run()
    other_users.deletes(pipeline)
    gone = "the data source is gone from the server: it is published again"
    assert pipeline.run().plan == Publish(PublishMode.CREATE, gone)
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


def saved(pipeline: Pipeline) -> list[Path]:
    """Return the packages that refreshes have saved."""
    return sorted((pipeline.folder / "kept").glob("*.tdsx"))


def adopting(pipeline: Pipeline, rows: pa.Table | None = None) -> str:
    """Publish a data source as another user, with a calculated field, and declare its adoption.

    Returns:
        the LUID of the data source.
    """
    hers = other_users.publishes(pipeline, flights(5) if rows is None else rows)
    other_users.adds_a_calculated_field(pipeline)
    pipeline.declare(adopt=True)
    return str(hers.id)


@pytest.mark.slow
def test_adoption_keeps_calculated_fields(pipeline: Pipeline):
    """Prevents: an adoption drops a user's calculated fields, or changes the LUID."""
    luid = adopting(pipeline)
    assert "publish (replace)" in pipeline.decide()
    assert saved(pipeline) == [], "a dry run keeps nothing"
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.REPLACE,
        "first publish: takes over the data source (adopt), which has the same tables and columns",
    )
    (item,) = pipeline.found()
    assert (item.id, item.tags) == (luid, tags(pipeline))
    assert pipeline.wrong() == []
    assert FIELD in pipeline.tds()
    (file,) = saved(pipeline)
    assert str(file) in str(report.warnings)
    assert read_metadata(tds_in(file)).work == {"calculated fields": ("Delayed",)}
    pipeline.declare(adopt=False)
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_adopted_extract_of_a_database(pipeline: Pipeline):
    """Prevents: the second refresh of an adopted extract drops users' work, or sends an update."""
    other_users.publishes(pipeline, flights(5), user=ADMIN)
    other_users.makes_it_an_extract(pipeline)
    pipeline.declare(adopt=True)
    lost = f'credentials for postgres that are embedded in "{pipeline.declaration.name}"'
    assert lost in str(pipeline.run(dry_run=True).warnings)
    report = pipeline.run()
    assert report.plan.mode is PublishMode.REPLACE
    assert lost in str(report.warnings)
    report = pipeline.run()
    assert isinstance(report.plan, NoChange)
    assert report.warnings == ()
    pipeline.model("flights", flights(8, delay=1))
    plan = pipeline.run().plan
    assert plan.mode is PublishMode.REPLACE
    assert "takes no updates" in plan.reason
    assert pipeline.wrong() == []
    assert FIELD in pipeline.tds()
    # Only a publish in mode Overwrite makes updates possible. It drops metadata, so it needs
    # consent.
    assert pipeline.run(Accept.OVERWRITE, full=True).plan.mode is PublishMode.OVERWRITE
    pipeline.model("flights", flights(8, delay=2))
    assert isinstance(pipeline.run().plan, UpdateTables)
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_adoption_names_what_it_would_drop(star: Pipeline):
    """Prevents: a refusal does not name the fields and columns that an adoption would drop."""
    adopting(star, OTHER_SCHEMA)
    before = star.tds()
    with pytest.raises(RefusedError) as caught:
        star.run()
    gone = ('calculated fields "Delayed"', "Extract.gate (INTEGER) would go")
    for part in (*gone, "accept: [overwrite]", "kept"):
        assert part in str(caught.value)
        assert part in star.decide()
    assert star.tds() == before
    assert star.run(Accept.OVERWRITE).plan.mode is PublishMode.OVERWRITE
    assert star.wrong() == []
    (file,) = saved(star)
    assert read_metadata(tds_in(file)).work == {"calculated fields": ("Delayed",)}


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("killed", [None, "job", "outcome", "closing"])
def test_adoption_by_a_server_that_keeps_nothing_is_red(
    new_pipeline: Callable[..., Pipeline], killed: str | None
):
    """Prevents: a server drops users' work in mode Replace, and the run is green."""
    pipeline = new_pipeline(on={"replace": "like-overwrite"})
    adopting(pipeline)
    if killed:
        assert killed_before(pipeline, killed)
        assert "the metadata have changed since" in str(pipeline.run().warnings)
        assert not pipeline.run().warnings
        return
    with pytest.raises(RefreshError) as caught:
        pipeline.run()
    (file,) = saved(pipeline)
    for part in (str(file), 'calculated fields "Delayed"', "Replace"):
        assert part in str(caught.value)
    assert pipeline.wrong() == []


def test_what_cannot_be_kept_is_not_replaced(pipeline: Pipeline):
    """Prevents: a refresh replaces users' work although it could not save a copy."""
    adopting(pipeline)
    (pipeline.folder / "kept").write_text("no folder", "utf-8")
    before = pipeline.tds()
    with pytest.raises(RefreshError, match="kept"):
        pipeline.run()
    assert pipeline.tds() == before


@pytest.mark.slow
def test_work_is_kept_in_an_object_store(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: saved work and recorded metadata are lost when the container of a run ends."""
    adopting(pipeline)
    pipeline.policy(ReplaceAll(), fields=(FieldMetadata("delay", caption="Delay"),))
    with S3Server(tmp_path / "server").running() as store:
        for name, value in store.settings.items():
            monkeypatch.setenv(name, value)
        url = f"{store.url}/kept"
        report = refresh(replace(pipeline.refresh(), backups=url), Options())
        (found,) = obstore.list(store_at(url)).collect()
        assert f"{url}/{found['path']}" in str(report.warnings)
        file = tmp_path / "kept.tdsx"
        pipeline.policy(ReplaceAll(), fields=(FieldMetadata("delay", caption="Late"),))
        assert not refresh(replace(pipeline.refresh(), backups=url), Options()).warnings
        assert other_users.captions(pipeline)["delay"] == "Late"
        file.write_bytes(bytes(obstore.get(store_at(url), found["path"]).bytes()))
    assert read_metadata(tds_in(file)).work == {"calculated fields": ("Delayed",)}


@pytest.mark.slow
def test_column_that_another_user_published_is_not_dropped_unasked(pipeline: Pipeline):
    """Prevents: a refresh drops a column of another user without consent."""
    pipeline.run()
    other_users.publishes(pipeline, OTHER_SCHEMA, user=ADMIN)
    before = pipeline.tds()
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    for part in ('has the column "gate" of "Extract", which is not ours', "accept: [overwrite]"):
        assert part in str(caught.value)
    assert pipeline.tds() == before
    assert pipeline.run(Accept.OVERWRITE).plan.mode is PublishMode.OVERWRITE
    assert pipeline.wrong() == []
    assert "<remote-name>gate<" not in pipeline.tds()
    assert isinstance(pipeline.run().plan, NoChange)
