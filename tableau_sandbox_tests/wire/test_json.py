import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import requests
import tableauserverclient as tsc
from hypothesis import given
from hypothesis import strategies as st

from tableau_sandbox.rest.json_requests import request_tree
from tableau_sandbox.rest.requests import parse_request
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    default_project,
    multipart,
    publish,
    rows_on_server,
    wrapped_extract,
)

JSON = {"Content-Type": "application/json", "Accept": "application/json"}
PASSWORD = {"name": "admin", "password": "admin"}
ACCESS_TOKEN = {
    "personalAccessTokenName": Sandbox.token_name,
    "personalAccessTokenSecret": Sandbox.token_secret,
}


class JsonClient:
    """A client that writes and reads JSON only."""

    def __init__(self, sandbox: Sandbox, server: tsc.Server):
        self._sandbox, self._server = sandbox, server

    def send(self, method: str, path: str, body: object) -> Any:
        content = json.dumps(body)
        answer = call(self._sandbox, method, path, server=self._server, headers=JSON, data=content)
        assert answer.status_code < 300, answer.text
        return answer.json()


@pytest.fixture
def client(sandbox: Sandbox, server: tsc.Server) -> JsonClient:
    return JsonClient(sandbox, server)


@pytest.mark.parametrize(
    "credentials",
    [
        {**PASSWORD, "site": {"contentUrl": ""}},
        {**ACCESS_TOKEN, "site": {"contentUrl": ""}},
        {**PASSWORD, "site": {"contentUrl": ""}, "user": {"id": None}},
        {**PASSWORD, "isUat": False, "jwt": None, "site": None},
    ],
)
def test_sign_in(sandbox: Sandbox, credentials: dict[str, Any]):
    # Prevents: clients that speak JSON cannot even sign in.
    body = json.dumps({"credentials": credentials})
    # Without a content type, as some clients send it.
    answer = call(sandbox, "POST", "auth/signin", data=body, headers={"Accept": JSON["Accept"]})
    assert answer.status_code == 200, answer.text
    token = answer.json()["credentials"]["token"]
    listed = call(sandbox, "GET", "sites", headers={"X-Tableau-Auth": token})
    assert listed.status_code == 200


def test_wrong_password(shared_sandbox: Sandbox):
    # Prevents: credentials in JSON are not checked.
    wrong = {"credentials": {"name": "admin", "password": "x", "site": {"contentUrl": ""}}}
    answer = call(shared_sandbox, "POST", "auth/signin", json=wrong)
    assert code_of(answer) == "401001"


def test_projects_and_data_sources(client: JsonClient, server: tsc.Server, one_row: Path):
    # Prevents: a request in JSON is refused, or changes something else than the same one in XML.
    made = client.send("POST", "sites/{site}/projects", {"project": {"name": "Made"}})
    project = made["project"]["id"]
    path = f"sites/{{site}}/projects/{project}"
    assert client.send("PUT", path, {"project": {}})["project"]["name"] == "Made"
    item = publish(server, one_row)
    path = f"sites/{{site}}/datasources/{item.id}"
    change = {"name": "New", "isCertified": True, "project": {"id": project}, "owner": None}
    assert client.send("PUT", path, {"datasource": change})["datasource"]["name"] == "New"
    tags = {"tags": {"tag": [{"label": "one"}, {"label": "two"}]}}
    client.send("PUT", f"{path}/tags", tags)
    after = server.datasources.get_by_id(item.id)
    assert (after.project_id, after.certified, after.tags) == (project, True, {"one", "two"})
    server.datasources.populate_connections(after)
    path = f"{path}/connections/{after.connections[0].id}"
    change = {"serverAddress": "db", "serverPort": 5432, "embedPassword": True}
    assert client.send("PUT", path, {"connection": change})["connection"]["serverPort"] == "5432"


@pytest.mark.parametrize("body", ["", "{}", "<tsRequest/>", '{"extractRefresh": {}}'])
def test_refresh(sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path, body: str):
    # Prevents: a refresh that asks for nothing particular is refused.
    item = publish(server, wrapped_extract(tmp_path / "p.tdsx", one_row))
    path = f"sites/{{site}}/datasources/{item.id}/refresh"
    assert call(sandbox, "POST", path, server=server, data=body).status_code == 202
    other = call(sandbox, "POST", path, server=server, data='{"refresh": {}}')
    assert code_of(other) == "400000"


