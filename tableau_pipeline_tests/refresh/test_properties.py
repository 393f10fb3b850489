"""Properties of a data source: which ones a refresh sets, and which ones it leaves to users."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import tableauserverclient as TSC

from tableau_pipeline.core.declaration import Reconcile, Republish
from tableau_pipeline.core.fields import FieldMetadata, MetadataPolicy
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.metadata.written import WrittenValues
from tableau_pipeline.outcome import Doubt
from tableau_pipeline.publishing import properties
from tableau_pipeline.refresh.preview import preview
from tableau_pipeline.refresh.reconcile import ReconciliationError
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ANN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy
from tableau_pipeline_tests.refresh.support.shipping import refused
from tableau_sandbox.faults import Delay, FailJob, HideRows

NewPipeline = Callable[..., Pipeline]
WRITES = ("PUT", "POST", "DELETE")
READ = {"group": "All Users", "allow": ["Read", "VizqlDataApiAccess"]}
SAID: dict[str, Any] = {
    "description": "Flights of a year",
    "tags": ("finance", "to the board"),
    "certify": "after_reconcile",
    "certification_note": "Equal to the models",
    "permissions": (READ,),
    "reconcile": Reconcile(),
}


def item_of(pipeline: Pipeline) -> TSC.DatasourceItem:
    return pipeline.eyes.tsc.datasources.get_by_id(str(pipeline.found()[0].id))


def said(pipeline: Pipeline) -> dict[str, Any]:
    """Return the properties that the server shows, in the form of a declaration."""
    item, site = item_of(pipeline), pipeline.eyes
    names = {
        str(each.id): each.name for each in (*site.tsc.groups.get()[0], *site.tsc.users.get()[0])
    }
    rules = properties.permissions(site, str(item.id))
    return {
        "description": item.description,
        "owner": names[str(item.owner_id)],
        "tags": {each for each in item.tags if not each.startswith("tableau-pipeline")},
        "certified": (item.certification_note or "") if item.certified else None,
        "rules": {(names[who], capability): mode for (who, capability), mode in rules.items()},
    }


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("moves", [True, False])
def test_all_that_is_declared(new_pipeline: NewPipeline, moves: bool):
    """Prevents: a refresh sets declared properties wrongly, or sets them again every night."""
    # With "distinct", several changes within one second get time stamps of later seconds.
    stamps = "shared" if moves else "distinct"
    on = {"tags_move_stamp": moves, "edits_move_stamp": moves, "stamps_within_second": stamps}
    pipeline = new_pipeline(on=on, owner="ann", **SAID)
    report = pipeline.run()
    assert (report.problems, report.warnings) == ((), ())
    shown = said(pipeline)
    assert shown["description"] == "Flights of a year\n\nBuilt from flights."
    assert (shown["owner"], shown["tags"]) == ("ann", {"finance", "to the board"})
    assert shown["certified"] == "Equal to the models"
    assert shown["rules"] == {
        ("All Users", "Read"): "Allow",
        ("All Users", "Connect"): "Allow",
        ("All Users", "VizqlDataApiAccess"): "Allow",
    }
    writes = [Delay(method=each, path="*/datasources/*", seconds=0, times=None) for each in WRITES]
    with ExitStack() as stack:
        armed = [stack.enter_context(pipeline.sandbox.armed(each)) for each in writes]
        report = pipeline.run()
        assert (report.decision, report.warnings) == ("no change", ())
        assert [each.seen for each in armed] == [0, 0, 0]
    pipeline.declare(description="All flights", tags=("finance",), certification_note=None)
    pipeline.model("flights", flights(9))
    # The second refresh must not report changes of the first refresh as changes of a user.
    for decision in ("update", "no change"):
        report = pipeline.run()
        assert (report.decision, report.warnings, report.problems) == (decision, (), ())
    shown = said(pipeline)
    assert shown["description"] == "All flights\n\nBuilt from flights."
    assert (shown["tags"], shown["certified"]) == ({"finance"}, "")
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_a_plan_tells_what_follows(new_pipeline: NewPipeline):
    """Prevents: a plan hides a change of properties, or shows other numbers than the refresh."""
    pipeline = new_pipeline(description="Flights")
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    assert preview(pipeline.refresh(), pipeline.eyes).kind == "unchanged"
    pipeline.declare(description="All flights", owner="ann")
    shown = preview(pipeline.refresh(), pipeline.eyes)
    assert (shown.kind, shown.decision) == ("metadata", "no change")
    notes = {'description becomes "All flights"', 'owner becomes "ann"'}
    assert {each.text for each in shown.notes} == notes
    pipeline.model("flights", flights(9))
    shown, report = preview(pipeline.refresh(), pipeline.eyes), pipeline.run()
    (done,) = report.tables.values()
    assert shown.kind == "update"
    assert (shown.inserted, shown.deleted, shown.size) == (
        done.inserted,
        done.deleted,
        report.sent,
    )


def test_a_plan_counts_rows_as_its_refresh_does(star: Pipeline):
    """Prevents: a plan leaves out the rows of dimensions, which the refresh counts."""
    shown, report = preview(star.refresh(), star.eyes), star.run()
    assert shown.kind == "publish"
    assert shown.rows == report.checkpoint.rows["flights"]
    assert f", {shown.rows:,} rows, " in report.summary


def test_what_people_say_stays(new_pipeline: NewPipeline):
    """Prevents: a refresh overwrites users' descriptions, tags or rules, or hides a conflict."""
    pipeline = new_pipeline(**SAID)
    pipeline.run()
    item, site = item_of(pipeline), pipeline.eyes
    luid, group = str(item.id), str(properties.find_named(site, "group", "All Users"))
    properties.set_properties(site, luid, description="Hers", isCertified="false")
    site.tag(luid, ["hers"])
    site.untag(luid, ["finance"])
    ours = {(group, "VizqlDataApiAccess"): "Allow"}
    properties.set_permissions(site, luid, {(group, "SaveAs"): "Allow"}, remove=ours)
    theirs = said(pipeline)
    report = pipeline.run()
    assert said(pipeline) == theirs
    # A refresh reports changed permissions, but no other changes that it leaves to users.
    assert report.problems == (
        'VizqlDataApiAccess of group "All Users" is "Allow" as declared, and none on the server',
    )
    pipeline.declare(description="Ours", tags=(), certify=None, certification_note=None)
    pipeline.declare(permissions=())
    report = pipeline.run()
    assert report.problems == ('description is "Ours" as declared, and "Hers" on the server',)
    del theirs["rules"]["All Users", "Read"]
    theirs["tags"] = {"hers"}
    assert said(pipeline) == theirs


