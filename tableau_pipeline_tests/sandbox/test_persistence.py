import random
import threading
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_pipeline.sandbox.services import DataDirectoryInUseError
from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox
from tableau_pipeline_tests.sandbox.command import started_sandbox
from tableau_pipeline_tests.sandbox.samples import publish, rows_of, rows_on_server, write_hyper


def test_everything_survives_a_restart(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, two_rows: Path
):
    # Prevents: a restart loses sign-ins, projects, data, tags, uploads or finished jobs.
    project = server.projects.create(tsc.ProjectItem("Kept"))
    item = publish(server, one_row)
    server.datasources.add_tags(item, ["kept"])
    job = server.datasources.publish(
        tsc.DatasourceItem(project.id, name="By job"), two_rows, "CreateNew", as_job=True
    )
    server.jobs.wait_for_job(job)
    before = server.datasources.get_by_id(item.id)
    upload = server.fileuploads.initiate()
    sandbox.restart()
    after = server.datasources.get_by_id(item.id)
    assert (after.updated_at, after.tags) == (before.updated_at, {"kept"})
    assert rows_on_server(server, item.id) == [[1, "one"]]
    assert server.jobs.get_by_id(job.id).finish_code == 0
    assert [found.id for found in server.projects.filter(name="Kept")] == [project.id]
    assert server.fileuploads.append(upload, *block(b"x")).file_size == 1


def block(content: bytes) -> tuple[bytes, str]:
    return tsc.server.RequestFactory.Fileupload.chunk_req(content)


def test_one_sandbox_for_one_directory(sandbox: Sandbox):
    # Prevents: two sandboxes sweep away each other's files.
    with pytest.raises(DataDirectoryInUseError), running_sandbox(sandbox.data_dir):
        pass


@pytest.fixture
def two_versions(tmp_path: Path) -> list[Path]:
    """Two files of some MB, so that a kill can come in the middle of anything."""
    return [
        write_hyper(
            tmp_path / f"{version}.hyper",
            f"SELECT CAST(i AS BIGINT) * 1000003 % 15485863 AS a, {version} AS version"
            " FROM generate_series(1, 100000) AS g(i)",
        )
        for version in (1, 2)
    ]


def test_kill_leaves_the_last_committed_state(tmp_path: Path, two_versions: list[Path]):
    # Prevents: a crash in the middle of a publish leaves half a data source, or none.
    contents = [rows_of(file) for file in two_versions]
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    luid = ""
    for kill in range(4):
        with started_sandbox(tmp_path / "data", "--kept-revisions", "1") as (process, url):
            server = tsc.Server(url, use_server_version=True)
            server.auth.sign_in(tsc.TableauAuth("admin", "admin"))
            if luid:
                assert rows_on_server(server, luid) in contents, f"kill {kill}, seed {seed}"
            luid = publish(server, two_versions[0], mode="Overwrite").id
            publisher = threading.Thread(target=publish_until_it_dies, args=(server, two_versions))
            publisher.start()
            publisher.join(chance.uniform(0.05, 0.6))
            process.kill()
            publisher.join()
    with running_sandbox(tmp_path / "data") as sandbox:
        server = tsc.Server(sandbox.url, use_server_version=True)
        server.auth.sign_in(tsc.TableauAuth("admin", "admin"))
        assert rows_on_server(server, luid) in contents, f"seed {seed}"
        assert len(list((tmp_path / "data" / "content").iterdir())) == 1
        assert list((tmp_path / "data" / "incoming").iterdir()) == []


def publish_until_it_dies(server: tsc.Server, files: list[Path]) -> None:
    try:
        while True:
            for file in files:
                publish(server, file, mode="Overwrite")
    except requests.ConnectionError:
        return
