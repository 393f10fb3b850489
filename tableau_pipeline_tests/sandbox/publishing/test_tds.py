from pathlib import Path
from xml.etree import ElementTree

import tableauserverclient as tsc

from tableau_pipeline_tests.sandbox.publishing.test_rules import STAR
from tableau_pipeline_tests.sandbox.samples import execute, publish, tds_of


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
