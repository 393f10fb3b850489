"""Clients that fail at whatever they do not know, and ask for more than the sandbox has."""

from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT, call, publish, wrapped_extract


@pytest.mark.parametrize(("version", "is_shown"), [("3.18", False), ("3.19", True)])
def test_attributes_have_an_age(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, version: str, is_shown: bool
):
    """Prevents: a client of former years breaks at an attribute that it has never met."""
    luid = publish(server, one_row).id
    answer = requests.get(
        f"{sandbox.url}/api/{version}/sites/{server.site_id}/datasources/{luid}",
        headers={"X-Tableau-Auth": server.auth_token or "", "Accept": "application/json"},
        timeout=TIMEOUT,
    ).json()["datasource"]
    assert ("size" in answer, "name" in answer["owner"]) == (is_shown, is_shown)


@pytest.mark.parametrize(
    "path",
    [
        "projects?fields=_default_,contentsCounts.datasourceCount",
        "datasources?fields=_default_,favoritesTotal,serverName",
        "users?fields=_default_,fullName,email",
    ],
)
def test_fields_without_values(sandbox: Sandbox, server: tsc.Server, path: str):
    """Prevents: a field that servers know, and clients request, is refused as unknown."""
    assert call(sandbox, "GET", f"sites/{{site}}/{path}", server=server).status_code == 200


def test_answer_to_a_refresh(sandbox: Sandbox, server: tsc.Server, one_row: Path, tmp_path: Path):
    """Prevents: the answer to a refresh has a progress, which clients do not expect in it."""
    item = publish(server, wrapped_extract(tmp_path / "e.tdsx", one_row))
    path = f"sites/{{site}}/datasources/{item.id}/refresh"
    headers = {"Accept": "application/json"}
    job = call(sandbox, "POST", path, server=server, headers=headers).json()["job"]
    assert "progress" not in job
    assert (
        "progress"
        in call(
            sandbox, "GET", f"sites/{{site}}/jobs/{job['id']}", server=server, headers=headers
        ).json()["job"]
    )
