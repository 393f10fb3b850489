import logging
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import numpy as np
import pyarrow as pa
import pytest
import tableauserverclient as TSC
from tableauhyperapi import TableName

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.read import read_table
from tableau_pipeline.publishing.credentials import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.sandbox.control.faults import Refuse
from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.publishing.conftest import VIEWER, SignIn, armed, hyper_file
from tableau_pipeline_tests.publishing.test_projects import AWKWARD

CREATE, REPLACE, OVERWRITE = PublishMode.CREATE, PublishMode.REPLACE, PublishMode.OVERWRITE


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is too large for one request."""
    monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", "0")
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")


def rows(sandbox: Sandbox, luid: str) -> int:
    file = sandbox.hyper_file(luid)
    return read_table(hyper_process(), file, TableName("Extract", "Extract")).num_rows


def published(answer: RemoteDatasource | str) -> RemoteDatasource:
    assert isinstance(answer, RemoteDatasource)
    return answer


def finished(tableau: TableauSite, job_id: str) -> tuple[Outcome | None, str]:
    for _ in range(500):
        status = tableau.job(job_id)
        assert status is not None
        if status.outcome:
            return status.outcome, status.notes
        sleep(0.01)
    raise AssertionError("the job hangs")


def test_create_then_replace_then_overwrite(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path, other: Path
):
    """Prevents: a mode loses the LUID on which dashboards hang, or leaves the old rows."""
    created = published(tableau.publish(small, name=name, project_id=default, mode=CREATE))
    assert (created.name, created.project_id) == (name, default)
    assert (created.owner_id, created.tags) == (tableau.user_id, frozenset())
    assert tableau.find_by_luid(created.luid) == created
    assert rows(sandbox, created.luid) == 5
    replaced = published(tableau.publish(other, name=name, project_id=default, mode=REPLACE))
    assert rows(sandbox, created.luid) == 9
    overwritten = published(tableau.publish(small, name=name, project_id=default, mode=OVERWRITE))
    assert rows(sandbox, created.luid) == 5
    assert {created.luid} == {replaced.luid, overwritten.luid}
    assert created.updated_at < replaced.updated_at < overwritten.updated_at


def test_create_needs_a_free_name(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path, other: Path
):
    """Prevents: a first publish replaces what somebody put there a moment ago."""
    first = published(tableau.publish(small, name=name, project_id=default, mode=CREATE))
    with pytest.raises(RefusedError) as caught:
        tableau.publish(other, name=name, project_id=default, mode=CREATE)
    for part in (f'Publishing "{name}" failed', "403007", "already exists", "name is taken"):
        assert part in str(caught.value)
    assert rows(sandbox, first.luid) == 5


def test_replace_needs_a_data_source(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: a data source that was deleted meanwhile comes back without being recorded."""
    with pytest.raises(RefusedError, match="404004"):
        tableau.publish(small, name=name, project_id=default, mode=REPLACE)
    assert tableau.find_by_name(name, project_id=default) is None


def test_viewer_is_told_what_is_missing(sign_in: SignIn, default: str, name: str, small: Path):
    """Prevents: a missing permission shows as a number only."""
    expected = pytest.raises(RefusedError, match=r"403007.*Creator.*Publish capability")
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer, expected:
        viewer.publish(small, name=name, project_id=default, mode=CREATE)


def test_file_that_is_none(tableau: TableauSite, default: str, name: str, tmp_path: Path):
    """Prevents: the server's reason to refuse a file is lost."""
    broken = tmp_path / "broken.hyper"
    broken.write_bytes(b"no database")
    with pytest.raises(RefusedError, match=r"400011.*problem publishing"):
        tableau.publish(broken, name=name, project_id=default, mode=CREATE)


@pytest.mark.usefixtures("large")
def test_large_file_goes_on_as_a_job(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path
):
    """Prevents: a proxy's time limit cuts off the publishing of a large file."""
    job = tableau.publish(small, name=name, project_id=default, mode=CREATE)
    assert isinstance(job, str)
    assert finished(tableau, job)[0] is Outcome.DONE
    found = tableau.find_by_name(name, project_id=default)
    assert found is not None
    assert rows(sandbox, found.luid) == 5


@pytest.mark.usefixtures("large")
def test_failed_job_tells_why(tableau: TableauSite, default: str, name: str, tmp_path: Path):
    """Prevents: a job that failed passes for done, or gives no reason."""
    broken = tmp_path / "broken.hyper"
    broken.write_bytes(b"no database")
    job = tableau.publish(broken, name=name, project_id=default, mode=CREATE)
    assert isinstance(job, str)
    outcome, notes = finished(tableau, job)
    assert outcome is Outcome.FAILED
    assert "problem publishing" in notes


