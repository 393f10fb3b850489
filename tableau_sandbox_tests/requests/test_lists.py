import time

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import call, code_of


@pytest.fixture
def named(server: tsc.Server) -> tsc.Server:
    """A server with the projects P00 ... P11 beside "Default"."""
    for number in range(12):
        server.projects.create(tsc.ProjectItem(f"P{number:02}"))
    return server


def test_paging_filters_and_order(sandbox: Sandbox, named: tsc.Server):
    # Prevents: a client that walks over pages misses items or takes them twice.
    paged = tsc.Pager(named.projects, tsc.RequestOptions(pagesize=5))
    assert sorted(str(project.name) for project in paged)[1:] == [f"P{n:02}" for n in range(12)]

    def names(query: str) -> list[str | None]:
        response = call(sandbox, "GET", f"sites/{{site}}/projects?{query}", server=named)
        assert response.status_code == 200, response.text
        found = tsc.ProjectItem.from_response(response.content, named.namespace)
        return [project.name for project in found]

    assert names("pageSize=2&pageNumber=2&sort=name:desc") == ["P09", "P08"]
    assert names("filter=name:eq:p03") == ["P03"]
    assert names("filter=name:in:[P01,P02]&sort=name:asc") == ["P01", "P02"]
    assert names("filter=name:in:[P01,P02],name:eq:P02") == ["P02"]
    assert names("filter=name%3Ain%3A%5BP09%2CP10%5D%2Cname%3Aeq%3AP10") == ["P10"]
    assert names("filter=createdAt:lt:2001-01-01T00:00:00Z") == []
    assert names("filter=name:eq:Default,topLevelProject:eq:false&pageNumber=1") == []


def test_filters_of_any_length(shared_sandbox: Sandbox, shared_server: tsc.Server):
    # Prevents: one hostile filter keeps the sandbox busy, and all others waiting.
    started = time.monotonic()
    for text in (
        "," * 15_000,
        "[" * 15_000,
        "]," * 8_000,
        "[,]" * 5_000,
        "name:in:[" + "a," * 8_000,
    ):
        path = f"sites/{{site}}/datasources?filter={text}"
        assert code_of(call(shared_sandbox, "GET", path, server=shared_server)) == "400065"
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("pageSize=1001", "403014"),
        ("pageSize=0", "400007"),
        ("pageSize=many", "400007"),
        ("pageNumber=0", "400006"),
        ("pageNumber=2", "400006"),
        ("pageNumber=-1", "400006"),
        ("filter=projectId:eq:1", "400065"),
        ("filter=name:like:x", "400065"),
        ("filter=name:gt:x", "400065"),
        ("filter=name", "400065"),
        ("sort=color:asc", "400065"),
        ("sort=name:up", "400065"),
    ],
)
@pytest.mark.parametrize("what", ["projects", "datasources", "jobs"])
def test_senseless_queries(
    shared_sandbox: Sandbox, shared_server: tsc.Server, what: str, query: str, code: str
):
    # Prevents: a mistaken filter or page is ignored, and the client takes all for what it asked.
    if what == "jobs" and "name" in query:
        query = query.replace("name", "title")
    response = call(shared_sandbox, "GET", f"sites/{{site}}/{what}?{query}", server=shared_server)
    assert code_of(response) == code


@pytest.mark.parametrize("what", ["projects", "datasources", "jobs", "users", "groups"])
def test_unknown_fields(shared_sandbox: Sandbox, shared_server: tsc.Server, what: str):
    # Prevents: a misspelt field is missing in all answers, and nobody knows why.
    path = f"sites/{{site}}/{what}?fields="
    for fields, code in (("_all_", ""), ("id", ""), ("nope", "400065"), ("id,nope", "400065")):
        answer = call(shared_sandbox, "GET", path + fields, server=shared_server)
        assert (code_of(answer) if code else answer.status_code) == (code or 200)


def test_empty_list_in_json(shared_sandbox: Sandbox, shared_server: tsc.Server):
    # Prevents: JSON clients stumble over an empty list.
    path, accept = "sites/{site}/datasources", {"Accept": "application/json"}
    assert call(shared_sandbox, "GET", path, server=shared_server, headers=accept).json() == {
        "pagination": {"pageNumber": "1", "pageSize": "100", "totalAvailable": "0"},
        "datasources": {},
    }
    projects = call(
        shared_sandbox, "GET", "sites/{site}/projects", server=shared_server, headers=accept
    ).json()
    assert projects["projects"]["project"][0]["name"] == "Default"
