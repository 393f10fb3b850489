"""Hierarchies in folders: Tableau puts a hierarchy into a folder only as a whole."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree

from tableau_pipeline.core.fields import FieldError, FieldMetadata, Members, declared_values
from tableau_pipeline.metadata.columns import TypesByTable
from tableau_pipeline.metadata.merge import Values, merge
from tableau_pipeline.metadata.tds import Tds
from tableau_pipeline_tests.metadata.shapes import by_a_server, document, record, table

NAMES = ("country", "city", "street", "shop")
TABLES: TypesByTable = {"Extract": [(name, "TEXT") for name in NAMES]}
RECORDS = "".join(record(name, "string", "Extract") for name in NAMES)
PLAIN = document(table("Extract"), RECORDS).encode()


def declared(place: Sequence[str] = (), route: Sequence[str] = (), **folders: str) -> Values:
    """The values of a declaration: two hierarchies, and the folder of each named field."""
    fields = [FieldMetadata(name, folder=folder) for name, folder in folders.items()]
    named = {"Place": place, "Route": route}
    return declared_values(
        fields={"Extract": fields},
        calculations=(),
        hierarchies=[Members(name, tuple(each)) for name, each in named.items() if each],
        folders=(),
        columns={"Extract": NAMES},
        published=lambda name: name,
    )


def saved(content: bytes) -> bytes:
    """The form of a document after a user has saved it in Tableau and a server has stored it."""
    root = etree.fromstring(content)
    fields = {each.text for each in root.iterfind("./drill-paths/drill-path/field")}
    for item in [*root.iter("folder-item")]:
        around = item.getparent()
        if around is not None and item.get("type") == "field" and item.get("name") in fields:
            around.remove(item)
    for tag in ("folder", "folders-common"):
        for each in [*root.iter(tag)]:
            around = each.getparent()
            if around is not None and not len(each):
                around.remove(each)
    return by_a_server(etree.tostring(root))


def items(content: bytes) -> list[tuple[str | None, ...]]:
    """The items of all folders: the folder's name, the item's kind and the item's name."""
    found = etree.fromstring(content).iter("folder")
    return [
        (each.get("name"), item.get("type"), item.get("name")) for each in found for item in each
    ]


def published(content: bytes, want: Values, past: Values) -> bytes:
    """The document that a refresh publishes if no other user has changed anything."""
    found = Tds(content).values(want, [past])
    merged = merge(want, [past], found, on_conflict="refuse")
    assert (merged.kept, merged.conflicts) == ({}, ())
    return Tds(content).edited(merged.changes, TABLES)


def test_a_hierarchy_is_in_a_folder_as_a_whole():
    """Prevents: Tableau drops a hierarchy's fields from a folder, which then looks like an edit."""
    want = declared(("country", "city"), shop="Shops", country="Where")
    content = published(PLAIN, want, {})
    shown = {("Where", "drillpath", "Place"), ("Shops", "field", "[shop]")}
    assert {*items(content)} == shown
    for each in (content, saved(content)):
        assert published(each, want, want) == each
        assert Tds(each).values()["field", "Extract", "city", "folder"] == "Where"


def test_a_hierarchy_that_goes_leaves_no_item():
    """Prevents: a folder lists a removed hierarchy, and Tableau may not open the data source."""
    want = declared(("country", "city"), country="Where")
    content = saved(published(PLAIN, want, {}))
    assert items(published(content, {}, want)) == []
    left = declared((), country="Where")
    assert items(published(content, left, want)) == [("Where", "field", "[country]")]
    gone: TypesByTable = {"Extract": TABLES["Extract"][2:]}
    assert items(Tds(content).edited({}, gone)) == []


STATES = st.builds(
    dict,
    place=st.sampled_from([(), ("country",), ("country", "city"), ("city", "street")]),
    route=st.sampled_from([(), ("street", "shop"), ("shop",)]),
    country=st.sampled_from(["", "A", "B"]),
    city=st.sampled_from(["", "A", "B"]),
    street=st.sampled_from(["", "A"]),
    shop=st.sampled_from(["", "A"]),
)


# A folder disappears when the declaration adds two hierarchies that share a field.
@example(
    states=[
        {"city": "B"},
        {"place": ("city", "street"), "route": ("street", "shop")},
        {"shop": "A"},
    ],
    is_saved=[False] * 3,
)
# A hierarchy leaves a folder when the declaration adds a second hierarchy with a shared field.
@example(
    states=[
        {"place": ("country", "city"), "city": "B"},
        {"place": ("city", "street"), "route": ("street", "shop")},
        {"shop": "A"},
    ],
    is_saved=[False] * 3,
)
@given(states=st.lists(STATES, max_size=6), is_saved=st.lists(st.booleans(), min_size=6))
@settings(max_examples=60)
def test_any_declarations_one_after_the_other(states: list[Any], is_saved: list[bool]):
    """Prevents: after some declarations, a folder is not as declared, or looks edited."""
    content, past = PLAIN, declared()
    for want, save in zip(possible(states), is_saved, strict=False):
        content = published(content, want, past)
        for each in (content, saved(content)):
            found = Tds(each).values(want, [want])
            assert {path: found.get(path) for path in [*want, *past]} == {
                path: want.get(path) for path in [*want, *past]
            }
        assert items(saved(content)) == items(content), "Tableau drops no item"
        content, past = saved(content) if save else content, want


def possible(states: list[Any]) -> Iterator[Values]:
    """Yield the values of each state that is a valid declaration."""
    for state in states:
        try:
            yield declared(**state)
        except FieldError:
            assert "A" in state.values()


def test_folders_that_contradict_each_other():
    """Prevents: a hierarchy is in one folder after one refresh, and in another after the next."""
    said = 'shows a hierarchy in one folder, but "country" is in "A", "city" is in "B"'
    with pytest.raises(FieldError, match=said) as caught:
        declared(("country", "city", "street"), country="A", city="B")
    assert caught.value.at == ("hierarchies", "Place")


def test_a_folder_of_people_goes_along():
    """Prevents: a field that joins a hierarchy loses the folder that a person has chosen."""
    theirs = Tds(PLAIN).edited({("field", "Extract", "city", "folder"): "Theirs"}, TABLES)
    content = saved(published(theirs, declared(("country", "city")), {}))
    assert items(content) == [("Theirs", "drillpath", "Place")]
    # A person moves the hierarchy to one folder, and the declaration to another: a conflict.
    moved = Tds(content).edited({("field", "Extract", "city", "folder"): "Moved"}, TABLES)
    assert items(moved) == [("Moved", "drillpath", "Place")]
    past, want = declared(("country", "city"), city="A"), declared(("country", "city"), city="B")
    found = Tds(moved).values(want, [past])
    merged = merge(want, [past], found, on_conflict="keep")
    assert not merged.changes
    assert {path[2] for path in merged.conflicts} == {"country", "city"}
    replaced = merge(want, [past], found, on_conflict="replace")
    assert items(Tds(moved).edited(replaced.changes, TABLES)) == [("B", "drillpath", "Place")]
