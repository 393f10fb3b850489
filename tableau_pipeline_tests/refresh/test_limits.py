"""Guards, approvals and saved plans: a refresh changes only what users have agreed to."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Guard, Reconcile
from tableau_pipeline.core.fields import FieldMetadata
from tableau_pipeline.core.policies import Diff, Policy, ReplaceAll
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.outcome import Accept, Code, Status
from tableau_pipeline.refresh.approval import Approval, MetadataChange
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.plan_file import read_plan_file, write_plan_file
from tableau_pipeline.refresh.preview import Preview, preview
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import At

LAX = Guard(min_rows=0, max_shrink=1)
BY_KEY = Diff(("flight_id",))


def changed(count: int, other: int) -> pa.Table:
    """Return `count` flights; the first `other` of them have another delay."""
    rows = flights(count)
    delays = [
        delay + 1000 * (number < other) for number, delay in enumerate(rows["delay"].to_pylist())
    ]
    at = rows.schema.get_field_index("delay")
    return rows.set_column(at, "delay", pa.array(delays, rows["delay"].type))


def published(pipeline: Pipeline, *, policy: Policy = BY_KEY, guard: Guard = LAX) -> Pipeline:
    pipeline.policy(policy, guard=guard)
    pipeline.model("flights", flights(20))
    pipeline.run()
    return pipeline


def look(pipeline: Pipeline, *accept: Accept) -> Preview:
    return preview(pipeline.refresh(), pipeline.eyes, Options(accept=frozenset(accept)))


def saved(pipeline: Pipeline) -> SavedPlan:
    plan = look(pipeline).saved
    assert plan
    return plan


def carry_out(pipeline: Pipeline, **options: Any) -> Refreshed:
    return refresh(pipeline.refresh(), Options(**options))


def refusal(pipeline: Pipeline, **options: Any) -> tuple[Code, str]:
    with pytest.raises(RefusedError) as error:
        carry_out(pipeline, **options)
    return error.value.refusals[0].code, str(error.value)


def approval(pipeline: Pipeline, **fields: Any) -> Approval:
    """Return an approval of the current plan; `fields` replace some of its values."""
    seen = look(pipeline)
    columns = seen.columns and {name: tuple(some) for name, some in seen.columns.items()}
    values = {
        "key": seen.key,
        "declaration": pipeline.declaration.whole_digest(),
        "kind": seen.kind,
        "moves": seen.moves,
        "columns": columns,
        "metadata": seen.metadata,
        "by": "ann",
    }
    return Approval(**(values | fields))


# Guards that limit the share of changed rows.


@pytest.mark.slow
@pytest.mark.parametrize("policy", [BY_KEY, ReplaceAll()], ids=["diff", "replace"])
def test_too_many_rows_change(pipeline: Pipeline, policy: Policy):
    """Prevents: many wrong rows reach the dashboards if the number of rows is right."""
    published(pipeline, policy=policy, guard=replace(LAX, max_change=0.25))
    pipeline.model("flights", changed(20, 5))
    assert pipeline.run().decision != "no change"
    pipeline.model("flights", changed(20, 11))
    code, text = refusal(pipeline)
    assert code is Code.ROWS_CHANGED
    assert "6 of 20 rows would come, go or change, 30.0%, and guard.max_change is 25%" in text
    assert pipeline.wrong() != []
    pipeline.run(Accept.CHANGE)
    assert pipeline.wrong() == []


def test_a_publish_in_full_counts_its_changes(pipeline: Pipeline):
    """Prevents: `guard.max_change` limits updates, but a full publish changes more rows."""
    published(pipeline, guard=replace(LAX, max_change=0.25))
    pipeline.model("flights", changed(20, 11).append_column("more", pa.array(range(20))))
    code, text = refusal(pipeline)
    assert (code, "11 of 20 rows" in text) == (Code.ROWS_CHANGED, True)
    pipeline.model("flights", flights(20).append_column("more", pa.array(range(20))))
    assert carry_out(pipeline).plan.decision.startswith("publish")


def test_rows_that_are_gone_from_the_store_cannot_be_counted(pipeline: Pipeline):
    """Prevents: a guard allows any change once the published snapshot is deleted."""
    published(pipeline, policy=ReplaceAll(), guard=replace(LAX, max_change=0.25))
    old = pipeline.models["flights"]
    pipeline.model("flights", changed(20, 1))
    for file in old.files:
        Path(*old.folder.paths([file.name])).unlink()
    code, text = refusal(pipeline)
    assert (code, "is not known" in text) == (Code.ROWS_CHANGED, True)


def test_rows_without_a_record_cannot_be_counted(pipeline: Pipeline):
    """Prevents: without records, a guard counts published tables as new and allows any change."""
    published(pipeline, guard=replace(LAX, max_change=0.25))
    pipeline.journal.forget()
    pipeline.model("flights", changed(20, 11))
    code, text = refusal(pipeline)
    assert (code, "is not known" in text) == (Code.ROWS_CHANGED, True)
    pipeline.run(Accept.CHANGE)
    assert pipeline.wrong() == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", [BY_KEY, ReplaceAll()], ids=["diff", "replace"])
def test_damaged_rows_cannot_be_counted(pipeline: Pipeline, policy: Policy):
    """Prevents: a damaged file of the published snapshot makes each refresh fail in hyperd."""
    published(pipeline, policy=policy, guard=replace(LAX, max_change=0.25))
    old = pipeline.models["flights"]
    pipeline.model("flights", changed(20, 1))
    for file in old.files:
        Path(*old.folder.paths([file.name])).write_bytes(b"no Parquet")
    code, text = refusal(pipeline)
    assert (code, "is not known" in text) == (Code.ROWS_CHANGED, True)
    pipeline.run(Accept.CHANGE)
    assert pipeline.wrong() == []


def test_who_accepted_what(pipeline: Pipeline):
    """Prevents: no record names who accepted a loss of rows, or later records repeat the name."""
    published(pipeline, guard=Guard())
    pipeline.model("flights", flights(2))
    done = carry_out(pipeline, accept=frozenset({Accept.SHRINK}), by="ann")
    assert str(done.checkpoint.accepted) == "shrink by ann"
    assert carry_out(pipeline).checkpoint.accepted is None


# Values of rows in messages.


@pytest.mark.parametrize("null", [False, True])
def test_values_of_rows_are_shown_if_asked_for(pipeline: Pipeline, null: bool):
    """Prevents: a plan or a log shows personal values, although the user asked for none."""
    pipeline.policy(Diff(("carrier",)))
    rows = flights(4)
    carriers = ["ann@example.com", *(["zoe", None, "bob"] if null else ["ann@example.com"] * 3)]
    at = rows.schema.get_field_index("carrier")
    pipeline.model("flights", rows.set_column(at, "carrier", pa.array(carriers)))
    shown = {}
    for samples in (False, True):
        setup = replace(pipeline.refresh(), samples=samples)
        seen = preview(setup, pipeline.eyes)
        with pytest.raises(RefusedError) as error:
            refresh(setup)
        shown[samples] = [seen.reason, str(error.value)]
    value = "flight_id = " if null else "ann@example.com (4 times)"
    assert all(value in text for text in shown[True])
    assert not any(value in text or "ann" in text for text in shown[False])
    assert all("plan with --samples" in text for text in shown[False])


# Saved plans.


def _updated(pipeline: Pipeline) -> None:
    pipeline.model("flights", changed(20, 3))


def _published_again(pipeline: Pipeline) -> None:
    pipeline.model("flights", flights(20).append_column("more", pa.array(range(20))))


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("change", [_updated, _published_again, lambda _: None])
def test_a_plan_is_carried_out_as_it_was_saved(
    pipeline: Pipeline, tmp_path: Path, change: Callable[[Pipeline], None]
):
    """Prevents: a saved plan publishes newer rows, which its reviewer has never seen."""
    published(pipeline)
    change(pipeline)
    plan, path = saved(pipeline), tmp_path / "plan.json"
    write_plan_file(path, [plan], SavedPlan)
    planned = dict(pipeline.models)
    pipeline.model("flights", changed(20, 19))
    done = carry_out(pipeline, saved=read_plan_file(path, SavedPlan)[plan.key])
    assert (done.checkpoint.tables, done.checkpoint.taken_at) == (plan.tables, plan.at)
    assert done.checkpoint.tables["flights"].all_rows == planned["flights"].fingerprint
    # The next refresh continues from the version that the plan has published.
    assert pipeline.run(Accept.SCHEMA).decision != "no change"
    assert pipeline.wrong() == []


def _refreshed(pipeline: Pipeline) -> None:
    pipeline.model("flights", changed(20, 7))
    pipeline.run()


def _tagged(pipeline: Pipeline) -> None:
    (item,) = pipeline.found()
    item.description = "Somebody says so"
    pipeline.eyes.tsc.datasources.update(item)


def _captioned(pipeline: Pipeline) -> None:
    other_users.captions_a_column(pipeline, "delay", "Lateness")


def _deleted(pipeline: Pipeline) -> None:
    (item,) = pipeline.found()
    pipeline.eyes.tsc.datasources.delete(str(item.id))


def _replaced(pipeline: Pipeline) -> None:
    _deleted(pipeline)
    other_users.publishes(pipeline, flights(3))


def _redeclared(pipeline: Pipeline) -> None:
    pipeline.policy(BY_KEY, fields=(FieldMetadata("delay", caption="Minutes"),))


MOVED = {
    "a refresh": (_refreshed, "it was changed on the server"),
    "a description": (_tagged, "it was changed on the server"),
    "a caption": (_captioned, "it was changed on the server"),
    "a removal": (_deleted, "it is gone from the server"),
    "a declaration": (_redeclared, "its declaration has changed"),
}


@pytest.mark.slow
@pytest.mark.few_variants(2)
@pytest.mark.parametrize("event", MOVED.values(), ids=MOVED)
def test_a_plan_whose_facts_have_moved(pipeline: Pipeline, event: tuple[Callable, str]):
    """Prevents: a saved plan overwrites later changes of the data source."""
    happens, said = event
    published(pipeline)
    pipeline.model("flights", changed(20, 3))
    plan = saved(pipeline)
    happens(pipeline)
    before = [(each.id, each.updated_at) for each in pipeline.found()]
    code, text = refusal(pipeline, saved=plan)
    assert code is Code.PLAN_MOVED
    assert said in text
    assert [(each.id, each.updated_at) for each in pipeline.found()] == before


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_a_plan_whose_facts_move_after_an_interrupted_refresh(pipeline: Pipeline):
    """Prevents: after an interrupted refresh, a saved plan overwrites later changes of users."""
    published(pipeline)
    pipeline.model("flights", changed(20, 3))
    assert killed_before(pipeline, "update")
    assert killed_before(pipeline, "upload")
    plan = saved(pipeline)

    def described(server: Any) -> At:
        return At(server, "upload", lambda: _tagged(pipeline))

    with pytest.raises(RefusedError, match="it was changed on the server"):
        refresh(pipeline.refresh(around_server=described), Options(saved=plan))


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ["cut", "removed"])
def test_a_plan_whose_rows_are_damaged(pipeline: Pipeline, damaged: str):
    """Prevents: a plan with damaged rows fails in hyperd, or blames the model's newest version."""
    published(pipeline)
    snapshot = pipeline.model("flights", changed(20, 3))
    plan = saved(pipeline)
    pipeline.model("flights", changed(20, 4))
    for path in map(Path, snapshot.paths):
        content = path.read_bytes()
        path.unlink()
        if damaged == "cut":
            path.write_bytes(content[:-20])
    code, text = refusal(pipeline, saved=plan)
    assert code is Code.PUBLISHED_VERSION
    assert "cannot be refreshed as planned" in text


