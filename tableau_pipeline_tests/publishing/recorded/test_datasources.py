"""Data sources, projects and revisions, modelled on public recordings."""

from pathlib import Path
from typing import Any

import pytest

from tableau_pipeline.errors import RefreshError
from tableau_pipeline_tests.publishing.recorded.support import (
    ITEM,
    LUID,
    OTHER,
    Server,
    error,
    page,
    raw,
    xml,
)

SOURCES, PROJECTS = "sites/[^/]+/datasources", "sites/[^/]+/projects"
TIMES = 'createdAt="2016-08-04T21:31:55Z" updatedAt="2016-08-04T21:31:56Z"'
PROJECT = "ee8c6e70-43b6-11e6-af4f-f7b0d8e20760"
OWNER = "5de011f8-5aa9-4d5b-b991-f462c8dd6bb7"
AROUND = f'<project id="{PROJECT}" name="default"/><owner id="{OWNER}"/>'
TAGS = '<tags><tag label="world"/><tag label="two words"/></tags>'
# TSC, datasource_get_by_id.xml: no size, no address, and the element "askData" of older versions.
BY_ID = (
    f'<datasource id="{LUID}" name="Sales" contentUrl="Sales" type="dataengine" {TIMES}'
    f' description="test-ds">{AROUND}{TAGS}<askData enablement="SiteDefault"/></datasource>'
)
# TSC, datasource_get_all_fields.xml.
IN_FULL = (
    f'<datasource connectedWorkbooksCount="0" contentUrl="Sales" {TIMES} encryptExtracts="false"'
    ' favoritesTotal="0" hasAlert="false" hasExtracts="false" isCertified="false"'
    f' isPublished="true" id="{LUID}" name="Sales" size="3" type="excel-direct"'
    ' useRemoteQueryAgent="false" serverName="localhost" webpageUrl="https://x/datasources/1">'
    f'<project id="{PROJECT}" name="Samples" description="Samples."/><owner email="b@x"'
    f' fullName="Bob" id="{OWNER}" lastLogin="2025-02-04T06:39:20Z" name="b@x"'
    ' siteRole="SiteAdministratorCreator"/><tags/></datasource>'
)
REVISION = '<revision revisionNumber="{}" {}>{}</revision>'
PUBLISHER = f'<publisher id="{OWNER}" name="Cassie"/>'
NONE = page("revisions")


def test_data_source_by_its_id(server: Server):
    """Prevents: a data source is not found because the server's answer lacks some fields."""
    with (
        server.saying("GET", f"{ITEM}/revisions", NONE),
        server.saying("GET", ITEM, xml(BY_ID)),
    ):
        found: Any = server.site.find_by_luid(LUID)
    assert (found.luid, found.name, found.project_id, found.owner_id) == (
        LUID,
        "Sales",
        PROJECT,
        OWNER,
    )
    assert (found.tags, found.description) == ({"world", "two words"}, "test-ds")
    assert (found.megabytes, found.link, found.certification, found.revision) == (None,) * 4


@pytest.mark.parametrize(
    "body",
    [
        # TSC, datasource_get_no_owner.xml. This user may see neither the owner nor the project.
        f'<datasource id="{LUID}" name="Sales" {TIMES}/>',
        f'<datasource id="{LUID}" name="Sales" {TIMES} new="1"><news x="2"/><tags/></datasource>',
    ],
)
def test_data_source_with_little_about_it(server: Server, body: str):
    """Prevents: a data source is not found because this user may not see who owns it."""
    with server.saying("GET", f"{ITEM}/revisions", NONE), server.saying("GET", ITEM, xml(body)):
        found: Any = server.site.find_by_luid(LUID)
    assert (found.luid, found.name, found.tags, found.description) == (LUID, "Sales", set(), "")


@pytest.mark.parametrize(
    "stamp", ["", "2016-08-04T21:31:56.5Z", "2016-08-04T21:31:56+02:00", "yesterday"]
)
def test_data_source_without_a_stamp(server: Server, stamp: str):
    """Prevents: changes go unseen because the time of the last update cannot be read."""
    body = BY_ID.replace("2016-08-04T21:31:56Z", stamp)
    with (
        server.saying("GET", f"{ITEM}/revisions", NONE),
        server.saying("GET", ITEM, xml(body)),
        pytest.raises(RefreshError, match=f"no valid updatedAt for data source {LUID}"),
    ):
        server.site.find_by_luid(LUID)


def test_size(server: Server, tmp_path: Path):
    """Prevents: a download fails or has no limit because the size is not among the usual fields."""
    others = IN_FULL.replace(LUID, OTHER).replace('size="3"', 'size="999"')
    package = raw(bytes(9 * 10**6), Content_Disposition="attachment")
    with (
        server.saying("GET", ITEM, xml(BY_ID)),
        server.saying("GET", SOURCES, page("datasources", others, IN_FULL)) as asked,
        server.saying("GET", f"{ITEM}/content", package),
    ):
        assert server.site.megabytes(LUID) == 3
        assert "fields=_all_" in asked[0]
        assert "filter=name:eq:Sales" in asked[0].replace("%3A", ":")
        # The limit is 2 * (size + 1) megabytes, because servers round the size.
        with pytest.raises(RefreshError, match=r"larger than 8\.39 MB"):
            server.site.download(LUID, tmp_path)


@pytest.mark.parametrize("listed", [(), (IN_FULL.replace('size="3"', ""),)])
def test_size_that_nothing_tells(server: Server, listed: tuple[str, ...]):
    """Prevents: a missing size ends in an error, or passes for an empty file."""
    with (
        server.saying("GET", ITEM, xml(BY_ID)),
        server.saying("GET", SOURCES, page("datasources", *listed)),
    ):
        assert server.site.megabytes(LUID) is None


