"""Lists and records of what a site has: pages, filters, attributes."""

import json
import re

import pytest

from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import (
    DAGSTER,
    NOBODY,
    REFERENCE,
    SCHEMA,
    TABCMD,
    TSC,
    fact,
)
from tableau_sandbox_tests.contract.workspace import Workspace

_DATASOURCES = "GET sites/{site}/datasources"
_DATASOURCE = "GET sites/{site}/datasources/{datasource}"
_PROJECTS = "GET sites/{site}/projects"
_JSON = {"Accept": "application/json"}
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@fact(_DATASOURCES, REFERENCE)
def test_default_page(session: Session):
    """Without parameters, a list is the first page of 100 items."""
    answer = session.send("GET datasources").succeeds()
    assert (answer["pagination@pageNumber"], answer["pagination@pageSize"]) == ("1", "100")


@fact(_PROJECTS, REFERENCE)
def test_chosen_page(session: Session):
    """A page has as many items as asked for, and says how many there are in all."""
    answer = session.send("GET projects?pageSize=1&pageNumber=1").succeeds()
    assert (answer["pagination@pageNumber"], answer["pagination@pageSize"]) == ("1", "1")
    assert int(answer["pagination@totalAvailable"]) >= 1
    assert len(answer.all("projects/project@id")) == 1


@fact(
    _DATASOURCES,
    TSC,
    first_page_of_nothing="The first page of an empty list is no error: datasources?pageNumber=1",
)
@fact(
    _DATASOURCES,
    REFERENCE,
    filter_by_several_values="The operator in takes several values in brackets: datasources?"
    "filter=name:in:%5Bno-such-name,nor-this%5D",
)
@fact(
    _PROJECTS,
    TSC,
    encoded_filter="A filter may be percent-encoded as forms are, and its clauses all count: "
    "projects?filter=topLevelProject%3Aeq%3Atrue%2Cname%3Aeq%3Ano+such+name",
)
def test_list_of_nothing(session: Session, *, claim: str, path: str):
    """{claim}."""
    path += "" if "filter=" in path else "&filter=name:eq:no-such-name-for-verify"
    assert session.ask("GET", path).succeeds()["pagination@totalAvailable"] == "0"


@fact(_PROJECTS, REFERENCE)
def test_sorted_list(session: Session):
    """A list is sorted as asked for."""
    for order in ("asc", "desc"):
        answer = session.send(f"GET projects?pageSize=1000&sort=createdAt:{order}").succeeds()
        times = [str(each) for each in answer.all("projects/project@createdAt")]
        assert times == sorted(times, reverse=order == "desc")


_CLAUSES = {
    "projects": (
        "name:in:[no-such-name]",
        "parentProjectId:eq:{nothing}",
        "topLevelProject:eq:false",
        "ownerName:eq:no-such-owner",
        "createdAt:lt:2001-01-01T00:00:00Z",
        "updatedAt:lte:2001-01-01T00:00:00Z",
    ),
    "datasources": (
        "projectName:eq:no-such-project",
        "contentUrl:eq:no-such-url",
        "type:eq:hyper",
        "tags:in:[no-such-tag]",
        "ownerName:eq:no-such-owner",
        "hasExtracts:eq:true",
        "isCertified:eq:true",
    ),
}


@fact(
    _PROJECTS,
    REFERENCE,
    filters_of_projects="projects: name, parent, top level, owner and times",
)
@fact(
    _DATASOURCES,
    REFERENCE,
    filters_of_datasources="datasources: name, project, content URL, type, tags, owner and flags",
)
def test_filters(session: Session, *, kind: str, what: str):
    """{kind} are filtered by {what}."""
    for clause in _CLAUSES[kind]:
        assert session.send(f"GET {kind}?filter={clause}").succeeds()["pagination@totalAvailable"]


@fact(_PROJECTS, REFERENCE)
def test_filter_by_time(session: Session):
    """A filter by a time, with the colons in it, finds what is later."""
    path = "GET projects?pageSize=1&filter=createdAt:{}:2001-01-01T00:00:00Z"
    totals = [session.send(path.format(each))["pagination@totalAvailable"] for each in ("gt", "lt")]
    assert int(totals[0]) >= 1
    assert totals[1] == "0"


@fact(_DATASOURCES, NOBODY)
def test_case_of_filters(workspace: Workspace):
    """A filter by the name of a data source distinguishes the case of letters."""
    answer = workspace.send(f"GET datasources?filter=name:eq:{workspace.shared.name.upper()}")
    assert answer.succeeds().elements("datasources/datasource") == []


@fact(_DATASOURCES, TSC)
def test_published_name_is_found(workspace: Workspace):
    """A filter by name finds what was published, at once."""
    target = workspace.published()
    answer = workspace.send(f"GET datasources?filter=name:eq:{target.name}").succeeds()
    assert answer.all("datasources/datasource@id") == [target.luid]