def test_a_plan_whose_place_is_taken(pipeline: Pipeline):
    """Prevents: a saved plan replaces a data source that another user has published meanwhile."""
    published(pipeline)
    pipeline.model("flights", changed(20, 3))
    plan = saved(pipeline)
    _replaced(pipeline)
    code, _ = refusal(pipeline, saved=plan)
    assert code in (Code.PLAN_MOVED, Code.NOT_PUBLISHED_HERE)
    assert [each.owner_id for each in pipeline.found()] != [pipeline.eyes.user_id]


def test_a_first_publish_as_planned(pipeline: Pipeline):
    """Prevents: a plan of a new data source cannot be saved, or creates a second data source."""
    plan = saved(pipeline)
    assert plan.base is None
    assert carry_out(pipeline, saved=plan).decision == "publish (create)"
    code, text = refusal(pipeline, saved=plan)
    assert (code, "it is published by now" in text) == (Code.PLAN_MOVED, True)


def test_files_of_newer_releases(tmp_path: Path, pipeline: Pipeline):
    """Prevents: a release carries out only half of a plan that a newer release has written."""
    plan, path = saved(pipeline), tmp_path / "plan.json"
    entry = plan.model_dump(mode="json") | {"format": 2, "also": "this"}
    path.write_text(json.dumps({"plans": [entry]}))
    with pytest.raises(RefusedError, match="only a newer release reads"):
        read_plan_file(path, SavedPlan)
    with pytest.raises(RefusedError, match=r"has no approvals: write it by .* --base REV --out"):
        read_plan_file(path, Approval)
    for text in ("{", "[]", '{"plans": 3}', '{"plans": [3]}'):
        path.write_text(text)
        with pytest.raises(RefusedError):
            read_plan_file(path, SavedPlan)


