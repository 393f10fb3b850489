"""What a published file may hold, and the model that the sandbox makes of it."""

import zipfile
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
import tableauserverclient as tsc

from tableau_sandbox.content.hyper_file import read_hyper_file
from tableau_sandbox.content.uploaded import NotPublishableError, check_bare_file
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    code_of,
    execute,
    publish,
    rows_on_server,
    send_parts,
    tds_of,
    write_package,
)
from tableau_sandbox_tests.updates.test_update_data import CLEAR, JobFailed, finished, update

FACT = 'CREATE TABLE "Extract".fact (a INT, b INT, c INT)'
A = 'CREATE TABLE "Extract".a (id INT NOT NULL, b INT, ASSUMED PRIMARY KEY (id))'
B = 'CREATE TABLE "Extract".b (id INT NOT NULL, a INT, ASSUMED PRIMARY KEY (id))'


def key(child: str, column: str, parent: str) -> str:
    return (
        f'ALTER TABLE "Extract".{child} ADD ASSUMED FOREIGN KEY ({column})'
        f' REFERENCES "Extract".{parent} (id)'
    )


STAR = (FACT, A, B, key("fact", "a", "a"), key("fact", "b", "b"))
SNOWFLAKE = (FACT, A, B, key("fact", "a", "a"), key("a", "b", "b"))


def test_snowflake_is_accepted(tmp_path: Path):
    # Prevents: a sound tree of tables is refused.
    content = read_hyper_file(execute(tmp_path / "tree.hyper", *SNOWFLAKE))
    check_bare_file(content)
    assert len(content.foreign_keys) == 2


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ((FACT, A, B, key("fact", "a", "a")), r'contains 2: "Extract"."b", "Extract"."fact"'),
        ((A, B, key("a", "b", "b"), key("b", "a", "a")), "contains 0: none"),
        (
            (FACT, A, B, key("a", "b", "b"), key("b", "a", "a")),
            r'leads from "Extract"."fact" to "Extract"."a", "Extract"."b"',
        ),
        (
            (FACT, A, key("fact", "a", "a"), key("fact", "b", "a")),
            r'more than one leads to "Extract"."a"',
        ),
        ((*STAR, key("a", "b", "b")), r'more than one leads to "Extract"."b"'),
    ],
)
def test_other_shapes_are_refused(tmp_path: Path, statements: tuple[str, ...], reason: str):
    # Prevents: tables that servers cannot relate are published here.
    content = read_hyper_file(execute(tmp_path / "other.hyper", *statements))
    with pytest.raises(NotPublishableError, match=reason):
        check_bare_file(content)


def test_uploaded_package_is_served_back(server: tsc.Server, tmp_path: Path):
    """Prevents: the model of a package is replaced, or a package has to relate its tables."""
    tables = ('CREATE TABLE "Extract".a (id INT)', 'CREATE TABLE "Extract".b (id INT)')
    several = execute(tmp_path / "several.hyper", *tables)
    tds = (
        "<?xml version='1.0' encoding='utf-8' ?><datasource version='18.1'><connection"
        " class='federated'><named-connections><named-connection name='h'><connection"
        " class='hyper' dbname='Data/mine/data.hyper'/></named-connection></named-connections>"
        "</connection><column caption='My calculation' name='[c]'/></datasource>"
    )
    package = write_package(tmp_path / "p.tdsx", {"My.tds": tds, "Data/mine/data.hyper": several})
    published = publish(server, package)
    assert rows_on_server(server, published.id, 'SELECT * FROM "Extract".b') == []
    assert tds_of(server, published.id, tmp_path) == tds
    downloaded = server.datasources.download(published.id, str(tmp_path / "again"))
    assert zipfile.ZipFile(downloaded).namelist() == ["Flights.tds", "Data/mine/data.hyper"]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "holds 0 .tds files"),
        ({"a.tds": "<datasource/>"}, "holds 0 .hyper files"),
        ({"a.tds": "", "b.tds": "", "c.hyper": ""}, "holds 2 .tds files"),
        ({"a.tds": "<x/>", "b.hyper": ""}, "begins with 'x'"),
        ({"a.tds": "<datasource", "b.hyper": ""}, "not well-formed XML"),
        ({"a.tds": "<datasource/>", "b.hyper": ""}, "names no connection"),
    ],
)
def test_incomplete_package(
    server: tsc.Server, tmp_path: Path, members: dict[str, str], reason: str
):
    # Prevents: a package without data, or without a model, is published.
    with pytest.raises(tsc.ServerResponseError, match=rf"400011.*\n.*{reason}"):
        publish(server, write_package(tmp_path / "p.tdsx", members))