def test_publish(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: the JSON part of a multipart request is refused, or half of it is overlooked.
    source = {
        "name": "Ä",
        "description": "from JSON",
        "useRemoteQueryAgent": False,
        "project": {"id": default_project(server)},
    }
    answer = published(sandbox, server, one_row, payload=json.dumps({"datasource": source}))
    assert answer.status_code == 201, answer.text
    (item,) = server.datasources.get()[0]
    assert (item.name, item.description) == ("Ä", "from JSON")
    assert rows_on_server(server, item.id) == [[1, "one"]]


def published(sandbox: Sandbox, server: tsc.Server, file: Path, payload: str) -> requests.Response:
    body, content_type = multipart(
        ("request_payload", "", payload), ("tableau_datasource", "x.hyper", file.read_bytes())
    )
    headers = {"Content-Type": content_type}
    path = "sites/{site}/datasources"
    return call(sandbox, "POST", path, server=server, data=body, headers=headers)


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "{}",
        '{"credentials": null}',
        '{"credentials": "admin"}',
        '{"credentials": []}',
        '{"credentials": [[]]}',
        '{"credentials": [null]}',
        '{"credentials": NaN}',
        '{"credentials": {"name": "admin", "name": "admin", "password": "admin"}}',
        '{"credentials": {"name": "admin", "password": "\\ud800"}}',
        '{"credentials": {"name": "admin", "password": "\\u0000"}}',
        '{"credentials": {"name": "admin", "password": "admin"}} x',
        '{"credentials":' * 100 + "1" + "}" * 100,
        '{"credentials":' * 50_000,
        '{"a":' + "[" * 100_000,
        '{"credentials": ' + "9" * 10_000 + "}",
    ],
)
def test_malformed_json(shared_sandbox: Sandbox, body: str):
    # Prevents: a body that is no request passes for one, or brings the sandbox down.
    assert code_of(call(shared_sandbox, "POST", "auth/signin", data=body)) == "400000"


def test_queries_nested_too_deeply(shared_sandbox: Sandbox, shared_server: tsc.Server):
    # Prevents: a query of metadata brings the sandbox down.
    url = f"{shared_sandbox.url}/api/metadata/graphql"
    headers = {"X-Tableau-Auth": shared_server.auth_token}
    answer = requests.post(url, '{"query":' * 50_000, headers=headers, timeout=30)
    assert code_of(answer) == "400000"


Node = tuple[dict[str, Any], dict[str, Any]]
VALUES = st.text("aZ09 <>&\"'{}[]:,\\/äß中😀") | st.integers() | st.booleans()
ATTRIBUTES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def nodes(children: st.SearchStrategy) -> st.SearchStrategy:
    """Attributes, and lists of children by their names, which differ from those of attributes."""
    lists = st.lists(children, min_size=1, max_size=3)
    return st.tuples(ATTRIBUTES, st.dictionaries(st.sampled_from("xyz"), lists, max_size=3))


@given(
    node=st.recursive(st.tuples(ATTRIBUTES, st.just({})), nodes, max_leaves=8), single=st.booleans()
)
def test_same_tree_as_from_xml(node: Node, single: bool):
    # Prevents: a handler has to know in which format its request came, or gets it wrong.
    xml = b"<tsRequest>" + ElementTree.tostring(xml_of("item", node), "utf-8") + b"</tsRequest>"
    # The declaration stands before the root.
    xml = xml.replace(b"<?xml version='1.0' encoding='utf-8'?>\n", b"")
    text = json.dumps({"item": json_of(node, single=single)})
    expected = plain(parse_request(xml, "item"))
    assert plain(parse_request(text.encode(), "item")) == expected
    (item,) = request_tree(text.encode())
    assert plain(item) == expected


def xml_of(name: str, node: Node) -> ElementTree.Element:
    attributes, lists = node
    element = ElementTree.Element(name, {key: written(value) for key, value in attributes.items()})
    for child, items in lists.items():
        element.extend(xml_of(child, item) for item in items)
    return element


def json_of(node: Node, *, single: bool) -> dict[str, Any]:
    """An element that stands alone may be a list of one, or itself."""
    attributes, lists = node
    fields = dict(attributes)
    for child, items in lists.items():
        values = [json_of(item, single=single) for item in items]
        fields[child] = values[0] if single and len(values) == 1 else values
    return fields


def written(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(element: ElementTree.Element) -> tuple:
    return element.tag, element.attrib, [plain(child) for child in element]
