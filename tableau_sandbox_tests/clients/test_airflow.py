import json
import sys
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_pipeline_tests.environments import environment, run
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.clients.versions import AIRFLOW
from tableau_sandbox_tests.samples import publish, wrapped_extract

SCRIPT = """
import sys
from airflow.providers.tableau.hooks.tableau import TableauHook, TableauJobFinishCode
from airflow.providers.tableau.operators.tableau import TableauOperator

(live,) = sys.argv[1:]
with TableauHook() as hook:
    assert {item.name for item in hook.get_all("datasources")} == {"Live", "Extract"}
refresh = TableauOperator(
    task_id="refresh",
    resource="datasources",
    method="refresh",
    find="Extract",
    match_with="name",
    check_interval=0.1,
)
job = refresh.execute(context={})
with TableauHook() as hook:
    assert hook.get_job_status(job) is TableauJobFinishCode.SUCCESS
    assert hook.wait_for_state(job, TableauJobFinishCode.SUCCESS, check_interval=0.1)
    hook.server.datasources.delete(live)
    assert [item.name for item in hook.get_all("datasources")] == ["Extract"]
print("done")
"""


@pytest.mark.long
def test_airflow(
    sandbox: Sandbox,
    server: tsc.Server,
    one_row: Path,
    tmp_path: Path,
):
    """Prevents: teams on another orchestrator cannot try its tasks against the sandbox."""
    live = publish(server, one_row, name="Live")
    publish(server, wrapped_extract(tmp_path / "e.tdsx", one_row), name="Extract")
    python = environment(*AIRFLOW) / Path(sys.executable).name
    # The provider makes an address of the schema and the host, and leaves the port out.
    connection = {
        "conn_type": "tableau",
        "schema": "http",
        "host": sandbox.url.removeprefix("http://"),
        "login": sandbox.user,
        "password": sandbox.password,
    }
    done = run(
        str(python),
        "-c",
        SCRIPT,
        live.id,
        AIRFLOW_HOME=str(tmp_path / "airflow"),
        AIRFLOW_CONN_TABLEAU_DEFAULT=json.dumps(connection),
    )
    assert done.stdout.endswith("done\n")
