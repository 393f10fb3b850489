from dataclasses import replace
from datetime import timedelta

import pytest

from tableau_pipeline.core.checkpoint import Cutoff, PublishMode, State
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.hyper.tables import Column, Relationship
from tableau_pipeline.refresh.plan import Accept, NoChange, Plan, Publish, Update
from tableau_pipeline_tests.refresh.states import (
    COLUMNS,
    NOON,
    NOTHING,
    REMOTE,
    decide,
    declaration,
    desired,
    state,
    table,
    view,
)

CREATE, REPLACE, OVERWRITE = PublishMode.CREATE, PublishMode.REPLACE, PublishMode.OVERWRITE


def with_orders(**changes: object) -> State:
    return desired(tables={"orders": table(**changes)})


def test_nothing_on_the_server_is_a_first_publish():
    """Prevents: a first publish that could replace what another put there meanwhile."""
    assert decide(NOTHING) == Publish(CREATE, "first publish: the journal is empty")


def test_deleted_on_the_server_is_published_anew():
    """Prevents: a deleted data source stays deleted, or comes back without anybody being told."""
    plan = decide(view(remote=None, named_by_us=False, metadata=None))
    assert plan == Publish(CREATE, "the data source luid-1 is gone from the server: published anew")


def test_our_tag_without_a_state_replaces_the_data_only():
    """Prevents: a lost event log drops the calculated fields of analysts, or blocks for ever."""
    known = replace(NOTHING, why_no_base="no state is recorded", remote=REMOTE)
    plan = decide(known)
    assert isinstance(plan, Publish)
    assert plan.mode is REPLACE
    assert "no state is recorded" in plan.reason
    assert "carries our tag" in plan.reason
    assert decide(known, Accept.OVERWRITE) == Publish(
        OVERWRITE, "in full, as asked (accept: overwrite)"
    )


def test_adopted_data_source_is_overwritten():
    """Prevents: an adopted data source keeps metadata that does not fit our tables."""
    stranger = replace(REMOTE, tags=frozenset({"certified"}))
    known = replace(NOTHING, remote=stranger)
    assert decide(known, declared=declaration(adopt=True)) == Publish(
        OVERWRITE, "first publish: takes over the data source (adopt)"
    )


def test_equal_fingerprints_are_no_change():
    """Prevents: an unchanged model is shipped, or a changed one is not."""
    assert decide(view()) == NoChange("every table's fingerprint equals that of the last refresh")


@pytest.mark.parametrize(
    "wanted",
    [
        with_orders(rows=101),
        with_orders(hash_sum=8),
        desired(
            tables={
                "orders": table().model_copy(
                    update={"content": Fingerprint(rows=100, hash_sum=7, algorithm="older")}
                )
            }
        ),
    ],
    ids=["rows", "hash sum", "algorithm of hashes"],
)
def test_each_part_of_the_content_counts(wanted: State):
    """Prevents: a change that shows in one part of the fingerprint only passes for no change."""
    assert decide(view(), wanted=wanted) == Update({"orders": None}, "new content in orders")


@pytest.mark.parametrize("full", [False, True])
def test_order_of_columns(full: bool):
    """Prevents: columns that change places are compared by hashes that go by their order."""
    reordered = with_orders(columns=COLUMNS[::-1])
    whole = Publish(REPLACE, "in full: the order of columns changed in orders")
    assert decide(view(), wanted=reordered, full=full) == whole
    both = view(state(), reordered.model_copy(update={"luid": "luid-1"}))
    assert decide(both, wanted=reordered, full=full) == whole


@pytest.mark.parametrize("full", [False, True])
def test_trouble(full: bool):
    """Prevents: an update that fails is tried again for ever, also as one of all rows."""
    troubled = view(trouble="the last update failed on the server (full disk)")
    assert decide(troubled, full=full) == Publish(
        REPLACE, "in full: the last update failed on the server (full disk)"
    )


def test_cutoff_that_moves_over_no_rows_is_no_change():
    """Prevents: a rolling window ships the same rows every night."""
    cutoff = Cutoff(column="day", days=9, as_of="run", value="2025-01-01")
    moved = table().model_copy(update={"cutoff": cutoff})
    assert isinstance(decide(view(), wanted=desired(tables={"orders": moved})), NoChange)


