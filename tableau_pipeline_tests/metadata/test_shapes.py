"""The pipeline sets declared metadata in documents of real shapes, and reads the metadata back."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from tableau_pipeline.metadata.contents import read_metadata
from tableau_pipeline.metadata.merge import Values, merge
from tableau_pipeline.metadata.tds import Tds, merged_into
from tableau_pipeline_tests.metadata.shapes import (
    SHAPES,
    Shape,
    by_a_server,
    by_an_old_build,
)

EACH = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
ANY = st.sampled_from([*SHAPES.values()])
FORMS = {
    "2025.3": lambda content: content,
    "2020.3": lambda content: by_an_old_build(content, Random(0)),
    "2020.3 after an upgrade": lambda content: by_a_server(by_an_old_build(content, Random(0))),
}


def wanted(shape: Shape) -> Values:
    """Metadata that can be declared for every shape."""
    name, *others = shape.tables
    of = "" if not others else f"{name}."
    values = {
        ("field", name, "id", "caption"): "Order",
        ("field", name, "id", "role"): "dimension",
        ("field", name, "day", "description"): "Of the order,\nin Rome",
        ("field", name, "day", "folder"): "Money",
        ("field", name, "net", "format"): "p0.0%",
        ("field", name, "net", "folder"): "Facts",
        ("calculation", "Margin", "caption"): "Margin",
        ("calculation", "Margin", "type"): "real",
        ("calculation", "Margin", "formula"): f"SUM([{of}net]) / 2",
        ("calculation", "Margin", "folder"): "Facts",
        ("hierarchy", "When", "fields"): json.dumps([f"{of}day", "Margin"]),
    }
    if others:
        values["field", others[0], "id", "hidden"] = "true"
    # Tableau shows a hierarchy in one folder, so both fields of "When" need the same folder.
    values["calculation", "Margin", "folder"] = "Money"
    return values


def read_back(tds: Tds, want: Values) -> Values:
    """The values that a document has at the paths of `want`."""
    found = tds.values(want, [want])
    return {path: found[path] for path in want if path in found}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@EACH
def test_declared_metadata_are_set_and_read_back(shape: Shape, form):
    """Prevents: a merge fails, loses people's work, or looks like an edit after a publish."""
    file, want = Tds(form(shape.content)), wanted(shape)
    columns = {(name, column) for name, each in shape.tables.items() for column, _ in each}
    before = read_metadata(file.content)
    assert before.columns == columns
    assert file.edited({}, shape.tables) is file.content
    edited = file.edited(dict(want), shape.tables)
    for content in (edited, by_a_server(edited)):
        assert read_back(Tds(content), want) == want
        again = merge(want, [want], Tds(content).values(want, [want]), on_conflict="refuse")
        assert (again.changes, again.kept) == ({}, {})
        found = read_metadata(content)
        assert found.digest == read_metadata(edited).digest
        for kind, names in before.work.items():
            assert {*names} <= {*found.work[kind], "Net amount", "Money"}, kind
    taken_back = {path: file.values(want, [want]).get(path) for path in want}
    back = Tds(edited).edited(taken_back, shape.tables)
    assert read_metadata(back).work == before.work


@EACH
def test_columns_follow_the_file(shape: Shape):
    """Prevents: a new column of a table that Desktop has named cannot be published."""
    name = next(iter(shape.tables))
    kept = [each for each in shape.tables[name] if each[0] != "city"]
    tables = {**shape.tables, name: [*kept, ("gate", "TEXT")]}
    edited = Tds(shape.content).edited({("field", name, "gate", "caption"): "Gate"}, tables)
    found = read_metadata(by_a_server(edited))
    assert found.columns == {(table, e) for table, each in tables.items() for e, _ in each}
    root = etree.fromstring(edited)
    for each in root.iter("column", "map", "field", "folder-item", "local-name"):
        assert "[city]" not in (each.get("name"), each.get("key"), each.text)
    # The edit keeps a person's group of the column: a refresh checks for such work before an edit.
    assert [each.get("caption") for each in root.iter("group")] == ["Large"]
    assert Tds(edited).values()["field", name, "gate", "caption"] == "Gate"


def test_the_database_of_an_extract_keeps_its_types():
    """Prevents: a database's extract looks changed, or database columns get the file's types."""
    shape = SHAPES["extract of a database"]
    tables = {"Extract": [(name, type_) for name, type_ in shape.tables["Extract"]]}
    file = Tds(shape.content)
    assert file.edited({}, tables) is file.content
    tables["Extract"][-1] = ("day", "TEXT")
    edited = etree.fromstring(file.edited({}, tables))
    types = {
        part: [each.findtext("local-type") for each in edited.findall(f"./{part}//metadata-record")]
        for part in ("connection", "extract")
    }
    assert types["connection"][-1] == "datetime"
    assert types["extract"][-1] == "string"


