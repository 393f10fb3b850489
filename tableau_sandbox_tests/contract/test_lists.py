"""Lists and records of what a site has, and what is refused where one line asks for it."""

import json
import re

import pytest

from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import (
    DAGSTER,
    LIVE_MESSAGES,
    NOBODY,
    REFERENCE,
    SCHEMA,
    TABCMD,
    TSC,
    fact,
)
from tableau_sandbox_tests.contract.workspace import Workspace

_PROJECTS = "GET sites/{site}/projects"
_DATASOURCES = "GET sites/{site}/datasources"
_ONE = "sites/{site}/datasources/{datasource}"


@fact(
    _PROJECTS,
    REFERENCE,
    page_beyond_the_last="A page beyond the last: GET projects?pageNumber=9999 -> 400006",
    page_number_below_one="The page number 0: GET projects?pageNumber=0 -> 400006",
    wrong_method="A method that a path does not have: PATCH projects -> 405000",
)
@fact(
    _DATASOURCES,
    REFERENCE,
    page_size_below_one="The page size 0: GET datasources?pageSize=0 -> 400007",
    page_size_in_words="A page size that is no number: GET datasources?pageSize=many -> 400007",
    page_size_above_the_maximum="A page size above 1000: GET datasources?pageSize=1001 -> 403014",
    unknown_site_in_a_path="A path of no site: GET /sites/{nothing}/datasources -> 404000",
)
@fact(
    _DATASOURCES,
    LIVE_MESSAGES,
    unknown_filter_field="A filter by what is unknown: GET datasources?filter=no:eq:x -> 400065",
    datasources_have_no_filter_by_project_id="A filter of data sources by the LUID of a project: "
    "GET datasources?filter=projectId:eq:{nothing} -> 400065",
)
@fact(
    _DATASOURCES,
    NOBODY,
    unknown_filter_operator="A filter with an unknown operator: "
    "GET datasources?filter=name:resembles:x -> 400065",
    filter_by_no_time="A filter that compares a time with something else: "
    "GET datasources?filter=updatedAt:gt:yesterday -> 400065",
)
@fact(_DATASOURCES, TSC, unknown_path="A path that does not exist: GET noSuchThings -> 404003")
@fact(
    "GET sites/{site}/users/{user}",
    REFERENCE,
    unknown_user="A user who does not exist: GET users/{nothing} -> 404002",
)
@fact(
    f"GET {_ONE}",
    REFERENCE,
    unknown_datasource="An unknown data source: GET datasources/{nothing} -> 404004",
)
@fact(
    f"GET {_ONE}/content",
    REFERENCE,
    content_of_an_unknown_datasource="The content of an unknown data source: "
    "GET datasources/{nothing}/content -> 404004",
)
@fact(
    f"GET {_ONE}/connections",
    REFERENCE,
    connections_of_an_unknown_datasource="A list of connections of an unknown data source: "
    "GET datasources/{nothing}/connections -> 404011",
)
@fact(
    f"GET {_ONE}/permissions",
    REFERENCE,
    permissions_of_an_unknown_datasource="A list of permissions of an unknown data source: "
    "GET datasources/{nothing}/permissions -> 404004",
)
@fact(
    "GET sites/{site}/jobs/{job}",
    REFERENCE,
    unknown_job="A job that does not exist: GET jobs/{nothing} -> 404018",
)
def test_refused_of_a_site(session: Session, *, what: str, asked: str, codes: str):
    """{what} is refused with {codes}."""
    session.send(asked).is_refused(codes)


@fact(
    f"PUT {_ONE}",
    REFERENCE,
    moved_to_an_unknown_project="A move to an unknown project: "
    "PUT {shared} <datasource><project id='{nothing}'/></datasource> -> 404005",
    given_to_an_unknown_user="An owner who does not exist: "
    "PUT {shared} <datasource><owner id='{nothing}'/></datasource> -> 404002",
)
@fact(
    f"DELETE {_ONE}/tags/{{label}}",
    REFERENCE,
    unknown_tag="A tag that a data source lacks: DELETE {shared}/tags/nosuchtag -> 404007",
)
@fact(
    f"POST {_ONE}/refresh",
    LIVE_MESSAGES,
    refresh_of_hyper_data="A refresh of a published .hyper file, which has no extract: "
    "POST {shared}/refresh <extractRefresh/> -> 409090",
)
@fact(
    f"GET {_ONE}/revisions/{{revision}}/content",
    REFERENCE,
    unknown_revision="A revision that there is not: GET {shared}/revisions/999/content -> 404024",
)
@fact(
    f"PUT {_ONE}/permissions",
    REFERENCE,
    unknown_capability="A capability that does not exist: PUT {shared}/permissions <permissions>"
    "<granteeCapabilities><user id='{user}'/><capabilities><capability name='NoSuchCapability'"
    " mode='Allow'/></capabilities></granteeCapabilities></permissions> -> 400000 or 400009",
    permissions_of_something_else="A request for the permissions of a workbook: "
    "PUT {shared}/permissions <permissions><workbook id='{nothing}'/></permissions> -> 400000",
    permissions_of_another_datasource="A request for the permissions of another data source: PUT "
    "{shared}/permissions <permissions><datasource id='{nothing}'/></permissions>"
    " -> 400000 or 404009",
)
@fact(
    f"DELETE {_ONE}/permissions/{{grantees}}/{{grantee}}/{{capability}}/{{mode}}",
    REFERENCE,
    revoked_without_a_grant="A revocation of what was not granted: "
    "DELETE {shared}/permissions/users/{user}/VizqlDataApiAccess/Allow -> 404013",
)
def test_refused_of_a_datasource(workspace: Workspace, *, what: str, asked: str, codes: str):
    """{what} is refused with {codes}."""
    workspace.send(asked).is_refused(codes)


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


@fact(f"GET {_ONE}", TSC)
def test_datasource_record(session: Session):
    """A data source has the attributes that clients read, its project and its owner."""
    answer = session.send(f"GET datasources/{session.first('datasource')}").succeeds()
    names = "id name contentUrl type createdAt updatedAt isCertified hasExtracts webpageUrl"
    for path in [f"@{name}" for name in names.split()] + ["/project@id", "/owner@id"]:
        assert answer[f"datasource{path}"]


@fact(f"GET {_ONE}", SCHEMA)
def test_order_in_a_record(session: Session):
    """In the record of a data source, its project, its owner and its tags follow in this order."""
    answer = session.send(f"GET datasources/{session.first('datasource')}").succeeds()
    known = ["project", "owner", "tags"]
    assert [each.tag for each in answer.element("datasource") if each.tag in known] == known


@fact(f"GET {_ONE}", TSC)
def test_size_of_a_datasource(session: Session):
    """The size of a data source is a whole number of megabytes."""
    answer = session.send(f"GET datasources/{session.first('datasource')}").succeeds()
    assert (answer.get("datasource@size") or "0").isdecimal()