def test_all_tables_of_new_content_are_named():
    """Prevents: the reason of a refresh names one of its causes only."""
    declared = declaration("orders", "items", "notes")
    tables = {"orders": table(hash_sum=1), "items": table(), "notes": table(hash_sum=2)}
    plan = decide(view(state(declared)), wanted=desired(declared, tables=tables), declared=declared)
    assert plan == Update({"orders": None, "notes": None}, "new content in orders, notes")


def test_full_publishes_equal_content():
    """Prevents: `full: true` does nothing when nothing changed, which is when it is needed."""
    assert decide(view(), full=True) == Publish(
        REPLACE, "in full: asked for (full: true)", small_as_update=True
    )


def test_full_and_accepted_overwrite_replace_the_metadata_too():
    """Prevents: metadata that a lost state left unfit stays for ever, whatever is asked for."""
    assert decide(view(metadata="digest-2"), Accept.OVERWRITE, full=True) == Publish(
        OVERWRITE, "in full, as asked (full: true, accept: overwrite)"
    )
    assert isinstance(decide(view(metadata="digest-2"), Accept.OVERWRITE), NoChange)


@pytest.mark.parametrize("seconds", [1, -1])
def test_changed_hands(seconds: int):
    """Prevents: what somebody else published under our name passes for ours."""
    remote = replace(REMOTE, updated_at=NOON + timedelta(seconds=seconds))
    plan = decide(view(remote=remote))
    assert isinstance(plan, Publish)
    assert plan.mode is REPLACE
    assert "changed hands" in plan.reason
    assert f"2025-03-01 {remote.updated_at:%H:%M:%S} UTC" in plan.reason


def test_sending_that_nobody_saw_land_is_sent_in_full():
    """Prevents: a sending that may have been lost passes for landed, and stale rows stay."""
    plan = decide(view(state(updated_at=None)))
    assert isinstance(plan, Publish)
    assert (plan.mode, plan.small_as_update) == (REPLACE, True)
    assert "interrupted" in plan.reason


@pytest.mark.parametrize("newest", [0, 1])
def test_all_possible_contents_count(newest: int):
    """Prevents: the content that a lost sending had is taken for the published one, or not."""
    bases = [state(tables={"orders": table(hash_sum=1)}), state(updated_at=None)]
    plan = decide(view(*(bases if newest else bases[::-1])))
    assert plan == Update({"orders": None}, "new content in orders")


def test_lost_sending_of_the_published_content_is_no_change():
    """Prevents: a sending that may have been lost is sent again although it changed nothing."""
    assert isinstance(decide(view(state(), state(updated_at=None))), NoChange)


def test_new_column_overwrites_under_additive():
    """Prevents: a column that a model gained is in the file but not in the metadata."""
    wanted = with_orders(columns=(*COLUMNS, Column("price", "double")))
    assert decide(view(), wanted=wanted) == Publish(
        OVERWRITE, "in full: orders.price is new (double)"
    )


def test_new_relationship_overwrites():
    """Prevents: a relationship that was declared later never reaches the data model."""
    plain = declaration("orders", "items")
    related = declaration(
        "orders", "items", relationships=(Relationship("items", "orders", (("id", "id"),)),)
    )
    plan = decide(view(state(plain)), wanted=desired(related), declared=related)
    assert plan == Publish(OVERWRITE, "in full: the declaration changed")


def test_interrupted_schema_change_is_overwritten_again():
    """Prevents: after a crash the new columns are in the data, but the metadata never gets them."""
    wanted = with_orders(columns=(*COLUMNS, Column("price", "double")))
    plan = decide(view(state(), wanted.model_copy(update={"luid": "luid-1"})), wanted=wanted)
    assert isinstance(plan, Publish)
    assert plan.mode is OVERWRITE


def test_reasons_have_a_short_form():
    """Prevents: the web UI shows no word for a decision."""
    changed = decide(view(), wanted=with_orders(rows=101))
    plans: list[Plan] = [decide(NOTHING), decide(view()), changed]
    assert [plan.decision for plan in plans] == ["publish (create)", "no change", "update"]
