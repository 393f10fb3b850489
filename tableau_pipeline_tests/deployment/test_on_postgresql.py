"""The commands of compose.yaml, on a real PostgreSQL."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tableau_pipeline.core.drift import Job
from tableau_pipeline_tests.components.support.location import rows_on
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import WebServer, free_port, running, until
from tableau_pipeline_tests.deployment.test_compose import SERVICES
from tableau_pipeline_tests.postgresql import PASSWORD, PostgreSQL, running_postgresql
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import Sandbox

PUBLISH = """
mutation($files: RunConfigData!) { launchRun(executionParams: {runConfigData: $files, selector: {
    repositoryLocationName: "tableau_pipeline", repositoryName: "__repository__",
    jobName: "publish_file"}}) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }"""


class Composition:
    """The services of compose.yaml without containers: the same commands, at other addresses."""

    def __init__(self, folder: Path, postgresql: PostgreSQL, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text((ROOT / "deploy" / "dagster.yaml").read_text())
        self._code, self._web = free_port(), free_port()
        self._settings = settings
        workspace = yaml.safe_load((ROOT / "deploy" / "workspace.yaml").read_text())
        workspace["load_from"][0]["grpc_server"].update(host="127.0.0.1", port=self._code)
        (folder / "workspace.yaml").write_text(yaml.safe_dump(workspace))
        self.web = WebServer(f"http://127.0.0.1:{self._web}")
        self._storage = postgresql.settings

    @contextmanager
    def running(self, service: str) -> Iterator[subprocess.Popen]:
        """Start a service and wait until its health check passes, as `depends_on` does."""
        with running(
            self._here(SERVICES[service]["command"]), folder=self.folder,
            environment=self._environment(service), log=self.folder / f"{service}.log",
        ) as process:  # fmt: skip
            until(
                lambda: process.poll() is not None or self.healthy(service),
                seconds=300, what=f"{service} should be healthy",
            )  # fmt: skip
            assert process.poll() is None, self.log(service)
            yield process

    def healthy(self, service: str) -> bool:
        """Whether the health check that compose.yaml declares for a service passes."""
        kind, *command = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        return not subprocess.run(
            self._here(command), cwd=self.folder, env=self._environment(service),
            capture_output=True,
        ).returncode  # fmt: skip

    def publish(self, file: Path) -> str:
        """Wait for the location, launch the job that publishes a file, and return the run ID."""
        files = {"path": str(file), "name": "Sales", "key": ["id"]}
        config = {"ops": {"publish_files": {"config": files}}}
        launched = until(
            lambda: self.web.ask(PUBLISH, files=config)["launchRun"].get("run"),
            seconds=120, what="a run should be launched",
        )  # fmt: skip
        return launched["runId"]

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()

    def _here(self, command: list[str]) -> list[str]:
        places = {
            "0.0.0.0": "127.0.0.1",
            "3000": str(self._web),
            "4000": str(self._code),
            "deploy/workspace.yaml": "workspace.yaml",
        }
        program, *arguments = [
            places.get(word, word.replace(":3000", f":{self._web}")) for word in command
        ]
        return [str(Path(sys.executable).with_name(program)), *arguments]

    def _environment(self, service: str) -> dict[str, str]:
        """The variables of this process, and those that the image, compose.yaml and .env set."""
        given = SERVICES[service]
        own = self._settings if "env_file" in given else {}
        assert self._storage.keys() <= given["environment"].keys()
        image = {"DAGSTER_HOME": str(self.home), "DAGSTER_DISABLE_TELEMETRY": "true"}
        return {**os.environ, **image, **self._storage, **own}


@pytest.fixture
def settings(tableau_sandbox: Sandbox, tmp_path: Path) -> Mapping[str, str]:
    """The variables that `.env` sets."""
    (tmp_path / "data").mkdir()
    return {
        "TABLEAU_SERVER_URL": tableau_sandbox.url,
        "TABLEAU_TOKEN_NAME": tableau_sandbox.token_name,
        "TABLEAU_TOKEN_VALUE": tableau_sandbox.token_secret,
        "PIPELINE_DATA_DIR": str(tmp_path / "data"),
        "SPARK_MASTER": "local[1]",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_runs_of_the_composition(
    tableau_sandbox: Sandbox, settings: Mapping[str, str], tmp_path: Path
):
    """Prevents: a killed code server loses or repeats rows, or a log shows a password."""
    file = tmp_path / "sales.csv"
    file.write_text("id,amount\n1,10\n2,20\n")
    with running_postgresql() as postgresql, ExitStack() as services:
        composition = Composition(tmp_path, postgresql, settings)
        code = services.enter_context(composition.running("code"))
        for service in ("webserver", "daemon"):
            services.enter_context(composition.running(service))
        run_id = composition.publish(file)
        reading = f"SELECT 1 FROM event_logs WHERE run_id = '{run_id}' AND event LIKE '%Reading %'"
        until(lambda: postgresql.run(reading), seconds=300, what="the run should read the file")
        # Kill the code server alone; the process of the run, in the same session, continues.
        code.kill()
        code.wait()
        assert len(jobs(tableau_sandbox)) == 0
        assert composition.web.ended(run_id) == "SUCCESS", composition.log("daemon")
        file.write_text("id,amount\n1,10\n2,21\n3,30\n")
        services.enter_context(composition.running("code"))
        again = composition.publish(file)
        assert composition.web.ended(again) == "SUCCESS", composition.log("code")
        assert postgresql.run("SELECT status FROM runs") == "SUCCESS\nSUCCESS"
        events = postgresql.run("SELECT event FROM event_logs")
        instance = postgresql.run("SELECT run_body FROM runs")
    assert len(jobs(tableau_sandbox)) == 2
    rows = rows_on(tableau_sandbox, "Sales").to_pydict()
    assert rows == {"id": [1, 2, 3], "amount": [10, 21, 30]}
    assert "published" in events
    assert [*tmp_path.rglob("journal/*/@/*/000000001.json")], "the journal is in the data folder"
    assert list(composition.home.rglob("*.db")) == []
    # Services must write nothing else here: in the image, the rest of this folder belongs to root.
    assert {path.name for path in composition.home.iterdir()} == {"dagster.yaml", "storage"}
    logs = [*tmp_path.glob("*.log"), *composition.home.glob("storage/*/compute_logs/*")]
    assert len(logs) > 3, "the logs of the services, and those of the run"
    texts = [log.read_text("utf-8") for log in logs]
    for secret in (PASSWORD, tableau_sandbox.token_secret):
        assert not any(secret in text for text in (events, instance, *texts))


def jobs(sandbox: Sandbox) -> Sequence[Job]:
    """All jobs that the server started for the data source."""
    with session(sandbox) as site:
        found = site.jobs(name="Sales", since=datetime(2000, 1, 1, tzinfo=UTC))
    assert found is not None
    return found
