import sqlite3
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server


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
    block = tsc.server.RequestFactory.Fileupload.chunk_req(b"x")
    assert server.fileuploads.append(upload, *block).file_size == 1


def test_broken_data(tmp_path: Path):
    """Prevents: a test whose sandbox does not start never hears why."""
    (tmp_path / "sandbox.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"), running_sandbox(tmp_path):
        pass
