import sys
from pathlib import Path

import pytest

from tableau_pipeline_tests.environments import environment, run
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.clients.versions import TSC_BETWEEN, TSC_NEWEST, TSC_OLDEST
from tableau_sandbox_tests.samples import wrapped_extract

# It does without what the oldest release lacks: revisions, for one.
SCRIPT = """
import sys
from importlib.metadata import version

import tableauserverclient as TSC

url, file, extract, package = sys.argv[1:]
server = TSC.Server(url, use_server_version=True)
with server.auth.sign_in(TSC.PersonalAccessTokenAuth("pipeline", "pipeline-secret")):
    project = server.projects.create(TSC.ProjectItem("Before"))
    item = TSC.DatasourceItem(project.id, name="Flights")
    first = server.datasources.publish(item, file, "CreateNew")
    job = server.datasources.publish(item, file, "Overwrite", as_job=True)
    assert int(server.jobs.wait_for_job(job, timeout=30).finish_code) == 0
    server.datasources.publish(item, file, "Append")
    everything = TSC.Pager(server.datasources, TSC.RequestOptions(pagesize=1))
    (found,) = [item for item in everything if item.name == "Flights"]
    assert found.id == first.id
    server.datasources.populate_connections(found)
    assert [connection.connection_type for connection in found.connections] == ["hyper"]
    found.tags.add("seen")
    server.datasources.update(found)
    assert server.datasources.get_by_id(found.id).tags == {"seen"}
    actions = [{"action": "replace", "target-table": "Extract", "source-table": "Extract"}]
    for target in (found, found.connections[0]):
        arguments = {"request_id": str(target), "actions": actions, "payload": file}
        job = server.datasources.update_hyper_data(target, **arguments)
        assert int(server.jobs.wait_for_job(job, timeout=30).finish_code) == 0
    assert server.jobs.get_by_id(job.id).completed_at is not None
    assert job.id in [listed.id for listed in server.jobs.get()[0]]
    downloaded = server.datasources.download(found.id, package)
    assert downloaded.endswith(".tdsx"), downloaded
    try:
        server.datasources.refresh(found)
    except TSC.ServerResponseError as error:
        assert error.code == "409090", error
    else:
        raise AssertionError("data in Hyper were refreshed")
    item = server.datasources.publish(
        TSC.DatasourceItem(project.id, name="Extract"), extract, "CreateNew"
    )
    job = server.datasources.refresh(item)
    assert int(server.jobs.wait_for_job(job, timeout=30).finish_code) == 0
    server.datasources.delete(found.id)
    server.projects.delete(project.id)
print("done with", version("tableauserverclient"))
"""


@pytest.mark.parametrize(
    "release",
    [
        *(pytest.param(release, marks=pytest.mark.slow) for release in (TSC_OLDEST, TSC_NEWEST)),
        *(pytest.param(release, marks=pytest.mark.long) for release in TSC_BETWEEN),
    ],
)
def test_releases(
    sandbox: Sandbox,
    one_row: Path,
    tmp_path: Path,
    release: str,
):
    """Prevents: only the release that we test with ourselves can talk to the sandbox."""
    python = environment(release) / Path(sys.executable).name
    extract = wrapped_extract(tmp_path / "e.tdsx", one_row)
    done = run(
        str(python), "-c", SCRIPT, sandbox.url, str(one_row), str(extract), str(tmp_path / "out")
    )
    assert f"done with {release.partition('==')[2]}" in done.stdout