def test_permissions_are_set_back_when_asked(new_pipeline: NewPipeline):
    """Prevents: a user changes permissions, and no refresh refuses or replaces the change."""
    pipeline = new_pipeline(permissions=(READ,), metadata=MetadataPolicy("refuse"))
    pipeline.run()
    before, site, luid = said(pipeline), pipeline.eyes, str(item_of(pipeline).id)
    rule = (str(properties.find_named(site, "group", "All Users")), "VizqlDataApiAccess")
    properties.set_permissions(site, luid, {rule: "Deny"}, remove={rule: "Allow"})
    changed = 'VizqlDataApiAccess of group "All Users" is "Allow" as declared, and "Deny"'
    with pytest.raises(RefusedError, match=changed):
        pipeline.run()
    pipeline.declare(metadata=MetadataPolicy("replace"))
    assert pipeline.run().problems == (f"{changed} on the server, which is replaced",)
    assert said(pipeline) == before
    assert pipeline.run().problems == ()


def test_unknown_names(new_pipeline: NewPipeline):
    """Prevents: a refresh ignores a misspelt group, and too many people may see the data."""
    permissions = ({"group": "Analyts", "allow": ["Read"]}, READ)
    pipeline = new_pipeline(owner="bob", permissions=permissions)
    unknown = (
        'no group "Analyts", which `permissions` names; and no user "bob", which `owner` names'
    )
    for dry_run in (True, False):
        with pytest.raises(RefusedError, match=unknown):
            pipeline.run(dry_run=dry_run)
    assert pipeline.found() == []
    group = pipeline.eyes.tsc.groups.create(TSC.GroupItem(uuid4().hex))
    pipeline.declare(owner=None, permissions=({"group": group.name, "allow": ["Read"]},))
    pipeline.run()
    pipeline.declare(permissions=({"group": "nobody", "allow": ["Read"]},))
    with pytest.raises(RefusedError, match="nobody"):
        pipeline.run()
    assert (group.name, "Read") in said(pipeline)["rules"]


