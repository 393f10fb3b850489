"""Unchanged clients of other makers, each of which does its usual work."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in, wrapped_extract

TABCMD = "tabcmd==2.0.21"
DAGSTER = ("dagster==1.13.27", "dagster-tableau==0.29.27")
ONE, TWO = [1, "one"], [2, "two"]

# The work of Tableau's samples: publishes in all modes and as a job, updates and refreshes.
TSC = """
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
WORKSPACE = """
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


def run(*command: object, cwd: Path | None = None, **variables: str) -> str:
    """Run a program that knows nothing of this project, and return its output."""
    kept = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


Installed = Callable[..., Path]


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Return a function that installs packages, and returns the folder of their programs."""

    def install(*requirements: str) -> Path:
        run(sys.executable, "-m", "venv", tmp_path / "venv")
        run(tmp_path / "venv" / "bin" / "pip", "install", "--quiet", *requirements)
        return tmp_path / "venv" / "bin"

    return install


@pytest.mark.slow
@pytest.mark.parametrize("release", ["0.25", "0.42"])
def test_tableau_server_client(
    sandbox: Sandbox, installed: Installed, one_row: Path, tmp_path: Path, release: str
):
    """Prevents: only the release that our own tests use can talk to the sandbox."""
    extract = wrapped_extract(tmp_path / "e.tdsx", one_row)
    arguments = (sandbox.url, one_row, extract, tmp_path / "out")
    python = installed(f"tableauserverclient=={release}") / "python"
    assert f"done with {release}" in run(python, "-c", TSC, *arguments)


@pytest.mark.slow
def test_tabcmd(
    sandbox: Sandbox, installed: Installed, tmp_path: Path, one_row: Path, two_rows: Path
):
    """Prevents: scripts that use tabcmd cannot be tried with the sandbox."""
    program = installed(TABCMD) / "tabcmd"
    server = signed_in(sandbox)

    def tabcmd(*arguments: str) -> str:
        # tabcmd keeps its session in the home directory, and its log in the current folder.
        return run(program, *arguments, cwd=tmp_path, HOME=str(tmp_path))

    def publish(file: Path, *flags: str) -> list[list]:
        output = tabcmd("publish", str(file), "--name", "Flights", "-r", "Foreign", *flags)
        (item,) = server.datasources.filter(name="Flights")
        assert item.webpage_url in output
        return rows_on_server(server, item.id)

    token = ("--token-name", sandbox.token_name, "--token-value", sandbox.token_secret)
    assert "Succeeded" in tabcmd("login", "--server", sandbox.url, *token)
    tabcmd("createproject", "--name", "Foreign", "--description", "From outside")
    (project,) = server.projects.filter(name="Foreign")
    assert project.description == "From outside"
    assert publish(one_row) == [ONE]
    assert publish(two_rows, "--overwrite") == [ONE, TWO]
    assert publish(one_row, "--append") == [ONE, ONE, TWO]
    assert publish(two_rows, "--replace") == [ONE, TWO]
    tabcmd("get", "/datasources/Flights.tdsx", "--filename", "got.tdsx")
    assert (tmp_path / "got.tdsx").read_bytes().startswith(b"PK")
    assert "Flights" in tabcmd("list", "datasources", "--name")
    assert "2 total" in tabcmd("list", "projects")
    assert "No content found" in tabcmd("list", "workbooks")
    tabcmd("delete", "--datasource", "Flights", "-r", "Foreign")
    assert server.datasources.get()[0] == []
    tabcmd("deleteproject", "Foreign")
    assert list(server.projects.filter(name="Foreign")) == []
    assert "Signed out" in tabcmd("logout")


@pytest.mark.long
def test_dagster_tableau(
    start_sandbox: Callable[..., Sandbox], installed: Installed, tmp_path: Path, one_row: Path
):
    """Prevents: Dagster's own integration cannot list or refresh data sources over TLS."""
    sandbox = start_sandbox(tls=True)
    server = tsc.Server(sandbox.url, http_options={"verify": str(sandbox.certificate)})
    server.use_server_version()
    server.auth.sign_in(tsc.TableauAuth(sandbox.user, sandbox.password))
    live = publish(server, one_row, name="Live")
    extract = publish(server, wrapped_extract(tmp_path / "e.tdsx", one_row), name="Extract")
    app = sandbox.connected_app
    printed = run(
        installed(*DAGSTER) / "python",
        "-c",
        WORKSPACE,
        sandbox.url.removeprefix("https://"),
        app.client_id,
        app.secret_id,
        app.secret_value,
        live.id,
        extract.id,
        REQUESTS_CA_BUNDLE=str(sandbox.certificate),
    )
    assert "['extract', 'live']" in printed
