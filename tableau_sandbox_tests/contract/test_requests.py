"""What a request in one line shows, or a few of them: records, lists, changes and refusals."""

import json
import re

import pytest

from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import Source, fact
from tableau_sandbox_tests.contract.workspace import Workspace

_PROJECTS = "sites/{site}/projects"
_PROJECT = "sites/{site}/projects/{project}"
_ALL = "GET sites/{site}/datasources"
_ONE = "sites/{site}/datasources/{datasource}"
_RULE = (
    "<permissions><granteeCapabilities><user id='{{user}}'/><capabilities>"
    "<capability name='{}' mode='Allow'/></capabilities></granteeCapabilities></permissions>"
)
_RULE_FOR = _RULE.format("Read").replace("<user id='{user}'/>", "{}")
_NO_USER = "<user id='{nothing}'/>"


@fact(
    f"GET {_PROJECTS}",
    Source.REFERENCE,
    chosen_page="A page has as many items as asked for, and says how many there are: GET projects?"
    "pageSize=1&pageNumber=1 -> pagination@pageNumber=1 pagination@pageSize=1 projects/project@id",
    page_beyond_the_last="There is nothing beyond the last page: "
    "GET projects?pageNumber=9999 -> 400006",
    page_number_below_one="There is no page 0: GET projects?pageNumber=0 -> 400006",
    wrong_method="A path has its methods only: PATCH projects -> 405000",
    filter_by_time="A filter by a time, with the colons in it, finds what is later: "
    "GET projects?filter=createdAt:gt:2001-01-01T00:00:00Z -> projects/project@id; "
    "GET projects?filter=createdAt:lt:2001-01-01T00:00:00Z -> pagination@totalAvailable=0",
    filters_of_projects="Projects are filtered by name, parent, top level, owner and times: "
    "GET projects?filter=name:in:[no-such-name]; GET projects?filter=topLevelProject:eq:false; "
    "GET projects?filter=parentProjectId:eq:{nothing}; GET projects?filter=ownerName:eq:no-such; "
    "GET projects?filter=updatedAt:lte:2001-01-01T00:00:00Z",
)
@fact(
    f"GET {_PROJECTS}",
    Source.TSC,
    encoded_filter="A filter may be percent-encoded as forms are, and its clauses all count: GET "
    "projects?filter=topLevelProject%3Aeq%3Atrue%2Cname%3Aeq%3Ano+such+name"
    " -> pagination@totalAvailable=0",
)
@fact(
    f"GET {_PROJECTS}",
    Source.TABCMD,
    default_project="There is a project called Default, in any case of letters: "
    "GET projects?filter=name:eq:Default,topLevelProject:eq:true -> pagination@totalAvailable=1; "
    "GET projects?filter=name:eq:default,topLevelProject:eq:true -> pagination@totalAvailable=1",
)
@fact(
    f"GET {_PROJECTS}",
    Source.SCHEMA,
    project_record="A project has a name, times, an owner and its way of permissions: "
    "GET projects?pageSize=1 -> projects/project@id projects/project@name"
    " projects/project@createdAt projects/project@updatedAt projects/project@contentPermissions"
    " projects/project/owner@id",
)
@fact(
    _ALL,
    Source.REFERENCE,
    default_page="Without parameters, a list is the first page of 100 items: "
    "GET datasources -> pagination@pageNumber=1 pagination@pageSize=100",
    page_size_below_one="A page has one item or more: GET datasources?pageSize=0 -> 400007",
    page_size_in_words="The size of a page is a number: GET datasources?pageSize=many -> 400007",
    page_size_above_the_maximum="A page has 1000 items or less: "
    "GET datasources?pageSize=1001 -> 403014",
    unknown_site_in_a_path="A path names a site: GET /sites/{nothing}/datasources -> 404000",
    filter_by_several_values="The operator in takes several values in brackets: "
    "GET datasources?filter=name:in:%5Bno-such-name,nor-this%5D -> pagination@totalAvailable=0",
    filters_of_datasources="Data sources are filtered by project, URL, type, tag, owner, flag: "
    "GET datasources?filter=projectName:eq:no-such; GET datasources?filter=contentUrl:eq:no-such; "
    "GET datasources?filter=type:eq:hyper; GET datasources?filter=tags:in:[no-such-tag]; "
    "GET datasources?filter=ownerName:eq:no-such; GET datasources?filter=hasExtracts:eq:true; "
    "GET datasources?filter=isCertified:eq:true",
)
@fact(
    _ALL,
    Source.LIVE_MESSAGES,
    unknown_filter_field="Not every field is a filter: GET datasources?filter=no:eq:x -> 400065",
    datasources_have_no_filter_by_project_id="There is no filter by the LUID of a project: "
    "GET datasources?filter=projectId:eq:{nothing} -> 400065",
)
@fact(
    _ALL,
    Source.NOBODY,
    unknown_filter_operator="A filter with an unknown operator is refused with 400065: "
    "GET datasources?filter=name:resembles:x -> 400065; GET datasources?filter=name -> 400065; "
    "GET datasources?filter=tags:has:x -> 400065; GET projects?filter=name:gt:x -> 400065; "
    "GET datasources?filter=type:in:[hyper] -> 400065; "
    "GET datasources?filter=hasExtracts:in:[true] -> 400065",
    filter_by_no_time="A filter by what is no value of its field is refused with 400065: "
    "GET datasources?filter=updatedAt:gt:yesterday -> 400065; "
    "GET datasources?filter=isCertified:eq:perhaps -> 400065; "
    "GET datasources?filter=size:eq:small -> 400065",
)
@fact(
    _ALL,
    Source.TSC,
    first_page_of_nothing="The first page of an empty list is no error: "
    "GET datasources?filter=name:eq:no-such-name&pageNumber=1 -> pagination@totalAvailable=0",
    unknown_parameters="Unknown parameters are ignored: GET datasources?noSuch=true -> 200",
    unknown_path="A path that does not exist is refused: GET noSuchThings -> 404003",
)
@fact(
    _ALL,
    Source.LIVE_MESSAGES,
    unknown_order="Not every field sorts, and only up or down: "
    "GET datasources?sort=colour:asc -> 400065; GET projects?sort=name:up -> 400065",
)
@fact(
    "GET sites/{site}/groups",
    Source.REFERENCE,
    group_of_all_users="Each site has a group All Users: "
    "GET groups?filter=name:eq:All+Users -> pagination@totalAvailable=1 groups/group@id",
)
@fact(
    "GET sites/{site}/workbooks",
    Source.REFERENCE,
    list_of_workbooks="Workbooks are listed in pages: "
    "GET workbooks?pageSize=1 -> pagination@totalAvailable",
)
@fact(
    "GET sites/{site}",
    Source.REFERENCE,
    site_of_the_session="A session reads its site, with its name and its content URL: "
    "GET /sites/{site} -> site@id={site} site@contentUrl={content_url} site@name site@state=Active",
)
@fact(
    "GET sites/{site}/users/{user}",
    Source.REFERENCE,
    unknown_user="A user who does not exist is refused: GET users/{nothing} -> 404002",
)
@fact(
    "GET sites/{site}/users/{user}",
    Source.TABCMD,
    user_of_the_session="A session reads its own user, with name and site role: "
    "GET users/{user} -> user@id={user} user@name user@siteRole",
)
@fact(
    f"GET {_ONE}",
    Source.REFERENCE,
    unknown_datasource="An unknown data source is refused: GET datasources/{nothing} -> 404004",
)
@fact(
    f"GET {_ONE}/content",
    Source.REFERENCE,
    content_of_an_unknown_datasource="An unknown data source has no content: "
    "GET datasources/{nothing}/content -> 404004",
)
@fact(
    f"GET {_ONE}/connections",
    Source.REFERENCE,
    connections_of_an_unknown_datasource="An unknown data source has no connections: "
    "GET datasources/{nothing}/connections -> 404011",
)
@fact(
    f"GET {_ONE}/permissions",
    Source.REFERENCE,
    permissions_of_an_unknown_datasource="An unknown data source has no permissions: "
    "GET datasources/{nothing}/permissions -> 404004",
)
@fact(
    "GET sites/{site}/jobs/{job}",
    Source.REFERENCE,
    unknown_job="A job that does not exist is refused: GET jobs/{nothing} -> 404018",
)
@fact(
    f"GET {_PROJECT}/permissions",
    Source.REFERENCE,
    permissions_of_a_project="The permissions of a project name it: "
    "GET projects/{project}/permissions -> permissions/project@id={project}",
)
@fact(
    f"GET {_PROJECT}/default-permissions/datasources",
    Source.REFERENCE,
    default_permissions_of_a_project="A project has default permissions for its data sources: GET "
    "projects/{project}/default-permissions/datasources -> permissions/project@id={project}",
)
@fact(
    f"GET {_ONE}",
    Source.TSC,
    datasource_record="A data source has what clients read, its project and its owner: "
    "GET datasources/{datasource} -> datasource@id datasource@name datasource@contentUrl"
    " datasource@type datasource@createdAt datasource@updatedAt datasource@isCertified"
    " datasource@hasExtracts datasource@webpageUrl datasource/project@id datasource/owner@id",
)
def test_site(session: Session, *, claim: str, requests: str):
    """{claim}."""
    session.converse(requests)


