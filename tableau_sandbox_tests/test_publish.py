"""Publishing: modes, names, uploads in blocks, and the content of files."""

import zipfile
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
import tableauserverclient as tsc

from tableau_sandbox.content.hyper_file import read_hyper_file
from tableau_sandbox.content.uploaded import NotPublishableError, check_bare_file
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    default_project,
    execute,
    publish,
    rows_on_server,
    send_parts,
    tds_of,
    write_hyper,
    write_package,
)
from tableau_sandbox_tests.test_updates import CLEAR, update

ONE = [1, "one"]


@pytest.mark.parametrize("replace", ["keeps-metadata", "like-overwrite"])
def test_replace(new_server: NewServer, tmp_path: Path, one_row: Path, replace: str):
    # Prevents: a refresh drops calculated fields of analysts, or tests of a pipeline cover only one
    # meaning of Replace.
    _, server = new_server(replace=replace)
    more = write_hyper(tmp_path / "more.hyper", "SELECT 1 AS id, 'one' AS name, 2 AS extra")
    first = publish(server, one_row)
    metadata = tds_of(server, first.id, tmp_path)
    publish(server, more, mode="Replace")
    assert rows_on_server(server, first.id) == [[1, "one", 2]]
    assert (tds_of(server, first.id, tmp_path) == metadata) == (replace == "keeps-metadata")
    publish(server, more, mode="Overwrite")
    assert "extra" in tds_of(server, first.id, tmp_path)


def test_any_name_is_only_a_name(server: tsc.Server, sandbox: Sandbox, one_row: Path):
    # Prevents: a name leads out of the data directory, or breaks XML, headers or packages.
    for name in ("../../escape", "a/b\\c", "Ünï ço∂é", "q\"uo'te<&>", "x" * 255, "..", "%2F"):
        published = publish(server, one_row, name=name)
        assert server.datasources.get_by_id(published.id).name == name
        assert rows_on_server(server, published.id) == [ONE]
        assert sandbox.hyper_file(published.id).parent == sandbox.data_dir / "content"
    assert {path.name for path in sandbox.data_dir.parent.iterdir()} == {"sandbox"}


def test_replace_may_be_refused(new_server: NewServer, one_row: Path, two_rows: Path):
    # Prevents: a pipeline cannot publish on servers that do not know mode Replace.
    sandbox, server = new_server(replace="refused")
    item = publish(server, one_row)
    for as_job in (False, True):
        again = tsc.DatasourceItem(default_project(server), name="Flights")
        with pytest.raises(tsc.ServerResponseError, match="400000"):
            server.datasources.publish(again, two_rows, "Replace", as_job=as_job)
    assert list(server.jobs.filter()) == []
    assert rows_on_server(server, item.id) == [ONE]
    # The upload can be used again after the refusal.
    upload = server.fileuploads.upload(str(two_rows))
    request = ("request_payload", "", '<tsRequest><datasource name="Flights"/></tsRequest>')
    for mode, status in (("replace", 400), ("overwrite", 201)):
        query = f"uploadSessionId={upload}&datasourceType=hyper&{mode}=true"
        path = f"sites/{{site}}/datasources?{query}"
        answer = send_parts(sandbox, server, "POST", path, request)
        assert answer.status_code == status, answer.text


