"""Data sources and projects on the server, and their properties."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
import tableauserverclient as TSC

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing import properties
from tableau_pipeline.publishing import rest as lookup
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import (
    VIEWER,
    Shop,
    SignIn,
    forbid,
    hooked,
    published,
)
from tableau_sandbox.faults import Delay, ExpireSessions


def test_what_the_server_tells(shop: Shop, other: Path):
    # Prevents: a publish changes neither the time stamp nor the revision, and so goes unseen.
    sales = shop.sales
    assert sales.created_at <= sales.updated_at
    assert (sales.revision, sales.megabytes) == (1, 1)
    changed = shop.publish(other)
    assert (changed.created_at, changed.revision) == (sales.created_at, 2)
    assert changed.stamp > sales.stamp
    with shop.sandbox.armed(Delay(method="GET", seconds=0, times=None)) as calls:
        assert shop.found() == changed
    assert calls.seen == 2


def test_newest_revision_is_on_the_last_page(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    # Prevents: the newest revision goes unseen because the pipeline reads only one page.
    monkeypatch.setattr(lookup, "_PAGE_SIZE", 2)
    for _ in range(4):
        shop.publish(shop.small)
    assert shop.found().revision == 5


def unmarked(response: requests.Response, **_: object) -> None:
    text = response.content.replace(b'current="true"', b'current="false"')
    response._content = text.replace(b'Number="1"', b'Number="11"')


def emptied(response: requests.Response, **_: object) -> None:
    text = response.content.replace(b"<revision ", b"<other ")
    response._content = text.replace(b"</revision>", b"</other>")


def refused(code: bytes) -> Callable[..., None]:
    def hook(response: requests.Response, **_: object) -> None:
        if "/revisions" in (response.request.path_url or ""):
            forbid(response, code)

    return hook


@pytest.mark.parametrize(
    ("hook", "revision"),
    [(unmarked, 11), (emptied, None), (refused(b"403004"), None), (refused(b"403053"), None)],
    ids=["none marked", "none listed", "forbidden", "not kept"],
)
def test_unusual_revisions(shop: Shop, hook: Callable[..., None], revision: int | None):
    # Prevents: an unusual or forbidden list of revisions is misread, or stops every refresh.
    shop.publish(shop.small)
    with hooked(shop.site, hook):
        assert shop.found().revision == revision


def test_user_who_may_not_see_revisions(sign_in: SignIn, sales: RemoteDatasource):
    # Prevents: a user who may only read a data source cannot find it.
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer:
        found = viewer.find_by_name(sales.name, project_id=sales.project_id)
    assert found is not None
    assert (found.luid, found.revision) == (sales.luid, None)


def test_user_who_may_not_create_projects(sign_in: SignIn):
    """Prevents: an error asks for rights on a data source although a project cannot be created."""
    may_not = pytest.raises(RefusedError, match=r"403004.*At the top of the site, only administr")
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer, may_not:
        viewer.project("Of my own", create=True)


def test_move_leaves_all_else(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a move removes the description, the owner or the certification.
    item = tableau.tsc.datasources.get_by_id(sales.luid)
    item.description, item.owner_id = "All of it", tableau.user_id
    item.certified, item.certification_note = True, "By Ann"
    tableau.tsc.datasources.update(item)
    tableau.tag(sales.luid, ["x"])
    project, name = tableau.project(f"{sales.name} projects", create=True), f"{sales.name}, new"
    tableau.move(sales.luid, name=name, project_id=project)
    moved = tableau.find_by_luid(sales.luid)
    assert moved
    assert (moved.luid, moved.name, moved.project_id) == (sales.luid, name, project)
    assert (moved.tags, moved.owner_id, moved.revision) == ({"x"}, sales.owner_id, 1)
    assert (moved.description, moved.certification) == ("All of it", "By Ann")


def test_certified_right_before_a_move(
    tableau: TableauSite, sales: RemoteDatasource, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a rename takes back the certification that a user has set a moment before."""
    put_request = tableau.tsc.datasources.put_request

    def certified_before(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        values = {"isCertified": "true", "certificationNote": "By Ann"}
        properties.set_properties(tableau, sales.luid, **values)
        return put_request(*args, **more)

    monkeypatch.setattr(tableau.tsc.datasources, "put_request", certified_before)
    tableau.move(sales.luid, name=f"{sales.name}, new", project_id=sales.project_id)
    moved = tableau.find_by_luid(sales.luid)
    assert moved
    assert (moved.name, moved.certification) == (f"{sales.name}, new", "By Ann")


def test_rename_alone_certifies_nothing(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a rename also certifies the data source.
    tableau.move(sales.luid, name=sales.name.upper(), project_id=sales.project_id)
    moved = tableau.find_by_luid(sales.luid)
    assert moved
    assert (moved.name, moved.project_id) == (sales.name.upper(), sales.project_id)
    assert tableau.tsc.datasources.get_by_id(sales.luid).certified is False


def test_move_onto_another(tableau: TableauSite, sales: RemoteDatasource, small: Path):
    # Prevents: the error about a taken name shows only a code.
    other = published(tableau, small, name=f"{sales.name} 2", project_id=sales.project_id)
    with pytest.raises(RefusedError) as caught:
        tableau.move(sales.luid, name=other.name.upper(), project_id=sales.project_id)
    assert sales.luid not in str(caught.value)
    for part in ("409015", other.name.upper(), "Rename or delete", "already exists"):
        assert part in str(caught.value)
    assert tableau.find_by_luid(sales.luid) == sales


def test_list_by_tag(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    # Prevents: the search by tag overlooks a later page, or a data source with several tags.
    monkeypatch.setattr(lookup, "_PAGE_SIZE", 1)
    site, sales, others = shop.site, shop.sales, []
    prefix = f"{sales.name}:"
    for tags in (["x", f"{prefix}a/b"], [f"x{prefix}a"], [f"{prefix}c"]):
        name = f"{sales.name} {len(others)}"
        others.append(published(site, shop.small, name=name, project_id=sales.project_id))
        site.tag(others[-1].luid, tags)
    first, last = sorted(site.tagged(prefix), key=lambda each: each.name)
    assert (first.luid, first.name) == (others[0].luid, others[0].name)
    assert (first.tags, first.link) == ({"x", f"{prefix}a/b"}, others[0].link)
    assert last.luid == others[2].luid


def test_groups_and_users_by_name(tableau: TableauSite, sign_in: SignIn, name: str):
    # Prevents: a name leads to the wrong group or user, or a refused look-up has no remedy.
    made = str(tableau.tsc.groups.create(TSC.GroupItem(name)).id)
    found = [properties.find_named(tableau, "group", each) for each in (name.upper(), "Nobody")]
    assert found == [made, None]
    vera = properties.find_named(tableau, "user", VIEWER.name)
    assert tableau.user(str(vera))[0] == VIEWER.name
    with (
        sign_in(Password(VIEWER.name, VIEWER.password)) as hers,
        pytest.raises(RefusedError, match="publish as one"),
    ):
        properties.find_named(hers, "user", "admin")


def test_change_of_properties(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a change of one property changes another property, or a removed value stays.
    vera = str(properties.find_named(tableau, "user", VIEWER.name))
    text = "All <sales> & more"
    for change, expected in (
        ({"description": text}, (text, None, False)),
        ({"isCertified": "true", "certificationNote": "Equal"}, (text, "Equal", False)),
        ({"certificationNote": ""}, (text, "", False)),
        ({"description": "", "isCertified": "false"}, ("", None, False)),
        ({"owner": vera}, ("", None, True)),
    ):
        properties.set_properties(tableau, sales.luid, **change)
        found = tableau.find_by_luid(sales.luid)
        assert found is not None
        assert (found.description, found.certification, found.owner_id == vera) == expected


def test_change_of_permissions(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a permission stays allowed although "Deny" is set, or other rules are removed.
    before = properties.permissions(tableau, sales.luid)
    ((everyone, _), *_) = before
    read, query = ((everyone, each) for each in ("Read", "VizqlDataApiAccess"))
    added = {read: "Deny", query: "Allow"}
    properties.set_permissions(tableau, sales.luid, added, remove={read: "Allow"})
    assert properties.permissions(tableau, sales.luid) == before | added
    properties.set_permissions(tableau, sales.luid, {}, remove={query: "Allow"})
    assert properties.permissions(tableau, sales.luid) == before | {read: "Deny"}


def test_session_that_ends_between_two_changes_of_permissions(shop: Shop):
    """Prevents: other permissions stay because the session ended after the first removal."""
    before = properties.permissions(shop.site, shop.sales.luid)
    assert len(before) > 1
    ends = ExpireSessions(method="DELETE", path="sites/*/datasources/*/permissions/*/*/*/*", nth=2)
    with shop.sandbox.armed(ends) as fault:
        properties.set_permissions(shop.site, shop.sales.luid, {}, remove=before)
    assert fault.fired == 1
    assert properties.permissions(shop.site, shop.sales.luid) == {}


def test_quality_warnings(shop: Shop):
    # Prevents: our warning stays after its removal, or a person's warning is removed as well.
    site, luid = shop.site, shop.sales.luid
    item = site.tsc.datasources.get_by_id(luid)
    site.tsc.datasources.add_dqw(item, TSC.DQWItem("SENSITIVE_DATA", "Salaries"))
    for text in ("Old", "Old", "Older"):
        properties.set_warning(site, luid, "ours", text)
        said = [each for _, each in properties.quality_warnings(site, luid)]
        assert said == ["Salaries", f"{text} (ours)"]
    properties.set_warning(site, luid, "ours", None)
    assert [each for _, each in properties.quality_warnings(site, luid)] == ["Salaries"]
    with shop.sandbox.quirks(data_management=False):
        with pytest.raises(RefusedError, match="403157"):
            properties.quality_warnings(site, luid)
        with pytest.raises(RefusedError, match="403157"):
            properties.set_warning(site, luid, "ours", "Old")


AWKWARD = ("R&D, Europe", "a,b", "a&b", "100% + 1", "Räume: größer", "who's [there]?", 'say "x"')


@pytest.fixture
def top() -> str:
    return f"Top {uuid4().hex[:8]}"


def named(tableau: TableauSite, name: str) -> list:
    return [each for each in tableau.tsc.projects.all() if each.name == name]


def test_what_exists_is_not_created_again(tableau: TableauSite, top: str):
    """Prevents: a refresh creates a project although it exists with its name in another case."""
    created = tableau.project(f"{top}/Curated", create=True)
    for path in (f"{top}/Curated", f"{top} / Curated ", f"{top.upper()}/CURATED"):
        assert tableau.project(path, create=False) == created
        assert tableau.project(path.lower(), create=True) == created
    assert len(named(tableau, top)) == 1


def test_same_name_below_two_parents(tableau: TableauSite, top: str):
    """Prevents: a data source lands in another department's project of the same name."""
    one = tableau.project(f"{top} A/Curated", create=True)
    other = tableau.project(f"{top} B/Curated", create=True)
    assert one != other
    assert tableau.project(f"{top} A/Curated", create=False) == one
    assert tableau.project(f"{top} B/Curated", create=False) == other


@pytest.mark.parametrize("name", [*AWKWARD, "a=b;c#d", "日本"])
def test_awkward_names(tableau: TableauSite, top: str, name: str):
    """Prevents: a comma or an ampersand in a name breaks the filter that looks for the name."""
    path = f"{top}/{name}"
    created = tableau.project(path, create=True)
    assert tableau.project(path, create=False) == created
    assert tableau.project(path, create=True) == created


def test_names_that_hold_a_slash(tableau: TableauSite, top: str):
    """Prevents: a project "Sales/EU" cannot be named, or is taken for "EU" in "Sales"."""
    created = tableau.project((top, "Sales/EU"), create=True)
    assert [each.parent_id for each in named(tableau, "Sales/EU") if each.id == created]
    assert tableau.find_project((top.upper(), "SALES/EU")) == created
    assert tableau.project((top, "Sales/EU"), create=False) == created
    assert tableau.find_project(f"{top}/Sales/EU") is None
    with pytest.raises(RefusedError, match=f'"{top}/Sales/US".*"Sales/US" in "{top}"'):
        tableau.project((top, "Sales/US"), create=False)