@fact(
    f"POST {_PROJECTS}",
    Source.REFERENCE,
    created_project="A project is created inside another one, with 201: POST projects <project "
    "name='{name}' parentProjectId='{project}'/> -> 201 project@parentProjectId={project}",
)
@fact(
    f"POST {_PROJECTS}",
    Source.LIVE_MESSAGES,
    taken_project_name="A name that another project has at this place is refused, in any case: "
    "POST projects <project name='a{name}' parentProjectId='{project}'/> -> 201; "
    "POST projects <project name='A{name}' parentProjectId='{project}'/> -> 409006",
)
@fact(
    f"POST {_PROJECTS}",
    Source.SAMPLES,
    same_name_elsewhere="Projects inside different projects may have the same name: "
    "POST projects <project name='{name}' parentProjectId='{project}'/> -> 201; "
    "POST projects <project name='{name}' parentProjectId='{folder}'/> -> 201",
)
@fact(
    f"POST {_PROJECTS}",
    Source.TSC,
    parameter_given_twice="A parameter that is given twice is no error: "
    "POST projects?publishSamples=False&publishSamples=False "
    "<project name='{name}' parentProjectId='{project}'/> -> 201",
)
@fact(
    f"PUT {_PROJECT}",
    Source.TSC,
    project_read_by_put="A change without attributes returns the project as it is: "
    "PUT projects/{project}?publishSamples=False <project/> -> project@id={project} project@name",
)
@fact(
    f"PUT {_PROJECT}",
    Source.REFERENCE,
    described_project="A project is described, and keeps its name: "
    "PUT projects/{folder} <project name='{name}'/>; PUT projects/{folder} "
    "<project description='Seen'/> -> project@name={name} project@description=Seen",
)
@fact(
    f"DELETE {_PROJECT}",
    Source.REFERENCE,
    deleted_project="A deletion is answered 204, and then the project is unknown: "
    "DELETE projects/{folder} -> 204; DELETE projects/{folder} -> 404005",
    content_of_a_deleted_project="A project is deleted with its content: "
    "PUT {new} <datasource><project id='{folder}'/></datasource> -> 200; "
    "PUT projects/{folder} <project/> -> project/contentsCounts@datasourceCount=1; "
    "DELETE projects/{folder} -> 204; GET {new} -> 404004",
)
@fact(
    f"GET {_ONE}",
    Source.TSC,
    type_of_hyper_data="A published .hyper file has the type hyper: "
    "GET {shared} -> datasource@type=hyper",
)
@fact(
    f"GET {_ONE}",
    Source.NOBODY,
    hyper_data_are_no_extract="A published .hyper file counts as live, not as an extract: "
    "GET {shared} -> datasource@hasExtracts=false",
)
@fact(
    f"PUT {_ONE}",
    Source.REFERENCE,
    described_datasource="A data source is described, and keeps its name: "
    "PUT {new} <datasource name='{name}'/>; PUT {new} <datasource description='Seen'/>"
    " -> datasource@name={name} datasource@description=Seen",
    moved_datasource="A data source moves to another project: PUT {new} "
    "<datasource><project id='{folder}'/></datasource> -> datasource/project@id={folder}; "
    "GET {new} -> datasource/project@id={folder}",
    moved_to_an_unknown_project="Nothing moves to an unknown project: "
    "PUT {shared} <datasource><project id='{nothing}'/></datasource> -> 404005",
    given_to_an_unknown_user="Nothing belongs to a user who does not exist: "
    "PUT {shared} <datasource><owner id='{nothing}'/></datasource> -> 404002",
)
@fact(
    f"DELETE {_ONE}",
    Source.REFERENCE,
    deleted_datasource="A deletion is answered 204, and then the data source is unknown: "
    "DELETE {new} -> 204; GET {new} -> 404004",
)
@fact(
    f"PUT {_ONE}/tags",
    Source.REFERENCE,
    no_tags="An empty list of tags adds nothing, and is no error: PUT {shared}/tags <tags/> -> 200",
    long_tag="A tag of more than 200 characters is refused: "
    f"PUT {{shared}}/tags <tags><tag label='{'x' * 201}'/></tags> -> 400075",
    blank_tag="A tag without a character is refused: PUT {shared}/tags <tags><tag label=''/></tags>"
    " -> 400075; PUT {shared}/tags <tags><tag label=' '/></tags> -> 400075",
)
@fact(
    f"DELETE {_ONE}/tags/{{label}}",
    Source.TSC,
    removed_tag="A tag is removed by its encoded name, also with a slash in it: "
    "PUT {new}/tags <tags><tag label='a/b'/></tags> -> tags/tag@label=a/b; "
    "DELETE {new}/tags/a%2Fb -> 204; DELETE {new}/tags/a%2Fb -> 404007; "
    "PUT {new}/tags <tags><tag label='q?x=1#%2F'/></tags> -> 200; "
    "DELETE {new}/tags/q%3Fx%3D1%23%252F -> 204; GET {new} -> 200",
)
@fact(
    f"DELETE {_ONE}/tags/{{label}}",
    Source.REFERENCE,
    unknown_tag="A tag that a data source lacks is refused: DELETE {shared}/tags/no -> 404007",
)
@fact(
    f"GET {_ONE}/connections",
    Source.TSC,
    connection_of_hyper_data="A published .hyper file has a connection of the type hyper: "
    "GET {shared}/connections -> connections/connection@id connections/connection@type=hyper",
    tagged_queries="Queries of a published .hyper file are always tagged: "
    "GET {shared}/connections -> connections/connection@queryTaggingEnabled=true",
)
@fact(
    f"PUT {_ONE}/connections/{{connection}}",
    Source.REFERENCE,
    unknown_connection="A connection that a data source lacks cannot be changed: "
    "PUT {shared}/connections/{nothing} <connection userName='x'/> -> 404020",
)
@fact(
    f"POST {_ONE}/refresh",
    Source.LIVE_MESSAGES,
    refresh_of_hyper_data="There is no extract to refresh in a published .hyper file: "
    "POST {shared}/refresh <extractRefresh/> -> 409090",
)
@fact(
    f"GET {_ONE}/revisions/{{revision}}/content",
    Source.REFERENCE,
    unknown_revision="An unknown revision is refused: GET {shared}/revisions/9/content -> 404024",
)
@fact(
    f"GET {_ONE}/permissions",
    Source.REFERENCE,
    permissions_of_a_datasource="The permissions of a data source name it: "
    "GET {shared}/permissions -> permissions/datasource@id",
)
@fact(
    f"PUT {_ONE}/permissions",
    Source.SCHEMA,
    capability_of_the_data_service="VizqlDataApiAccess is a capability of data sources: "
    f"PUT {{new}}/permissions {_RULE.format('VizqlDataApiAccess')} -> 200",
)
@fact(
    f"PUT {_ONE}/permissions",
    Source.REFERENCE,
    unknown_capability="A capability that does not exist is refused: "
    f"PUT {{shared}}/permissions {_RULE.format('NoSuch')} -> 400000 or 400009",
    permissions_of_something_else="A request names what its path names: PUT {shared}/permissions"
    " <permissions><workbook id='{nothing}'/></permissions> -> 400000; PUT {shared}/permissions"
    " <permissions><datasource id='{nothing}'/></permissions> -> 400000 or 404009",
    permissions_in_a_locked_project="Where a project locks the permissions, those of a data source "
    "cannot be changed: PUT projects/{folder} <project contentPermissions='LockedToProject'/>"
    " -> project@contentPermissions=LockedToProject; "
    "PUT {new} <datasource><project id='{folder}'/></datasource> -> 200; "
    f"PUT {{new}}/permissions {_RULE.format('Read')} -> 403004",
    capability_of_projects="Only projects are led: "
    f"PUT {{shared}}/permissions {_RULE.format('ProjectLeader')} -> 400000 or 400009",
    neither_allowed_nor_denied="A capability is allowed or denied: "
    f"PUT {{shared}}/permissions {_RULE.format('Read').replace('Allow', 'Maybe')} -> 400000",
    rules_for_nobody="A rule is for one user or group that exists: "
    f"PUT {{shared}}/permissions {_RULE_FOR.format('')} -> 400000; "
    f"PUT {{shared}}/permissions {_RULE_FOR.format(_NO_USER)} -> 404002; "
    f"PUT {{shared}}/permissions {_RULE_FOR.format(_NO_USER.replace('user', 'group'))} -> 404012",
)
@fact(
    f"DELETE {_ONE}/permissions/{{grantees}}/{{grantee}}/{{capability}}/{{mode}}",
    Source.REFERENCE,
    revoked_without_a_grant="What was not granted cannot be revoked: "
    "DELETE {shared}/permissions/users/{user}/VizqlDataApiAccess/Allow -> 404013",
)
def test_project(workspace: Workspace, *, claim: str, requests: str):
    """{claim}."""
    workspace.converse(requests)