@pytest.mark.usefixtures("large")
def test_upload_tells_how_far_it_is(
    tableau: TableauSite,
    sandbox: Sandbox,
    default: str,
    name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    """Prevents: an upload of an hour looks like one that hangs, or its blocks get mixed up."""
    caplog.set_level(logging.INFO, "tableau_pipeline_tests.publishing")
    count = 400_000
    noise = np.random.default_rng(0).integers(0, 2**62, count)
    file = hyper_file(tmp_path, pa.table({"noise": noise}))
    assert file.stat().st_size > 2 * 2**20
    job = tableau.publish(file, name=name, project_id=default, mode=CREATE)
    assert finished(tableau, str(job))[0] is Outcome.DONE
    told = [line for line in caplog.messages if line.startswith("Uploaded")]
    assert len(told) == -(-file.stat().st_size // 2**20)
    assert told[:2] == ["Uploaded 1 MB", "Uploaded 2 MB"]
    found = tableau.find_by_name(name, project_id=default)
    assert found is not None
    assert sandbox.hyper_file(found.luid).read_bytes() == file.read_bytes()


def test_unknown_job(tableau: TableauSite):
    """Prevents: a job that the server forgot, as it does after a while, stops all refreshes."""
    assert tableau.job("00000000-0000-0000-0000-000000000000") is None


@pytest.mark.parametrize("awkward", AWKWARD)
def test_found_by_awkward_name(
    tableau: TableauSite, default: str, name: str, awkward: str, small: Path
):
    """Prevents: a data source with a comma in its name is not found, and published twice."""
    full = f"{awkward} {name}"
    created = published(tableau.publish(small, name=full, project_id=default, mode=CREATE))
    assert tableau.find_by_name(full, project_id=default) == created


def test_found_in_its_own_project_only(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: a namesake in another project is taken for ours."""
    elsewhere = tableau.project(name, create=True)
    created = published(tableau.publish(small, name=name, project_id=elsewhere, mode=CREATE))
    assert tableau.find_by_name(name, project_id=default) is None
    assert tableau.find_by_name(name, project_id=elsewhere) == created
    assert tableau.find_by_name(name[:-1], project_id=elsewhere) is None


@pytest.mark.parametrize("published_name", ["{} été", "{} ÉTÉ, R&D"])
def test_found_in_any_case(
    tableau: TableauSite, default: str, name: str, small: Path, published_name: str
):
    # Prevents: a name that Tableau takes for the same passes for free, and the publish fails.
    theirs = published_name.format(name)
    created = published(tableau.publish(small, name=theirs, project_id=default, mode=CREATE))
    assert tableau.find_by_name(theirs.swapcase(), project_id=default) == created
    with pytest.raises(RefusedError, match="name is taken"):
        tableau.publish(small, name=theirs.swapcase(), project_id=default, mode=CREATE)


@pytest.mark.parametrize("kind", ["datasources", "projects", "jobs"])
def test_server_too_busy_to_tell(tableau: TableauSite, sandbox: Sandbox, default: str, kind: str):
    # Prevents: an error on the way passes for the end of the list, and so for a free name.
    calls = {
        "datasources": lambda: tableau.find_by_name("Sales", project_id=default),
        "projects": lambda: tableau.find_project("Default"),
        "jobs": lambda: tableau.jobs(name="Sales", since=datetime.now(UTC)),
    }
    busy = Refuse(method="GET", path=f"sites/*/{kind}", status=429, times=None)
    with armed(sandbox, busy), pytest.raises(RefreshError, match="429000") as caught:
        calls[kind]()
    assert not isinstance(caught.value, RefusedError), "another try helps"
    assert "run again later" in str(caught.value)


def test_unknown_luid(tableau: TableauSite):
    """Prevents: a data source that was deleted shows as an error instead of being published."""
    assert tableau.find_by_luid("00000000-0000-0000-0000-000000000000") is None


def test_tags_add_up(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: our tag drops those of others, or is split at its colon or slash."""
    created = published(tableau.publish(small, name=name, project_id=default, mode=CREATE))
    for tag in ("certified", "tableau-pipeline:sales/eu", "tableau-pipeline:sales/eu"):
        tableau.tag(created.luid, tag)
    found = tableau.find_by_luid(created.luid)
    assert found is not None
    assert found.tags == {"certified", "tableau-pipeline:sales/eu"}


def test_metadata_digest(
    tableau: TableauSite, default: str, name: str, small: Path, other: Path, tmp_path: Path
):
    """Prevents: our own data looks like an analyst's edit, or an edit like our own data."""
    created = published(tableau.publish(small, name=name, project_id=default, mode=CREATE))
    first = tableau.metadata_digest(created.luid)
    assert tableau.metadata_digest(created.luid) == first
    tableau.publish(other, name=name, project_id=default, mode=REPLACE)
    tableau.tag(created.luid, "certified")
    assert tableau.metadata_digest(created.luid) == first
    renamed = hyper_file(tmp_path, pa.table({"renamed": [1]}))
    tableau.publish(renamed, name=name, project_id=default, mode=OVERWRITE)
    assert tableau.metadata_digest(created.luid) != first


def test_download(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: what was published cannot be looked at."""
    created = published(tableau.publish(small, name=name, project_id=default, mode=CREATE))
    with TemporaryDirectory() as folder:
        assert tableau.download(created.luid, Path(folder)).suffix == ".tdsx"


def test_server_that_stops_in_between(
    sandbox: Sandbox, sign_in: SignIn, default: str, name: str, small: Path
):
    """Prevents: a lost connection passes for a refusal, and what was sent is never settled."""
    with sign_in() as tableau:
        assert isinstance(tableau.tsc, TSC.Server)
        tableau.tsc._server_address = "http://127.0.0.1:1"
        with pytest.raises(RefreshError) as caught:
            tableau.publish(small, name=name, project_id=default, mode=CREATE)
    assert not isinstance(caught.value, RefusedError)
    assert f'Publishing "{name}" failed: no connection' in str(caught.value)