# Approvals.


def test_rows_may_come_and_go_within_an_approval(pipeline: Pipeline, tmp_path: Path):
    """Prevents: an approval becomes void at the next hourly run of a model."""
    published(pipeline)
    _redeclared(pipeline)
    given, path = approval(pipeline, max_change=30, max_shrink=10), tmp_path / "approval.json"
    assert given.kind is Status.PUBLISH
    change = MetadataChange(
        path=("field", "Extract", "delay", "caption"), before=None, after="Minutes"
    )
    assert given.metadata == (change,)
    write_plan_file(path, [given], Approval)
    pipeline.model("flights", changed(20, 6))
    done = carry_out(pipeline, approval=read_plan_file(path, Approval)[given.key])
    assert str(done.checkpoint.accepted) == "approved by ann"
    assert pipeline.wrong() == []


def _more_columns(pipeline: Pipeline) -> None:
    pipeline.model("flights", flights(20).append_column("more", pa.array(range(20))))


def _less_rows(pipeline: Pipeline) -> None:
    pipeline.model("flights", flights(17))


def _other_rows(pipeline: Pipeline) -> None:
    pipeline.model("flights", changed(20, 7))


def _renamed_there(pipeline: Pipeline) -> None:
    (item,) = pipeline.found()
    item.name = "Other"
    pipeline.eyes.tsc.datasources.update(item)


