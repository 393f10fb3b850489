from copy import deepcopy
from dataclasses import replace

import pytest
from dagster_tableau import DagsterTableauTranslator
from dagster_tableau.translator import (
    TableauContentData,
    TableauContentType,
    TableauTranslatorData,
    TableauWorkspaceData,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from tableau_pipeline.components.git_revision import declaration_differences
from tableau_pipeline.core.declaration import Declaration, Guard, Table
from tableau_pipeline.core.identity import asset_key_of
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.yaml_keys import keyed

ON = (("id", "id"),)
STAR = Declaration(
    key="sales/eu",
    name="Sales",
    project="Curated",
    tables=tuple(Table(name, f"dbt/{name}") for name in ("orders", "people", "places")),
    relationships=(
        Relationship("orders", "people", (("person", "id"), ("region", "region"))),
        Relationship("orders", "places", (("place", "id"),)),
    ),
)


@given(tables=st.permutations(STAR.tables), edges=st.permutations(STAR.relationships))
def test_digest_is_stable_under_reordering(tables: list[Table], edges: list[Relationship]):
    """Prevents: sorting a YAML file differently causes a full refresh that drops metadata."""
    edges = [replace(edge, on=edge.on[::-1]) for edge in edges]
    moved = replace(STAR, tables=tuple(tables), relationships=tuple(edges))
    assert moved.digest() == STAR.digest()


@pytest.mark.parametrize(
    "changes",
    [
        *({name: "Other"} for name in ("key", "name", "project")),
        {"adopt": True, "create_project": True},
        {"on_schema_change": "refuse"},
        {"republish": {"growth": 2.0, "after": 5}},
        {"on_oversize": "split", "payload_limit_mb": 1},
        {"reconcile": None},
        {"tables": tuple(replace(each, guard=Guard(5, 0.1)) for each in STAR.tables)},
        {"tables": tuple(replace(each, model=f"raw/{each.name}") for each in STAR.tables)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_digest_ignores_what_the_file_does_not_show(changes: dict):
    """Prevents: a moved model or a new guard overwrites the metadata of analysts."""
    assert replace(STAR, **changes).digest() == STAR.digest()


def test_defaults_are_in_no_digest():
    """Prevents: a release that adds a key invalidates all approvals and saved plans."""

    @keyed
    class MoreGuard(Guard):
        more: int | None = Field(default=None)

    table = STAR.tables[0]
    tables = (replace(table, guard=MoreGuard(5)), *STAR.tables[1:])
    later = replace(STAR, tables=tables)
    before = replace(STAR, tables=(replace(table, guard=Guard(5)), *STAR.tables[1:]))
    assert later.whole_digest() == before.whole_digest() != STAR.whole_digest()
    set_ = replace(STAR, tables=(replace(table, guard=MoreGuard(5, more=1)), *STAR.tables[1:]))
    assert set_.whole_digest() != before.whole_digest()


@pytest.mark.parametrize(
    "changes",
    [
        {
            "tables": (*STAR.tables, Table("more", "more")),
            "relationships": (*STAR.relationships, Relationship("orders", "more", ON)),
        },
        {
            "tables": (replace(STAR.tables[0], name="sales"), *STAR.tables[1:]),
            "relationships": tuple(replace(each, many="sales") for each in STAR.relationships),
        },
        {"tables": STAR.tables[:2], "relationships": STAR.relationships[:1]},
        {"relationships": (STAR.relationships[0], Relationship("people", "places", ON))},
        {"relationships": (STAR.relationships[0], Relationship("orders", "places", ON))},
        {"relationships": (STAR.relationships[0], Relationship("places", "orders", ON))},
    ],
    ids=["new table", "renamed", "fewer", "other table", "other column", "turned round"],
)
def test_digest_changes_with_the_data_model(changes: dict):
    """Prevents: a changed data model never reaches the server."""
    assert replace(STAR, **changes).digest() != STAR.digest()


@pytest.mark.slow
@given(st.text(min_size=1, max_size=40))
def test_keys_are_those_of_dagster_tableau(name: str):
    """Prevents: dagster-tableau shows a data source under another asset key than ours."""
    content = TableauContentData(
        content_type=TableauContentType.DATA_SOURCE,
        properties={"luid": "l", "name": name, "hasExtracts": True, "isPublished": True},
    )
    site = TableauWorkspaceData.from_content_data("", [content])
    theirs = DagsterTableauTranslator().get_asset_spec(
        TableauTranslatorData(content_data=content, workspace_data=site)
    )
    assert theirs.key.path == [asset_key_of(name)]


FLIGHTS: dict = {
    "name": "Flights",
    "project": "Curated",
    "tables": {
        "flights": {
            "contract": {"net": "int", "gross": "int", "dest": "string"},
            "fields": {"net": {"caption": "Net amount", "folder": "Facts"}},
        }
    },
    "calculations": {"Margin": {"formula": "SUM([Net amount]) / SUM([gross])"}},
    "hierarchies": {"Route": ["dest", "Margin"]},
    "folders": {"Money": ["Margin"]},
    "metadata": {"on_conflict": "refuse"},
}


def changed(at: tuple[str, ...], value: object) -> dict:
    made = deepcopy(FLIGHTS)
    parent = made
    for key in at[:-1]:
        parent = parent[key]
    parent[at[-1]] = value
    return made


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (("tables", "flights", "fields", "nte"), {}, 'did you mean "net"'),
        (("tables", "flights", "fields", "net", "captoin"), "x", 'did you mean "caption"'),
        (("tables", "flights", "fields", "net", "role"), "mesure", "'dimension' or 'measure'"),
        (("calculations", "Margin", "formula"), "[nte]", 'did you mean "net"'),
        (("calculations", "Margin", "formula"), "", "at least 1 character"),
        (("hierarchies", "Route"), [], "at least 1 item"),
        (("hierarchies", "Route"), ["x"], '"x" is neither a column nor a calculation'),
        (("folders", "Money"), ["net"], 'in the folder "Facts"'),
        (("metadata", "on_conflict"), "ask", "'keep', 'replace' or 'refuse'"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_mistakes_in_metadata(at: tuple[str, ...], value: object, message: str):
    """Prevents: a mistake in metadata shows only in a refresh, or its error names no key."""
    with pytest.raises(ValidationError, match=message) as caught:
        Declaration(**changed(at, value))
    (error,) = caught.value.errors()
    assert error["loc"] == at


def test_metadata_changes_no_structure():
    """Prevents: a new caption causes a full refresh, or is not shown in a pull request."""
    before = Declaration(**FLIGHTS)
    now = Declaration(
        **{
            **changed(("tables", "flights", "fields"), {"net": {"caption": "Net"}}),
            "calculations": {"Share": {"formula": "1"}},
            "hierarchies": {"Route": ["dest"]},
            "folders": {"Money": ["Share"]},
            "metadata": {},
        }
    )
    assert now.digest() == before.digest()
    assert list(declaration_differences(before, now)) == [
        ("fields", "flights: net.folder: Facts -> none"),
        ("fields", "flights: net.caption: Net amount -> Net"),
        ("calculations", "Margin: {formula: SUM([Net amount]) / SUM([gross]), type: real} -> none"),
        ("calculations", "Share: none -> {formula: 1, type: real}"),
        ("hierarchies", "Route: dest, Margin -> dest"),
        ("folders", "Money: Margin -> Share"),
        ("metadata", "on_conflict: refuse -> keep"),
    ]