def test_names_with_their_domains(new_pipeline: NewPipeline):
    """Prevents: a declaration cannot name a group whose name exists in two domains."""
    pipeline = new_pipeline(permissions=({"group": r"local\All Users", "allow": ["Read"]},))
    for declared in ({}, {"permissions": (READ,)}):
        pipeline.declare(**declared)
        assert pipeline.run().problems == ()
        assert said(pipeline)["rules"]["All Users", "Read"] == "Allow"
    pipeline.declare(permissions=({"group": r"elsewhere\All Users", "allow": ["Read"]},))
    refused(pipeline.run, r'no group "elsewhere\All Users"')


def test_what_the_server_takes_and_drops(new_pipeline: NewPipeline):
    """Prevents: a server ignores a description, and a refresh thinks that a user removed it."""

    class Server(Proxy):
        def find_by_luid(self, luid: str) -> Any:
            return replace(self.behind.find_by_luid(luid), description="")

    pipeline = new_pipeline(description="Flights", tags=("finance",))
    for _ in range(2):
        report = pipeline.run(around={"around_server": Server})
        (problem,) = report.problems
        assert problem.startswith('description was set to "Flights", and the server shows none')
    assert pipeline.run().problems == ()
    assert said(pipeline)["description"].startswith("Flights")


def test_properties_that_cannot_be_read_again(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: after a failed read, a refresh takes our own caption for a user's, and keeps it."""
    pipeline = new_pipeline(description="Flights")
    (table,) = pipeline.declaration.tables

    def run_with(caption: str) -> Any:
        pipeline.policy(table.policy, fields=(FieldMetadata("delay", caption=caption),))
        pipeline.declare(description=f"Flights, {caption}")
        return pipeline.run()

    def fails(*_: Any, **__: Any) -> None:
        raise RefreshError("it does not answer")

    run_with("Delay")
    with monkeypatch.context() as broken:
        broken.setattr(properties.PropertiesOnServer, "read_again", fails)
        assert run_with("Late").problems == ("it does not answer",)
    report = run_with("Later")
    assert (report.decision, report.problems, report.warnings) == ("publish (overwrite)", (), ())
    assert pipeline.wrong() == []


def test_a_server_that_hides_what_was_set(new_pipeline: NewPipeline):
    """Prevents: a refresh that has published everything fails because the server fails once."""

    class Server(Proxy):
        is_set = False

        def ask(self, doing: str, call: Callable, **more: Any) -> Any:
            answer = self.behind.ask(doing, call, **more)
            Server.is_set |= "description" in doing
            return answer

        def find_by_luid(self, luid: str) -> Any:
            if Server.is_set:
                raise RefreshError("it does not answer")
            return self.behind.find_by_luid(luid)

    pipeline = new_pipeline(description="Flights")
    distrust = pipeline.run(around={"around_server": Server}).checkpoint.distrust
    assert Server.is_set
    assert distrust.code is Doubt.NOT_SEEN
    pipeline.run()
    assert pipeline.wrong() == []
    assert pipeline.run().decision == "no change"


def test_declared_as_it_stands_and_then_no_more(new_pipeline: NewPipeline):
    """Prevents: a refresh removes properties of a user that were declared for a while."""
    pipeline = new_pipeline(reconcile=Reconcile())
    plain = pipeline.declaration
    pipeline.run()
    luid, text = str(item_of(pipeline).id), "Hers\n\nBuilt from flights."
    certified = {"isCertified": "true", "certificationNote": "Hers"}
    properties.set_properties(pipeline.eyes, luid, description=text, **certified)
    pipeline.eyes.tag(luid, ["finance"])
    before = said(pipeline)
    pipeline.declare(
        description="Hers",
        tags=("finance", "board"),
        certify="after_reconcile",
        certification_note="Hers",
        permissions=({"group": "All Users", "allow": ["Read"]},),
    )
    assert pipeline.run().problems == ()
    assert said(pipeline) == before | {"tags": {"finance", "board"}}
    pipeline.declaration = plain
    assert pipeline.run().problems == ()
    assert said(pipeline) == before


@pytest.mark.slow
def test_a_certification_of_a_person_that_is_declared(new_pipeline: NewPipeline):
    """Prevents: rows that differ from the models keep the certification of a user."""
    pipeline = new_pipeline(reconcile=Reconcile(max_mb=1e-6))
    pipeline.run()
    properties.set_properties(pipeline.eyes, str(item_of(pipeline).id), isCertified="true")
    pipeline.declare(certify="after_reconcile")
    pipeline.run()
    pipeline.model("flights", flights(9))
    with pipeline.sandbox.armed(HideRows(rows=2)), pytest.raises(ReconciliationError):
        pipeline.run(around={"sleep": lambda _: None})
    assert said(pipeline)["certified"] is None


@pytest.mark.slow
def test_certified_while_equal(new_pipeline: NewPipeline):
    """Prevents: rows that differ from the models are certified."""
    pipeline = new_pipeline(certify="after_reconcile", reconcile=Reconcile(max_mb=1e-6))
    pipeline.run()
    assert said(pipeline)["certified"] == ""
    pipeline.model("flights", flights(9))
    with pipeline.sandbox.armed(HideRows(rows=2)), pytest.raises(ReconciliationError):
        pipeline.run(around={"sleep": lambda _: None})
    assert said(pipeline)["certified"] is None
    pipeline.run()
    assert said(pipeline)["certified"] == ""


@pytest.mark.slow
def test_what_people_say_meanwhile_stays(new_pipeline: NewPipeline):
    """Prevents: what a user writes while the rows are compared is taken back, as the refresh sends
    along what it has read before."""
    pipeline = new_pipeline(description="Flights", certify="after_reconcile", reconcile=Reconcile())

    def meanwhile(**values: str) -> Any:
        def happens() -> None:
            luid = str(pipeline.found()[0].id)
            properties.set_properties(pipeline.eyes, luid, **values)

        return {"around_server": lambda server: At(server, "count", happens, when="after")}

    pipeline.run(around=meanwhile(isCertified="true", certificationNote="Hers"))
    assert said(pipeline)["certified"] == "Hers"
    pipeline.declare(description="All flights")
    pipeline.model("flights", flights(9))
    report = pipeline.run(around=meanwhile(description="Hers, too"))
    assert said(pipeline)["description"] == "Hers, too"
    assert "description" in str(report.problems)
    pipeline.run()
    assert pipeline.wrong() == []


def test_a_note_that_goes_with_our_certification(new_pipeline: NewPipeline):
    """Prevents: a refresh removes a user's note with our certification, and does not warn."""
    pipeline = new_pipeline(certify="after_reconcile", reconcile=Reconcile())
    pipeline.run()
    certified = {"isCertified": "true", "certificationNote": "Hers"}
    properties.set_properties(pipeline.eyes, str(item_of(pipeline).id), **certified)
    assert pipeline.run().problems == ()
    pipeline.declare(certify=None)
    (problem,) = pipeline.run().problems
    assert problem.startswith('certification note is none as declared, and "Hers" on the server')
    assert said(pipeline)["certified"] is None
    assert pipeline.run().problems == ()


def test_refused_by_the_server(new_pipeline: NewPipeline):
    """Prevents: a user who may not certify cannot publish, or no message names the problem."""
    pipeline = new_pipeline(user=ANN, tags=("finance",), certify="after_reconcile", reconcile={})
    for decision in ("publish (create)", "no change"):
        report = pipeline.run()
        assert report.decision == decision
        assert re.search("Setting isCertified, certificationNote.*403032", *report.problems)
        assert pipeline.wrong() == []
    shown = said(pipeline)
    assert (shown["tags"], shown["certified"]) == ({"finance"}, None)


def test_values_that_cannot_be_stored(new_pipeline: NewPipeline):
    """Prevents: a full or read-only disk shows as wrong credentials of the store."""
    pipeline = new_pipeline(description="Flights of a year")
    place = Path(pipeline.refresh().written)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("no folder")
    with pytest.raises(RefreshError, match=rf"Writing {place}/.* Check the disk, and the rights"):
        pipeline.run()
    place.unlink()
    assert pipeline.run().problems == ()
    assert said(pipeline)["description"].startswith("Flights of a year")


@pytest.mark.slow
def test_owner_after_an_interruption(new_pipeline: NewPipeline):
    """Prevents: after an interruption, the publishing user stays the owner of a data source."""
    pipeline = new_pipeline(owner="ann")
    pipeline.run()
    pipeline.model("flights", flights(9))
    assert killed_before(pipeline, "outcome")
    site = pipeline.eyes
    # Some servers make the publishing user the owner.
    properties.set_properties(site, str(item_of(pipeline).id), owner=site.user_id)
    assert pipeline.run().problems == ()
    assert said(pipeline)["owner"] == "ann"
    assert pipeline.wrong() == []


def test_a_person_goes_on_to_own_it(new_pipeline: NewPipeline):
    """Prevents: a publish makes the publishing user the owner of a data source."""
    pipeline = new_pipeline(on={"publisher_owns": True})
    pipeline.run()
    site = pipeline.eyes
    properties.set_properties(
        site, str(item_of(pipeline).id), owner=properties.find_named(site, "user", "ann")
    )
    pipeline.model("flights", flights(9))
    assert pipeline.run(full=True).warnings == ()
    assert said(pipeline)["owner"] == "ann"
    assert pipeline.wrong() == []
    assert pipeline.run().decision == "no change"


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("step", ["outcome", "ask"])
def test_it_becomes_theirs_again_after_a_crash(new_pipeline: NewPipeline, step: str):
    """Prevents: a process that ends after a publish leaves the publishing user as the owner."""
    pipeline = new_pipeline(on={"publisher_owns": True})
    pipeline.declare(republish=Republish(growth=1e-6))
    pipeline.run()
    site = pipeline.eyes
    properties.set_properties(
        site, str(item_of(pipeline).id), owner=properties.find_named(site, "user", "ann")
    )
    pipeline.model("flights", flights(9))
    assert killed_before(pipeline, step)
    assert said(pipeline)["owner"] != "ann"
    pipeline.run()
    assert said(pipeline)["owner"] == "ann"
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_it_stays_theirs_if_the_second_publish_fails(new_pipeline: NewPipeline):
    """Prevents: a refresh that fails halfway leaves the publishing user as the owner."""
    pipeline = new_pipeline(
        on={"publisher_owns": True, "replace": "like-overwrite"},
    )
    (table,) = pipeline.declaration.tables
    pipeline.policy(table.policy, fields=(FieldMetadata("delay", caption="Delay"),))
    pipeline.run()
    site = pipeline.eyes
    properties.set_properties(
        site, str(item_of(pipeline).id), owner=properties.find_named(site, "user", "ann")
    )
    pipeline.model("flights", flights(9))
    with pipeline.sandbox.armed(FailJob(nth=2)), pytest.raises(RefreshError):
        pipeline.run(full=True)
    assert said(pipeline)["owner"] == "ann"


@pytest.mark.slow
def test_overwrite_that_forgets(new_pipeline: NewPipeline):
    """Prevents: a publish drops declared properties, and no refresh sets them again."""
    pipeline = new_pipeline(owner="ann", **SAID)
    first = pipeline.run()
    before, site, remote = said(pipeline), pipeline.eyes, first.remote
    values = WrittenValues(pipeline.refresh().written).read(*first.checkpoint.written)
    on_server = properties.PropertiesOnServer(site, remote, values, values)
    properties.set_properties(
        site, remote.luid, description="", isCertified="false", owner=site.user_id
    )
    properties.set_permissions(
        site, remote.luid, {}, remove=properties.permissions(site, remote.luid)
    )
    now = site.find_by_luid(remote.luid)
    on_server.read_again(now, is_new=True)
    assert on_server.set(now, on_server.found)[1] == {}
    del before["rules"]["All Users", "Connect"]
    assert said(pipeline) == before
