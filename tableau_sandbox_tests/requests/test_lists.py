import time
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import call, code_of, publish


def names(sandbox: Sandbox, server: tsc.Server, query: str) -> list[str | None]:
    what, _, _ = query.partition("?")
    answer = call(sandbox, "GET", f"sites/{{site}}/{query}", server=server)
    assert answer.status_code == 200, answer.text
    item = tsc.ProjectItem if what == "projects" else tsc.DatasourceItem
    return [found.name for found in item.from_response(answer.content, server.namespace)]


@pytest.fixture
def named(server: tsc.Server) -> tsc.Server:
    """A server with the projects P00 ... P11 beside "Default"."""
    for number in range(12):
        server.projects.create(tsc.ProjectItem(f"P{number:02}"))
    return server


def test_paging_filters_and_order(sandbox: Sandbox, named: tsc.Server):
    """Prevents: a client that walks over pages misses items or takes them twice."""
    paged = tsc.Pager(named.projects, tsc.RequestOptions(pagesize=5))
    assert sorted(str(project.name) for project in paged)[1:] == [f"P{n:02}" for n in range(12)]
    for query, expected in (
        ("pageSize=2&pageNumber=2&sort=name:desc", ["P09", "P08"]),
        ("filter=name:eq:p03", ["P03"]),
        ("filter=name:in:[P01,P02]&sort=name:asc", ["P01", "P02"]),
        ("filter=name:in:[P01,P02],name:eq:P02", ["P02"]),
        ("filter=name%3Ain%3A%5BP09%2CP10%5D%2Cname%3Aeq%3AP10", ["P10"]),
        ("filter=createdAt:lt:2001-01-01T00:00:00Z", []),
        ("filter=name:eq:Default,topLevelProject:eq:false&pageNumber=1", []),
    ):
        assert names(sandbox, named, f"projects?{query}") == expected, query


def test_filters_of_data_sources(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a filter that real servers know is refused, or chooses others."""
    item = publish(server, one_row)
    item.description = "about"
    server.datasources.update(item)
    publish(server, one_row, name="Other")
    for query, expected in (
        ("name:in:[Flights,Nothing]", ["Flights"]),
        ("description:eq:about", ["Flights"]),
        ("connectionType:in:[hyper],isPublished:eq:TRUE", ["Flights", "Other"]),
        ("size:gte:1,type:eq:hyper", ["Flights", "Other"]),
        ("hasExtracts:eq:True", []),
    ):
        found = names(sandbox, server, f"datasources?sort=name:asc&filter={query}")
        assert found == expected, query


def test_filters_of_any_length(shared_sandbox: Sandbox, shared_server: tsc.Server):
    """Prevents: one hostile filter keeps the sandbox busy, and all others waiting."""
    started = time.monotonic()
    many = ("," * 15_000, "[" * 15_000, "]," * 8_000, "[,]" * 5_000, "name:in:[" + "a," * 8_000)
    for text in many:
        path = f"sites/{{site}}/datasources?filter={text}"
        assert code_of(call(shared_sandbox, "GET", path, server=shared_server)) == "400065"
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("query", "code"),
    [
        *(("pageSize=1001", "403014"), ("pageSize=0", "400007"), ("pageSize=many", "400007")),
        *(("pageNumber=0", "400006"), ("pageNumber=2", "400006"), ("pageNumber=-1", "400006")),
        *(("filter=projectId:eq:1", "400065"), ("filter=name:like:x", "400065")),
        *(("filter=name:gt:x", "400065"), ("filter=name", "400065")),
        *(("sort=color:asc", "400065"), ("sort=name:up", "400065")),
    ],
)
@pytest.mark.parametrize("what", ["projects", "datasources", "jobs"])
def test_senseless_queries(
    shared_sandbox: Sandbox, shared_server: tsc.Server, what: str, query: str, code: str
):
    """Prevents: a mistaken filter or page is ignored, and the client takes all for its choice."""
    query = query.replace("name", "title") if what == "jobs" else query
    response = call(shared_sandbox, "GET", f"sites/{{site}}/{what}?{query}", server=shared_server)
    assert code_of(response) == code


@pytest.mark.parametrize(
    "query",
    [
        *("name:has:x", "name:gt:x", "name:cieq:x", "type:in:[hyper]", "tags:has:x"),
        *("ownerName:gt:x", "hasExtracts:in:[true]", "isCertified:eq:perhaps"),
        *("size:has:1", "size:eq:small", "updatedAt:in:[2020-01-01T00:00:00Z]", "description:lt:x"),
    ],
)
def test_operators_of_other_fields(shared_sandbox: Sandbox, shared_server: tsc.Server, query: str):
    """Prevents: a filter works in tests whose operator real servers do not know for its field."""
    path = f"sites/{{site}}/datasources?filter={query}"
    assert code_of(call(shared_sandbox, "GET", path, server=shared_server)) == "400065"
