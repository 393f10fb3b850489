from collections.abc import Mapping
from dataclasses import replace

import pytest

from tableau_pipeline.core.checkpoint import PublishMode, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import Check
from tableau_pipeline.extracts.schema import layout_changes
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.plan import (
    Accept,
    NoChange,
    Plan,
    Publish,
    Refuse,
    Update,
)
from tableau_pipeline_tests.refresh.support.states import (
    COLUMNS,
    NOTHING,
    OURS,
    REMOTE,
    checkpoint,
    decided,
    declaration,
    desired,
    metadata,
    published,
    table,
)

FOREIGN = replace(
    NOTHING, remote=replace(REMOTE, luid="luid-9", tags=frozenset({"certified"})), rows={}
)
ELSEWHERE = "tableau-pipeline-instance:elsewhere"
EDITED = published(metadata=metadata("digest-2"))
WIDER = desired(orders=table(columns=(*COLUMNS, Column("price", "double"))))


def mode_of(plan: Plan) -> PublishMode:
    assert isinstance(plan, Publish), plan
    return plan.mode


def refused(
    known: Base,
    *accept: Accept,
    declared: Declaration | None = None,
    wanted: Mapping[str, TableContent] | None = None,
) -> str:
    plan = decided(known, *accept, declared=declared, wanted=wanted)
    assert isinstance(plan, Refuse), plan
    assert plan.decision == "refuse"
    return plan.reason


def test_foreign_data_source_is_left_alone():
    """Prevents: we replace a data source that somebody else made and that has our name."""
    reason = refused(FOREIGN)
    for part in ('"Sales"', '"Curated"', "another name", "adopt: true"):
        assert part in reason


def test_nothing_accepts_a_foreign_data_source_but_adopt():
    """Prevents: a run config that was meant for another refusal lets us replace foreign work."""
    assert isinstance(decided(FOREIGN, *Accept, full=True), Refuse)


@pytest.mark.parametrize("adopt", [False, True])
def test_what_another_deployment_publishes_is_left_to_it(adopt: bool):
    """Prevents: two deployments that take turns in replacing each other's rows, both green."""
    known = published(other_instance=ELSEWHERE)
    declared = declaration(adopt=adopt)
    others = [each for each in Accept if each is not Accept.TAKEOVER]
    reason = refused(known, *others, declared=declared)
    for part in ('"Sales"', ELSEWHERE, "accept: [takeover]", "TABLEAU_TAKEOVER"):
        assert part in reason
    assert not isinstance(decided(known, Accept.TAKEOVER, declared=declared), Refuse)


ADOPTED = declaration(adopt=True)


def test_adoption_replaces_only_the_same_tables():
    """Prevents: calculated fields on columns that are gone; or fields that need not go."""
    theirs = replace(FOREIGN, metadata=metadata("theirs"))
    assert mode_of(decided(theirs, declared=ADOPTED)) is PublishMode.REPLACE
    assert mode_of(decided(theirs, Accept.OVERWRITE, declared=ADOPTED)) is PublishMode.REPLACE
    other = ("Extract.gate (INTEGER) would go",)
    assert isinstance(decided(theirs, declared=ADOPTED, layout=other), Refuse)
    accepted = decided(theirs, Accept.OVERWRITE, declared=ADOPTED, layout=other)
    assert mode_of(accepted) is PublishMode.OVERWRITE
    asked = decided(theirs, Accept.OVERWRITE, declared=ADOPTED, full=True)
    assert mode_of(asked) is PublishMode.OVERWRITE


def test_work_is_listed_by_name():
    """Prevents: "somebody may have edited something", and nobody knows what is at stake."""
    work = {"calculated fields": ("Late", "Margin"), "folders": tuple(map(str, range(33)))}
    edited = published(metadata=replace(metadata("digest-2"), work=work))
    reason = refused(edited, wanted=WIDER)
    for part in ('calculated fields "Late", "Margin"; folders "0", "1"', '"29" and 3 more'):
        assert part in reason


def test_layouts_differ_by_name_and_type():
    """Prevents: Replace over a column of another type, which breaks what hangs on it."""
    found = {"orders": {"id": "BIGINT", "gate": "INTEGER", "day": "DATE"}}
    number = Column("id", "bigint")
    wanted = {
        "orders": table(columns=(Column("day", "timestamp_ntz"), number)),
        "more": table(columns=(number,)),
    }
    declared = declaration(*wanted)
    assert layout_changes(found, declared, wanted) == [
        "orders.gate (INTEGER) would go",
        "more.id (BIGINT) is new",
        "orders.day is DATE and would be TIMESTAMP",
    ]
    same = {"orders": {"day": "TIMESTAMP", "id": "BIGINT"}, "more": {"id": "BIGINT"}}
    assert layout_changes(same, declared, wanted) == []


