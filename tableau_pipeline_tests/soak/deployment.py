"""The processes of a deployment: their start, their end and their use of resources."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
import psutil
import yaml

from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import WebServer, free_port, running, said, until
from tableau_pipeline_tests.deployment.object_stores import BUCKET, S3Server
from tableau_pipeline_tests.postgresql import PostgreSQL, running_postgresql
from tableau_pipeline_tests.soak.people import Server
from tableau_pipeline_tests.soak.project import PACKAGE

LOCATION = "soak"
# Prefixes of the user's own variables, which the deployment must not inherit.
_OTHERS = ("AWS_", "DAGSTER_", "PIPELINE_", "SPARK_", "TABLEAU_")
# By default, Dagster looks for dead runs every two minutes. A night takes only some minutes.
_MONITORING_SECONDS = 10


class Deployment:
    """Dagster's daemon, web server and code server, on PostgreSQL and an object store.

    Attributes:
        home: the folder DAGSTER_HOME.
        store: the folder of the object store.
    """

    def __init__(self, folder: Path, postgresql: PostgreSQL, settings: Mapping[str, str]) -> None:
        self.home, self.store = folder / "dagster_home", folder / "s3" / "buckets"
        self.postgresql = postgresql
        self.server = Server(settings["TABLEAU_SERVER_URL"])
        self._folder, self._project = folder, folder / "project"
        code, web = free_port(), free_port()
        self.web = WebServer(f"http://127.0.0.1:{web}")
        self._commands = {
            "code": ["dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(code),
                     "--module-name", f"{PACKAGE}.definitions"],
            "daemon": ["dagster-daemon", "run", "--workspace", "workspace.yaml"],
            "web": ["dagster-webserver", "--host", "127.0.0.1", "--port", str(web),
                    "--workspace", "workspace.yaml"],
        }  # fmt: skip
        self._ready = {"code": "Started Dagster code server", "daemon": "", "web": "Serving"}
        self._environment = {**environment(folder), **settings}
        self._write_settings(code)
        self._stack = ExitStack()
        self._processes: dict[str, psutil.Process] = {}

    def _write_settings(self, port: int) -> None:
        for name in (self.home, self._folder / "tmp"):
            name.mkdir()
        dagster = yaml.safe_load((ROOT / "deploy" / "dagster.yaml").read_text("utf-8"))
        dagster["run_monitoring"]["poll_interval_seconds"] = _MONITORING_SECONDS
        (self.home / "dagster.yaml").write_text(yaml.safe_dump(dagster))
        server = {"host": "127.0.0.1", "port": port, "location_name": LOCATION}
        workspace = {"load_from": [{"grpc_server": server}]}
        (self._project / "workspace.yaml").write_text(yaml.safe_dump(workspace))

    @contextmanager
    def running(self) -> Iterator[dg.DagsterInstance]:
        """Run all processes during the block; yield Dagster's instance for use by this process."""
        os.environ.update(self._environment)
        try:
            with self._stack, dg.DagsterInstance.get() as instance:
                for name in self._commands:
                    self.start(name)
                until(self.web.answers, seconds=60, what="the web server should answer")
                yield instance
        finally:
            # Runs can outlive their code server.
            for process in self._here():
                process.kill()

    def start(self, name: str) -> None:
        """Start the process `code`, `daemon` or `web`, and wait until it is ready."""
        program, *arguments = self._commands[name]
        log = self._folder / f"{name}.log"
        if log.exists():
            log.rename(log.with_suffix(f".{log.stat().st_mtime_ns}.log"))
        process = self._stack.enter_context(
            running(
                [str(Path(sys.executable).with_name(program)), *arguments],
                folder=self._project, environment=self._environment, log=log,
            )
        )  # fmt: skip
        said(process, log, self._ready[name])
        self._processes[name] = psutil.Process(process.pid)

    def kill(self, name: str) -> bool:
        """Kill and restart `daemon` or `code`, or kill a `run`; return False if no run exists."""
        if name != "run":
            self._processes[name].kill()
            self._processes[name].wait()
            self.start(name)
            return True
        runs = [each for each in self._here() if _is_run(each)]
        for run in runs[:1]:
            run.kill()
        return bool(runs)

    def takes(self) -> dict[str, tuple[float, int]]:
        """Return the MB of resident memory and the open descriptors of each permanent process."""
        processes = {**self._processes, "sandbox": self._sandbox()}
        return {
            name: (process.memory_info().rss / 1e6, process.num_fds())
            for name, process in processes.items()
        }

    def count(self) -> int:
        """Return the number of processes of Dagster and its runs, without the other servers."""
        return len([*self._here()])

    def _here(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter(["environ"]):
            its_home = (process.info["environ"] or {}).get("DAGSTER_HOME")
            if its_home == str(self.home) and process.pid != os.getpid():
                yield process

    def _sandbox(self) -> psutil.Process:
        (found,) = (
            each
            for each in psutil.Process().children()
            if any("tableau-sandbox" in word for word in each.cmdline())
        )
        return found


def _is_run(process: psutil.Process) -> bool:
    """Return whether a process is a run, which Dagster's code server has spawned."""
    try:
        words = " ".join(process.cmdline())
        return "spawn_main" in words and process.parent() is not None
    except psutil.NoSuchProcess:
        return False


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of all processes of the deployment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OTHERS)}
    path = os.pathsep.join([str(folder / "project"), str(ROOT)])
    return {
        **kept,
        "DAGSTER_HOME": str(folder / "dagster_home"),
        "DAGSTER_DISABLE_TELEMETRY": "true",
        "PIPELINE_TRIGGERS": "on",
        "PYTHONPATH": path,
        "TMPDIR": str(folder / "tmp"),
    }


@contextmanager
def deployment(folder: Path) -> Iterator[tuple[Deployment, dg.DagsterInstance]]:
    """Run all servers, and the deployment of the project in `folder`, during the block."""
    with ExitStack() as stack:
        store = stack.enter_context(S3Server(folder / "s3").running())
        postgresql = stack.enter_context(running_postgresql())
        tableau = stack.enter_context(
            sandbox_process(folder / "sandbox", port=0, options=["--control"])
        )
        data = {"PIPELINE_DATA_DIR": f"s3://{BUCKET}/pipeline", "TABLEAU_ARRIVAL_TIMEOUT": "1"}
        settings = {**store.settings, **postgresql.settings, **tableau, **data}
        made = Deployment(folder, postgresql, settings)
        yield made, stack.enter_context(made.running())
