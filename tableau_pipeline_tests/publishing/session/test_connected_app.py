from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import jwt
import pytest

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.publishing import about
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.session import ConnectedApp
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import SignIn, published
from tableau_pipeline_tests.publishing.test_jobs import LONG_AGO, clear
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.testing import Sandbox

SECRET = "a-secret-of-at-least-thirty-two-bytes"


@pytest.fixture
def app(sandbox: Sandbox) -> ConnectedApp:
    signing = sandbox.connected_app
    return ConnectedApp(sandbox.user, signing.client_id, signing.secret_id, signing.secret_value)


def test_every_call_of_a_refresh(
    sign_in: SignIn, app: ConnectedApp, sandbox: Sandbox, small: Path, tmp_path: Path
):
    """Prevents: a refresh of a connected app stops at a call that its token has no scope for."""
    with sign_in(app) as site:
        project = site.project(f"App {uuid4().hex[:8]}", create=True)
        item = published(site, small, name="By an app", project_id=project)
        site.tag(item.luid, ["x"])
        site.untag(item.luid, ["x"])
        moved = site.move(item.luid, name="Moved", project_id=project)
        assert (moved.name, moved.tags) == ("Moved", set())
        assert site.find_by_name("Moved", project_id=project) == moved
        assert site.download(item.luid, tmp_path).suffix == ".tdsx"
        assert site.metadata(item.luid)
        site.publish(
            site.upload(small),
            name="Moved",
            project_id=project,
            mode=PublishMode.OVERWRITE,
        )
        sandbox.wait_until_idle()
        assert site.jobs(name="Moved", since=LONG_AGO)
        cancels_a_job(site, sandbox, item.luid)


def test_people_by_an_app(
    sign_in: SignIn, app: ConnectedApp, sales: RemoteDatasource, tableau: TableauSite
):
    """Prevents: permissions work with a token, and are forbidden to a connected app."""
    with sign_in(app) as site, pytest.raises(SignInError, match="401002"):
        about.grantee(site, "group", "All Users")
    with sign_in(replace(app, people=True)) as site:
        group = str(about.grantee(site, "group", "All Users"))
        rule = {("group", group, "Read"): "Allow"}
        assert about.grantee(site, "user", "admin") == tableau.user_id
        about.set_permissions(site, sales.luid, {}, remove=rule)
        about.set_permissions(site, sales.luid, rule, remove={})
        about.describe(site, sales.luid, description="By an app")
        assert about.permissions(site, sales.luid).items() >= rule.items()


def cancels_a_job(site: TableauSite, sandbox: Sandbox, luid: str) -> None:
    with sandbox.armed(HoldJobs()):
        job = clear(site, luid)
        assert site.cancel(job)
    status = site.job(job)
    assert status is not None
    assert status.outcome is Outcome.CANCELLED


def test_token_may_do_what_a_refresh_does_and_no_more():
    """Prevents: a refresh is forbidden half-way, or a stolen token may do anything."""
    token = (
        ConnectedApp("ann", "client-id", "secret-id", SECRET).for_site("sales").credentials["jwt"]
    )
    scopes = jwt.decode(token, SECRET, algorithms=["HS256"], audience="tableau")["scp"]
    assert {
        "tableau:content:read",
        "tableau:datasources:create",
        "tableau:file_uploads:create",
        "tableau:jobs:*",
        "tableau:projects:create",
    } <= set(scopes)
    forbidden = ("tableau:*", "users", "permissions", "datasources:*", "projects:*", "delete")
    assert not [each for each in scopes if any(part in each for part in forbidden)]
