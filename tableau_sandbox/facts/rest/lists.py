"""Lists: pages, filters, and what is refused in them."""

import json
from uuid import uuid4

from tableau_sandbox.facts.answer import Answer, NotShown, attribute, expect, expect_that
from tableau_sandbox.facts.fact import reads
from tableau_sandbox.facts.scene import Scene
from tableau_sandbox.facts.sources import (
    DAGSTER,
    LIVE_MESSAGES,
    MCP,
    NOBODY,
    REFERENCE,
    SCHEMA,
    TSC,
)

_DATASOURCES = "GET sites/{site}/datasources"
_PROJECTS = "GET sites/{site}/projects"
_NOTHING = "filter=name:eq:no-such-name-for-verify"


def _pagination(answer: Answer) -> dict[str, str]:
    return answer.succeeds(200).element("pagination").attrib


@reads(_DATASOURCES, REFERENCE)
def default_page(scene: Scene) -> None:
    """Without parameters, a list is the first page of 100 items."""
    page = _pagination(scene.ask("GET", "datasources"))
    expect(("1", "100"), (page.get("pageNumber"), page.get("pageSize")))


@reads(_PROJECTS, REFERENCE)
def chosen_page(scene: Scene) -> None:
    """A page has as many items as asked for, and says how many there are in all."""
    answer = scene.ask("GET", "projects?pageSize=1&pageNumber=1")
    page = _pagination(answer)
    expect(("1", "1"), (page.get("pageNumber"), page.get("pageSize")))
    expect_that(int(page.get("totalAvailable", "0")) >= 1, "a total of one or more", page)
    expect(1, len(answer.elements("projects/project")))


@reads(_PROJECTS, REFERENCE)
def page_beyond_the_last(scene: Scene) -> None:
    """A page beyond the last is refused with 400006."""
    scene.ask("GET", "projects?pageSize=1000&pageNumber=9999").is_refused("400006")


@reads(_PROJECTS, REFERENCE)
def page_number_below_one(scene: Scene) -> None:
    """The page number 0 is refused with 400006."""
    scene.ask("GET", "projects?pageNumber=0").is_refused("400006")


@reads(_DATASOURCES, REFERENCE)
def page_size_below_one(scene: Scene) -> None:
    """The page size 0 is refused with 400007."""
    scene.ask("GET", "datasources?pageSize=0").is_refused("400007")


@reads(_DATASOURCES, REFERENCE)
def page_size_in_words(scene: Scene) -> None:
    """A page size that is no number is refused with 400007."""
    scene.ask("GET", "datasources?pageSize=many").is_refused("400007")


@reads(_DATASOURCES, REFERENCE)
def page_size_above_the_maximum(scene: Scene) -> None:
    """A page size above 1000 is refused with 403014."""
    scene.ask("GET", "datasources?pageSize=1001").is_refused("403014")


@reads(_DATASOURCES, TSC)
def first_page_of_nothing(scene: Scene) -> None:
    """The first page of an empty list is no error."""
    answer = scene.ask("GET", f"datasources?{_NOTHING}&pageNumber=1")
    expect("0", _pagination(answer).get("totalAvailable"))


@reads(_DATASOURCES, MCP)
def empty_list_in_json(scene: Scene) -> None:
    """In JSON, an empty list is {} and the numbers of a page are strings."""
    headers = {"Accept": "application/json"}
    answer = scene.ask("GET", f"datasources?{_NOTHING}", headers=headers).succeeds(200)
    found = answer.json()
    expect({}, found.get("datasources"))
    page = {"pageNumber": "1", "pageSize": "100", "totalAvailable": "0"}
    expect(json.dumps(page), json.dumps(found.get("pagination"), sort_keys=True))


@reads(_DATASOURCES, LIVE_MESSAGES)
def unknown_filter_field(scene: Scene) -> None:
    """A filter by a field that is not known is refused with 400065."""
    scene.ask("GET", "datasources?filter=noSuchField:eq:x").is_refused("400065")


@reads(_DATASOURCES, LIVE_MESSAGES)
def datasources_have_no_filter_by_project_id(scene: Scene) -> None:
    """Data sources cannot be filtered by the LUID of their project."""
    path = f"datasources?filter=projectId:eq:{scene.site}"
    scene.ask("GET", path).is_refused("400065")


@reads(_DATASOURCES, NOBODY)
def unknown_filter_operator(scene: Scene) -> None:
    """A filter with an unknown operator is refused with 400065."""
    scene.ask("GET", "datasources?filter=name:resembles:x").is_refused("400065")


@reads(_DATASOURCES, NOBODY)
def filter_by_no_time(scene: Scene) -> None:
    """A filter that compares a time with something else is refused with 400065."""
    scene.ask("GET", "datasources?filter=updatedAt:gt:yesterday").is_refused("400065")


@reads(_PROJECTS, TSC)
def encoded_filter(scene: Scene) -> None:
    """A filter may be percent-encoded as forms are, and its clauses all count."""
    text = "topLevelProject%3Aeq%3Atrue%2Cname%3Aeq%3Ano+such+name"
    expect("0", _pagination(scene.ask("GET", f"projects?filter={text}")).get("totalAvailable"))


@reads(_DATASOURCES, REFERENCE)
def filter_by_several_values(scene: Scene) -> None:
    """The operator in takes several values in brackets."""
    path = "datasources?filter=name:in:%5Bno-such-name,nor-this%5D"
    expect("0", _pagination(scene.ask("GET", path)).get("totalAvailable"))