BEYOND = {
    "columns": (_more_columns, 'the columns of table "flights" would not change as approved'),
    "rows gone": (_less_rows, "17 rows where 20 are published, 15.0% fewer; approved: 10 %"),
    "rows changed": (_other_rows, "7 of 20 rows would come, go or change, 35.0%; approved: 30 %"),
    "a declaration": (_redeclared, "its declaration is not the approved one"),
    "in full": (lambda pipeline: pipeline.journal.forget(), "it would be a full publish"),
}


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("event", BEYOND.values(), ids=BEYOND)
def test_beyond_an_approval(pipeline: Pipeline, event: tuple[Callable, str]):
    """Prevents: a refresh publishes changes that its approval does not cover."""
    happens, said = event
    published(pipeline)
    _updated(pipeline)
    given = approval(pipeline, max_change=30, max_shrink=10)
    assert given.kind is Status.UPDATE
    happens(pipeline)
    before = [(each.id, each.updated_at) for each in pipeline.found()]
    code, text = refusal(pipeline, approval=given)
    assert code is Code.NOT_APPROVED
    assert said in text
    assert "approval of Flights by ann" in text or "by ann" in text
    assert [(each.id, each.updated_at) for each in pipeline.found()] == before


def test_an_approved_change_of_columns(pipeline: Pipeline):
    """Prevents: the approved removal of a column needs a second consent."""
    published(pipeline)
    pipeline.model("flights", flights(20).drop_columns("delay"))
    seen = look(pipeline, Accept.SCHEMA)
    assert seen.kind is Status.PUBLISH
    columns = {name: tuple(some) for name, some in (seen.columns or {}).items()}
    given = approval(pipeline, kind=seen.kind, columns=columns, accept=(Accept.SCHEMA,))
    done = carry_out(pipeline, approval=given)
    assert str(done.checkpoint.accepted) == "schema by ann; approved by ann"
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_shrunk_tables_of_a_takeover(star: Pipeline):
    """Prevents: a deployment that takes over a data source checks one of its tables alone, or
    compares the rows of one table with those of another."""
    star.declare(reconcile=Reconcile())
    star.model("airlines", airlines(*(f"A{number}" for number in range(30)), "AA", "UA"))
    star.model("flights", flights(100))
    star.run()
    other = replace(star, folder=star.folder / "elsewhere")
    other.model("airlines", airlines())
    for rows, lost in ((1, {"flights", "airlines"}), (100, {"airlines"})):
        other.model("flights", flights(rows))
        with pytest.raises(RefusedError) as caught:
            other.run(Accept.TAKEOVER)
        assert {each.table for each in caught.value.refusals} == lost
    other.run(Accept.TAKEOVER, Accept.SHRINK)
    assert other.wrong() == []


