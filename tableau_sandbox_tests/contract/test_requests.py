"""Records, lists, changes and refusals: facts that take one request or a few requests."""

import json
import re
import time
from typing import Any

import pytest

from tableau_sandbox_tests.contract.session import Session, Steps
from tableau_sandbox_tests.contract.sources import Source, asks, fact
from tableau_sandbox_tests.contract.workspace import Published, Workspace

_PROJECTS = "sites/{site}/projects"
_PROJECT = "sites/{site}/projects/{project}"
_ALL = "GET sites/{site}/datasources"
_ONE = "sites/{site}/datasources/{datasource}"
_NONE = "pagination@totalAvailable=0"
_CREATE = "POST projects <project name='{name}' parentProjectId='{project}'/>"
_MOVE = "PUT {new} <datasource><project id='{folder}'/></datasource>"


def _rule(capability: str, *, to: str = "<user id='{user}'/>", mode: str = "Allow") -> str:
    """Return the element of a rule of permissions."""
    named = f"<capabilities><capability name='{capability}' mode='{mode}'/></capabilities>"
    return f"<permissions><granteeCapabilities>{to}{named}</granteeCapabilities></permissions>"


@asks(
    Source.REFERENCE,
    """
    chosen-page: GET projects?pageSize=1&pageNumber=1
        -> pagination@pageNumber=1 pagination@pageSize=1 projects/project@id
    page-beyond-the-last: GET projects?pageNumber=9999 -> 400006
    page-number-below-one: GET projects?pageNumber=0 -> 400006
    wrong-method: PATCH projects -> 405000
    filter-by-time: GET projects?filter=createdAt:gt:2001-01-01T00:00:00Z -> projects/project@id
    ; GET projects?filter=createdAt:lt:2001-01-01T00:00:00Z -> pagination@totalAvailable=0
    filters-of-projects: GET projects?filter=name:in:[no-such-name]
    ; GET projects?filter=topLevelProject:eq:false
    ; GET projects?filter=parentProjectId:eq:{nothing}
    ; GET projects?filter=ownerName:eq:no-such
    ; GET projects?filter=updatedAt:lte:2001-01-01T00:00:00Z
    default-page: GET datasources -> pagination@pageNumber=1 pagination@pageSize=100
    page-size-below-one: GET datasources?pageSize=0 -> 400007
    page-size-in-words: GET datasources?pageSize=many -> 400007
    page-size-above-the-maximum: GET datasources?pageSize=1001 -> 403014
    unknown-site-in-a-path: GET /sites/{nothing}/datasources -> 404000
    filter-by-several-values: GET datasources?filter=name:in:%5Bno-such-name,nor-this%5D
        -> pagination@totalAvailable=0
    group-of-all-users: GET groups?filter=name:eq:All+Users
        -> pagination@totalAvailable=1 groups/group@id
    list-of-workbooks: GET workbooks?pageSize=1 -> pagination@totalAvailable
    site-of-the-session: GET /sites/{site}
        -> site@id={site} site@contentUrl={content_url} site@name site@state=Active
    unknown-user: GET users/{nothing} -> 404002
    unknown-datasource: GET datasources/{nothing} -> 404004
    content-of-an-unknown-datasource: GET datasources/{nothing}/content -> 404004
    connections-of-an-unknown-datasource: GET datasources/{nothing}/connections -> 404011
    permissions-of-an-unknown-datasource: GET datasources/{nothing}/permissions -> 404004
    unknown-job: GET jobs/{nothing} -> 404018 or 403004
    permissions-of-a-project: GET projects/{project}/permissions -> permissions/project@id={project}
    default-permissions-of-a-project: GET projects/{project}/default-permissions/datasources
        -> permissions/project@id={project}
    """,
)
@asks(
    Source.TSC,
    """
    encoded-filter: GET projects?filter=topLevelProject%3Aeq%3Atrue%2Cname%3Aeq%3Ano+such+name
        -> pagination@totalAvailable=0
    tasks-to-refresh-extracts: GET tasks/extractRefreshes
    first-page-of-nothing: GET datasources?filter=name:eq:no-such-name&pageNumber=1
        -> pagination@totalAvailable=0
    unknown-parameters: GET datasources?noSuch=true
    unknown-path: GET noSuchThings -> 404003
    datasource-record: GET datasources/{datasource}
        -> datasource@id datasource@name datasource@contentUrl datasource@type datasource@createdAt
        datasource@updatedAt datasource@isCertified datasource@hasExtracts datasource@webpageUrl
        datasource/project@id datasource/owner@id
    """,
)
@asks(
    Source.TABCMD,
    """
    default-project: GET projects?filter=name:eq:Default,topLevelProject:eq:true
        -> pagination@totalAvailable=1
    ; GET projects?filter=name:eq:default,topLevelProject:eq:true -> pagination@totalAvailable=1
    user-of-the-session: GET users/{user} -> user@id={user} user@name user@siteRole
    """,
)
@asks(
    Source.SCHEMA,
    """
    project-record: GET projects?pageSize=1
        -> projects/project@id projects/project@name projects/project@createdAt
        projects/project@updatedAt projects/project@contentPermissions projects/project/owner@id
        projects/project/contentsCounts@datasourceCount
    site-record: GET /sites/{site} -> site@adminMode site@revisionHistoryEnabled site@revisionLimit
    group-record: GET groups?pageSize=1 -> groups/group@name groups/group/domain@name
    """,
)
@asks(
    Source.LIVE_MESSAGES,
    """
    unknown-filter-field: GET datasources?filter=no:eq:x -> 400065
    no-filter-by-project-id: GET datasources?filter=projectId:eq:{nothing} -> 400065
    unknown-order: GET datasources?sort=colour:asc -> 400065
    ; GET projects?sort=name:up -> 400065
    """,
)
def test_site(session: Session, steps: Steps):
    """{steps}."""
    session.converse(*steps)


