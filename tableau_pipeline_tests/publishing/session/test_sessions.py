import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.session import ConnectedApp, PersonalAccessToken
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import SignIn, finished, hyper_file, send
from tableau_pipeline_tests.publishing.test_jobs import LONG_AGO
from tableau_pipeline_tests.publishing.test_publish import rows
from tableau_pipeline_tests.publishing.test_updates import CLEAR, DATA, INSERT, fresh
from tableau_sandbox.faults import ExpireSessions, HoldJobs
from tableau_sandbox.testing import Sandbox

Call = Callable[[TableauSite, RemoteDatasource, Path], object]
CALLS: dict[str, Call] = {
    "project": lambda site, sales, file: site.project(f"{sales.name}/Deep", create=True),
    "find_by_luid": lambda site, sales, file: site.find_by_luid(sales.luid),
    "publish": lambda site, sales, file: send(
        site, file, name=sales.name, project_id=sales.project_id, mode=PublishMode.REPLACE
    ),
    "update": lambda site, sales, file: site.update(
        sales.luid, batch=CLEAR, upload=None, request_id=fresh()
    ),
    "jobs": lambda site, sales, file: site.jobs(name=sales.name, since=LONG_AGO),
}


@pytest.mark.few_variants(4)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_session_that_has_ended(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    small: Path,
    tmp_path: Path,
    call: Call,
    caplog: pytest.LogCaptureFixture,
):
    # Prevents: a refresh of hours fails because Tableau ends sessions after four, or two.
    file = tmp_path / "file.hyper"
    file.write_bytes(small.read_bytes())
    with sandbox.armed(ExpireSessions()) as fault:
        assert call(tableau, sales, file)
    assert fault.fired == 1
    assert "signing in again" in str(caplog.messages)


def test_session_that_ends_while_a_job_runs(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: a long job is lost sight of, or cannot be given up.
    with sandbox.armed(HoldJobs()):
        job = tableau.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())
        assert job
        with sandbox.armed(ExpireSessions()):
            status = tableau.job(job)
        with sandbox.armed(ExpireSessions()):
            assert tableau.cancel(job)
    assert status
    assert status.outcome is None


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    "when",
    [
        ExpireSessions(method="PUT", path="sites/*/fileUploads/*", nth=2),
        ExpireSessions(method="PATCH", path=DATA),
    ],
    ids=["between two blocks", "after the last block"],
)
def test_session_that_ends_during_an_upload(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: ExpireSessions,
):
    # Prevents: a payload arrives in part, or twice, when its upload outlasts the session.
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    noise = np.random.default_rng(0).integers(0, 2**62, 400_000)
    file = hyper_file(tmp_path, pa.table({"number": noise}))
    assert file.stat().st_size > 2 * 2**20
    with sandbox.armed(when) as fault:
        job = tableau.update(
            sales.luid, batch=INSERT, upload=tableau.upload(file), request_id=fresh()
        )
    assert job
    assert finished(tableau, job) == (Outcome.DONE, "")
    assert rows(sandbox, sales.luid) == 5 + 400_000
    assert fault.fired == 1


def test_sessions_that_end_again_and_again(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: two deployments with one token throw each other out for ever, and nobody is told.
    fault = ExpireSessions(method="GET", path="sites/*/datasources/*", times=None)
    with sandbox.armed(fault) as ending, pytest.raises(RefreshError) as caught:
        tableau.find_by_luid(sales.luid)
    assert ending.fired == 2
    for part in ("401002", "same token", "run again", "a token of its own"):
        assert part in str(caught.value)
    assert not isinstance(caught.value, RefusedError), "another try helps"


def test_second_sign_in_with_a_token_ends_the_first(
    sandbox: Sandbox, sign_in: SignIn, caplog: pytest.LogCaptureFixture
):
    # Prevents: somebody who tries out the same token fails the refresh of the night.
    caplog.set_level(logging.WARNING)
    token = PersonalAccessToken(sandbox.token_name, sandbox.token_secret)
    with sign_in(token) as ours:
        theirs = TSC.Server(sandbox.url, use_server_version=True)
        theirs.auth.sign_in(token.for_site(""))
        assert ours.project("Default", create=False)
    assert "give each deployment a token of its own" in str(caplog.messages)


def test_connected_app_signs_in_again(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: the second sign-in shows the token of the first, which Tableau takes only once.
    app = sandbox.connected_app
    credentials = ConnectedApp(sandbox.user, app.client_id, app.secret_id, app.secret_value)
    with sign_in(credentials) as tableau, sandbox.armed(ExpireSessions()):
        assert tableau.find_project("Default")
