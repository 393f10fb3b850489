"""The sandbox that `make demo` and `make dev` share."""

from contextlib import AbstractContextManager
from pathlib import Path
from socket import socket

import pytest

from tableau_pipeline.demo import dev
from tableau_pipeline.demo.sandbox_process import local_sandbox
from tableau_pipeline.publishing.session import PersonalAccessToken, signed_in
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.ports import free_port


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SANDBOX_PORT", str(free_port()))


@pytest.mark.slow
def test_what_one_publishes_the_next_shows(monkeypatch: pytest.MonkeyPatch):
    """Prevents: green assets, an empty server, and links that lead nowhere."""
    with local_sandbox() as first, _session(first) as site:
        project = site.project(("Made", "before"), create=True)
    # Of a developer who also has a sandbox of their own.
    monkeypatch.setenv("TABLEAU_SANDBOX_TOKEN_SECRET", "another")
    with local_sandbox() as second, _session(second) as site:
        assert site.find_project(("Made", "before")) == project
    assert first == second


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Prevents: a cause without a remedy."""
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("SANDBOX_PORT", str(port))
        with pytest.raises(RuntimeError) as raised, local_sandbox():
            pass
        for part in (f"127.0.0.1:{port}", "in use", "SANDBOX_PORT=8766"):
            assert part in str(raised.value)
        monkeypatch.setenv("PORT", str(port))
        assert dev.main() == 1
        assert f"cannot use port {port}" in (message := capsys.readouterr().err)
        assert "PORT=3001 make dev" in message


@pytest.mark.parametrize("port", ["web", "-1"])
def test_no_port(monkeypatch: pytest.MonkeyPatch, port: str):
    """Prevents: a traceback for a typing error."""
    monkeypatch.setenv("SANDBOX_PORT", port)
    with pytest.raises(RuntimeError, match=f"SANDBOX_PORT is '{port}'"), local_sandbox():
        pass


def _session(environment: dict[str, str]) -> AbstractContextManager[TableauSite]:
    token = PersonalAccessToken(
        environment["TABLEAU_TOKEN_NAME"], environment["TABLEAU_TOKEN_VALUE"]
    )
    return signed_in(environment["TABLEAU_SERVER_URL"], credentials=token)
