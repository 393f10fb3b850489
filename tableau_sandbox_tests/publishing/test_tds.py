from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import tableauserverclient as tsc

from tableau_pipeline.publishing.tds import read_metadata
from tableau_sandbox_tests.publishing.test_rules import STAR
from tableau_sandbox_tests.samples import execute, publish, tds_of


def test_single_table(server: tsc.Server, tmp_path: Path):
    # Prevents: the model of a data source misses columns, or mistakes their types.
    file = execute(
        tmp_path / "types.hyper",
        'CREATE TABLE "Extract"."Extract" ("a b" INT NOT NULL, "<&>" NUMERIC(18, 2), t TEXT,'
        " d DATE, ts TIMESTAMPTZ, x DOUBLE PRECISION, f BOOL, bin BYTES, geo GEOGRAPHY,"
        " big BIGINT, small SMALLINT)",
    )
    published = publish(server, file, name="All <types>")
    root = ElementTree.fromstring(tds_of(server, published.id, tmp_path))
    assert (root.tag, root.get("version")) == ("datasource", "18.1")
    connection = root.find(".//named-connection/connection")
    assert connection is not None
    assert connection.get("class") == "hyper"
    assert connection.get("dbname") == "Data/Extracts/All _types_.hyper"
    records = [
        tuple(record.findtext(tag) for tag in ("local-name", "local-type", "contains-null"))
        for record in root.iter("metadata-record")
    ]
    assert records == [
        ("[a b]", "integer", "false"),
        ("[<&>]", "real", "true"),
        ("[t]", "string", "true"),
        ("[d]", "date", "true"),
        ("[ts]", "datetime", "true"),
        ("[x]", "real", "true"),
        ("[f]", "boolean", "true"),
        ("[bin]", "string", "true"),
        ("[geo]", "spatial", "true"),
        ("[big]", "integer", "true"),
        ("[small]", "integer", "true"),
    ]


def test_star(server: tsc.Server, tmp_path: Path):
    # Prevents: the tables of a star come without their relationships, or with ambiguous columns.
    published = publish(server, execute(tmp_path / "star.hyper", *STAR))
    root = ElementTree.fromstring(tds_of(server, published.id, tmp_path))
    tables = [node.get("table") for node in root.findall("./connection/relation/relation")]
    assert tables == ["[Extract].[a]", "[Extract].[b]", "[Extract].[fact]"]
    names = [node.get("key") for node in root.iter("map")]
    assert len(set(names)) == len(names) == 7
    pairs = [
        [part.get("op") for part in node.findall("./expression/expression")]
        for node in root.iter("relationship")
    ]
    assert pairs == [["[a (fact)]", "[id]"], ["[b (fact)]", "[id (b)]"]]


def test_names_that_other_columns_have(server: tsc.Server, tmp_path: Path):
    # Prevents: two columns get one name, of which Tableau shows either.
    keys = 'ALTER TABLE "Extract".%s ADD ASSUMED PRIMARY KEY (id)'
    file = execute(
        tmp_path / "equal.hyper",
        'CREATE TABLE "Extract".a (id INT NOT NULL, "id (b)" INT, "id (b) 1" INT)',
        'CREATE TABLE "Extract".b (id INT NOT NULL)',
        keys % "b",
        'ALTER TABLE "Extract".a ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract".b (id)',
    )
    root = ElementTree.fromstring(tds_of(server, publish(server, file).id, tmp_path))
    names = [node.get("key") for node in root.iter("map")]
    assert names == ["[id]", "[id (b)]", "[id (b) 1]", "[id (b) 2]"]


def test_each_table_is_an_object(server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: a client counts rows by an object, or a column of it, that only stars have here."""
    star = execute(tmp_path / "star.hyper", *STAR)
    for file, tables in ((one_row, ["Extract"]), (star, ["a", "b", "fact"])):
        published = publish(server, file, name=file.stem)
        root = ElementTree.fromstring(tds_of(server, published.id, tmp_path))
        objects = root.findall("./object-graph/objects/object")
        assert [each.get("caption") for each in objects] == tables
        counts = root.findall("./column[@datatype='table']")
        assert [each.get("name") for each in counts] == [
            f"[__tableau_internal_object_id__].[{each.get('id')}]" for each in objects
        ]
        assert {each.get("aggregation") for each in counts} == {"Count"}
        assert (
            read_metadata(_saved(root, tmp_path)).digest
            == read_metadata(_saved(_without_ids(root), tmp_path)).digest
        )


def test_brackets_in_names(server: tsc.Server, tmp_path: Path):
    """Prevents: a bracket in a name ends it, and a client takes the rest for something else."""
    file = execute(tmp_path / "odd.hyper", 'CREATE TABLE "Extract"."t]" ("a]b" INT)')
    root = ElementTree.fromstring(tds_of(server, publish(server, file).id, tmp_path))
    assert [node.get("key") for node in root.iter("map")] == ["[a]]b]"]
    assert [node.get("value") for node in root.iter("map")] == ["[t]]].[a]]b]"]
    assert [node.get("table") for node in root.iter("relation")] == ["[Extract].[t]]]"] * 2


def _saved(root: Element, folder: Path) -> Path:
    path = folder / "saved.tds"
    path.write_bytes(ElementTree.tostring(root))
    return path


def _without_ids(root: Element) -> Element:
    """The same as another publish would write it: with other identifiers of its tables."""
    text = ElementTree.tostring(root, "unicode")
    for each in root.findall("./object-graph/objects/object"):
        text = text.replace(each.get("id", ""), f"{each.get('caption')}_0")
    return ElementTree.fromstring(text)