@pytest.mark.slow
def test_shrunk_since_another_deployment_published(pipeline: Pipeline):
    """Prevents: a deployment that takes back a data source replaces 1,000 rows by 20 unasked, as
    its own records are older than those rows."""
    pipeline.declare(reconcile=Reconcile())
    published(pipeline, guard=Guard())
    other = replace(pipeline, folder=pipeline.folder / "elsewhere")
    other.model("flights", flights(1000))
    other.run(Accept.TAKEOVER)
    found = look(pipeline, Accept.TAKEOVER)
    assert "20 rows where 1,000 are published" in found.reason
    assert carry_out(pipeline, accept=frozenset({Accept.TAKEOVER, Accept.SHRINK}))
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_changes_since_another_deployment_published(pipeline: Pipeline):
    """Prevents: a deployment that takes back a data source is refused because the number of changed
    rows is not known, although the published rows equal those of its own records."""
    pipeline.declare(reconcile=Reconcile())
    published(pipeline, guard=Guard(max_shrink=1, max_change=0.5))
    other = replace(pipeline, folder=pipeline.folder / "elsewhere")
    other.model("flights", flights(20))
    other.run(Accept.TAKEOVER, Accept.CHANGE)
    pipeline.model("flights", flights(19))
    pipeline.run(Accept.TAKEOVER)
    assert pipeline.wrong() == []


def test_columns_of_a_contract_are_those_of_its_model(pipeline: Pipeline):
    """Prevents: an approval spells types like the contract, and no refresh matches the approval."""
    published(pipeline)
    contract = (
        Column("flight_id", "long"),
        Column("carrier", "STRING"),
        Column("delay", "integer"),
    )
    columns = pipeline.models["flights"].columns
    pipeline.policy(BY_KEY, contract=contract)
    assert look(pipeline).columns == {"flights": columns}
