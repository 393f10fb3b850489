import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tableauhyperapi import TableName

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import megabytes
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import (
    VIEWER,
    SignIn,
    hyper_file,
    published,
    send,
)
from tableau_sandbox.faults import CallFault, Delay, Drop, Refuse
from tableau_sandbox.testing import Sandbox

CREATE, REPLACE, OVERWRITE = PublishMode.CREATE, PublishMode.REPLACE, PublishMode.OVERWRITE


def rows(sandbox: Sandbox, luid: str) -> int:
    file = sandbox.hyper_file(luid)
    return read_table(hyper_process(), file, TableName("Extract", "Extract")).num_rows


def test_create_then_replace_then_overwrite(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path, other: Path
):
    """Prevents: a mode loses the LUID on which dashboards hang, or leaves the old rows."""
    created = published(tableau, small, name=name, project_id=default)
    assert (created.name, created.project_id) == (name, default)
    assert (created.owner_id, created.tags) == (tableau.user_id, frozenset())
    assert tableau.find_by_luid(created.luid) == created
    assert rows(sandbox, created.luid) == 5
    replaced = published(tableau, other, name=name, project_id=default, mode=REPLACE)
    assert rows(sandbox, created.luid) == 9
    overwritten = published(tableau, small, name=name, project_id=default, mode=OVERWRITE)
    assert rows(sandbox, created.luid) == 5
    assert {created.luid} == {replaced.luid, overwritten.luid}
    assert created.updated_at < replaced.updated_at < overwritten.updated_at


def test_create_needs_a_free_name(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path, other: Path
):
    """Prevents: a first publish replaces what somebody put there a moment ago."""
    first = published(tableau, small, name=name, project_id=default)
    with pytest.raises(RefusedError) as caught:
        send(tableau, other, name=name, project_id=default)
    for part in (f'Publishing "{name}" failed', "403007", "already exists", "name is taken"):
        assert part in str(caught.value)
    assert rows(sandbox, first.luid) == 5


def test_replace_needs_a_data_source(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: a data source that was deleted meanwhile comes back without being recorded."""
    with pytest.raises(RefusedError, match="404004"):
        send(tableau, small, name=name, project_id=default, mode=REPLACE)
    assert tableau.find_by_name(name, project_id=default) is None


def test_viewer_is_told_what_is_missing(sign_in: SignIn, default: str, name: str, small: Path):
    """Prevents: a missing permission shows as a number only."""
    expected = pytest.raises(RefusedError, match=r"403004.*may not upload.*Creator")
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer, expected:
        send(viewer, small, name=name, project_id=default)


@pytest.mark.parametrize(
    "fault",
    [
        Drop(method="POST", path="sites/*/datasources", when="after"),
        Drop(method="POST", path="sites/*/datasources", when="before"),
        Refuse(method="POST", path="sites/*/datasources", status=503),
        Refuse(method="POST", path="sites/*/datasources", status=504),
        Refuse(method="POST", path="sites/*/datasources", status=500),
    ],
    ids=str,
)
def test_publish_is_never_sent_twice(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    other: Path,
    fault: CallFault,
):
    """Prevents: a publish that is repeated overwrites what somebody sent in between."""
    with sandbox.armed(fault) as armed_fault, pytest.raises(RefreshError) as caught:
        send(tableau, other, name=sales.name, project_id=sales.project_id, mode=REPLACE)
    assert not isinstance(caught.value, RefusedError), "it may have been received"
    assert armed_fault.seen == 1


def test_upload_tells_how_far_it_is(
    tableau: TableauSite,
    sandbox: Sandbox,
    default: str,
    name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: an upload of an hour looks like one that hangs, or its blocks get mixed up."""
    caplog.set_level(logging.INFO, "tableau_pipeline_tests.publishing")
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    count = 400_000
    noise = np.random.default_rng(0).integers(0, 2**62, count)
    file = hyper_file(tmp_path, pa.table({"noise": noise}))
    assert file.stat().st_size > 2 * 2**20
    found = published(tableau, file, name=name, project_id=default)
    logged = [line for line in caplog.messages if line.startswith("Uploaded")]
    assert len(logged) == -(-file.stat().st_size // 2**20)
    size = megabytes(file.stat().st_size)
    assert logged[:2] == [f"Uploaded 1.05 MB of {size}", f"Uploaded 2.10 MB of {size}"]
    assert logged[-1] == f"Uploaded {size}"
    assert sandbox.hyper_file(found.luid).read_bytes() == file.read_bytes()


def test_found_in_its_own_project_only(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: a namesake in another project is taken for ours."""
    elsewhere = tableau.project(name, create=True)
    created = published(tableau, small, name=name, project_id=elsewhere)
    assert tableau.find_by_name(name, project_id=default) is None
    assert tableau.find_by_name(name, project_id=elsewhere) == created
    assert tableau.find_by_name(name[:-1], project_id=elsewhere) is None


@pytest.mark.parametrize("published_name", ["{} été", "{} ÉTÉ, R&D"])
def test_found_in_any_case(
    tableau: TableauSite, default: str, name: str, small: Path, published_name: str
):
    # Prevents: a name that Tableau takes for the same passes for free, and the publish fails.
    theirs = published_name.format(name)
    created = published(tableau, small, name=theirs, project_id=default)
    assert tableau.find_by_name(theirs.swapcase(), project_id=default) == created
    with pytest.raises(RefusedError, match="name is taken"):
        send(tableau, small, name=theirs.swapcase(), project_id=default)


def test_tags_add_up(tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource):
    """Prevents: our tags drop those of others, or are split at a colon, slash, space or comma."""
    tableau.tag(sales.luid, ["certified"])
    ours = ["tableau-pipeline:sales/eu", "tableau-pipeline-instance:7 f, x", "größer"]
    with sandbox.armed(Delay(method="PUT", seconds=0, times=None)) as calls:
        tableau.tag(sales.luid, ours)
    tableau.tag(sales.luid, ours[:1])
    found = tableau.find_by_luid(sales.luid)
    assert found is not None
    assert found.tags == {"certified", *ours}
    assert calls.seen == 1


def test_metadata_digest(
    tableau: TableauSite, default: str, name: str, small: Path, other: Path, tmp_path: Path
):
    """Prevents: our own data looks like an analyst's edit, or an edit like our own data."""
    created = published(tableau, small, name=name, project_id=default)
    first = tableau.metadata(created.luid)
    assert first.columns == {("Extract", "number")}
    assert tableau.metadata(created.luid) == first
    published(tableau, other, name=name, project_id=default, mode=REPLACE)
    tableau.tag(created.luid, ["certified"])
    assert tableau.metadata(created.luid) == first
    renamed = hyper_file(tmp_path, pa.table({"renamed": [1]}))
    published(tableau, renamed, name=name, project_id=default, mode=OVERWRITE)
    assert tableau.metadata(created.luid).columns == {("Extract", "renamed")}