@fact(f"GET {_PROJECTS}", Source.REFERENCE)
def test_sorted_list(session: Session):
    """A list is sorted as asked for."""
    for order in ("asc", "desc"):
        answer = session.send(f"GET projects?pageSize=1000&sort=createdAt:{order}").succeeds()
        times = [str(each) for each in answer.all("projects/project@createdAt")]
        assert times == sorted(times, reverse=order == "desc")


@fact(_ALL, Source.NOBODY)
def test_case_of_filters(workspace: Workspace):
    """A filter by the name of a data source distinguishes the case of letters."""
    request = f"GET datasources?filter=name:eq:{workspace.shared.name.upper()}"
    workspace.converse(f"{request} -> pagination@totalAvailable=0")


@fact(_ALL, Source.TSC)
def test_published_name_is_found(workspace: Workspace):
    """A filter by name finds what was published, at once."""
    new = workspace.published()
    request = f"GET datasources?filter=name:eq:{new.name}"
    workspace.converse(f"{request} -> datasources/datasource@id={new.luid}")


def _for_administrators(session: Session, request: str):
    answer = session.send(request)
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    assert answer.succeeds()["pagination@totalAvailable"]
    return answer


@fact("GET sites/{site}/jobs", Source.REFERENCE)
def test_list_of_jobs(session: Session):
    """Administrators list jobs, filtered by status."""
    answer = _for_administrators(session, "GET jobs?filter=status:eq:Success&pageSize=1")
    assert set(answer.all("backgroundJobs/backgroundJob@status")) <= {"Success"}