@asks(
    Source.REFERENCE,
    """
    created-project: $create -> 201 project@parentProjectId={project}
    described-project: PUT projects/{folder} <project name='{name}'/>
    ; PUT projects/{folder} <project description='Seen'/>
        -> project@name={name} project@description=Seen
    deleted-project: DELETE projects/{folder} -> 204
    ; DELETE projects/{folder} -> 404005
    content-of-a-deleted-project: $move
    ; PUT projects/{folder} <project/> -> project/contentsCounts@datasourceCount=1
    ; DELETE projects/{folder} -> 204
    ; GET {new} -> 404004
    described-datasource: PUT {new} <datasource name='{name}'/>
    ; PUT {new} <datasource description='Seen'/>
        -> datasource@name={name} datasource@description=Seen
    moved-datasource: $move -> datasource/project@id={folder}
    ; GET {new} -> datasource/project@id={folder}
    moved-to-nowhere: PUT {shared} <datasource><project id='{nothing}'/></datasource> -> 404005
    given-to-nobody: PUT {shared} <datasource><owner id='{nothing}'/></datasource> -> 404002
    deleted-datasource: DELETE {new} -> 204
    ; GET {new} -> 404004
    no-tags: PUT {shared}/tags <tags/>
    long-tag: PUT {shared}/tags <tags><tag label='$long'/></tags> -> 400075
    blank-tag: PUT {shared}/tags <tags><tag label=''/></tags> -> 400075
    ; PUT {shared}/tags <tags><tag label=' '/></tags> -> 400075
    unknown-connection: PUT {shared}/connections/{nothing} <connection userName='x'/> -> 404020
    unknown-revision: GET {shared}/revisions/9/content -> 404024
    unknown-capability: PUT {shared}/permissions $nosuch -> 400000 or 400009
    permissions-of-something-else: PUT {shared}/permissions <permissions><workbook/></permissions>
        -> 400000
    ; PUT {shared}/permissions <permissions><datasource id='{nothing}'/></permissions>
        -> 400000 or 404009
    permissions-in-a-locked-project: PUT projects/{folder}
        <project contentPermissions='LockedToProject'/>
        -> project@contentPermissions=LockedToProject
    ; $move
    ; PUT {new}/permissions $read -> 403004
    no-leader: PUT {shared}/permissions $leader -> 400000 or 400009
    no-mode: PUT {shared}/permissions $maybe -> 400000
    rules-for-nobody: PUT {shared}/permissions $nobody -> 400000
    ; PUT {shared}/permissions $nouser -> 404002
    ; PUT {shared}/permissions $nogroup -> 404012
    not-granted: DELETE {shared}/permissions/users/{user}/VizqlDataApiAccess/Allow -> 404013
    """,
    create=_CREATE,
    move=_MOVE,
    long="x" * 201,
    nosuch=_rule("NoSuch"),
    read=_rule("Read"),
    leader=_rule("ProjectLeader"),
    maybe=_rule("Read", mode="Maybe"),
    nobody=_rule("Read", to=""),
    nouser=_rule("Read", to="<user id='{nothing}'/>"),
    nogroup=_rule("Read", to="<group id='{nothing}'/>"),
)
@asks(
    Source.LIVE_MESSAGES,
    """
    taken-project-name: POST projects <project name='a{name}' parentProjectId='{project}'/> -> 201
    ; POST projects <project name='A{name}' parentProjectId='{project}'/> -> 409006
    refresh-of-hyper-data: POST {shared}/refresh <extractRefresh/> -> 409090
    """,
)
@asks(
    Source.SAMPLES,
    """
    same-name-elsewhere: $create -> 201
    ; POST projects <project name='{name}' parentProjectId='{folder}'/> -> 201
    """,
    create=_CREATE,
)
@asks(
    Source.TSC,
    """
    parameter-given-twice: POST projects?publishSamples=False&publishSamples=False
        <project name='{name}' parentProjectId='{project}'/>
        -> 201
    project-read-by-put: PUT projects/{project}?publishSamples=False <project/>
        -> project@id={project} project@name
    type-of-hyper-data: GET {shared} -> datasource@type=hyper
    new-upload: POST fileUploads -> 201 fileUpload@uploadSessionId fileUpload@fileSize=0
    removed-tag: PUT {new}/tags <tags><tag label='a/b'/></tags> -> tags/tag@label=a/b
    ; DELETE {new}/tags/a%2Fb -> 204
    ; DELETE {new}/tags/a%2Fb -> 404007
    ; PUT {new}/tags <tags><tag label='q?x=1#%2F'/></tags>
    ; DELETE {new}/tags/q%3Fx%3D1%23%252F -> 204
    ; GET {new}
    hyper-connection: GET {shared}/connections
        -> connections/connection@id connections/connection@type=hyper
    tagged-queries: GET {shared}/connections -> connections/connection@queryTaggingEnabled=true
    """,
)
@asks(
    Source.SCHEMA,
    """
    connection-record: GET {shared}/connections
        -> connections/connection@serverAddress connections/connection@userName
        connections/connection@embedPassword connections/connection/datasource@name
    revision-record: GET {shared}/revisions
        -> revisions/revision@publishedAt revisions/revision@sizeInBytes
    api-access: PUT {new}/permissions $api
    """,
    api=_rule("VizqlDataApiAccess"),
)
def test_project(workspace: Workspace, steps: Steps):
    """{steps}."""
    workspace.converse(*steps)