def test_what_products_make_is_nobodys_work():
    """Prevents: elements that Tableau's products make by themselves count as a user's work."""
    tds = SHAPES["migrated"].tds
    found = read_metadata(tds.encode())
    assert found.work["calculated fields"] == ("Twice",)
    assert found.work["groups and sets"] == ("Large",)
    before, rest = tds.split("<column datatype='integer' name='[Number")
    _, after = rest.split("<group caption='Large'")
    without = f"{before}<group caption='Large'{after}"
    assert read_metadata(without.encode()).digest == found.digest
    used = Tds(tds.encode()).used_by("Orders", "city")
    assert used == ('group or set "Large"', 'hierarchy "Place"')
    # A caption shows that a person has named such an element.
    named = tds.replace("name='[Number of Records]'", "caption='Lines' name='[Number of Records]'")
    assert read_metadata(named.encode()).digest != found.digest
    assert "Lines" in read_metadata(named.encode()).work["captions"]


@pytest.mark.slow
@given(shape=ANY, seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=80)
def test_an_upgrade_of_the_server_changes_nothing(shape: Shape, seed: int, data: st.DataObject):
    """Prevents: an upgrade of the server makes data sources look edited, or merge differently."""
    chance = Random(seed)
    old = by_an_old_build(shape.content, chance)
    new = by_a_server(old, name=f"Shop{seed}", revision=f"{seed % 9}.0")
    before, after = read_metadata(old), read_metadata(new)
    assert before == after == read_metadata(shape.content)
    want = wanted(shape)
    drawn = data.draw(st.sets(st.sampled_from([*want])))
    # All parts of a calculation are set together.
    values = {path: want[path] for path in want if path in drawn or path[0] == "calculation"}
    edited = [Tds(each).edited(dict(values), shape.tables) for each in (old, new)]
    assert read_metadata(edited[0]) == read_metadata(edited[1])
    assert Tds(edited[0]).values(values) == Tds(edited[1]).values(values)
    assert Tds(by_a_server(edited[0])).values(values) == Tds(edited[0]).values(values)


# The kinds of work in `Metadata.work`, and the word for each kind in messages about a column.
KINDS = {"captions": "caption", "formats": "format", "aliases": "aliases", "folders": "folder"}
KINDS |= {"descriptions": "description", "hidden fields": "hidden", "hierarchies": "hierarchy"}


@given(shape=ANY, data=st.data())
@settings(max_examples=80)
def test_a_column_that_goes_takes_nothing_along_untold(shape: Shape, data: st.DataObject):
    """Prevents: a column is dropped with people's work, and no message names that work."""
    want = wanted(shape)
    made = {path: want[path] for path in data.draw(st.sets(st.sampled_from([*want])))}
    made |= {path: want[path] for path in want if path[0] == "calculation"}
    file = Tds(Tds(shape.content).edited(made, shape.tables))
    name = data.draw(st.sampled_from([*shape.tables]))
    column, _ = data.draw(st.sampled_from(shape.tables[name]))
    tables = {**shape.tables, name: [each for each in shape.tables[name] if each[0] != column]}
    edited = file.edited({}, tables)
    phrases = str([*file.work_on(("field", name, column), ()), *file.used_by(name, column)])
    before, after = read_metadata(file.content).work, read_metadata(edited).work
    for kind, names in before.items():
        for gone in {*names} - {*after.get(kind, ())}:
            assert KINDS[kind] in phrases, (kind, gone)
    values = Tds(edited).values()
    for path, value in file.values().items():
        if values.get(path) != value and path[0] == "field":
            assert (path[1:3], path[-1] in phrases) == ((name, column), True), path
    # A value that the pipeline wrote itself is not the work of a user.
    ours = file.values(file.values())
    assert {*file.work_on(("field", name, column), [ours])} <= {"aliases"}


@pytest.mark.slow
@given(shape=ANY, data=st.data())
@settings(max_examples=80)
def test_no_two_fields_get_one_name(shape: Shape, data: st.DataObject):
    """Prevents: declared metadata gives a field the name of another field."""
    file, name = Tds(shape.content), data.draw(st.sampled_from([*shape.tables]))
    columns = st.sampled_from([column for column, _ in shape.tables[name]])
    names = st.sampled_from(["Twice", "Large", "Net amount", "net", "city", "A", "Lines"])
    want = {
        ("field", name, column, "caption"): caption
        for column, caption in data.draw(st.dictionaries(columns, names)).items()
    }
    made = data.draw(names)
    want |= {("calculation", made, "caption"): made, ("calculation", made, "formula"): "1"}
    new = data.draw(names.filter(lambda each: each not in ("net", "city")))
    tables = {**shape.tables, name: [*shape.tables[name], (new, "TEXT")]}
    merged = merged_into(file, want, [], file.values(want), on_conflict="replace", tables=tables)
    assert merged.tds is not None
    assert Tds(merged.tds).shared_names() == set()
    for path in want.keys() - merged.changes.keys() - Tds(merged.tds).values(want).keys():
        unit = path if path[0] == "field" else (*path[:2], "formula")
        assert unit in merged.conflicts
