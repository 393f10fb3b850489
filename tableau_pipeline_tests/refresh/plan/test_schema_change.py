import pytest

from tableau_pipeline.core.checkpoint import PublishMode, TableContent
from tableau_pipeline.core.declaration import SchemaPolicy
from tableau_pipeline.extracts.schema import schema_changes, schema_problems
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.plan import Accept, Publish, Refuse
from tableau_pipeline_tests.refresh.support.states import (
    COLUMNS,
    checkpoint,
    decided,
    declaration,
    desired,
    published,
    table,
)

ID, NAME = COLUMNS
Tables = dict[str, TableContent]
BASE = desired()


def orders(*columns: Column) -> Tables:
    return desired(orders=table(columns=columns))


CHANGES = {
    "new column": (orders(ID, NAME, Column("price", "double")), "orders.price is new (double)"),
    "gone column": (orders(ID), "orders.name is gone (string)"),
    "wider type": (
        orders(Column("id", "decimal(38,0)"), NAME),
        "orders.id was bigint and is decimal(38,0)",
    ),
    "case of a name": (orders(ID, Column("Name", "string")), "orders.name is gone (string)"),
}


@pytest.mark.parametrize(("wanted", "phrase"), CHANGES.values(), ids=CHANGES)
def test_changes_are_named_with_their_types(wanted: Tables, phrase: str):
    """Prevents: a person has to search for what changed."""
    assert phrase in schema_changes(wanted, BASE)


def test_order_of_columns_is_no_schema_change():
    """Prevents: a model that selects its columns in another order needs a person's consent."""
    assert schema_changes(orders(NAME, ID), BASE) == []


def test_all_differences_are_listed_at_once():
    """Prevents: a person accepts one difference, and the next run finds another."""
    base = {"orders": table(), "notes": table()}
    changed = table(columns=(Column("id", "int"), Column("price", "double")))
    wanted = {"orders": changed, "items": table()}
    assert schema_changes(wanted, base) == [
        'table "items" is new',
        'table "notes" is gone',
        "orders.price is new (double)",
        "orders.name is gone (string)",
        "orders.id was bigint and is int",
    ]
    (problem,) = schema_problems(wanted, base, "refuse")
    assert all(change in problem for change in schema_changes(wanted, base))


@pytest.mark.parametrize(
    ("policy", "change", "passes"),
    [
        ("additive", "new column", True),
        ("additive", "gone column", False),
        ("additive", "wider type", False),
        ("additive", "case of a name", False),
        ("refuse", "new column", False),
        ("refuse", "gone column", False),
        ("publish", "new column", True),
        ("publish", "gone column", True),
        ("publish", "wider type", True),
    ],
)
def test_policies(policy: SchemaPolicy, change: str, passes: bool):
    """Prevents: a column that dashboards use vanishes, or a harmless one stops the refresh."""
    wanted, _ = CHANGES[change]
    declared = declaration(on_schema_change=policy)
    plan = decided(published(), wanted=wanted, declared=declared)
    if passes:
        assert isinstance(plan, Publish)
        assert plan.mode is PublishMode.OVERWRITE
    else:
        assert isinstance(plan, Refuse)
        assert f"on_schema_change: {policy}" in plan.reason
        assert "accept: [schema]" in plan.reason


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("policy", ["additive", "refuse"])
def test_accepted_once(policy: SchemaPolicy, change: str):
    """Prevents: a schema change that a person accepted is refused all the same."""
    wanted, _ = CHANGES[change]
    declared = declaration(on_schema_change=policy)
    plan = decided(published(), Accept.SCHEMA, wanted=wanted, declared=declared)
    assert isinstance(plan, Publish)
    assert plan.mode is PublishMode.OVERWRITE


def test_additive_names_only_what_it_refuses():
    """Prevents: a person takes a harmless new column for the reason of a refusal."""
    (problem,) = schema_problems(orders(ID, Column("price", "double")), BASE, "additive")
    assert "orders.name is gone" in problem
    assert "price" not in problem


def test_the_remedies_hold_for_files_too():
    """Prevents: a user of publish_file, who has no model, is told to fix the model."""
    assert schema_problems(orders(ID), BASE, "additive") == [
        "The schema changed: orders.name is gone (string). on_schema_change: additive refuses "
        "that. To publish it all the same, run once with accept: [schema]; otherwise, correct what "
        "produces the data"
    ]


def test_gone_table_is_refused_and_new_one_published():
    """Prevents: leaving a table out of the YAML drops it from dashboards without consent."""
    one, two = declaration("orders"), declaration("orders", "items")
    added = decided(published(checkpoint(one)), declared=two)
    assert added == Publish(PublishMode.OVERWRITE, 'in full: table "items" is new')
    removed = decided(published(checkpoint(two)), declared=one)
    assert isinstance(removed, Refuse)
    assert 'table "items" is gone' in removed.reason
