from pathlib import Path
from uuid import uuid4

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT, call, code_of, publish


@pytest.mark.parametrize("path", ["//api/2.4/serverInfo", "///api/3.27/serverinfo"])
def test_addresses_that_end_with_a_slash(shared_sandbox: Sandbox, path: str):
    # Prevents: a client whose user ends the address of the server with a slash finds no server.
    answer = requests.get(shared_sandbox.url + path, timeout=TIMEOUT)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("method", "path", "since"),
    [
        ("POST", "auth/switchSite", "2.6"),
        ("GET", "sites/{site}/jobs", "2.6"),
        ("PUT", "sites/{site}/jobs/x", "3.1"),
        ("GET", "sites/{site}/flows", "3.3"),
        ("GET", "sites/{site}/tasks/extractRefreshes", "2.6"),
        ("POST", "sites/{site}/datasources/x/refresh", "2.8"),
        ("GET", "sites/{site}/datasources/x/revisions", "2.3"),
        ("DELETE", "sites/{site}/datasources/x/revisions/1", "2.3"),
        ("PUT", "sites/{site}/datasources/x/connections/y", "2.3"),
        ("PUT", "sites/{site}/datasources/x/connections", "3.26"),
        ("PATCH", "sites/{site}/datasources/x/data", "3.12"),
        ("PATCH", "sites/{site}/datasources/x/connections/y/data", "3.12"),
    ],
)
def test_methods_of_older_versions(
    shared_sandbox: Sandbox, shared_server: tsc.Server, method: str, path: str, since: str
):
    # Prevents: a client calls a method in a version of the API that does not have it.
    major, minor = since.split(".")
    before = f"{major}.{int(minor) - 1}"
    path = path.replace("{site}", str(shared_server.site_id))
    headers = {"X-Tableau-Auth": str(shared_server.auth_token)}

    def code(version: str) -> str:
        url = f"{shared_sandbox.url}/api/{version}/{path}"
        answer = requests.request(method, url, headers=headers, timeout=TIMEOUT)
        return "200" if answer.ok else code_of(answer)

    assert code(before) in ("404003", "405000")
    assert code(since) not in ("404003", "405000")


@pytest.mark.parametrize(
    "query",
    [
        *("name:has:x", "name:gt:x", "name:cieq:x", "type:in:[hyper]", "tags:has:x"),
        *("ownerName:gt:x", "hasExtracts:in:[true]", "isCertified:eq:perhaps"),
        *("size:has:1", "size:eq:small", "updatedAt:in:[2020-01-01T00:00:00Z]", "description:lt:x"),
    ],
)
def test_operators_of_other_fields(shared_sandbox: Sandbox, shared_server: tsc.Server, query: str):
    # Prevents: a filter works in tests whose operator real servers do not know for its field.
    path = f"sites/{{site}}/datasources?filter={query}"
    assert code_of(call(shared_sandbox, "GET", path, server=shared_server)) == "400065"


def test_filters_of_data_sources(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a filter that real servers know is refused, or chooses others.
    item = publish(server, one_row)
    item.description = "about"
    server.datasources.update(item)
    publish(server, one_row, name="Other")

    def names(query: str) -> list[str | None]:
        path = f"sites/{{site}}/datasources?filter={query}"
        answer = call(sandbox, "GET", path, server=server)
        assert answer.status_code == 200, answer.text
        found = tsc.DatasourceItem.from_response(answer.content, server.namespace)
        return sorted(str(found.name) for found in found)

    assert names("name:in:[Flights,Nothing]") == ["Flights"]
    assert names("description:eq:about") == ["Flights"]
    assert names("connectionType:in:[hyper],isPublished:eq:TRUE") == ["Flights", "Other"]
    assert names("size:gte:1,type:eq:hyper") == ["Flights", "Other"]
    assert names("hasExtracts:eq:True") == []


def test_chosen_fields(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a client relies on what a real server would not send, as it did not ask for it.
    publish(server, one_row)
    accept = {"Accept": "application/json"}

    def item(fields: str) -> dict:
        path = f"sites/{{site}}/datasources?fields={fields}"
        answer = call(sandbox, "GET", path, server=server, headers=accept)
        return answer.json()["datasources"]["datasource"][0]

    assert item("name,datasource.type") == {"name": "Flights", "type": "hyper"}
    assert item("name,project.name") == {"name": "Flights", "project": {"name": "Default"}}
    assert item("_all_") == item("_default_,name") == item("")
    assert set(item("_all_")) >= {"id", "tags", "owner", "isPublished"}


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("datasources", "nme"),
        ("datasources", "name,workbook.name"),
        ("projects", "color"),
        ("users", "_al_"),
        ("jobs", "datasource.id"),
    ],
)
def test_unknown_fields(shared_sandbox: Sandbox, shared_server: tsc.Server, what: str, fields: str):
    # Prevents: a misspelt field is passed over in silence.
    path = f"sites/{{site}}/{what}?fields={fields}"
    assert code_of(call(shared_sandbox, "GET", path, server=shared_server)) == "400065"


def test_five_thousand_terms(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a condition that the grammar allows does not fit into a request.
    item = publish(server, one_row)
    term = {"op": "eq", "target-col": "ä" * 255, "const": {"type": "string", "v": "x" * 500}}
    condition = {"op": "or", "args": [term] * 5_000}
    action = {"action": "delete", "target-table": "Extract", "condition": condition}
    path = f"sites/{{site}}/datasources/{item.id}/data"
    headers = {"RequestID": str(uuid4())}
    body = {"actions": [action]}
    answer = call(sandbox, "PATCH", path, server=server, headers=headers, json=body)
    assert answer.status_code == 202, answer.text


def test_other_sites(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a session reads the settings of a site to which it does not belong.
    listed = call(sandbox, "GET", "sites", server=server, headers={"Accept": "application/json"})
    ids = {site["contentUrl"]: site["id"] for site in listed.json()["sites"]["site"]}
    assert call(sandbox, "GET", f"sites/{ids['']}", server=server).status_code == 200
    for path in (f"sites/{ids['second']}", "sites/second?key=contentUrl"):
        assert code_of(call(sandbox, "GET", path, server=server)) == "403004"
