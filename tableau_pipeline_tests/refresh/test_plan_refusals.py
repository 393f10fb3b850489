from dataclasses import replace

from tableau_pipeline.core.checkpoint import PublishMode, State
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.plan import Accept, NoChange, Plan, Publish, Refuse, Update, View
from tableau_pipeline_tests.refresh.states import (
    COLUMNS,
    NOTHING,
    REMOTE,
    decide,
    declaration,
    desired,
    state,
    table,
    view,
)

STRANGER = replace(REMOTE, luid="luid-9", tags=frozenset({"certified"}))
WIDER = desired(tables={"orders": table(columns=(*COLUMNS, Column("price", "double")))})


def mode_of(plan: Plan) -> PublishMode:
    assert isinstance(plan, Publish), plan
    return plan.mode


def refused(known: View, *accept: Accept, declared: Declaration, wanted: State) -> str:
    plan = decide(known, *accept, declared=declared, wanted=wanted)
    assert isinstance(plan, Refuse), plan
    assert plan.decision == "refuse"
    return plan.reason


def test_foreign_data_source_is_left_alone():
    """Prevents: we replace a data source that somebody else made and that has our name."""
    reason = refused(replace(NOTHING, remote=STRANGER), declared=declaration(), wanted=desired())
    for part in ('"Sales"', '"Curated"', "another name", "adopt: true"):
        assert part in reason


def test_nothing_accepts_a_foreign_data_source_but_adopt():
    """Prevents: a run config that was meant for another refusal lets us replace foreign work."""
    plan = decide(replace(NOTHING, remote=STRANGER), *Accept, full=True)
    assert isinstance(plan, Refuse)


def test_tag_of_another_pipeline_is_not_ours():
    """Prevents: two declared data sources of one name take turns in replacing each other."""
    other = replace(REMOTE, tags=frozenset({"tableau-pipeline:sales_eu"}))
    assert isinstance(decide(replace(NOTHING, remote=other)), Refuse)


def test_overwrite_spares_edited_metadata():
    """Prevents: a new column in a model drops the calculated fields of an analyst."""
    edited = view(metadata="digest-2")
    reason = refused(edited, declared=declaration(), wanted=WIDER)
    for part in ('"Sales"', "orders.price is new (double)", "accept: [overwrite]"):
        assert part in reason
    assert mode_of(decide(edited, Accept.OVERWRITE, wanted=WIDER)) is PublishMode.OVERWRITE


def test_metadata_that_no_record_describes_is_spared():
    """Prevents: lost records make an analyst's work ours to drop, or ours pass for an analyst's."""
    reason = refused(view(state(metadata=None)), declared=declaration(), wanted=WIDER)
    assert "no record tells what its metadata was" in reason


def test_accepting_a_schema_does_not_accept_the_loss_of_edits():
    """Prevents: one decision is taken for two."""
    assert isinstance(decide(view(metadata="digest-2"), Accept.SCHEMA, wanted=WIDER), Refuse)


def test_edited_metadata_hinders_no_update():
    """Prevents: an analyst's calculated field stops all refreshes."""
    edited = view(metadata="digest-2")
    wanted = desired(tables={"orders": table(hash_sum=8)})
    assert isinstance(decide(edited, wanted=wanted), Update)
    assert mode_of(decide(edited, full=True)) is PublishMode.REPLACE
    assert isinstance(decide(edited), NoChange)


def test_changed_declaration_spares_edits_too():
    """Prevents: renaming a table in YAML drops the calculated fields of an analyst."""
    declared = declaration()
    base = state(declaration="another digest")
    reason = refused(view(base, metadata="digest-2"), declared=declared, wanted=desired(declared))
    assert "its declaration changed" in reason


def test_edits_before_an_interrupted_refresh_are_spared():
    """Prevents: a crash makes us forget that somebody edited the metadata."""
    known = view(state(), state(updated_at=None, metadata=None), metadata="digest-2")
    assert isinstance(decide(known, wanted=WIDER), Refuse)


def test_crash_does_not_invent_edits():
    """Prevents: after a crash a new column is refused for the sake of edits that nobody made."""
    known = view(state(), state(updated_at=None, metadata=None))
    assert mode_of(decide(known, wanted=WIDER)) is PublishMode.OVERWRITE


def test_all_problems_are_told_at_once():
    """Prevents: a person mends one thing per failed run."""
    declared = declaration("orders", "items")
    wanted = desired(declared, tables={"orders": table(1), "items": table(columns=COLUMNS[:1])})
    reason = refused(view(state(declared)), declared=declared, wanted=wanted)
    assert 'Table "orders"' in reason
    assert "items.name is gone" in reason


def test_each_acceptance_lets_its_own_problem_through():
    """Prevents: accepting a shrunk table lets a schema change slip along, or the other way."""
    wanted = desired(tables={"orders": table(1, columns=COLUMNS[:1])})
    assert "schema" not in refused(view(), Accept.SCHEMA, declared=declaration(), wanted=wanted)
    assert "rows" not in refused(view(), Accept.SHRINK, declared=declaration(), wanted=wanted)
    assert mode_of(decide(view(), Accept.SCHEMA, Accept.SHRINK, wanted=wanted)) is (
        PublishMode.OVERWRITE
    )
