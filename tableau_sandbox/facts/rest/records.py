"""Records of what a site has, and of what it lacks."""

import re
from urllib.parse import quote
from uuid import uuid4

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.fact import reads
from tableau_sandbox.facts.scene import Scene
from tableau_sandbox.facts.sources import (
    NOBODY,
    REFERENCE,
    SCHEMA,
    TABCMD,
    TSC,
)

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@reads("GET sites/{any_site}", REFERENCE)
def site_of_the_session(scene: Scene) -> None:
    """A session reads its site, with its name and its content URL."""
    site = scene.call("GET", f"sites/{scene.site}", token=scene.token).succeeds(200).element("site")
    expect(scene.credentials.site, attribute(site, "contentUrl"))
    expect("Active", attribute(site, "state"))
    attribute(site, "name")


@reads("GET sites/{site}/datasources", REFERENCE)
def unknown_site_in_a_path(scene: Scene) -> None:
    """A path with the LUID of no site is refused with 404000."""
    path = f"sites/{uuid4()}/datasources"
    scene.call("GET", path, token=scene.token).is_refused("404000")


@reads("GET sites/{site}/users/{user}", TABCMD)
def user_of_the_session(scene: Scene) -> None:
    """A session reads its own user, with name and site role."""
    user = scene.ask("GET", f"users/{scene.user}").succeeds(200).element("user")
    expect(scene.user, attribute(user, "id"))
    for name in ("name", "siteRole"):
        attribute(user, name)


@reads("GET sites/{site}/users/{user}", REFERENCE)
def unknown_user(scene: Scene) -> None:
    """A user that does not exist is refused with 404002."""
    scene.ask("GET", f"users/{uuid4()}").is_refused("404002")


@reads("GET sites/{site}/projects", TABCMD)
def default_project(scene: Scene) -> None:
    """There is a project called Default, in any case of letters."""
    for name in ("Default", "default"):
        path = f"projects?filter=name:eq:{name},topLevelProject:eq:true"
        found = scene.ask("GET", path).succeeds(200).elements("projects/project")
        expect_that(len(found) == 1, f"one project for {name}", f"{len(found)} projects")


@reads("GET sites/{site}/projects", SCHEMA)
def project_record(scene: Scene) -> None:
    """A project has a name, times, an owner and its way of permissions."""
    answer = scene.ask("GET", "projects?pageSize=1").succeeds(200)
    project = answer.element("projects/project")
    for name in ("id", "name", "createdAt", "updatedAt", "contentPermissions"):
        attribute(project, name)
    attribute(answer.element("projects/project/owner"), "id")


@reads("GET sites/{site}/projects", TSC)
def times_without_fractions(scene: Scene) -> None:
    """Times are in UTC and have neither fractions of a second nor an offset."""
    project = scene.ask("GET", "projects?pageSize=1").succeeds(200).element("projects/project")
    for name in ("createdAt", "updatedAt"):
        time = attribute(project, name)
        expect_that(re.fullmatch(_TIME, time), "a time such as 2026-01-31T12:00:00Z", time)


@reads("GET sites/{site}/datasources/{datasource}", TSC)
def datasource_record(scene: Scene) -> None:
    """A data source has the attributes that clients read, its project and its owner."""
    answer = scene.ask("GET", f"datasources/{scene.first('datasource')}").succeeds(200)
    datasource = answer.element("datasource")
    names = "id name contentUrl type createdAt updatedAt isCertified hasExtracts webpageUrl"
    for name in names.split():
        attribute(datasource, name)
    for child in ("project", "owner"):
        attribute(answer.element(f"datasource/{child}"), "id")
    answer.element("datasource/tags")


@reads("GET sites/{site}/datasources/{datasource}", REFERENCE)
def unknown_datasource(scene: Scene) -> None:
    """A data source that does not exist is refused with 404004."""
    scene.ask("GET", f"datasources/{uuid4()}").is_refused("404004")


@reads("GET sites/{site}/datasources/{datasource}/content", REFERENCE)
def content_of_an_unknown_datasource(scene: Scene) -> None:
    """The content of a data source that does not exist is refused with 404004."""
    scene.ask("GET", f"datasources/{uuid4()}/content").is_refused("404004")


@reads("GET sites/{site}/datasources/{datasource}/connections", REFERENCE)
def connections_of_an_unknown_datasource(scene: Scene) -> None:
    """The connections of a data source that does not exist are refused with 404011."""
    scene.ask("GET", f"datasources/{uuid4()}/connections").is_refused("404011")


@reads("GET sites/{site}/jobs/{job}", REFERENCE)
def unknown_job(scene: Scene) -> None:
    """A job that does not exist is refused with 404018."""
    scene.ask("GET", f"jobs/{uuid4()}").is_refused("404018")


@reads("GET sites/{site}/datasources", TSC)
def unknown_path(scene: Scene) -> None:
    """A path that does not exist is refused with 404003."""
    scene.ask("GET", "noSuchThings").is_refused("404003")


@reads("GET sites/{site}/projects", REFERENCE)
def wrong_method(scene: Scene) -> None:
    """A method that a path does not have is refused with 405000."""
    scene.ask("PATCH", "projects").is_refused("405000")


@reads("PATCH sites/{site}/datasources/{datasource}/data", NOBODY)
def update_of_an_unknown_datasource(scene: Scene) -> None:
    """An update of a data source that does not exist is refused with 404004."""
    scene.needs_version("3.12")
    headers = {"Content-Type": "application/json", "RequestID": str(uuid4())}
    batch = '{"actions":[{"action":"delete","target-table":"t","condition":true}]}'
    path = f"datasources/{uuid4()}/data"
    scene.ask("PATCH", path, batch, headers=headers).is_refused("404004")


@reads("GET sites/{any_site}", REFERENCE)
def site_by_its_name(scene: Scene) -> None:
    """A site is also found by its name."""
    path = f"sites/{scene.site}"
    record = scene.call("GET", path, token=scene.token).succeeds(200).element("site")
    path = f"sites/{quote(attribute(record, 'name'), safe='')}?key=name"
    found = scene.call("GET", path, token=scene.token).succeeds(200).element("site")
    expect(scene.site, attribute(found, "id"))


@reads("GET sites/{site}/datasources/{datasource}", SCHEMA)
def order_in_a_record(scene: Scene) -> None:
    """In the record of a data source, its project, its owner and its tags follow in this order."""
    answer = scene.ask("GET", f"datasources/{scene.first('datasource')}").succeeds(200)
    known = ("project", "owner", "tags")
    expect(known, tuple(each.tag for each in answer.element("datasource") if each.tag in known))


@reads("GET sites/{site}/datasources/{datasource}", TSC)
def size_of_a_datasource(scene: Scene) -> None:
    """The size of a data source is a whole number of megabytes."""
    answer = scene.ask("GET", f"datasources/{scene.first('datasource')}").succeeds(200)
    size = answer.element("datasource").get("size", "0")
    expect_that(size.isdecimal(), "a whole number", size)
