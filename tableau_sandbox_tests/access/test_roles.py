from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as tsc

from tableau_sandbox.command_line import main
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE, VIEWER
from tableau_sandbox_tests.samples import (
    default_project,
    publish,
    rows_on_server,
    signed_in,
)

DOWNLOAD = {"ExportXml": "Allow"}


def user(sandbox: Sandbox, seed: UserSeed) -> tsc.Server:
    return signed_in(sandbox, tsc.TableauAuth(seed.name, seed.password))


def refused(action: Callable[[], object], code: str) -> None:
    with pytest.raises(tsc.ServerResponseError, match=code):
        action()


def allow(server: tsc.Server, item: Any, grantee: Any, capabilities: dict[str, str]) -> None:
    server.datasources.update_permissions(item, [tsc.PermissionsRule(grantee, capabilities)])


def everyone(server: tsc.Server) -> Any:
    (group,) = server.groups.filter(name="All Users")
    return group


@pytest.mark.parametrize("role", ["Administrator", "creator", "Publisher", "Interactor", ""])
def test_unknown_site_role(role: str):
    """Prevents: a misspelt role makes a user who may do nothing, or everything."""
    with pytest.raises(ValueError, match=f"'{role}' is no site role.*SiteAdministratorCreator"):
        UserSeed(name="x", password="y", site_role=role)


def test_unknown_site_role_at_the_command_line(capsys: pytest.CaptureFixture[str]):
    """Prevents: a misspelt role shows as a traceback."""
    with pytest.raises(SystemExit):
        main(["--user", "ann:secret:Admin"])
    assert "'Admin' is no site role; Tableau has ServerAdministrator," in capsys.readouterr().err


def test_without_a_license(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a user without a license works here, and cannot even sign in in production."""
    seed = UserSeed(name="una", password="una", site_role="Unlicensed")
    with pytest.raises(tsc.FailedSignInError, match="401001"):
        user(start_sandbox(users=(seed,)), seed)


def test_viewers_only_look(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a pipeline with a viewer's token passes its tests, by rules that give it more."""
    item = publish(server, one_row)
    allow(server, item, everyone(server), {**DOWNLOAD, "Write": "Allow", "Delete": "Allow"})
    vera = user(sandbox, VIEWER)
    assert vera.datasources.get_by_id(item.id).name == "Flights"
    refused(lambda: rows_on_server(vera, item.id), "403004")
    refused(vera.fileuploads.initiate, "403004")
    refused(lambda: publish(vera, one_row, mode="Overwrite"), "403007")
    refused(lambda: vera.datasources.delete(item.id), "403004")


def test_explorers_download_and_do_not_publish(
    start_sandbox: Callable[..., Sandbox], one_row: Path
):
    """Prevents: an explorer's token seems good enough for a pipeline that publishes."""
    seed = UserSeed(name="ed", password="ed", site_role="Explorer")
    sandbox = start_sandbox(users=(seed,))
    server = signed_in(sandbox, tsc.TableauAuth(sandbox.user, sandbox.password))
    item, ed = publish(server, one_row), user(sandbox, seed)
    refused(lambda: rows_on_server(ed, item.id), "403004")
    allow(server, item, everyone(server), {**DOWNLOAD, "Write": "Allow"})
    assert rows_on_server(ed, item.id) == [[1, "one"]]
    refused(lambda: publish(ed, one_row, mode="Overwrite"), "403007")


def test_jobs_of_others(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: whoever waits for a job of an administrator waits in vain in production."""
    sandbox.control.add(HoldJobs())
    item = tsc.DatasourceItem(default_project(server), name="Flights")
    job = server.datasources.publish(item, one_row, "CreateNew", as_job=True)
    alice = user(sandbox, ALICE)
    refused(lambda: alice.jobs.get_by_id(job.id), "403004")
    refused(lambda: alice.jobs.cancel(job.id), "403004")
    mine = alice.datasources.publish(
        tsc.DatasourceItem(default_project(server), name="Hers"), one_row, "CreateNew", as_job=True
    )
    assert alice.jobs.get_by_id(mine.id).id == mine.id
    assert server.jobs.get_by_id(mine.id).id == mine.id


def test_users_see_themselves(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a pipeline that looks up users works here, and only for administrators there."""
    alice = user(sandbox, ALICE)
    assert alice.users.get_by_id(alice.user_id).name == "alice"
    refused(lambda: alice.users.get_by_id(server.user_id), "403004")
    refused(alice.users.get, "403004")


def test_certification_is_for_leaders(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: an owner certifies what only administrators and project leaders may certify."""
    alice = user(sandbox, ALICE)
    item = publish(alice, one_row)
    item.certified = True
    refused(lambda: alice.datasources.update(item), "403032")
    project = server.projects.filter(name="Default")[0]
    leads = tsc.PermissionsRule(server.users.get_by_id(alice.user_id), {"ProjectLeader": "Allow"})
    server.projects.update_permissions(project, [leads])
    assert alice.datasources.update(item).certified