def test_renamed_and_moved(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a refused change takes effect in part, a move makes two equal names, or a job shows
    # the former name.
    other = server.projects.create(tsc.ProjectItem("Other"))
    item, taken = publish(server, one_row), publish(server, one_row, name="Taken")
    path = f"sites/{{site}}/datasources/{item.id}"

    def put(name: str, project: str | None = item.project_id) -> str:
        body = f'<datasource name="{name}"><project id="{project}"/></datasource>'
        body = f"<tsRequest>{body}</tsRequest>"
        answer = call(sandbox, "PUT", path, server=server, data=body)
        return "" if answer.ok else code_of(answer)

    assert put("Renamed", "nowhere") == "404005"
    assert server.datasources.get_by_id(item.id).name == "Flights"
    # A data source may change the case of its name, or take a name that another project has.
    assert [put("FLIGHTS"), put("Taken", other.id), put("Taken", taken.project_id)] == [
        *("", "", "409015")
    ]
    found = server.datasources.get_by_id(item.id)
    assert (found.name, found.project_name) == ("Taken", "Other")
    job = update(server, item, CLEAR)
    sandbox.wait_until_idle()
    assert [job.title for job in server.jobs.filter()] == ["Taken"]
    assert server.jobs.get_by_id(job.id).datasource_name == "Taken"


NO_PAYLOAD = ("request_payload", "", "")
UPLOADED = '<tsRequest><datasource name="Uploaded"/></tsRequest>'


def append(sandbox: Sandbox, server: tsc.Server, upload: str, *parts: tuple[str, str, str | bytes]):
    return send_parts(sandbox, server, "PUT", f"sites/{{site}}/fileUploads/{upload}", *parts)


def append_block(
    sandbox: Sandbox, server: tsc.Server, upload: str, block: bytes, *, number: int | None = None
):
    query = "" if number is None else f"?sequenceID={number}"
    part = ("tableau_file", "file", block)
    return append(sandbox, server, f"{upload}{query}", NO_PAYLOAD, part)


def publish_upload(
    sandbox: Sandbox, server: tsc.Server, upload: str, more: str = "&overwrite=true"
):
    path = f"sites/{{site}}/datasources?uploadSessionId={upload}&datasourceType=hyper{more}"
    return send_parts(sandbox, server, "POST", path, ("request_payload", "", UPLOADED))


def test_a_file_has_a_bounded_number_of_blocks(new_server: NewServer, one_row: Path):
    # Prevents: a client that sends too many blocks fails only in production.
    sandbox, server = new_server(upload_blocks=3)
    upload, content = server.fileuploads.initiate(), one_row.read_bytes()
    for block in (content[:1000], content[1000:30000], content[30000:]):
        assert append_block(sandbox, server, upload, block).status_code == 200
    for number in (None, 4):
        assert code_of(append_block(sandbox, server, upload, b"x", number=number)) == "400016"
    assert publish_upload(sandbox, server, upload).status_code == 201
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == [[1, "one"]]


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
    # Prevents: the sandbox refuses a valid tree of tables.
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
    # Prevents: the sandbox publishes tables that servers cannot relate.
    content = read_hyper_file(execute(tmp_path / "other.hyper", *statements))
    with pytest.raises(NotPublishableError, match=reason):
        check_bare_file(content)


def test_uploaded_package_is_served_back(server: tsc.Server, tmp_path: Path):
    """Prevents: the sandbox replaces the model of a package, or requires related tables."""
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
    assert rows_on_server(server, published.id, '"Extract".b') == []
    assert "<column caption='My calculation' name='[c]'/>" in tds_of(server, published.id, tmp_path)
    downloaded = server.datasources.download(published.id, str(tmp_path / "again"))
    assert zipfile.ZipFile(downloaded).namelist() == ["Flights.tds", "Data/Extracts/data.hyper"]


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
    shared_server: tsc.Server, tmp_path: Path, members: dict[str, str], reason: str
):
    """Prevents: the sandbox publishes a package that has no data or no model."""
    with pytest.raises(tsc.ServerResponseError, match=rf"400011.*\n.*{reason}"):
        publish(shared_server, write_package(tmp_path / "p.tdsx", members))


def test_names_that_belie_the_type(
    shared_sandbox: Sandbox, shared_server: tsc.Server, one_row: Path
):
    """Prevents: the sandbox publishes a file whose name contradicts its type; servers do not."""
    request = ("request_payload", "", '<tsRequest><datasource name="Claimed"/></tsRequest>')
    for filename, query in (
        *(("x.tdsx", "&datasourceType=hyper"), ("x.hyper", "&datasourceType=tdsx")),
        *(("x", "&datasourceType=hyper"), ("x.csv", "&datasourceType=hyper")),
        *(("x.hyper", "&datasourceType="), ("x", "")),
    ):
        path = f"sites/{{site}}/datasources?overwrite=true{query}"
        file = ("tableau_datasource", filename, one_row.read_bytes())
        answer = send_parts(shared_sandbox, shared_server, "POST", path, request, file)
        assert code_of(answer) == "400010", filename


def model_of(server: tsc.Server, folder: Path, *statements: str) -> Element:
    """Publish a file with these tables, and return the model that the sandbox makes."""
    file = execute(folder / "file.hyper", *statements)
    published = publish(server, file, name="All <types>", mode="Overwrite")
    return ElementTree.fromstring(tds_of(server, published.id, folder))