@fact(_DATASOURCES, TSC)
def test_unknown_parameters(session: Session):
    """Query parameters that the server does not know are ignored."""
    session.send("GET datasources?noSuchParameter=true").succeeds()


def _for_administrators(session: Session, request: str):
    answer = session.send(request)
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    assert answer.succeeds()["pagination@totalAvailable"]
    return answer


@fact("GET sites/{site}/jobs", REFERENCE)
def test_list_of_jobs(session: Session):
    """Administrators list jobs, filtered by status."""
    answer = _for_administrators(session, "GET jobs?filter=status:eq:Success&pageSize=1")
    assert set(answer.all("backgroundJobs/backgroundJob@status")) <= {"Success"}


@fact("GET sites/{site}/users", TSC)
def test_list_of_users(session: Session):
    """Administrators list users, with all their fields."""
    answer = _for_administrators(session, "GET users?pageSize=1&fields=_all_")
    assert all(answer[f"users/user@{name}"] for name in ("id", "name", "siteRole"))


@fact("GET sites/{site}/groups", REFERENCE)
def test_group_of_all_users(session: Session):
    """Each site has a group All Users."""
    answer = session.send("GET groups?filter=name:eq:All+Users").succeeds()
    assert answer["pagination@totalAvailable"] == "1"
    assert answer["groups/group@id"]


@fact("GET sites/{site}/workbooks", REFERENCE)
def test_list_of_workbooks(session: Session):
    """Workbooks are listed in pages."""
    assert session.send("GET workbooks?pageSize=1").succeeds()["pagination@totalAvailable"]


@fact("POST metadata/graphql", DAGSTER)
def test_workbooks_by_graphql(session: Session):
    """The metadata API answers queries about workbooks in JSON."""
    answer = session.call(
        "POST",
        "graphql",
        json.dumps({"query": "{workbooks {luid}}"}),
        version="metadata",
        token=session.token,
        headers={"Content-Type": "application/json", **_JSON},
    )
    if answer.status in (403, 404):
        pytest.skip("the server has no metadata API")
    assert isinstance(answer.succeeds().json()["data"]["workbooks"], list)


_SITE = "GET sites/{site}"


@fact(_SITE, REFERENCE)
def test_site_of_the_session(session: Session):
    """A session reads its site, with its name and its content URL."""
    answer = session.send("GET /sites/{site}").succeeds()
    assert (answer["site@contentUrl"], answer["site@state"]) == (session.content_url, "Active")
    assert answer["site@name"]


@fact("GET sites/{site}/users/{user}", TABCMD)
def test_user_of_the_session(session: Session):
    """A session reads its own user, with name and site role."""
    answer = session.send("GET users/{user}").succeeds()
    assert answer["user@id"] == session.user
    assert all((answer["user@name"], answer["user@siteRole"]))


@fact(_PROJECTS, TABCMD)
def test_default_project(session: Session):
    """There is a project called Default, in any case of letters."""
    for name in ("Default", "default"):
        answer = session.send(f"GET projects?filter=name:eq:{name},topLevelProject:eq:true")
        assert len(answer.succeeds().elements("projects/project")) == 1


@fact(_PROJECTS, SCHEMA)
def test_project_record(session: Session):
    """A project has a name, times, an owner and its way of permissions."""
    answer = session.send("GET projects?pageSize=1").succeeds()
    for name in ("@id", "@name", "@createdAt", "@updatedAt", "@contentPermissions", "/owner@id"):
        assert answer[f"projects/project{name}"]


@fact(_PROJECTS, TSC)
def test_times_without_fractions(session: Session):
    """Times are in UTC and have neither fractions of a second nor an offset."""
    answer = session.send("GET projects?pageSize=1").succeeds()
    for name in ("createdAt", "updatedAt"):
        assert re.fullmatch(_TIME, answer[f"projects/project@{name}"])


@fact(_DATASOURCE, TSC)
def test_datasource_record(session: Session):
    """A data source has the attributes that clients read, its project and its owner."""
    answer = session.send(f"GET datasources/{session.first('datasource')}").succeeds()
    names = "id name contentUrl type createdAt updatedAt isCertified hasExtracts webpageUrl"
    for path in [f"@{name}" for name in names.split()] + ["/project@id", "/owner@id"]:
        assert answer[f"datasource{path}"]


@fact(_DATASOURCE, SCHEMA)
def test_order_in_a_record(session: Session):
    """In the record of a data source, its project, its owner and its tags follow in this order."""
    answer = session.send(f"GET datasources/{session.first('datasource')}").succeeds()
    known = ["project", "owner", "tags"]
    assert [each.tag for each in answer.element("datasource") if each.tag in known] == known


@fact(_DATASOURCE, TSC)
def test_size_of_a_datasource(session: Session):
    """The size of a data source is a whole number of megabytes."""
    answer = session.send(f"GET datasources/{session.first('datasource')}").succeeds()
    assert (answer.get("datasource@size") or "0").isdecimal()