@fact(f"GET {_ONE}", Source.UNSTATED)
def test_hyper_data_are_no_extract(workspace: Workspace):
    """A published .hyper file counts as live, not as an extract."""
    workspace.converse(("GET {shared}", "datasource@hasExtracts=false"))


@fact(_ALL, Source.UNSTATED)
def test_unknown_filter_operator(session: Session):
    """A filter with an unknown operator is refused with 400065."""
    for request in (
        *("datasources?filter=name:resembles:x", "datasources?filter=name"),
        *("datasources?filter=tags:has:x", "datasources?filter=type:in:[hyper]"),
        *("datasources?filter=hasExtracts:in:[true]", "projects?filter=name:gt:x"),
    ):
        session.ask("GET", request).is_refused("400065")


@fact(_ALL, Source.UNSTATED)
def test_filter_by_no_time(session: Session):
    """A filter by an invalid value is refused with 400065."""
    for clause in ("updatedAt:gt:yesterday", "isCertified:eq:perhaps", "size:eq:small"):
        session.ask("GET", f"datasources?filter={clause}").is_refused("400065")


@fact("GET sites/{site}/datasources", Source.MCP)
def test_asterisk_in_a_filter(workspace: Workspace):
    """An asterisk in a filter by name stands for any text."""
    name = workspace.shared.name
    for pattern, is_found in ((f"{name[:-1]}*", True), (f"*{name}*", True), (f"{name}?*", False)):
        answer = workspace.send(f"GET datasources?filter=name:eq:{pattern}").succeeds()
        assert (workspace.shared.luid in answer.all("datasources/datasource@id")) == is_found


@fact(f"GET {_PROJECTS}", Source.REFERENCE)
def test_sorted_list(session: Session):
    """A list is sorted in the requested order."""
    for order in ("asc", "desc"):
        answer = session.send(f"GET projects?pageSize=1000&sort=createdAt:{order}").succeeds()
        times = [str(each) for each in answer.all("projects/project@createdAt")]
        assert times == sorted(times, reverse=order == "desc")


@fact(_ALL, Source.UNSTATED)
def test_case_of_filters(workspace: Workspace):
    """A filter by name is case-sensitive."""
    request = f"GET datasources?filter=name:eq:{workspace.shared.name.upper()}"
    workspace.converse((request, _NONE))


# Servers update their search index some time after a create.
_INDEX_SECONDS = 60