def test_overwrite_spares_edited_metadata():
    """Prevents: a new column in a model drops the calculated fields of an analyst."""
    reason = refused(EDITED, wanted=WIDER)
    for part in ('"Sales"', "orders.price is new (double)", "accept: [overwrite]"):
        assert part in reason
    assert mode_of(decided(EDITED, Accept.OVERWRITE, wanted=WIDER)) is PublishMode.OVERWRITE


def test_metadata_that_no_record_describes_is_spared():
    """Prevents: lost records make an analyst's work ours to drop, or ours pass for an analyst's."""
    unknown = published(checkpoint(metadata=None))
    assert "no record shows what its metadata was" in refused(unknown, wanted=WIDER)


def test_metadata_that_cannot_be_read_is_spared():
    """Prevents: what nobody looked at passes for unedited."""
    unread = published(metadata=None)
    assert "accept: [overwrite]" in refused(unread, wanted=WIDER)


def test_column_that_somebody_dropped_is_not_restored_unasked():
    """Prevents: the overwrite that brings our column back drops the work of who dropped it."""
    theirs = metadata("digest-2", frozenset({("Extract", "id")}))
    known = published(metadata=theirs, distrust="somebody published")
    reason = refused(known)
    assert 'lacks the column "name" of "Extract"' in reason
    assert mode_of(decided(known, Accept.OVERWRITE)) is PublishMode.OVERWRITE


def test_accepting_a_schema_does_not_accept_the_loss_of_edits():
    """Prevents: one decision is taken for two."""
    assert isinstance(decided(EDITED, Accept.SCHEMA, wanted=WIDER), Refuse)


def test_edited_metadata_hinders_no_update():
    """Prevents: an analyst's calculated field stops all refreshes."""
    wanted = desired(orders=table(hash_sum=8))
    assert isinstance(decided(EDITED, wanted=wanted), Update)
    assert mode_of(decided(EDITED, full=True)) is PublishMode.REPLACE
    assert isinstance(decided(EDITED), NoChange)


def test_changed_declaration_spares_edits_too():
    """Prevents: renaming a table in YAML drops the calculated fields of an analyst."""
    known = published(checkpoint(declaration="another digest"), metadata=metadata("digest-2"))
    assert "the declaration changed" in refused(known)


def test_metadata_of_any_past_that_we_left_is_ours():
    """Prevents: after a crash a new column is refused for the sake of edits that nobody made."""
    known = published(distrust="interrupted", left=frozenset({"digest-0", "digest-1"}))
    assert mode_of(decided(known, wanted=WIDER)) is PublishMode.OVERWRITE
    edited = replace(known, metadata=metadata("digest-2"))
    assert isinstance(decided(edited, wanted=WIDER), Refuse)


def test_all_problems_are_told_at_once():
    """Prevents: a person fixes one thing per failed run."""
    declared = declaration("orders", "items")
    wanted = desired(declared, orders=table(1), items=table(columns=COLUMNS[:1]))
    found = decided(published(checkpoint(declared)), declared=declared, wanted=wanted)
    assert isinstance(found, Refuse)
    assert 'Table "orders"' in found.failed[Check.GUARD]
    assert "items.name is gone" in found.failed[Check.SCHEMA]
    assert found.reason == "\n".join([found.failed[Check.GUARD], found.failed[Check.SCHEMA]])


def test_each_acceptance_lets_its_own_problem_through():
    """Prevents: accepting a shrunk table lets a schema change slip along, or the other way."""
    wanted = desired(orders=table(1, columns=COLUMNS[:1]))
    assert "schema" not in refused(published(), Accept.SCHEMA, wanted=wanted)
    assert "rows" not in refused(published(), Accept.SHRINK, wanted=wanted)
    plan = decided(published(), Accept.SCHEMA, Accept.SHRINK, wanted=wanted)
    assert mode_of(plan) is PublishMode.OVERWRITE


def test_takeover_accepts_nothing_else():
    """Prevents: a deployment that takes everything over lets half-empty tables through."""
    theirs = replace(published(), remote=replace(REMOTE, tags=OURS | {ELSEWHERE}))
    theirs = replace(theirs, other_instance=ELSEWHERE)
    assert "1 rows" in refused(theirs, Accept.TAKEOVER, wanted=desired(orders=table(1)))
