import sys
from pathlib import Path

import pytest

from tableau_pipeline_tests.environments import environment, run
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.clients.versions import TABLEAU_UTILITIES
from tableau_sandbox_tests.samples import wrapped_extract

SCRIPT = """
import sys

from tableau_utilities.tableau_server.tableau_server import TableauServer

url, file, extract, folder = sys.argv[1:]
server = TableauServer(
    url,
    "",
    personal_access_token_name="pipeline",
    personal_access_token_secret="pipeline-secret",
)
server.create.project("Foreign")
assert "Foreign" in [project.name for project in server.get.projects()]
target = {"datasource_name": "Flights", "project_name": "Foreign"}
published = server.publish.datasource(file, **target)
again = server.publish.datasource(file, datasource_id=published.id)
assert again.id == published.id
found = server.get.datasource(datasource_name="Flights", datasource_project="Foreign")
assert found.id == published.id
assert [user.name for user in server.get.users()] != []
path = server.download.datasource(published.id, file_dir=folder, include_extract=True)
assert path.endswith(".tdsx"), path
extracted = server.publish.datasource(extract, datasource_name="Extract", project_name="Foreign")
assert server.refresh.datasource(extracted.id).type == "RefreshExtract"
print("done")
"""


@pytest.mark.long
def test_tableau_utilities(sandbox: Sandbox, one_row: Path, tmp_path: Path):
    """Prevents: a client breaks at an attribute of an answer that it has never met."""
    python = environment(TABLEAU_UTILITIES) / Path(sys.executable).name
    extract = wrapped_extract(tmp_path / "e.tdsx", one_row)
    done = run(
        str(python), "-c", SCRIPT, sandbox.url, str(one_row), str(extract), str(tmp_path / "got")
    )
    assert done.stdout.endswith("done\n")