@fact("GET sites/{site}/users", Source.TSC)
def test_list_of_users(session: Session):
    """Administrators list users, with all their fields."""
    answer = _for_administrators(session, "GET users?pageSize=1&fields=_all_")
    assert all(answer[f"users/user@{name}"] for name in ("id", "name", "siteRole"))


@fact("POST metadata/graphql", Source.DAGSTER)
def test_workbooks_by_graphql(session: Session):
    """The metadata API answers queries about workbooks in JSON."""
    answer = session.call(
        "POST",
        "graphql",
        json.dumps({"query": "{workbooks {luid}}"}),
        version="metadata",
        token=session.token,
        headers={"Content-Type": "application/json", "Accept": "application/json"},
    )
    if answer.status in (403, 404):
        pytest.skip("the server has no metadata API")
    assert isinstance(answer.succeeds().json()["data"]["workbooks"], list)


@fact(f"GET {_PROJECTS}", Source.TSC)
def test_times_without_fractions(session: Session):
    """Times are in UTC and have neither fractions of a second nor an offset."""
    answer = session.send("GET projects?pageSize=1").succeeds()
    for name in ("createdAt", "updatedAt"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer[f"projects/project@{name}"])


@fact(f"GET {_ONE}", Source.SCHEMA)
def test_order_in_a_record(session: Session):
    """In the record of a data source, its project, its owner and its tags follow in this order."""
    answer = session.send("GET datasources/{datasource}").succeeds()
    known = ["project", "owner", "tags"]
    assert [each.tag for each in answer.element("datasource") if each.tag in known] == known


