"""The pipeline sees row filters in every form that Tableau saves, and leaves them unchanged."""

import pytest
from lxml import etree

from tableau_pipeline.metadata.contents import read_metadata
from tableau_pipeline.metadata.merge import Values
from tableau_pipeline.metadata.tds import Tds, merged_into
from tableau_pipeline_tests.metadata.row_filters import ROW_FILTERS, Filtered, RowFilter, filtered
from tableau_pipeline_tests.metadata.shapes import by_a_server

EACH = pytest.mark.parametrize("has", ROW_FILTERS.values(), ids=ROW_FILTERS)


def wanted(source: Filtered) -> Values:
    """The metadata that is declared for all columns, including the columns of the filter."""
    (table,) = source.tables
    values = {}
    for column, _ in source.tables[table]:
        values["field", table, column, "caption"] = f"Our {column}"
        values["field", table, column, "description"] = f"The {column}\nof an order"
        values["field", table, column, "hidden"] = "true"
        values["field", table, column, "folder"] = "Ours"
    return values


def conditions(tds: bytes) -> list[str]:
    """The filters, sets and calculations of a document, in canonical form."""
    root = etree.fromstring(tds)
    found = root.xpath("./filter | ./group | ./column[calculation]")
    texts = [etree.tostring(each, encoding="unicode", with_tail=False) for each in found]
    return [etree.canonicalize(text, strip_text=True) for text in texts]


@EACH
def test_a_filter_is_seen(has: RowFilter):
    """Prevents: a data source with a row filter cannot be read, or seems to show all rows."""
    assert sorted(read_metadata(filtered(has).content).filters) == sorted(has.names)


@EACH
def test_a_filter_survives_what_is_declared(has: RowFilter):
    """Prevents: a declared caption changes a row filter, and all later publishes are refused."""
    source = filtered(has)
    (table,) = source.tables
    columns = [each for each in source.tables[table] if each[0] != "id"]
    tables = {table: [*columns, ("gate", "TEXT")]}
    file, want = Tds(source.content), wanted(source)
    merged = merged_into(file, want, [], file.values(want), on_conflict="replace", tables=tables)
    assert merged.tds is not None
    before, after = read_metadata(source.content), read_metadata(by_a_server(merged.tds))
    assert after.columns == {(table, name) for name, _ in tables[table]}
    assert (after.filters, after.digest != before.digest) == (before.filters, True)
    assert conditions(merged.tds) == conditions(source.content)
    named = {f"Our {name}" for name, _ in columns}
    assert named <= {each.get("caption") for each in etree.fromstring(merged.tds).iter("column")}


@EACH
def test_a_column_of_a_filter_is_missed(has: RowFilter):
    """Prevents: a filter stays after its column has gone, and silently hides all rows or no row."""
    source = filtered(has)
    (table,) = source.tables
    before = read_metadata(source.content).filters
    for used in has.uses:
        tables = {table: [each for each in source.tables[table] if each[0] != used]}
        after = read_metadata(Tds(source.content).edited({}, tables)).filters
        assert all(after.get(name) != digest for name, digest in before.items()), used
        assert Tds(source.content).used_by(table, used)


def test_a_filter_that_is_changed():
    """Prevents: the pipeline does not see that somebody has changed the set of a filter."""
    for name, instead in {"members": "%null%", "a set": "%null%", "a user filter": "Sales"}.items():
        source = filtered(ROW_FILTERS[name])
        changed = source.content.replace(instead.encode(), b"Else")
        assert changed != source.content
        before, after = read_metadata(source.content).filters, read_metadata(changed).filters
        assert all(after[each] != digest for each, digest in before.items()), name


def test_a_filter_on_no_field():
    """Prevents: the pipeline cannot name a filter on Measure Names, because it is no column."""
    names = "<filter class='categorical' column='[federated.1].[:Measure Names]' />"
    source = filtered(RowFilter(names, (), ()))
    assert [*read_metadata(source.content).filters] == ['the filter on ":Measure Names"']