def test_data_sources_of_a_project(server: Server):
    """Prevents: adopting a project downloads large data sources because their size is unknown."""
    elsewhere = IN_FULL.replace(LUID, OTHER).replace(PROJECT, OTHER)
    with server.saying("GET", SOURCES, page("datasources", elsewhere, IN_FULL)) as asked:
        (found,) = server.site.in_project(PROJECT)
    assert "fields=_all_" in asked[0]
    assert (found.luid, found.megabytes, found.owner_id) == (LUID, 3, OWNER)


# REST reference, Get Data Source Revisions; TSC, datasource_revision.xml: the first revision's
# publisher is gone, the second revision was deleted, and the third is current. Older servers call
# the time `createdAt`.
AT = 'publishedAt="2016-07-2{}T20:34:56Z"'
REVISIONS = (
    REVISION.format(1, AT.format(6) + ' deleted="false" sizeInBytes="1"', ""),
    REVISION.format(2, AT.format(7) + ' deleted="true"', PUBLISHER),
    REVISION.format(3, AT.format(8) + ' current="true"', PUBLISHER),
)
OLD = REVISION.format(4, 'createdAt="2016-07-28T20:34:56Z" current="true"', PUBLISHER)


@pytest.mark.parametrize(
    ("answer", "revision", "published"),
    [
        (page("revisions", *REVISIONS), 3, 'by "Cassie" at 2016-07-28'),
        (page("revisions", *REVISIONS[:1]), 1, "revision 1 was published at 2016-07-26"),
        (page("revisions", OLD), 4, 'revision 4 was published by "Cassie"'),
        (NONE, None, None),
        # The site keeps no revisions, or this user may not see them.
        (error(403, "403053"), None, None),
        (error(403, "403054"), None, None),
    ],
)
def test_revisions(server: Server, answer: Any, revision: int | None, published: str | None):
    """Prevents: another user's publish goes unseen, or no message names that user."""
    with server.saying("GET", f"{ITEM}/revisions", answer), server.saying("GET", ITEM, xml(BY_ID)):
        found: Any = server.site.find_by_luid(LUID)
    assert found.revision == revision
    assert (published or "") in (found.published or "")


def test_a_revision_without_a_number(server: Server):
    """Prevents: an unreadable answer of the server is reported as a bug of the pipeline."""
    odd = page("revisions", REVISION.format("new", AT.format(6), ""))
    with (
        server.saying("GET", f"{ITEM}/revisions", odd),
        server.saying("GET", ITEM, xml(BY_ID)),
        pytest.raises(RefreshError, match='like a Tableau Server: it sent "new" as the number'),
    ):
        server.site.find_by_luid(LUID)


def test_pages_that_are_smaller_than_asked_for(server: Server):
    """Prevents: the second page of a list is overlooked if pages are smaller than requested."""
    first, second = (
        page("datasources", each, total=2) for each in (IN_FULL.replace(LUID, OTHER), IN_FULL)
    )

    def paged(call: Any) -> None:
        answer = second if "pageNumber=2" in call.path else first
        answer(call)

    def small(call: Any) -> None:
        whole = call.whole
        call.whole = lambda status, body, **more: whole(
            status, body.replace(b'pageSize="1000"', b'pageSize="1"'), **more
        )
        paged(call)

    with server.saying("GET", SOURCES, small):
        assert {each.luid for each in server.site.in_project(PROJECT)} == {LUID, OTHER}


def project(name: str, luid: str, about: str = "") -> str:
    """A project as in TSC, project_get_all_fields.xml."""
    return (
        f'<project id="{luid}" name="{name}" description="" {TIMES} {about}'
        ' contentPermissions="ManagedByOwner"><owner email="b@x" fullName="Bob" id="1" name="Bob"'
        ' siteRole="Creator"/><contentsCounts projectCount="0" datasourceCount="1"/></project>'
    )


def test_who_may_publish(server: Server):
    """Prevents: the command `doctor` requests too few fields to tell where the user may publish."""
    projects = [
        project("Sales", "1", 'topLevelProject="true" writeable="true"'),
        project("HR", "2", 'topLevelProject="true" writeable="false"'),
        project("IT", "3"),
    ]

    def respond(call: Any) -> None:
        # The server sends all fields only to a client that asks for them.
        shown = projects if "fields=_all_" in call.path else [project("Sales", "1")]
        page("projects", *shown)(call)

    with server.saying("GET", PROJECTS, respond):
        assert server.site.may_publish() == {"1": True, "2": False, "3": None}


def test_projects_within_others(server: Server):
    """Prevents: a path leads to the wrong project among several projects of the same name."""
    answer = page(
        "projects",
        project("Sales", "1"),
        project("EU", "2", 'parentProjectId="1"'),
        project("EU", "3", 'parentProjectId="hidden"'),
        project("EU", "4", 'parentProjectId=""'),
    )
    with server.saying("GET", PROJECTS, answer):
        assert server.site.find_project("Sales/EU") == "2"
        assert server.site.find_project("sales / eu") == "2"
        assert server.site.find_project("EU") == "4"
        assert server.site.find_project("EU/Sales") is None


# TSC, project_create.xml.
CREATED = f'<project id="{OTHER}" name="New" description="" contentPermissions="ManagedByOwner"/>'


def test_project_that_is_made(server: Server):
    """Prevents: a new project counts as missing because the server's answer has few fields."""
    with (
        server.saying("GET", PROJECTS, page("projects")),
        server.saying("POST", PROJECTS, xml(CREATED)),
    ):
        assert server.site.project("New", create=True) == OTHER