@fact(f"GET {_ONE}", Source.TSC)
def test_size_of_a_datasource(session: Session):
    """The size of a data source is a whole number of megabytes."""
    answer = session.send("GET datasources/{datasource}").succeeds()
    assert (answer.get("datasource@size") or "0").isdecimal()


@fact(_ALL, Source.REFERENCE)
def test_filters_choose(workspace: Workspace):
    """Filters find a data source by its own values, and not by others."""
    target = workspace.published()
    workspace.send(f"PUT {target.path} <datasource description='Seen'/>").succeeds()
    workspace.send(f"PUT {target.path}/tags <tags><tag label='seen'/></tags>").succeeds()
    for clauses, found in (
        ("tags:in:[seen,else],description:eq:Seen,isPublished:eq:TRUE,size:gte:1", "1"),
        *(("tags:eq:else", "0"), ("description:in:[seen,else]", "0"), ("type:eq:sqlproxy", "0")),
        *(("connectionType:in:[hyper,else]", "1"), ("size:lt:1", "0"), ("projectName:eq:", "0")),
    ):
        answer = workspace.send(f"GET datasources?filter=name:eq:{target.name},{clauses}")
        assert answer.succeeds()["pagination@totalAvailable"] == found, clauses


@fact(f"GET {_PROJECTS}", Source.TSC)
def test_pages_make_a_list(session: Session):
    """The pages of a list have each of its items once, in its order."""
    pages = [session.send(f"GET projects?sort=name:asc&pageSize=1&pageNumber={n}") for n in (1, 2)]
    if pages[1].status == 400:
        pytest.skip("there is one project only")
    listed = session.send("GET projects?sort=name:asc&pageSize=2").succeeds()
    paged = [page["projects/project@id"] for page in pages]
    assert paged == listed.all("projects/project@id")


@fact(f"PUT {_PROJECT}", Source.REFERENCE)
def test_moved_project(workspace: Workspace):
    """A project moves into another one, and not into itself."""
    outer, inner = workspace.new_project(), workspace.new_project()
    for parent, expected in ((outer, f"200 project@parentProjectId={outer}"), (inner, "400000")):
        request = f"PUT projects/{inner} <project parentProjectId='{parent}'/>"
        workspace.send(request).meets(expected)
