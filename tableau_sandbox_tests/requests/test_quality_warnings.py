from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import TIMEOUT, call, publish, user


def test_life_of_a_warning(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a pipeline's warning stays for ever, takes others along, or nobody sees it."""
    item = publish(server, one_row)
    stale = tsc.DQWItem("STALE", "Not refreshed", active=True, severe=True)
    server.datasources.add_dqw(item, tsc.DQWItem("SENSITIVE_DATA", "Salaries"))
    (added,) = server.datasources.add_dqw(item, stale)
    with pytest.raises(tsc.ServerResponseError, match="409004"):
        server.datasources.add_dqw(item, stale)
    page = requests.get(str(item.webpage_url), timeout=TIMEOUT).text
    assert "Not refreshed" in page
    path = f"sites/{{site}}/dataQualityWarnings/{added.id}"
    for status in (204, 404):
        assert call(sandbox, "DELETE", path, server=server).status_code == status
    server.datasources.populate_dqw(item)
    (left,) = item.dqws
    assert (left.warning_type, left.message, left.severe) == ("SENSITIVE_DATA", "Salaries", False)


def test_who_may_warn(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: what a site without the license, or a user without rights, is refused works here.

    A client cannot tell the one from the other by what it may do otherwise.
    """
    item, alice = publish(server, one_row), user(sandbox, ALICE)
    with pytest.raises(tsc.ServerResponseError, match="403004"):
        alice.datasources.add_dqw(item, tsc.DQWItem("STALE"))
    with pytest.raises(tsc.ServerResponseError, match="400000"):
        server.datasources.add_dqw(item, tsc.DQWItem("ROTTEN"))
    with sandbox.quirks(data_management=False):
        server.datasources.populate_dqw(item)
        for refused in (
            lambda: server.datasources.add_dqw(item, tsc.DQWItem("STALE")),
            lambda: item.dqws,
        ):
            with pytest.raises(tsc.ServerResponseError, match="403157"):
                refused()
