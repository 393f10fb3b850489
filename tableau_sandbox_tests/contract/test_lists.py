"""Lists: pages, filters, and what is refused in them."""

import json
from uuid import uuid4

import pytest

from tableau_sandbox_tests.contract.answer import Answer, attribute
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import (
    DAGSTER,
    LIVE_MESSAGES,
    MCP,
    NOBODY,
    REFERENCE,
    SCHEMA,
    TSC,
    fact,
)

_DATASOURCES = "GET sites/{site}/datasources"
_PROJECTS = "GET sites/{site}/projects"
_NOTHING = "filter=name:eq:no-such-name-for-verify"


def _pagination(answer: Answer) -> dict[str, str]:
    return answer.succeeds(200).element("pagination").attrib


@fact(_DATASOURCES, REFERENCE)
def test_default_page(session: Session):
    """Without parameters, a list is the first page of 100 items."""
    page = _pagination(session.ask("GET", "datasources"))
    assert (page.get("pageNumber"), page.get("pageSize")) == ("1", "100")


@fact(_PROJECTS, REFERENCE)
def test_chosen_page(session: Session):
    """A page has as many items as asked for, and says how many there are in all."""
    answer = session.ask("GET", "projects?pageSize=1&pageNumber=1")
    page = _pagination(answer)
    assert (page.get("pageNumber"), page.get("pageSize")) == ("1", "1")
    assert int(page.get("totalAvailable", "0")) >= 1, page
    assert len(answer.elements("projects/project")) == 1


@fact(_PROJECTS, REFERENCE)
def test_page_beyond_the_last(session: Session):
    """A page beyond the last is refused with 400006."""
    session.ask("GET", "projects?pageSize=1000&pageNumber=9999").is_refused("400006")


@fact(_PROJECTS, REFERENCE)
def test_page_number_below_one(session: Session):
    """The page number 0 is refused with 400006."""
    session.ask("GET", "projects?pageNumber=0").is_refused("400006")


@fact(_DATASOURCES, REFERENCE)
def test_page_size_below_one(session: Session):
    """The page size 0 is refused with 400007."""
    session.ask("GET", "datasources?pageSize=0").is_refused("400007")


@fact(_DATASOURCES, REFERENCE)
def test_page_size_in_words(session: Session):
    """A page size that is no number is refused with 400007."""
    session.ask("GET", "datasources?pageSize=many").is_refused("400007")


@fact(_DATASOURCES, REFERENCE)
def test_page_size_above_the_maximum(session: Session):
    """A page size above 1000 is refused with 403014."""
    session.ask("GET", "datasources?pageSize=1001").is_refused("403014")


@fact(_DATASOURCES, TSC)
def test_first_page_of_nothing(session: Session):
    """The first page of an empty list is no error."""
    answer = session.ask("GET", f"datasources?{_NOTHING}&pageNumber=1")
    assert _pagination(answer).get("totalAvailable") == "0"


@fact(_DATASOURCES, MCP)
def test_empty_list_in_json(session: Session):
    """In JSON, an empty list is {} and the numbers of a page are strings."""
    headers = {"Accept": "application/json"}
    answer = session.ask("GET", f"datasources?{_NOTHING}", headers=headers).succeeds(200)
    found = answer.json()
    assert found.get("datasources") == {}
    page = {"pageNumber": "1", "pageSize": "100", "totalAvailable": "0"}
    assert json.dumps(found.get("pagination"), sort_keys=True) == json.dumps(page)


@fact(_DATASOURCES, LIVE_MESSAGES)
def test_unknown_filter_field(session: Session):
    """A filter by a field that is not known is refused with 400065."""
    session.ask("GET", "datasources?filter=noSuchField:eq:x").is_refused("400065")


@fact(_DATASOURCES, LIVE_MESSAGES)
def test_datasources_have_no_filter_by_project_id(session: Session):
    """Data sources cannot be filtered by the LUID of their project."""
    path = f"datasources?filter=projectId:eq:{session.site}"
    session.ask("GET", path).is_refused("400065")


@fact(_DATASOURCES, NOBODY)
def test_unknown_filter_operator(session: Session):
    """A filter with an unknown operator is refused with 400065."""
    session.ask("GET", "datasources?filter=name:resembles:x").is_refused("400065")


@fact(_DATASOURCES, NOBODY)
def test_filter_by_no_time(session: Session):
    """A filter that compares a time with something else is refused with 400065."""
    session.ask("GET", "datasources?filter=updatedAt:gt:yesterday").is_refused("400065")


@fact(_PROJECTS, TSC)
def test_encoded_filter(session: Session):
    """A filter may be percent-encoded as forms are, and its clauses all count."""
    text = "topLevelProject%3Aeq%3Atrue%2Cname%3Aeq%3Ano+such+name"
    assert _pagination(session.ask("GET", f"projects?filter={text}")).get("totalAvailable") == "0"


@fact(_DATASOURCES, REFERENCE)
def test_filter_by_several_values(session: Session):
    """The operator in takes several values in brackets."""
    path = "datasources?filter=name:in:%5Bno-such-name,nor-this%5D"
    assert _pagination(session.ask("GET", path)).get("totalAvailable") == "0"


@fact(_PROJECTS, REFERENCE)
def test_sorted_list(session: Session):
    """A list is sorted as asked for."""
    up, down = (
        [
            item.get("createdAt", "")
            for item in session.ask("GET", f"projects?pageSize=1000&sort=createdAt:{order}")
            .succeeds(200)
            .elements("projects/project")
        ]
        for order in ("asc", "desc")
    )
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)


