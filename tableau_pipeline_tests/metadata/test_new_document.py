"""The `.tds` that the pipeline makes for a `.hyper` file."""

import json
import zipfile
from pathlib import Path

import pytest
from lxml import etree

from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.metadata.columns import TypesByTable
from tableau_pipeline.metadata.contents import read_metadata
from tableau_pipeline.metadata.merge import Values
from tableau_pipeline.metadata.new_document import new_tds
from tableau_pipeline.metadata.tds import Tds, pack
from tableau_pipeline_tests.metadata.shapes import by_a_server
from tableau_pipeline_tests.metadata.test_editing import SCHEMA, canonical

TABLES: TypesByTable = {
    "orders": [("id", "BIGINT"), ("customer", "BIGINT"), ("ID (a]b)", "TEXT"), ("day", "DATE")],
    "a]b": [("ID", "BIGINT"), ("day", "TIMESTAMP"), ("name & <co>", "VARCHAR(9)")],
    "days": [("day", "DATE"), ("customer", "BIGINT"), ("price", "NUMERIC(10,2)")],
}
EDGES = [
    Relationship("orders", "a]b", (("customer", "ID"),)),
    Relationship("orders", "days", (("day", "day"), ("customer", "customer"))),
]
STAR = new_tds(TABLES, EDGES, extract_path="Data/Extracts/Shop.hyper")
ALONE: TypesByTable = {"Extract": [("n", "INTEGER"), ("ok", "BOOLEAN")]}


def test_what_it_says():
    """Prevents: Tableau refuses the package, or joins tables by the wrong columns."""
    root = etree.fromstring(STAR)
    ids = [each.get("id", "") for each in root.iter("object")]
    assert [each.partition("_")[0] for each in ids] == [
        "orders (Extract.orders)", "a]b (Extract.a]b)", "days (Extract.days)",
    ]  # fmt: skip
    keys = {each.get("key"): each.get("value") for each in root.iter("map")}
    assert keys["[ID (a]]b)]"] == "[orders].[ID (a]]b)]"
    assert keys["[ID (a]]b) 1]"] == "[a]]b].[ID]", "in Tableau, id and ID are the same"
    assert keys["[day (days)]"] == "[days].[day]"
    assert [*keys] == sorted(keys)
    assert len(keys) == 10
    edges = [
        (
            [each.get("op") for each in edge.iter("expression")],
            edge[-2].get("object-id"),
            edge[-1].get("object-id"),
        )
        for edge in root.iter("relationship")
    ]
    assert edges == [
        (["=", "[customer]", "[ID (a]]b) 1]"], ids[0], ids[1]),
        (
            ["AND", "=", "[day]", "[day (days)]", "=", "[customer]", "[customer (days)]"],
            ids[0],
            ids[2],
        ),
    ]
    tags = [each.tag for each in root]
    assert sorted(tags, key=SCHEMA.index) == tags
    assert new_tds(TABLES, EDGES, extract_path="Data/Extracts/Shop.hyper") == STAR


def test_types():
    """Prevents: a field and its column have different types, and Tableau cannot read the column."""
    found = {
        each.findtext("remote-name"): [each.findtext(tag) for tag in ("remote-type", "local-type")]
        + [each.findtext(tag) for tag in ("aggregation", "precision", "scale", "width")]
        + [each.find("collation") is not None]
        for each in etree.fromstring(STAR).iter("metadata-record")
    }
    none = [None] * 3
    assert found["id"] == ["20", "integer", "Sum", *none, False]
    assert found["ID (a]b)"] == ["129", "string", "Count", *none, True]
    assert found["name & <co>"] == ["129", "string", "Count", None, None, "9", True]
    assert found["price"] == ["131", "real", "Sum", "10", "2", None, False]
    assert [found["day"][:3], found["customer"][:2]] == [["133", "date", "Year"], ["20", "integer"]]


@pytest.mark.parametrize("tables", [TABLES, ALONE], ids=["star", "alone"])
def test_declared_metadata_can_be_set(tables: TypesByTable):
    """Prevents: the pipeline cannot merge metadata into a `.tds` that it has made itself."""
    content = new_tds(tables, EDGES if tables is TABLES else [])
    found = read_metadata(content)
    assert found.columns == {(table, name) for table in tables for name, _ in tables[table]}
    assert (found.work, found.source) == ({}, None)
    assert Tds(content).edited({}, tables) == content
    assert read_metadata(by_a_server(content)).digest == found.digest
    table, ((column, _), (other, _), *_) = next(iter(tables.items()))
    prefix = f"{table}." if tables is TABLES else ""
    want: Values = {
        ("field", table, column, "caption"): "Ours",
        ("field", table, other, "folder"): "Folder",
        ("calculation", "Twice", "caption"): "Twice",
        ("calculation", "Twice", "type"): "real",
        ("calculation", "Twice", "formula"): f"2 * [{prefix}{column}]",
        ("hierarchy", "Both", "fields"): json.dumps([f"{prefix}{other}", "Twice"]),
    }
    edited = Tds(content).edited(dict(want), tables)
    values = Tds(by_a_server(edited)).values(want, [want])
    assert {path: values.get(path) for path in want} == want
    more = {**tables, table: [*tables[table], ("new", "TEXT")]}
    assert (table, "new") in (read_metadata(Tds(edited).edited({}, more)).columns or ())
    taken_back = Tds(edited).edited(dict.fromkeys(want), tables)
    without = etree.fromstring(taken_back)
    for column in without.findall("column"):
        if column.get("datatype") != "table":
            without.remove(column)
    assert canonical(without) == canonical(content)


def test_its_package(tmp_path: Path):
    """Prevents: the server does not find the rows in the package."""
    hyper = tmp_path / "x.hyper"
    hyper.write_bytes(b"rows")
    pack(STAR, hyper, tmp_path / "x.tdsx")
    with zipfile.ZipFile(tmp_path / "x.tdsx") as package:
        assert package.read("Data/Extracts/Shop.hyper") == b"rows"
        assert package.read("Shop.tds") == STAR


def test_a_name_that_xml_cannot_hold():
    """Prevents: the pipeline makes a package that no server can read."""
    with pytest.raises(ValueError, match="XML"):
        new_tds({"Extract": [("a\x00b", "TEXT")]}, [])
