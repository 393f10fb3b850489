"""Lists: pages, filters, and what is refused in them."""

import json

from tableau_pipeline.sandbox.facts.answer import Answer, NotShown, expect, expect_that
from tableau_pipeline.sandbox.facts.fact import reads
from tableau_pipeline.sandbox.facts.scene import Scene
from tableau_pipeline.sandbox.facts.sources import LIVE_MESSAGES, MCP, NOBODY, REFERENCE, TSC

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
