import sys
from pathlib import Path

import pytest

from tableau_pipeline_tests.environments import environment, run
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.clients.versions import TABLEAU_API_LIB
from tableau_sandbox_tests.samples import wrapped_extract

SCRIPT = """
import sys
import time

from tableau_api_lib import TableauServerConnection
from tableau_api_lib.utils.querying import get_datasources_dataframe, get_projects_dataframe

url, file, extract = sys.argv[1:]
site = {
    "server": url,
    "api_version": "3.27",
    "personal_access_token_name": "pipeline",
    "personal_access_token_secret": "pipeline-secret",
    "site_name": "Default",
    "site_url": "",
}
connection = TableauServerConnection({"tableau_prod": site}, env="tableau_prod")


def succeeded(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


succeeded(connection.sign_in(), 200)
project = succeeded(connection.create_project("Foreign"), 201)["project"]["id"]
assert {"Default", "Foreign"} == set(get_projects_dataframe(connection)["name"])


def publish(path, name):
    answer = connection.publish_data_source(path, name, project, datasource_description="JSON")
    return succeeded(answer, 201)["datasource"]["id"]


luid = publish(file, "Flights")
assert publish(file, "Flights") == luid
found = get_datasources_dataframe(connection, ["Flights"])
assert list(found["id"]) == [luid], found
assert succeeded(connection.query_data_source(luid), 200)["datasource"]["description"] == "JSON"
connections = succeeded(connection.query_data_source_connections(luid), 200)["connections"]
assert [item["type"] for item in connections["connection"]] == ["hyper"]
tags = succeeded(connection.add_tags_to_data_source(luid, ["seen"]), 200)["tags"]["tag"]
assert tags == [{"label": "seen"}]
certified = connection.update_data_source(luid, is_certified_flag=True)
assert succeeded(certified, 200)["datasource"]["isCertified"] in ("true", True)
package = connection.download_data_source(luid)
assert package.status_code == 200 and package.content.startswith(b"PK")

refused = connection.update_data_source_now(luid)
assert refused.status_code == 409, refused.text
assert refused.json()["error"]["code"] == "409090"
job = succeeded(connection.update_data_source_now(publish(extract, "Extract")), 202)["job"]
while "completedAt" not in job:
    time.sleep(0.05)
    job = succeeded(connection.query_job(job["id"]), 200)["job"]
assert int(job["finishCode"]) == 0, job
succeeded(connection.delete_data_source(luid), 204)
succeeded(connection.delete_project(project), 204)
succeeded(connection.sign_out(), 204)
print("done")
"""


@pytest.mark.slow
def test_tableau_api_lib(sandbox: Sandbox, one_row: Path, tmp_path: Path):
    """Prevents: scripts that speak JSON, as this library does, cannot be tried."""
    python = environment(TABLEAU_API_LIB) / Path(sys.executable).name
    extract = wrapped_extract(tmp_path / "e.tdsx", one_row)
    done = run(str(python), "-c", SCRIPT, sandbox.url, str(one_row), str(extract))
    assert done.stdout.endswith("done\n")
