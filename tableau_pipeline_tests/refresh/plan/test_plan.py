"""What a refresh decides of a published data source, and the reason that it gives."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Diff, Guard, Reconcile, Republish, Table
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.hyper.build import Relationship
from tableau_pipeline.refresh.plan import Accept, Refuse
from tableau_pipeline_tests.refresh.plan.test_ownership import forget
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import STAR, Pipeline

BY_ID = Diff(("flight_id",))
DELAYS = flights()["delay"]
WIDER = flights(gate=DELAYS)
NARROWER = flights().drop_columns("delay")
LONGER = flights().set_column(2, "delay", DELAYS.cast(pa.int64()))
OTHER_CASE = flights().rename_columns(["flight_id", "Carrier", "delay"])
REMEDY = (
    "on_schema_change: additive refuses that. To publish it all the same, run once with accept: "
    "[schema]; otherwise, correct what produces the data"
)
NEW = "publish (overwrite): full publish: flights.gate is new (int)"
GONE = "refuse: The schema changed: flights.delay is gone (int). "
SCHEMAS = [
    ("additive", WIDER, NEW),
    ("additive", NARROWER, GONE + REMEDY),
    ("additive", LONGER, "refuse: The schema changed: flights.delay was int and is bigint. "),
    ("additive", OTHER_CASE, "refuse: The schema changed: flights.carrier is gone (string)"),
    # What is harmless is no reason of a refusal.
    ("additive", WIDER.drop_columns("delay"), GONE),
    ("refuse", WIDER, "refuse: The schema changed: flights.gate is new (int). on_schema_change"),
    ("refuse", NARROWER, GONE),
    ("publish", WIDER, NEW),
    ("publish", NARROWER, "publish (overwrite): full publish: flights.delay is gone (int)"),
    ("publish", LONGER, "publish (overwrite): full publish: flights.delay was int and is bigint"),
    # Readers do not see the order of columns.
    (
        "refuse",
        flights().select(["delay", "carrier", "flight_id"]),
        "publish (replace): full publish: the order of columns changed in flights",
    ),
]


def test_changes_of_columns(pipeline: Pipeline):
    """Prevents: a column that dashboards use vanishes, or a harmless one stops the refresh."""
    pipeline.run()
    for policy, rows, expected in SCHEMAS:
        pipeline.declare(on_schema_change=policy)
        pipeline.model("flights", rows)
        found = pipeline.decide()
        assert found.startswith(expected), f"{policy}: {rows.schema.names}"
        if "refuse:" in found:
            assert pipeline.decide(Accept.SCHEMA).startswith("publish (overwrite): full publish: ")


def test_changes_of_tables(star: Pipeline):
    """Prevents: leaving a table out of the YAML drops it from dashboards without consent."""
    both = star.declaration.tables
    star.declare(tables=both[:1], relationships=())
    star.run()
    star.declare(tables=both, relationships=STAR)
    assert 'full publish: table "airlines" is new' in star.decide()
    star.run()
    others = (Relationship("flights", "airlines", (("carrier", "name"),)),)
    star.declare(relationships=others)
    assert star.decide() == "publish (overwrite): full publish: the declaration changed"
    star.declare(tables=both[:1], relationships=())
    assert star.decide().startswith('refuse: The schema changed: table "airlines" is gone')


def test_problems_are_told_at_once_and_accepted_one_by_one(pipeline: Pipeline):
    """Prevents: a person fixes one thing per failed run; accepting a shrunk table lets a schema
    change slip along, or the other way."""
    pipeline.run()
    pipeline.model("flights", NARROWER.slice(0, 1))
    plan = pipeline.run(dry_run=True).plan
    assert isinstance(plan, Refuse)
    assert plan.failed[Check.GUARD].startswith('Table "flights": model "flights" has 1 rows')
    assert "flights.delay is gone" in plan.failed[Check.SCHEMA]
    assert plan.reason == "\n".join([plan.failed[Check.GUARD], plan.failed[Check.SCHEMA]])
    for accepted, left in ((Accept.SCHEMA, "has 1 rows"), (Accept.SHRINK, "delay is gone")):
        found = pipeline.decide(accepted)
        assert found.startswith("refuse")
        assert len(found.splitlines()) == 1
        assert left in found
    assert pipeline.decide(Accept.SCHEMA, Accept.SHRINK).startswith("publish (overwrite)")


SIZES: list[tuple[dict[str, Any], str]] = [
    ({}, "update: new content in flights: flights -8 +8 rows"),
    ({"republish": {"growth": 0.5}}, "since the last full publish would total 0.07 MB"),
    ({"republish": {"growth": 1.5}, "payload_limit_mb": 1}, "update: "),
    ({"republish": {"after": 1}}, "update: "),
    ({"payload_limit_mb": 1e-6}, "exceeds the limit of 0.00 MB for payloads"),
    ({"payload_limit_mb": 1e-6, "on_oversize": "split"}, "and it cannot be split below that"),
]


def test_sizes_and_limits(pipeline: Pipeline):
    """Prevents: a file that updates let grow without end, one that is never updated, or a payload
    that the server turns down."""
    pipeline.policy(BY_ID)
    pipeline.run()
    pipeline.model("flights", flights(delay=1))
    usual = pipeline.declaration
    for declared, expected in SIZES:
        pipeline.declaration = replace(usual, **declared)
        found = pipeline.decide()
        assert expected in found, declared
        assert found.startswith("update" if "update: " in expected else "publish (replace)")
    pipeline.declaration = replace(usual, republish=Republish(after=1))
    pipeline.run()
    pipeline.model("flights", flights(delay=2))
    assert "1 updates since the last full publish" in pipeline.decide()


def test_edited_metadata_hinders_overwrites_alone(pipeline: Pipeline):
    """Prevents: an analyst's calculated field stops all refreshes, or is dropped by one that was
    to accept something else."""
    pipeline.policy(BY_ID)
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.run()
    assert pipeline.decide(full=True).startswith("publish (replace)")
    assert pipeline.decide(Accept.OVERWRITE, full=True).startswith(
        "publish (overwrite): full publish, as asked (accept: overwrite)"
    )
    pipeline.model("flights", flights(delay=1))
    assert pipeline.decide(Accept.OVERWRITE).startswith("update")
    tables = (*pipeline.declaration.tables, Table("airlines", "airlines"))
    pipeline.declare(tables=tables, relationships=STAR)
    pipeline.model("airlines", airlines())
    found = pipeline.decide(Accept.SCHEMA)
    for part in ("refuse: ", 'table "airlines" is new', '"Delayed"', "accept: [overwrite]"):
        assert part in found
    assert pipeline.decide(Accept.OVERWRITE).startswith("publish (overwrite)")


GUARDS = [
    (0, Guard(), "has 0 rows, fewer than guard.min_rows (1). If that is right, run again with acc"),
    (0, Guard(min_rows=0, max_shrink=1), None),
    (1, Guard(min_rows=2, max_shrink=1), "fewer than guard.min_rows (2)"),
    (49, Guard(), "49 rows where 100 are published: a loss of 51%, more than guard.max_shrink (50"),
    (50, Guard(), None),
    # As floats, 0.29 * 100 is less than 29.
    (71, Guard(max_shrink=0.29), None),
    (70, Guard(max_shrink=0.29), "a loss of 30%, more than guard.max_shrink (29%)"),
    (100, Guard(min_rows=101), "100 rows, fewer than guard.min_rows (101)"),
    (1000, Guard(max_shrink=0), None),
]


def test_guards(pipeline: Pipeline):
    """Prevents: a failed load upstream empties every dashboard, or a guard is off by one."""
    pipeline.model("flights", flights(0))
    assert "fewer than guard.min_rows (1)" in pipeline.decide(), "from the first publish on"
    pipeline.model("flights", flights(100))
    pipeline.run()
    for rows, guard, problem in GUARDS:
        pipeline.policy(BY_ID, guard=guard)
        pipeline.model("flights", flights(rows))
        found = pipeline.decide()
        assert found.startswith("refuse") is (problem is not None), guard
        assert (problem or "") in found
        assert not pipeline.decide(Accept.SHRINK).startswith("refuse")


def test_shrunk_star(star: Pipeline):
    """Prevents: the rows of one table are compared with those of another."""
    star.model("airlines", airlines(*(f"A{number}" for number in range(30)), "AA", "UA"))
    star.run()
    star.model("airlines", airlines())
    assert 'Table "airlines": model "airlines" has 2 rows where 32 are' in star.decide()


def shrinks(pipeline: Pipeline, *, message: str) -> None:
    """A model that lost most of its rows is refused, until a person says that it is right."""
    pipeline.model("flights", flights(1))
    with pytest.raises(RefusedError, match=message) as caught:
        pipeline.run()
    assert "accept: [shrink]" in str(caught.value)
    assert pipeline.wrong() != []
    pipeline.run(Accept.SHRINK)
    assert pipeline.wrong() == []


def test_equal_content_is_guarded_too(pipeline: Pipeline):
    """Prevents: a guard that was tightened later passes until the next change."""
    pipeline.run()
    (table,) = pipeline.declaration.tables
    pipeline.policy(table.policy, guard=Guard(min_rows=1000))
    assert pipeline.decide().startswith("refuse")


def test_shrunk_against_what_is_adopted(pipeline: Pipeline):
    """Prevents: an adoption replaces many rows of another user by our few, unasked."""
    other_users.publishes(pipeline, flights(100))
    pipeline.declare(adopt=True)
    shrinks(pipeline, message="1 rows where 100 are published")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Reconcile(), "1 rows where 8 are published"),
        # The server's own count shows what no file may.
        (Reconcile(max_mb=1e-6), "1 rows where 8 are published"),
        (
            Reconcile(max_mb=1e-6, by="download"),
            r"how many are published is not known.*reconcile: max_mb",
        ),
    ],
    ids=["file", "server", "not at all"],
)
def test_shrunk_since_the_records_were_lost(
    new_pipeline: Callable[..., Pipeline], rule: Reconcile, message: str
):
    """Prevents: with the records gone, 1,000 rows become 1 unasked."""
    pipeline = new_pipeline(reconcile=rule)
    pipeline.run()
    forget(pipeline)
    shrinks(pipeline, message=message)


def test_nothing_is_counted_for_no_guard(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a table that may lose all its rows is downloaded for nothing, or refused."""
    pipeline = new_pipeline(reconcile=Reconcile(max_mb=1e-6, by="download"))
    (table,) = pipeline.declaration.tables
    pipeline.policy(table.policy, guard=Guard(max_shrink=1))
    pipeline.run()
    forget(pipeline)
    pipeline.model("flights", flights(1))
    pipeline.run()
    assert pipeline.wrong() == []
