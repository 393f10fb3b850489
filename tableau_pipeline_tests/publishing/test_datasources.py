from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing import rest as lookup
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import VIEWER, SignIn, hooked, published
from tableau_sandbox.faults import Delay
from tableau_sandbox.testing import Sandbox


def again(tableau: TableauSite, sales: RemoteDatasource, file: Path) -> RemoteDatasource:
    return published(
        tableau, file, name=sales.name, project_id=sales.project_id, mode=PublishMode.REPLACE
    )


def test_what_the_server_tells(
    tableau: TableauSite, sales: RemoteDatasource, other: Path, sandbox: Sandbox
):
    # Prevents: a change by somebody else goes unseen, or it is not known who made this, and when.
    assert sales.created_at <= sales.updated_at
    assert (sales.revision, sales.megabytes) == (1, 1)
    changed = again(tableau, sales, other)
    assert (changed.created_at, changed.revision) == (sales.created_at, 2)
    assert changed.stamp > sales.stamp
    with sandbox.armed(Delay(method="GET", seconds=0, times=None)) as calls:
        assert tableau.find_by_luid(sales.luid) == changed
    assert calls.seen == 2


def test_newest_revision_is_on_the_last_page(
    tableau: TableauSite, sales: RemoteDatasource, small: Path, monkeypatch: pytest.MonkeyPatch
):
    # Prevents: after some refreshes the number stands still, since only a first page is read.
    monkeypatch.setattr(lookup, "_PAGE_SIZE", 2)
    for _ in range(4):
        again(tableau, sales, small)
    found = tableau.find_by_luid(sales.luid)
    assert found is not None
    assert found.revision == 5


def test_revisions_in_any_order(tableau: TableauSite, sales: RemoteDatasource, small: Path):
    # Prevents: a server that marks none, or lists the newest first, is misread.
    def reversed_(response: requests.Response, **_: object) -> None:
        text = response.content.replace(b'current="true"', b'current="false"')
        response._content = text.replace(b'Number="1"', b'Number="11"')

    again(tableau, sales, small)
    with hooked(tableau, reversed_):
        found = tableau.find_by_luid(sales.luid)
    assert found is not None
    assert found.revision == 11


def refused(code: bytes) -> Callable[..., None]:
    error = b'<error code="%s"><summary>Forbidden</summary><detail>no</detail></error>' % code

    def hook(response: requests.Response, **_: object) -> None:
        if "/revisions" in (response.request.path_url or ""):
            response.status_code = 403
            response._content = (
                b'<tsResponse xmlns="http://tableau.com/api">%s</tsResponse>' % error
            )

    return hook


@pytest.mark.parametrize("code", [b"403004", b"403053"])
def test_site_without_revisions(tableau: TableauSite, sales: RemoteDatasource, code: bytes):
    # Prevents: no refresh at all on a site that keeps no revisions.
    with hooked(tableau, refused(code)):
        found = tableau.find_by_luid(sales.luid)
    assert found is not None
    assert found.revision is None


def test_user_who_may_not_see_revisions(sign_in: SignIn, sales: RemoteDatasource):
    # Prevents: a user who may read a data source, and no more, cannot even find it.
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer:
        found = viewer.find_by_name(sales.name, project_id=sales.project_id)
    assert found is not None
    assert (found.luid, found.revision) == (sales.luid, None)


def test_no_revision_in_the_list(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: an empty list shows as an error of `max`.
    def emptied(response: requests.Response, **_: object) -> None:
        response._content = response.content.replace(b"<revision ", b"<other ").replace(
            b"</revision>", b"</other>"
        )

    with hooked(tableau, emptied):
        found = tableau.find_by_luid(sales.luid)
    assert found is not None
    assert found.revision is None


def test_move_leaves_all_else(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a rename takes the description, the owner or the seal of approval away.
    item = tableau.tsc.datasources.get_by_id(sales.luid)
    item.description = "All of it"
    item.certified = True
    item.certification_note = "By Ann"
    item.owner_id = tableau.user_id
    tableau.tsc.datasources.update(item)
    tableau.tag(sales.luid, ["x"])
    elsewhere = tableau.project(f"{sales.name} projects", create=True)
    moved = tableau.move(sales.luid, name=f"{sales.name}, new", project_id=elsewhere)
    assert (moved.luid, moved.name, moved.project_id) == (
        *(sales.luid, f"{sales.name}, new"),
        elsewhere,
    )
    assert (moved.tags, moved.owner_id, moved.revision) == ({"x"}, sales.owner_id, 1)
    after = tableau.tsc.datasources.get_by_id(sales.luid)
    assert (after.description, after.certified, after.certification_note) == (
        *("All of it", True),
        "By Ann",
    )
    assert tableau.find_by_luid(sales.luid) == moved


def test_rename_alone_certifies_nothing(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a data source is certified by the way.
    moved = tableau.move(sales.luid, name=sales.name.upper(), project_id=sales.project_id)
    assert (moved.name, moved.project_id) == (sales.name.upper(), sales.project_id)
    assert tableau.tsc.datasources.get_by_id(sales.luid).certified is False


def test_move_onto_another(tableau: TableauSite, sales: RemoteDatasource, small: Path):
    # Prevents: a name that is taken shows as a number only.
    other = published(tableau, small, name=f"{sales.name} 2", project_id=sales.project_id)
    with pytest.raises(RefusedError) as caught:
        tableau.move(sales.luid, name=other.name.upper(), project_id=sales.project_id)
    assert sales.luid not in str(caught.value)
    for part in ("409015", other.name.upper(), "Rename or delete", "already exists"):
        assert part in str(caught.value)
    assert tableau.find_by_luid(sales.luid) == sales


def test_list_by_tag(
    tableau: TableauSite, sales: RemoteDatasource, small: Path, monkeypatch: pytest.MonkeyPatch
):
    # Prevents: a data source on a later page, or one of several tags, is overlooked.
    monkeypatch.setattr(lookup, "_PAGE_SIZE", 1)
    prefix = f"{sales.name}:"
    names = [f"{sales.name} {number}" for number in range(3)]
    others = [published(tableau, small, name=name, project_id=sales.project_id) for name in names]
    tags = (["x", f"{prefix}a/b"], [f"x{prefix}a"], [f"{prefix}c"])
    for each, labels in zip(others, tags, strict=True):
        tableau.tag(each.luid, labels)
    first, last = sorted(tableau.tagged(prefix), key=lambda each: each.name)
    assert (first.luid, first.name) == (others[0].luid, names[0])
    assert (first.tags, first.link) == ({"x", f"{prefix}a/b"}, others[0].link)
    assert last.luid == others[2].luid
