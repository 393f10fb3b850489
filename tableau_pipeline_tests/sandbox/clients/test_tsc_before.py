import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.sandbox.clients.conftest import run

SCRIPT = """
import sys
from importlib.metadata import version

import tableauserverclient as TSC

url, file, package = sys.argv[1:]
server = TSC.Server(url, use_server_version=True)
with server.auth.sign_in(TSC.PersonalAccessTokenAuth("pipeline", "pipeline-secret")):
    project = server.projects.create(TSC.ProjectItem("Before"))
    item = TSC.DatasourceItem(project.id, name="Flights")
    first = server.datasources.publish(item, file, "CreateNew")
    job = server.datasources.publish(item, file, "Overwrite", as_job=True)
    assert server.jobs.wait_for_job(job, timeout=30).finish_code == 0
    server.datasources.publish(item, file, "Append")
    (found,) = TSC.Pager(server.datasources, TSC.RequestOptions(pagesize=1))
    assert found.id == first.id
    server.datasources.populate_connections(found)
    server.datasources.populate_revisions(found)
    assert [revision.current for revision in found.revisions] == [False, False, True]
    found.tags.add("seen")
    server.datasources.update(found)
    assert server.datasources.get_by_id(found.id).tags == {"seen"}
    downloaded = server.datasources.download(found.id, package)
    assert downloaded.endswith(".tdsx"), downloaded
    try:
        server.datasources.refresh(found)
    except TSC.ServerResponseError as error:
        assert error.code == "409090", error
    else:
        raise AssertionError("data in Hyper were refreshed")
    server.datasources.delete(found.id)
    server.projects.delete(project.id)
print("done with", version("tableauserverclient"))
"""


@pytest.mark.slow
# The package of 0.39 lacks its top folder: nobody can import it.
@pytest.mark.parametrize("version", ["0.41", "0.40", "0.38"])
def test_earlier_releases(
    sandbox: Sandbox,
    environment: Callable[..., Path],
    one_row: Path,
    tmp_path: Path,
    version: str,
):
    # Prevents: only the release that we test with ourselves can talk to the sandbox.
    python = environment(f"tableauserverclient=={version}") / Path(sys.executable).name
    done = run(str(python), "-c", SCRIPT, sandbox.url, str(one_row), str(tmp_path / "out"))
    assert f"done with {version}" in done.stdout
