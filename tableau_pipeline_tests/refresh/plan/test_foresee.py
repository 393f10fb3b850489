"""What follows from a changed declaration alone, where its models have not run."""

from dataclasses import replace

import pytest

from tableau_pipeline.core.declaration import Declaration, Diff, Guard, Retain, Table
from tableau_pipeline.foresee import foresee_declared
from tableau_pipeline.hyper.build import Relationship
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.metadata.fields import FieldMetadata

KEY, DELAY, DAY = Column("k", "bigint"), Column("delay", "int"), Column("day", "date")
TABLE = Table("flights", "flights", policy=Diff(("k",)), contract=(KEY, DELAY, DAY))
BEFORE = Declaration(name="Flights", project="Default", tables=(TABLE,))
AIRLINES = Table("airlines", "airlines")


def tables(*given: Table, **more: object) -> Declaration:
    """Declared with these tables."""
    return replace(BEFORE, tables=given, **more)


@pytest.mark.parametrize(
    ("now", "kind", "told"),
    [
        (tables(replace(TABLE, policy=Diff(("k", "day")), guard=Guard(100))), "unchanged", ""),
        (replace(BEFORE, name="All Flights", project="Other"), "move", "renamed from"),
        (replace(BEFORE, project="Other"), "move", 'moved to "Other", if that project exists'),
        (replace(BEFORE, project="Other", create_project=True), "move", 'moved to "Other";'),
        (tables(replace(TABLE, retain=Retain("day", 30))), "update", "new content in flights"),
        (tables(replace(TABLE, model="other")), "update", "new content in flights"),
        (tables(replace(TABLE, contract=(KEY, DELAY))), "refused", "on_schema_change: additive"),
        (
            tables(replace(TABLE, contract=(KEY, DELAY)), on_schema_change="publish"),
            "publish",
            "full publish: flights.day is gone",
        ),
        (
            tables(replace(TABLE, fields=(FieldMetadata("delay", caption="Delay"),))),
            "publish",
            "full publish: metadata: caption of delay",
        ),
        # Without a contract, nothing tells which columns there will be.
        (tables(replace(TABLE, contract=())), "unchanged", ""),
        (
            tables(
                TABLE,
                AIRLINES,
                relationships=(Relationship("flights", "airlines", (("k", "k"),)),),
            ),
            "publish",
            'full publish: table "airlines" is new',
        ),
    ],
)
def test_a_changed_declaration(now: Declaration, kind: str, told: str):
    """Prevents: a review that hears of a refusal only after the merge."""
    found = foresee_declared(BEFORE, now)
    assert found.kind == kind
    assert told in found.reason
