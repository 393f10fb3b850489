from pathlib import Path

import pytest

from tableau_pipeline_tests.environments import environment, run
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.clients.versions import TABCMD
from tableau_sandbox_tests.samples import rows_on_server, signed_in

ONE, TWO = [1, "one"], [2, "two"]


@pytest.mark.slow
def test_tabcmd(
    sandbox: Sandbox,
    tmp_path: Path,
    one_row: Path,
    two_rows: Path,
):
    """Prevents: scripts that people have around Tableau's own command cannot be tried."""
    program = str(environment(TABCMD) / "tabcmd")
    server = signed_in(sandbox)

    def tabcmd(*arguments: str) -> str:
        # It keeps its session in the home directory, and its log where it runs.
        return run(program, *arguments, cwd=tmp_path, HOME=str(tmp_path)).stdout

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
