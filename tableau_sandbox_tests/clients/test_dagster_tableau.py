import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_pipeline_tests.environments import environment, run
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.clients.versions import DAGSTER
from tableau_sandbox_tests.samples import publish, wrapped_extract

SCRIPT = """
import sys
from dagster_tableau import TableauServerWorkspace, load_tableau_asset_specs

server_name, client_id, secret_id, secret_value, hyper, extract = sys.argv[1:]
workspace = TableauServerWorkspace(
    connected_app_client_id=client_id,
    connected_app_secret_id=secret_id,
    connected_app_secret_value=secret_value,
    username="admin",
    site_name="",
    server_name=server_name,
)
with workspace.get_client() as client:
    assert client.get_workbooks() == []
    assert {item.id for item in client.get_data_sources()} == {hyper, extract}
    assert client.get_data_source(hyper).name == "Live"
    assert client.get_workbook("x") == {"data": {"workbooks": []}}
with workspace.get_client() as client:
    assert client.refresh_and_poll_data_source(extract, poll_interval=0.1) == extract
specs = load_tableau_asset_specs(workspace)
print(sorted(spec.key.to_user_string() for spec in specs))
"""


@pytest.mark.slow
def test_workspace_over_tls(
    start_sandbox: Callable[..., Sandbox],
    tmp_path: Path,
    one_row: Path,
):
    """Prevents: the orchestrator we are made for cannot see or refresh what is here."""
    sandbox = start_sandbox(tls=True)
    server = tsc.Server(sandbox.url, http_options={"verify": str(sandbox.certificate)})
    server.use_server_version()
    server.auth.sign_in(tsc.TableauAuth(sandbox.user, sandbox.password))
    live = publish(server, one_row, name="Live")
    extract = publish(server, wrapped_extract(tmp_path / "e.tdsx", one_row), name="Extract")
    packages = environment(*DAGSTER)
    app = sandbox.connected_app
    done = run(
        str(packages / Path(sys.executable).name),
        "-c",
        SCRIPT,
        sandbox.url.removeprefix("https://"),
        app.client_id,
        app.secret_id,
        app.secret_value,
        live.id,
        extract.id,
        REQUESTS_CA_BUNDLE=str(sandbox.certificate),
    )
    assert "['extract', 'live']" in done.stdout