@reads(_PROJECTS, REFERENCE)
def sorted_list(scene: Scene) -> None:
    """A list is sorted as asked for."""
    up, down = (
        [
            item.get("createdAt", "")
            for item in scene.ask("GET", f"projects?pageSize=1000&sort=createdAt:{order}")
            .succeeds(200)
            .elements("projects/project")
        ]
        for order in ("asc", "desc")
    )
    expect_that(up == sorted(up), "times that ascend", "another order")
    expect_that(down == sorted(down, reverse=True), "times that descend", "another order")


@reads(_DATASOURCES, TSC)
def unknown_parameters(scene: Scene) -> None:
    """Query parameters that the server does not know are ignored."""
    scene.ask("GET", "datasources?noSuchParameter=true").succeeds(200)


@reads(_DATASOURCES, TSC)
def all_fields(scene: Scene) -> None:
    """The parameter fields takes _all_."""
    scene.ask("GET", "datasources?fields=_all_").succeeds(200)


@reads("GET sites/{site}/jobs", REFERENCE)
def list_of_jobs(scene: Scene) -> None:
    """Administrators list jobs, filtered by status."""
    answer = scene.ask("GET", "jobs?filter=status:eq:Success&pageSize=1")
    if answer.status == 403:
        raise NotShown("the user is no administrator")
    _pagination(answer)
    for job in answer.elements("backgroundJobs/backgroundJob"):
        expect("Success", job.get("status"))


@reads(_PROJECTS, REFERENCE)
def filters_of_projects(scene: Scene) -> None:
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
        _pagination(scene.ask("GET", f"projects?pageSize=1&filter={clause}"))


@reads(_DATASOURCES, REFERENCE)
def filters_of_datasources(scene: Scene) -> None:
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
        _pagination(scene.ask("GET", f"datasources?pageSize=1&filter={clause}"))


@reads(_PROJECTS, REFERENCE)
def filter_by_time(scene: Scene) -> None:
    """A filter by a time, with the colons in it, finds what is later."""
    path = "projects?pageSize=1&filter=createdAt:{}:2001-01-01T00:00:00Z"
    found = _pagination(scene.ask("GET", path.format("gt"))).get("totalAvailable", "0")
    expect_that(int(found) >= 1, "a project", found)
    expect("0", _pagination(scene.ask("GET", path.format("lt"))).get("totalAvailable"))


@reads(_DATASOURCES, REFERENCE)
def chosen_fields(scene: Scene) -> None:
    """The parameter fields takes _default_, and names of fields."""
    for fields in ("_default_", "datasource.id,datasource.name"):
        scene.ask("GET", f"datasources?pageSize=1&fields={fields}").succeeds(200)


@reads(_PROJECTS, MCP)
def list_in_json(scene: Scene) -> None:
    """In JSON, a list is an object with an array, and its values are strings."""
    headers = {"Accept": "application/json"}
    answer = scene.ask("GET", "projects?pageSize=1", headers=headers).succeeds(200)
    listed = answer.json().get("projects", {}).get("project")
    expect_that(isinstance(listed, list) and listed, "an array with a project", listed)
    expect_that(isinstance(listed[0].get("id"), str), "an id", listed[0])


@reads("GET sites", REFERENCE)
def list_of_sites(scene: Scene) -> None:
    """The site of the session is in the list of sites."""
    answer = scene.call("GET", "sites?pageSize=1000", token=scene.token)
    if answer.status == 403:
        raise NotShown("the user may not list sites")
    _pagination(answer)
    expect_that(
        scene.site in [item.get("id") for item in answer.elements("sites/site")],
        "the site of the session",
        answer,
    )


@reads("GET sites/{site}/users", TSC)
def list_of_users(scene: Scene) -> None:
    """Administrators list users, with all their fields."""
    answer = scene.ask("GET", "users?pageSize=1&fields=_all_")
    if answer.status == 403:
        raise NotShown("the user is no administrator")
    _pagination(answer)
    for name in ("id", "name", "siteRole"):
        attribute(answer.element("users/user"), name)


@reads("GET sites/{site}/groups", REFERENCE)
def group_of_all_users(scene: Scene) -> None:
    """Each site has a group All Users."""
    answer = scene.ask("GET", "groups?filter=name:eq:All+Users")
    expect("1", _pagination(answer).get("totalAvailable"))
    attribute(answer.element("groups/group"), "id")


@reads("GET sites/{site}/workbooks", REFERENCE)
def list_of_workbooks(scene: Scene) -> None:
    """Workbooks are listed in pages."""
    _pagination(scene.ask("GET", "workbooks?pageSize=1"))


@reads("GET sites/{site}/views", REFERENCE)
def list_of_views(scene: Scene) -> None:
    """Views are listed in pages."""
    _pagination(scene.ask("GET", "views?pageSize=1"))


@reads("GET schedules", REFERENCE)
def list_of_schedules(scene: Scene) -> None:
    """Schedules are listed in pages, below no site."""
    answer = scene.call("GET", "schedules?pageSize=1", token=scene.token)
    if answer.status != 200:
        raise NotShown("the server has no schedules, or the user may not list them")
    _pagination(answer)


@reads("GET sites/{site}/tasks/extractRefreshes", SCHEMA)
def list_of_refresh_tasks(scene: Scene) -> None:
    """Tasks that refresh extracts are listed, not in pages."""
    answer = scene.ask("GET", "tasks/extractRefreshes").succeeds(200)
    answer.element("tasks")
    expect([], answer.elements("pagination"))


@reads("POST metadata/graphql", DAGSTER)
def workbooks_by_graphql(scene: Scene) -> None:
    """The metadata API answers queries about workbooks in JSON."""
    query = json.dumps({"query": "{workbooks {luid}}"})
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answer = scene.call(
        "POST", "graphql", query, version="metadata", token=scene.token, headers=headers
    )
    if answer.status != 200:
        raise NotShown("the server has no metadata API")
    expect_that(isinstance(answer.json()["data"]["workbooks"], list), "a list", answer)