def test_single_table(shared_server: tsc.Server, tmp_path: Path):
    """Prevents: the model of a data source misses columns, or has wrong types."""
    types = {"INT NOT NULL": "integer", "BIGINT": "integer", "SMALLINT": "integer"}
    types |= {"NUMERIC(18, 2)": "real", "DOUBLE PRECISION": "real", "BOOL": "boolean"}
    types |= {"TEXT": "string", "BYTES": "string", "GEOGRAPHY": "spatial"}
    types |= {"DATE": "date", "TIMESTAMPTZ": "datetime"}
    columns = ", ".join(f'"<&> {sql}" {sql}' for sql in types)
    root = model_of(shared_server, tmp_path, f'CREATE TABLE "Extract"."Extract" ({columns})')
    assert (root.tag, root.get("version")) == ("datasource", "18.1")
    connection = root.find(".//named-connection/connection[@class='hyper']")
    assert connection.get("dbname") == "Data/Extracts/All _types_.hyper"
    records = [
        tuple(record.findtext(tag) for tag in ("local-name", "local-type", "contains-null"))
        for record in root.iter("metadata-record")
    ]
    assert records == [
        (f"[<&> {sql}]", type_, "false" if "NOT NULL" in sql else "true")
        for sql, type_ in types.items()
    ]


def test_parts_of_a_model(shared_server: tsc.Server, tmp_path: Path):
    """Prevents: the models of the sandbox lack parts that models of real servers have."""
    root = model_of(shared_server, tmp_path, 'CREATE TABLE "Extract"."Orders" (name TEXT, id INT)')
    assert [each.tag for each in root] == [
        *("document-format-change-manifest", "repository-location", "connection", "aliases"),
        *("column", "layout", "semantic-values", "object-graph"),
    ]
    connection = root.find(".//named-connection/connection").attrib
    assert (connection["schema"], connection["tablename"]) == ("Extract", "Orders")
    assert {"author-locale", "sslmode", "authentication"} <= connection.keys()
    first, second = ([each.tag for each in record] for record in root.iter("metadata-record"))
    assert first[-4:] == ["approx-count", "contains-null", "collation", "object-id"]
    assert second == [tag for tag in first if tag != "collation"]
    column, table = root.find("column"), root.find("object-graph/objects/object")
    assert column.get("name") == f"[__tableau_internal_object_id__].[{table.get('id')}]"


def test_star(shared_server: tsc.Server, tmp_path: Path):
    """Prevents: the model of a star has no relationships, or gives two columns one name."""
    root = model_of(shared_server, tmp_path, *STAR)
    tables = [node.get("table") for node in root.findall("./connection/relation/relation")]
    assert tables == ["[Extract].[a]", "[Extract].[b]", "[Extract].[fact]"]
    names = [node.get("key") for node in root.iter("map")]
    assert len(set(names)) == len(names) == 7
    pairs = [
        [part.get("op") for part in node.findall("./expression/expression")]
        for node in root.iter("relationship")
    ]
    assert pairs == [["[a (fact)]", "[id]"], ["[b (fact)]", "[id (b)]"]]
    only_id = 'CREATE TABLE "Extract".b (id INT NOT NULL, ASSUMED PRIMARY KEY (id))'
    taken = 'CREATE TABLE "Extract".a (id INT NOT NULL, "id (b)" INT, "id (b) 1" INT)'
    root = model_of(shared_server, tmp_path, taken, only_id, key("a", "id", "b"))
    names = [node.get("key") for node in root.iter("map")]
    assert names == ["[id (b) 1]", "[id (b) 2]", "[id (b)]", "[id]"]


def test_names_in_another_case(shared_server: tsc.Server, tmp_path: Path):
    """Prevents: two fields get names that differ only in case, which Tableau ignores."""
    root = model_of(
        shared_server,
        tmp_path,
        'CREATE TABLE "Extract".a ("Name" TEXT, id INT NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract".b (name TEXT, "ID" INT NOT NULL)',
        key("b", '"ID"', "a"),
    )
    names = {node.get("value"): node.get("key") for node in root.iter("map")}
    assert names == {
        "[a].[Name]": "[Name]",
        "[a].[id]": "[id]",
        "[b].[name]": "[name (b)]",
        "[b].[ID]": "[ID (b)]",
    }
