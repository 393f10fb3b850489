"""Records of what a site has, and of what it lacks."""

import re
from urllib.parse import quote
from uuid import uuid4

from tableau_sandbox_tests.contract.answer import attribute
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import NOBODY, REFERENCE, SCHEMA, TABCMD, TSC, fact

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@fact("GET sites/{any_site}", REFERENCE)
def test_site_of_the_session(session: Session):
    """A session reads its site, with its name and its content URL."""
    site = (
        session.call("GET", f"sites/{session.site}", token=session.token)
        .succeeds(200)
        .element("site")
    )
    assert attribute(site, "contentUrl") == session.credentials.site
    assert attribute(site, "state") == "Active"
    attribute(site, "name")


@fact("GET sites/{site}/datasources", REFERENCE)
def test_unknown_site_in_a_path(session: Session):
    """A path with the LUID of no site is refused with 404000."""
    path = f"sites/{uuid4()}/datasources"
    session.call("GET", path, token=session.token).is_refused("404000")


@fact("GET sites/{site}/users/{user}", TABCMD)
def test_user_of_the_session(session: Session):
    """A session reads its own user, with name and site role."""
    user = session.ask("GET", f"users/{session.user}").succeeds(200).element("user")
    assert attribute(user, "id") == session.user
    for name in ("name", "siteRole"):
        attribute(user, name)


@fact("GET sites/{site}/users/{user}", REFERENCE)
def test_unknown_user(session: Session):
    """A user that does not exist is refused with 404002."""
    session.ask("GET", f"users/{uuid4()}").is_refused("404002")


@fact("GET sites/{site}/projects", TABCMD)
def test_default_project(session: Session):
    """There is a project called Default, in any case of letters."""
    for name in ("Default", "default"):
        path = f"projects?filter=name:eq:{name},topLevelProject:eq:true"
        found = session.ask("GET", path).succeeds(200).elements("projects/project")
        assert len(found) == 1, f"{len(found)} projects"


@fact("GET sites/{site}/projects", SCHEMA)
def test_project_record(session: Session):
    """A project has a name, times, an owner and its way of permissions."""
    answer = session.ask("GET", "projects?pageSize=1").succeeds(200)
    project = answer.element("projects/project")
    for name in ("id", "name", "createdAt", "updatedAt", "contentPermissions"):
        attribute(project, name)
    attribute(answer.element("projects/project/owner"), "id")


@fact("GET sites/{site}/projects", TSC)
def test_times_without_fractions(session: Session):
    """Times are in UTC and have neither fractions of a second nor an offset."""
    project = session.ask("GET", "projects?pageSize=1").succeeds(200).element("projects/project")
    for name in ("createdAt", "updatedAt"):
        time = attribute(project, name)
        assert re.fullmatch(_TIME, time), time


@fact("GET sites/{site}/datasources/{datasource}", TSC)
def test_datasource_record(session: Session):
    """A data source has the attributes that clients read, its project and its owner."""
    answer = session.ask("GET", f"datasources/{session.first('datasource')}").succeeds(200)
    datasource = answer.element("datasource")
    names = "id name contentUrl type createdAt updatedAt isCertified hasExtracts webpageUrl"
    for name in names.split():
        attribute(datasource, name)
    for child in ("project", "owner"):
        attribute(answer.element(f"datasource/{child}"), "id")
    answer.element("datasource/tags")


@fact("GET sites/{site}/datasources/{datasource}", REFERENCE)
def test_unknown_datasource(session: Session):
    """A data source that does not exist is refused with 404004."""
    session.ask("GET", f"datasources/{uuid4()}").is_refused("404004")


@fact("GET sites/{site}/datasources/{datasource}/content", REFERENCE)
def test_content_of_an_unknown_datasource(session: Session):
    """The content of a data source that does not exist is refused with 404004."""
    session.ask("GET", f"datasources/{uuid4()}/content").is_refused("404004")


@fact("GET sites/{site}/datasources/{datasource}/connections", REFERENCE)
def test_connections_of_an_unknown_datasource(session: Session):
    """The connections of a data source that does not exist are refused with 404011."""
    session.ask("GET", f"datasources/{uuid4()}/connections").is_refused("404011")


@fact("GET sites/{site}/jobs/{job}", REFERENCE)
def test_unknown_job(session: Session):
    """A job that does not exist is refused with 404018."""
    session.ask("GET", f"jobs/{uuid4()}").is_refused("404018")


@fact("GET sites/{site}/datasources", TSC)
def test_unknown_path(session: Session):
    """A path that does not exist is refused with 404003."""
    session.ask("GET", "noSuchThings").is_refused("404003")


@fact("GET sites/{site}/projects", REFERENCE)
def test_wrong_method(session: Session):
    """A method that a path does not have is refused with 405000."""
    session.ask("PATCH", "projects").is_refused("405000")


@fact("PATCH sites/{site}/datasources/{datasource}/data", NOBODY)
def test_update_of_an_unknown_datasource(session: Session):
    """An update of a data source that does not exist is refused with 404004."""
    session.needs_version("3.12")
    headers = {"Content-Type": "application/json", "RequestID": str(uuid4())}
    batch = '{"actions":[{"action":"delete","target-table":"t","condition":true}]}'
    path = f"datasources/{uuid4()}/data"
    session.ask("PATCH", path, batch, headers=headers).is_refused("404004")


@fact("GET sites/{any_site}", REFERENCE)
def test_site_by_its_name(session: Session):
    """A site is also found by its name."""
    path = f"sites/{session.site}"
    record = session.call("GET", path, token=session.token).succeeds(200).element("site")
    path = f"sites/{quote(attribute(record, 'name'), safe='')}?key=name"
    found = session.call("GET", path, token=session.token).succeeds(200).element("site")
    assert attribute(found, "id") == session.site


@fact("GET sites/{site}/datasources/{datasource}", SCHEMA)
def test_order_in_a_record(session: Session):
    """In the record of a data source, its project, its owner and its tags follow in this order."""
    answer = session.ask("GET", f"datasources/{session.first('datasource')}").succeeds(200)
    known = ("project", "owner", "tags")
    assert tuple(each.tag for each in answer.element("datasource") if each.tag in known) == known


@fact("GET sites/{site}/datasources/{datasource}", TSC)
def test_size_of_a_datasource(session: Session):
    """The size of a data source is a whole number of megabytes."""
    answer = session.ask("GET", f"datasources/{session.first('datasource')}").succeeds(200)
    size = answer.element("datasource").get("size", "0")
    assert size.isdecimal(), size