def _listed(workspace: Workspace, new: Published) -> bool:
    answer = workspace.send(f"GET datasources?filter=name:eq:{new.name}").succeeds()
    return answer.all("datasources/datasource@id") == [new.luid]


@fact(_ALL, Source.REFERENCE)
def test_listed_within_a_minute(workspace: Workspace):
    """A new data source can be read by LUID at once, and is listed by name within a minute."""
    new = workspace.published()
    workspace.record(new)
    deadline = time.monotonic() + _INDEX_SECONDS
    while not _listed(workspace, new):
        assert time.monotonic() < deadline, "it is not listed"
        time.sleep(1)


@fact(_ALL, Source.UNSTATED)
def test_listed_at_once(workspace: Workspace):
    """A list has a data source that was just published."""
    assert _listed(workspace, workspace.published())


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


def _by_graphql(session: Session, query: str, **variables: object) -> Any:
    answer = session.call(
        "POST",
        "graphql",
        json.dumps({"query": query, "variables": variables}),
        version="metadata",
        token=session.token,
        headers={"Content-Type": "application/json", "Accept": "application/json"},
    )
    if answer.status in (403, 404):
        pytest.skip("the server has no metadata API")
    return answer.succeeds().json()["data"]


@fact("POST metadata/graphql", Source.DAGSTER)
def test_workbooks_by_graphql(session: Session):
    """The metadata API answers queries about workbooks in JSON."""
    assert isinstance(_by_graphql(session, "{workbooks {luid}}")["workbooks"], list)


@fact("POST metadata/graphql", Source.JSON_CLIENTS)
def test_ids_by_graphql(session: Session):
    """The metadata API gives ids of published data sources by a list of LUIDs."""
    query = "query q($luids: [String]) {publishedDatasources(filter: {luidWithin: $luids}) {id}}"
    found = _by_graphql(session, query, luids=["00000000-0000-4000-8000-000000000000"])
    assert found["publishedDatasources"] == []


@fact(f"GET {_PROJECTS}", Source.TSC)
def test_times_without_fractions(session: Session):
    """Times are in UTC and have neither fractions of a second nor an offset."""
    answer = session.send("GET projects?pageSize=1").succeeds()
    for name in ("createdAt", "updatedAt"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer[f"projects/project@{name}"])


@fact(f"GET {_ONE}", Source.SCHEMA)
def test_order_in_a_record(session: Session):
    """The record of a data source has its project, its owner and its tags in this order."""
    answer = session.send("GET datasources/{datasource}").succeeds()
    known = ["project", "owner", "tags"]
    assert [each.tag for each in answer.element("datasource") if each.tag in known] == known


@fact(_ALL, Source.REFERENCE)
def test_filters_choose(workspace: Workspace):
    """Filters find a data source by its own values only."""
    target = workspace.published()
    workspace.send(f"PUT {target.path} <datasource description='Seen'/>").succeeds()
    workspace.send(f"PUT {target.path}/tags <tags><tag label='seen'/></tags>").succeeds()
    for clauses, found in (
        ("tags:in:[seen,else],description:eq:Seen,isPublished:eq:TRUE,size:gte:1", "1"),
        *(("tags:eq:else", "0"), ("description:in:[seen,else]", "0"), ("type:eq:sqlproxy", "0")),
        *(("connectionType:in:[hyper,else]", "1"), ("size:lt:1", "0"), ("projectName:eq:", "0")),
        *(("contentUrl:eq:no", "0"), ("ownerName:eq:no", "0"), ("isCertified:eq:true", "0")),
    ):
        answer = workspace.send(f"GET datasources?filter=name:eq:{target.name},{clauses}")
        assert answer.succeeds()["pagination@totalAvailable"] == found, clauses


@fact(f"GET {_PROJECTS}", Source.TSC)
def test_pages_make_a_list(session: Session):
    """The pages of a list have each item of the list once, in the same order."""
    pages = [session.send(f"GET projects?sort=name:asc&pageSize=1&pageNumber={n}") for n in (1, 2)]
    if pages[1].status == 400:
        pytest.skip("there is one project only")
    listed = session.send("GET projects?sort=name:asc&pageSize=2").succeeds()
    paged = [page["projects/project@id"] for page in pages]
    assert paged == listed.all("projects/project@id")


@fact(f"PUT {_PROJECT}", Source.REFERENCE)
def test_moved_project(workspace: Workspace):
    """A project can move into another project, but not into itself."""
    outer, inner = workspace.new_project(), workspace.new_project()
    for parent, expected in ((outer, f"200 project@parentProjectId={outer}"), (inner, "400000")):
        request = f"PUT projects/{inner} <project parentProjectId='{parent}'/>"
        workspace.send(request).meets(expected)
