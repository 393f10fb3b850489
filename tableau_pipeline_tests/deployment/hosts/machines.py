"""Hosts of a deployment on this machine, which share only an object store and a database."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from uuid import uuid4

import dagster as dg
import obstore
import pyarrow as pa
import pytest

from tableau_pipeline.objects.stores import store_at
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.components.support.location import wrong
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.deployment.hosts.process import Stop, declaration
from tableau_pipeline_tests.deployment.object_stores import ObjectServer
from tableau_pipeline_tests.postgresql import PostgreSQL, running_postgresql
from tableau_pipeline_tests.refresh.support.models import snapshot
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import Sandbox, running_sandbox

SECONDS = 120
_UNSHARE = ("unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child")


def why_no_hosts() -> str | None:
    """The reason why this machine cannot run separate hosts, or None if it can."""
    try:
        done = subprocess.run(
            [*_UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"unshare of util-linux is needed: {error}"
    return f"unshare is not permitted: {done.stderr.strip()}" if done.returncode else None


class Host:
    """A host, which sees only its own disk and its own processes.

    Attributes:
        disk: the folder to which the host can write.

    Args:
        home: the folder in the repository whose dagster.yaml the host uses. `deploy` uses the
            database of the deployment; `dagster_home` makes an instance for this host alone.
    """

    def __init__(self, disk: Path, settings: Mapping[str, str], *, home: str = "deploy") -> None:
        self.disk, self._home = disk, home
        keep = [str(each) for each in (ROOT, sys.prefix, sys.base_prefix, disk)]
        self._environment = {
            **settings,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(disk),
            "TMPDIR": str(disk / "tmp"),
            "DAGSTER_HOME": str(disk / "dagster"),
            "KEEP": "\n".join(keep),
        }

    @contextmanager
    def running(self) -> Generator[None]:
        """Run the process of the host during the block."""
        self.start()
        try:
            yield
        finally:
            self.kill()

    def start(self) -> None:
        """Start the process of the host; create the disk of the host if it does not exist."""
        for name in ("dagster", "root", "tmp"):
            (self.disk / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / self._home / "dagster.yaml", self.disk / "dagster")
        script = Path(__file__).with_name("host.sh")
        program = "tableau_pipeline_tests.deployment.hosts.process"
        with (self.disk / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*_UNSHARE, "sh", str(script), str(self.disk / "root"),
                 sys.executable, "-m", program],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=self._environment,
            )  # fmt: skip
        self._said: dict[str, Queue[int | None]] = {}
        self._listener = Thread(target=self._listen, args=(self._process,))
        self._listener.start()

    def kill(self) -> None:
        """End the host and all its processes at once."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()

    def begin(self, model: str, stop: Stop | None = None) -> str:
        """Start a refresh, which stops itself at `stop`; return the ID of its run."""
        run = str(uuid4())
        self._said[run] = Queue()
        self._order(model=model, run=run, stop=asdict(stop) if stop else None)
        return run

    def paused(self, model: str, stop: Stop) -> str:
        """Start a refresh, wait until it has stopped itself, and return the ID of its run."""
        run = self.begin(model, stop)
        assert self._next(run) is None, self.log()[-6000:]
        return run

    def ended(self, run: str) -> int:
        """Wait until a run has ended; return the exit code of its process."""
        code = self._next(run)
        assert code is not None
        return code

    def signal(self, run: str, name: str) -> None:
        """Send a signal to the process of a run."""
        self._order(run=run, signal=name)

    def refresh(self, model: str) -> str:
        """Refresh without a stop; return the ID of the run."""
        run = self.begin(model)
        assert self.ended(run) == 0, self.log()[-6000:]
        return run

    def sees(self, path: Path) -> bool:
        """Whether processes of the host can see a file or folder of this machine."""
        unshare = self._process.pid
        (pid,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
        return Path(f"/proc/{pid}/root{path}").exists()

    def log(self) -> str:
        """The log of the host's processes."""
        return (self.disk / "log").read_text()

    def _order(self, **order: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _next(self, run: str) -> int | None:
        try:
            return self._said[run].get(timeout=SECONDS)
        except Empty:
            raise AssertionError(f"no report about run {run}\n{self.log()[-6000:]}") from None

    def _listen(self, process: subprocess.Popen) -> None:
        assert process.stdout
        for line in process.stdout:
            said = json.loads(line)
            self._said[said["run"]].put(said["code"])


@dataclass
class Deployment:
    """Two hosts, and the services that they share.

    Attributes:
        shared: the folder of all servers, except the object store.
        dagster: the instance that a web server would use.
        settings: the environment variables of all hosts.
    """

    shared: Path
    first: Host
    second: Host
    sandbox: Sandbox
    postgresql: PostgreSQL
    dagster: dg.DagsterInstance
    settings: Mapping[str, str]
    _sent: set[Path] = field(default_factory=set)

    def write(self, model: str, rows: pa.Table) -> None:
        """Store the next version of a model."""
        # First store the version as a single host would, in a local folder.
        folder = self.shared / "local" / "snapshots"
        snapshot(folder, rows, asset_key=model)
        store = store_at(resources_from_env()["snapshots"].root)
        # A manifest comes after the files that it names.
        files = {path for path in folder.rglob("*") if path.is_file()} - self._sent
        for path in sorted(files, key=lambda path: path.suffix == ".json"):
            obstore.put(store, path.relative_to(folder).as_posix(), path.read_bytes())
        self._sent |= files

    def report_death(self, run: str) -> None:
        """Record the failure of a run, as a code server does when the run has died."""
        found = self.dagster.get_run_by_id(run)
        assert found
        assert not found.is_finished
        self.dagster.report_run_failed(found)

    def said(self, run: str) -> str:
        """The log messages of a run, and the data of its events, which include errors."""
        events = self.dagster.all_logs(run)
        errors = [
            str(each.dagster_event.event_specific_data) for each in events if each.dagster_event
        ]
        return "\n".join([*(each.user_message for each in events), *errors])

    def jobs(self, model: str) -> int:
        """How many jobs the server ever started for the data source of a model."""
        with session(self.sandbox) as site:
            found = site.jobs(name=f"Shared {model}", since=datetime(2000, 1, 1, tzinfo=UTC))
        assert found is not None
        return len(found)

    def wrong(self, model: str) -> list[str]:
        """The differences between a published data source and the newest version of its model."""
        newest = resources_from_env()["snapshots"].snapshot(model)
        return wrong(self.sandbox, declaration(model), {model: newest})


@contextmanager
def deployed(folder: Path, server: ObjectServer) -> Generator[Deployment]:
    """Run a deployment on an object store, and give this process the environment of its hosts."""
    shared = folder / "shared"
    home = shared / "web"
    home.mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "dagster.yaml", home)
    with ExitStack() as stack:
        postgresql = stack.enter_context(running_postgresql())
        sandbox = stack.enter_context(running_sandbox(shared / "sandbox"))
        settings = {
            **server.settings,
            **postgresql.settings,
            "PIPELINE_DATA_DIR": f"{server.url}/{uuid4().hex[:8]}",
            "TABLEAU_SERVER_URL": sandbox.url,
            "TABLEAU_USERNAME": sandbox.user,
            "TABLEAU_PASSWORD": sandbox.password,
            # No gateway is in between.
            "TABLEAU_ARRIVAL_TIMEOUT": "1",
        }
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in settings.items():
            patch.setenv(name, value)
        dagster = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        hosts = [Host(folder / name, settings) for name in ("first", "second")]
        for host in hosts:
            stack.enter_context(host.running())
        yield Deployment(shared, *hosts, sandbox, postgresql, dagster, settings)