@fact(_DATASOURCES, TSC)
def test_unknown_parameters(session: Session):
    """Query parameters that the server does not know are ignored."""
    session.ask("GET", "datasources?noSuchParameter=true").succeeds(200)


@fact(_DATASOURCES, TSC)
def test_all_fields(session: Session):
    """The parameter fields takes _all_."""
    session.ask("GET", "datasources?fields=_all_").succeeds(200)


@fact("GET sites/{site}/jobs", REFERENCE)
def test_list_of_jobs(session: Session):
    """Administrators list jobs, filtered by status."""
    answer = session.ask("GET", "jobs?filter=status:eq:Success&pageSize=1")
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    _pagination(answer)
    for job in answer.elements("backgroundJobs/backgroundJob"):
        assert job.get("status") == "Success"


@fact(_PROJECTS, REFERENCE)
def test_filters_of_projects(session: Session):
    """Projects are filtered by name, parent, top level, owner and times."""
    some = "2001-01-01T00:00:00Z"
    for clause in (
        "name:in:[no-such-name]",
        f"parentProjectId:eq:{uuid4()}",
        "topLevelProject:eq:false",
        "ownerName:eq:no-such-owner",
        f"createdAt:lt:{some}",
        f"updatedAt:lte:{some}",
    ):
        _pagination(session.ask("GET", f"projects?pageSize=1&filter={clause}"))


@fact(_DATASOURCES, REFERENCE)
def test_filters_of_datasources(session: Session):
    """Data sources are filtered by name, project, content URL, type, tags, owner and flags."""
    for clause in (
        "projectName:eq:no-such-project",
        "contentUrl:eq:no-such-url",
        "type:eq:hyper",
        "tags:in:[no-such-tag]",
        "ownerName:eq:no-such-owner",
        "hasExtracts:eq:true",
        "isCertified:eq:true",
    ):
        _pagination(session.ask("GET", f"datasources?pageSize=1&filter={clause}"))


@fact(_PROJECTS, REFERENCE)
def test_filter_by_time(session: Session):
    """A filter by a time, with the colons in it, finds what is later."""
    path = "projects?pageSize=1&filter=createdAt:{}:2001-01-01T00:00:00Z"
    found = _pagination(session.ask("GET", path.format("gt"))).get("totalAvailable", "0")
    assert int(found) >= 1, found
    assert _pagination(session.ask("GET", path.format("lt"))).get("totalAvailable") == "0"


@fact(_DATASOURCES, REFERENCE)
def test_chosen_fields(session: Session):
    """The parameter fields takes _default_, and names of fields."""
    for fields in ("_default_", "datasource.id,datasource.name"):
        session.ask("GET", f"datasources?pageSize=1&fields={fields}").succeeds(200)


@fact(_PROJECTS, MCP)
def test_list_in_json(session: Session):
    """In JSON, a list is an object with an array, and its values are strings."""
    headers = {"Accept": "application/json"}
    answer = session.ask("GET", "projects?pageSize=1", headers=headers).succeeds(200)
    listed = answer.json().get("projects", {}).get("project")
    assert isinstance(listed, list)
    assert listed
    assert isinstance(listed[0].get("id"), str), listed[0]


@fact("GET sites", REFERENCE)
def test_list_of_sites(session: Session):
    """The site of the session is in the list of sites."""
    answer = session.call("GET", "sites?pageSize=1000", token=session.token)
    if answer.status == 403:
        pytest.skip("the user may not list sites")
    _pagination(answer)
    assert session.site in [item.get("id") for item in answer.elements("sites/site")], answer


@fact("GET sites/{site}/users", TSC)
def test_list_of_users(session: Session):
    """Administrators list users, with all their fields."""
    answer = session.ask("GET", "users?pageSize=1&fields=_all_")
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    _pagination(answer)
    for name in ("id", "name", "siteRole"):
        attribute(answer.element("users/user"), name)


@fact("GET sites/{site}/groups", REFERENCE)
def test_group_of_all_users(session: Session):
    """Each site has a group All Users."""
    answer = session.ask("GET", "groups?filter=name:eq:All+Users")
    assert _pagination(answer).get("totalAvailable") == "1"
    attribute(answer.element("groups/group"), "id")


@fact("GET sites/{site}/workbooks", REFERENCE)
def test_list_of_workbooks(session: Session):
    """Workbooks are listed in pages."""
    _pagination(session.ask("GET", "workbooks?pageSize=1"))


@fact("GET sites/{site}/views", REFERENCE)
def test_list_of_views(session: Session):
    """Views are listed in pages."""
    _pagination(session.ask("GET", "views?pageSize=1"))


@fact("GET schedules", REFERENCE)
def test_list_of_schedules(session: Session):
    """Schedules are listed in pages, below no site."""
    answer = session.call("GET", "schedules?pageSize=1", token=session.token)
    if answer.status in (403, 404):
        pytest.skip("the server has no schedules, or the user may not list them")
    _pagination(answer)


@fact("GET sites/{site}/tasks/extractRefreshes", SCHEMA)
def test_list_of_refresh_tasks(session: Session):
    """Tasks that refresh extracts are listed, not in pages."""
    answer = session.ask("GET", "tasks/extractRefreshes").succeeds(200)
    answer.element("tasks")
    assert answer.elements("pagination") == []


@fact("POST metadata/graphql", DAGSTER)
def test_workbooks_by_graphql(session: Session):
    """The metadata API answers queries about workbooks in JSON."""
    query = json.dumps({"query": "{workbooks {luid}}"})
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answer = session.call(
        "POST", "graphql", query, version="metadata", token=session.token, headers=headers
    )
    if answer.status in (403, 404):
        pytest.skip("the server has no metadata API")
    assert isinstance(answer.json()["data"]["workbooks"], list), answer