@pytest.mark.parametrize(
    ("filename", "query"),
    [
        ("x.tdsx", "&datasourceType=hyper"),
        ("x.hyper", "&datasourceType=tdsx"),
        ("x", "&datasourceType=hyper"),
        ("x.csv", "&datasourceType=hyper"),
        ("x.hyper", "&datasourceType="),
        ("x", ""),
    ],
)
def test_names_that_belie_the_type(
    shared_sandbox: Sandbox, shared_server: tsc.Server, one_row: Path, filename: str, query: str
):
    """Prevents: a file whose name and type contradict each other is published here only."""
    refused = publish_raw(
        shared_sandbox, shared_server, filename=filename, query=query, file=one_row
    )
    assert code_of(refused) == "400010"


def publish_raw(
    sandbox: Sandbox, server: tsc.Server, *, filename: str, file: Path, query: str = ""
):
    payload = '<tsRequest><datasource name="Claimed"/></tsRequest>'
    path = f"sites/{{site}}/datasources?overwrite=true{query}"
    parts = ("request_payload", "", payload), ("tableau_datasource", filename, file.read_bytes())
    return send_parts(sandbox, server, "POST", path, *parts)


LIVE = "<datasource><connection class='postgres' server='db' dbname='x'/></datasource>"


def test_model_alone(sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: a live data source cannot be published, or seems to hold data that it has not.
    file = tmp_path / "live.tds"
    file.write_text(LIVE, "utf-8")
    item = publish(server, file, name="Live")
    found = server.datasources.get_by_id(item.id)
    assert (found.datasource_type, found.has_extracts, found.size) == ("postgres", False, 0)
    downloaded = Path(server.datasources.download(item.id, str(tmp_path / "downloaded")))
    assert (downloaded.suffix, downloaded.read_text("utf-8")) == (".tds", LIVE)
    for mode, refused in {"Append": file, "Replace": one_row}.items():
        with pytest.raises(tsc.ServerResponseError, match=r"400011(.|\n)*no data of its own"):
            publish(server, refused, name="Live", mode=mode)
    with pytest.raises(tsc.ServerResponseError, match="409090"):
        server.datasources.refresh(item)
    with pytest.raises(JobFailed):
        finished(server, update(server, item, CLEAR))
    assert list((sandbox.data_dir / "content").iterdir()) == []
    # It becomes one with data, and back.
    publish(server, one_row, name="Live", mode="Overwrite")
    assert rows_on_server(server, item.id) == [[1, "one"]]
    publish(server, file, name="Live", mode="Overwrite")
    server.datasources.download_revision(item.id, "1", str(tmp_path / "first"))


def model_of(server: tsc.Server, folder: Path, *statements: str) -> Element:
    """The model that the sandbox makes of a file with these tables."""
    published = publish(server, execute(folder / "file.hyper", *statements), name="All <types>")
    return ElementTree.fromstring(tds_of(server, published.id, folder))


def test_single_table(server: tsc.Server, tmp_path: Path):
    # Prevents: the model of a data source misses columns, or mistakes their types.
    types = {
        "INT NOT NULL": "integer",
        "NUMERIC(18, 2)": "real",
        "TEXT": "string",
        "DATE": "date",
        "TIMESTAMPTZ": "datetime",
        "DOUBLE PRECISION": "real",
        "BOOL": "boolean",
        "BYTES": "string",
        "GEOGRAPHY": "spatial",
        "BIGINT": "integer",
        "SMALLINT": "integer",
    }
    columns = ", ".join(f'"<&> {sql}" {sql}' for sql in types)
    root = model_of(server, tmp_path, f'CREATE TABLE "Extract"."Extract" ({columns})')
    assert (root.tag, root.get("version")) == ("datasource", "18.1")
    connection = root.find(".//named-connection/connection[@class='hyper']")
    assert connection is not None
    assert connection.get("dbname") == "Data/Extracts/All _types_.hyper"
    records = [
        tuple(record.findtext(tag) for tag in ("local-name", "local-type", "contains-null"))
        for record in root.iter("metadata-record")
    ]
    assert records == [
        (f"[<&> {sql}]", type_, "false" if "NOT NULL" in sql else "true")
        for sql, type_ in types.items()
    ]


def test_star(server: tsc.Server, tmp_path: Path):
    # Prevents: the tables of a star come without their relationships, or with ambiguous columns.
    root = model_of(server, tmp_path, *STAR)
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
    root = model_of(
        server,
        tmp_path,
        'CREATE TABLE "Extract".a (id INT NOT NULL, "id (b)" INT, "id (b) 1" INT)',
        'CREATE TABLE "Extract".b (id INT NOT NULL, ASSUMED PRIMARY KEY (id))',
        key("a", "id", "b"),
    )
    names = [node.get("key") for node in root.iter("map")]
    assert names == ["[id]", "[id (b)]", "[id (b) 1]", "[id (b) 2]"]
