import json
import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from tableauhyperapi import TableName

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.publishing.retries import RetryTimes
from tableau_pipeline.publishing.session import Credentials, Password, signed_in
from tableau_pipeline.publishing.site import TableauSite
from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox

LOG = logging.getLogger("tableau_pipeline_tests.publishing")
# A failed call is repeated at once. Only the server can ask for a wait.
AT_ONCE = RetryTimes(backoff=0)
TABLE = {"target-schema": "Extract", "target-table": "Extract"}
SOURCE = {"source-schema": "Extract", "source-table": "Extract"}
CLEAR = json.dumps({"actions": [{"action": "delete", **TABLE, "condition": True}]})
INSERT = json.dumps({"actions": [{"action": "insert", **TABLE, **SOURCE}]})
DATA = "sites/*/datasources/*/data"
VIEWER = UserSeed(name="vera", password="vera-secret", site_role="Viewer")


# Opens a session on the sandbox, by default as its administrator.
SignIn = Callable[..., AbstractContextManager[TableauSite]]


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox, None, None]:
    """One server for all tests of this folder. Each test uses names of its own."""
    folder = tmp_path_factory.mktemp("sandbox")
    with running_sandbox(folder, users=(VIEWER,), sites=("second",)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def sign_in(sandbox: Sandbox) -> SignIn:
    admin = Password(sandbox.user, sandbox.password)

    def open_session(
        credentials: Credentials = admin, *, url: str = "", **options: Any
    ) -> AbstractContextManager[TableauSite]:
        options = {"log": LOG, "times": AT_ONCE} | options
        return signed_in(url or sandbox.url, credentials=credentials, **options)

    return open_session


@pytest.fixture(scope="session")
def tableau(sign_in: SignIn) -> Generator[TableauSite, None, None]:
    """A session of the administrator. A password allows several sessions at a time."""
    with sign_in() as tableau:
        yield tableau


@pytest.fixture
def name() -> str:
    """A name that no data source has yet."""
    return f"Sales {uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def default(tableau: TableauSite) -> str:
    """The id of the project "Default", which every site has."""
    return tableau.project("Default", create=False)


def hyper_file(folder: Path, rows: pa.Table) -> Path:
    """A single-table `.hyper` file of whole numbers."""
    path = folder / f"{uuid4().hex}.hyper"
    parquet = path.with_suffix(".parquet")
    pq.write_table(rows, parquet)
    columns = tuple(Column(name, "bigint") for name in rows.column_names)
    table = TableSource("Extract", columns, (str(parquet),))
    return build_extract(hyper_process(), path, tables=[table]).path


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the numbers 0 to 4."""
    return hyper_file(tmp_path_factory.mktemp("small"), pa.table({"number": range(5)}))


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the numbers 0 to 8."""
    return hyper_file(tmp_path_factory.mktemp("other"), pa.table({"number": range(9)}))


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with 400,000 numbers, which is uploaded in several blocks."""
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    noise = np.random.default_rng(0).integers(0, 2**62, 400_000)
    file = hyper_file(tmp_path, pa.table({"number": noise}))
    assert file.stat().st_size > 2 * 2**20
    return file


@dataclass(frozen=True)
class Shop:
    """A session of the administrator, its server, and a data source with the numbers 0 to 4."""

    site: TableauSite
    sandbox: Sandbox
    sales: RemoteDatasource
    small: Path

    def update(self, batch: str = CLEAR, **more: Any) -> str:
        """Send an update; return the id of its job."""
        usual = {"upload": None, "request_id": fresh()}
        job = self.site.update(self.sales.luid, batch=batch, **usual | more)
        assert job
        return job

    def publish(self, file: Path) -> RemoteDatasource:
        """Replace the data source by a file; return the data source as it is afterwards."""
        sales = self.sales
        return published(
            self.site, file, name=sales.name, project_id=sales.project_id, mode=PublishMode.REPLACE
        )

    def found(self) -> RemoteDatasource:
        """The data source as the server describes it now."""
        found = self.site.find_by_luid(self.sales.luid)
        assert found
        return found

    def rows(self) -> int:
        return rows(self.sandbox, self.sales.luid)


@pytest.fixture
def sales(tableau: TableauSite, default: str, name: str, small: Path) -> RemoteDatasource:
    """A data source with the numbers 0 to 4."""
    return published(tableau, small, name=name, project_id=default)


@pytest.fixture
def shop(tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource, small: Path) -> Shop:
    return Shop(tableau, sandbox, sales, small)


def rows(sandbox: Sandbox, luid: str) -> int:
    file = sandbox.hyper_file(luid)
    return read_table(hyper_process(), file, TableName("Extract", "Extract")).num_rows


def fresh() -> str:
    return str(uuid4())


def send(
    site: TableauSite,
    file: Path,
    *,
    name: str,
    project_id: str,
    mode: PublishMode = PublishMode.CREATE,
) -> str:
    """Upload and publish a file; return the id of the job."""
    return site.publish(site.upload(file), name=name, project_id=project_id, mode=mode)


def published(
    site: TableauSite, file: Path, *, name: str, project_id: str, **options: Any
) -> RemoteDatasource:
    """Publish a file and wait for the job; return the data source."""
    job = send(site, file, name=name, project_id=project_id, **options)
    assert finished(site, job) == (Outcome.DONE, "")
    found = site.find_by_name(name, project_id=project_id)
    assert found is not None
    return found


def finished(site: TableauSite, job_id: str) -> tuple[Outcome | None, str]:
    """Wait for a job; return its outcome and its notes."""
    for _ in range(500):
        status = site.job(job_id)
        assert status is not None
        if status.outcome:
            return status.outcome, status.notes
        sleep(0.01)
    raise AssertionError("the job hangs")


@contextmanager
def hooked(site: TableauSite, hook: Callable[..., None]) -> Generator[None]:
    """Let a hook see each answer before the client does. The hook may change the answer."""
    hooks = site.tsc.session.hooks["response"]
    hooks.append(hook)
    try:
        yield
    finally:
        hooks.remove(hook)


def forbid(response: requests.Response, code: bytes) -> None:
    """Turn an answer into the error by which a server forbids a call."""
    response.status_code = 403
    error = b'<error code="%s"><summary>Forbidden</summary><detail>no</detail></error>' % code
    response._content = b'<tsResponse xmlns="http://tableau.com/api">%s</tsResponse>' % error
