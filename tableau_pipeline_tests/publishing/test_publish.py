"""Publishes, updates, and the uploads for both."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.publishing.uploads import block_size
from tableau_pipeline.rendering import megabytes
from tableau_pipeline_tests.publishing.conftest import (
    CLEAR,
    DATA,
    INSERT,
    LOG,
    VIEWER,
    Shop,
    SignIn,
    finished,
    fresh,
    hyper_file,
    published,
    send,
)
from tableau_sandbox.faults import Delay, Drop, Refuse
from tableau_sandbox.testing import Sandbox, running_sandbox

REPLACE, OVERWRITE = PublishMode.REPLACE, PublishMode.OVERWRITE


def test_create_then_replace_then_overwrite(shop: Shop, other: Path):
    """Prevents: a publish changes the LUID that dashboards use, or leaves the old rows."""
    created, where = shop.sales, {"name": shop.sales.name, "project_id": shop.sales.project_id}
    assert (created.owner_id, created.tags) == (shop.site.user_id, frozenset())
    assert shop.found() == created
    assert shop.rows() == 5
    replaced = published(shop.site, other, mode=REPLACE, **where)
    assert shop.rows() == 9
    overwritten = published(shop.site, shop.small, mode=OVERWRITE, **where)
    assert shop.rows() == 5
    assert {created.luid} == {replaced.luid, overwritten.luid}
    assert created.updated_at < replaced.updated_at < overwritten.updated_at


def test_create_needs_a_free_name(shop: Shop, other: Path):
    """Prevents: a first publish replaces a data source that another user has just published."""
    name = shop.sales.name
    job = send(shop.site, other, name=name, project_id=shop.sales.project_id)
    assert finished(shop.site, job) == (Outcome.FAILED, "")
    quirk = shop.sandbox.quirks(taken_name="at-request")
    with quirk, pytest.raises(RefusedError) as caught:
        send(shop.site, other, name=name, project_id=shop.sales.project_id)
    for part in (f'Publishing "{name}" failed', "403007", "already exists", "name is taken"):
        assert part in str(caught.value)
    assert shop.rows() == 5


def test_replace_needs_a_data_source(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: a publish brings back a data source that was deleted in the meantime."""
    with pytest.raises(RefusedError, match="404004"):
        send(tableau, small, name=name, project_id=default, mode=REPLACE)
    assert tableau.find_by_name(name, project_id=default) is None


def test_viewer_is_told_what_is_missing(sign_in: SignIn, default: str, name: str, small: Path):
    """Prevents: the error about a missing permission shows only a code."""
    expected = pytest.raises(RefusedError, match=r"403004.*may not upload.*Creator")
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer, expected:
        send(viewer, small, name=name, project_id=default)


def test_upload_tells_how_far_it_is(shop: Shop, large: Path, caplog: pytest.LogCaptureFixture):
    """Prevents: a long upload seems to hang, or its blocks get mixed up."""
    caplog.set_level(logging.INFO, LOG.name)
    found = shop.publish(large)
    logged = [line for line in caplog.messages if line.startswith("Uploaded")]
    assert len(logged) == -(-large.stat().st_size // 2**20)
    size = megabytes(large.stat().st_size)
    assert logged[:2] == [f"Uploaded 1.05 MB of {size}", f"Uploaded 2.10 MB of {size}"]
    assert logged[-1] == f"Uploaded {size}"
    assert shop.sandbox.hyper_file(found.luid).read_bytes() == large.read_bytes()


def test_found_in_its_own_project_only(tableau: TableauSite, default: str, name: str, small: Path):
    """Prevents: a data source of the same name in another project passes for ours."""
    elsewhere = tableau.project(name, create=True)
    created = published(tableau, small, name=name, project_id=elsewhere)
    assert tableau.find_by_name(name, project_id=default) is None
    assert tableau.find_by_name(name, project_id=elsewhere) == created
    assert tableau.find_by_name(name[:-1], project_id=elsewhere) is None


@pytest.mark.parametrize("spelt", ["{} été", "{} ÉTÉ, R&D"])
def test_found_in_any_case(
    tableau: TableauSite, sandbox: Sandbox, default: str, name: str, small: Path, spelt: str
):
    # Prevents: a name that is taken in another case counts as free, and the publish fails.
    theirs = spelt.format(name)
    created = published(tableau, small, name=theirs, project_id=default)
    assert tableau.find_by_name(theirs.swapcase(), project_id=default) == created
    quirk = sandbox.quirks(taken_name="at-request")
    with quirk, pytest.raises(RefusedError, match="name is taken"):
        send(tableau, small, name=theirs.swapcase(), project_id=default)


def test_tags_add_up(shop: Shop):
    """Prevents: our tags remove other users' tags, or the server splits our tags."""
    luid = shop.sales.luid
    shop.site.tag(luid, ["certified"])
    ours = ["tableau-pipeline:sales/eu", "tableau-pipeline-instance:7 f, x", "größer"]
    with shop.sandbox.armed(Delay(method="PUT", seconds=0, times=None)) as calls:
        shop.site.tag(luid, ours)
    shop.site.tag(luid, ours[:1])
    assert shop.found().tags == {"certified", *ours}
    assert calls.seen == 1


def test_metadata_digest(shop: Shop, other: Path, tmp_path: Path):
    """Prevents: our own publish passes for an analyst's edit, or an edit goes unseen."""
    site, sales = shop.site, shop.sales
    first = site.metadata(sales.luid)
    assert first.columns == {("Extract", "number")}
    shop.publish(other)
    site.tag(sales.luid, ["certified"])
    assert site.metadata(sales.luid) == first
    renamed = hyper_file(tmp_path, pa.table({"renamed": [1]}))
    published(site, renamed, name=sales.name, project_id=sales.project_id, mode=OVERWRITE)
    assert site.metadata(sales.luid).columns == {("Extract", "renamed")}


@contextmanager
def shop_on(folder: Path, file: Path, **options) -> Generator[Shop]:
    """Run a server with its own settings, and publish a data source there."""
    with running_sandbox(folder / "server", **options) as sandbox:
        admin = Password(sandbox.user, sandbox.password)
        with signed_in(sandbox.url, credentials=admin, log=LOG) as site:
            project = site.project("Default", create=False)
            sales = published(site, file, name="Sales", project_id=project)
            yield Shop(site, sandbox, sales, file)


def test_refusal_of_what_was_sent_again(shop: Shop):
    # Prevents: a received update passes for refused because the server refused its repeat.
    said = r"answered 401 when asked again.*may have received"
    with (
        shop.sandbox.armed(Drop(method="PATCH", path=DATA, when="after")),
        shop.sandbox.armed(Refuse(method="PATCH", path=DATA, status=401, nth=2)),
        pytest.raises(RefreshError, match=said) as caught,
    ):
        shop.update()
    assert not isinstance(caught.value, RefusedError)


def test_update_through_a_connection(shop: Shop):
    # Prevents: an update cannot choose a connection, or reaches the wrong connection.
    item = shop.site.tsc.datasources.get_by_id(shop.sales.luid)
    shop.site.tsc.datasources.populate_connections(item)
    with shop.sandbox.armed(Refuse(method="PATCH", path=DATA, status=500)) as by_data_source:
        job = shop.update(connection=str(item.connections[0].id))
    assert finished(shop.site, job)[0] is Outcome.DONE
    assert (shop.rows(), by_data_source.fired) == (0, 0)


def test_unknown_connection(shop: Shop):
    # Prevents: the error about a misspelt connection shows only a code.
    said = f"{shop.sales.luid}.*404020.*does not have this connection"
    with pytest.raises(RefusedError, match=said):
        shop.update(connection="nix")


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("version", "product", "limit"),
    [
        ("3.27", "2025.3.0", 95_000_000),
        ("3.14", "2021.4.0", 9_500_000),
        ("3.15", "2022.1.0", 95_000_000),
        ("3.13", "2021.3.0", 9_500_000),
    ],
)
def test_payload_limit(tmp_path: Path, small: Path, version: str, product: str, limit: int):
    # Prevents: an update is too large for an old server, or a new server gets no large updates.
    with shop_on(tmp_path, small, rest_version=version, product_version=product) as shop:
        assert shop.site.payload_limit == limit


def test_payload_above_the_limit(tmp_path: Path, small: Path):
    # Prevents: the error about a large update names no setting to raise and no way around.
    with shop_on(tmp_path, small, update_limit_mb=0.001) as shop:
        upload = shop.site.upload(small)
        with pytest.raises(RefusedError, match=r"400000.*max_size_in_mb.*full: true"):
            shop.update(INSERT, upload=upload)


def test_upload_that_the_server_lost(shop: Shop):
    # Prevents: a lost upload passes for a refusal although another try would succeed.
    gone = f"{shop.site.upload(shop.small)}-gone"
    with pytest.raises(RefreshError, match=r"404015.*run again") as caught:
        shop.update(INSERT, upload=gone)
    assert not isinstance(caught.value, RefusedError)


def test_server_without_updates(tmp_path: Path, small: Path):
    # Prevents: a server that is too old ends in an error of the client library.
    with shop_on(tmp_path, small, rest_version="3.11", product_version="2021.1.0") as shop:
        assert shop.site.payload_limit == 0
        with pytest.raises(RefusedError, match=r"too old.*Requires 3\.13"):
            shop.update()


def test_viewer_may_not_update(sign_in: SignIn, sales: RemoteDatasource):
    # Prevents: the error about a missing permission shows only a code.
    expected = pytest.raises(RefusedError, match=r"403032.*Overwrite")
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer, expected:
        viewer.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())


def test_deleted_data_source(shop: Shop):
    # Prevents: the deletion of a data source passes for a failure of the server.
    luid = shop.sales.luid
    shop.site.tsc.datasources.delete(luid)
    with pytest.raises(RefusedError, match=f"Updating data source {luid} failed: 404004"):
        shop.update()


MEGABYTE, GIGABYTE = 2**20, 2**30


@pytest.mark.parametrize(
    ("size", "megabytes"),
    [
        (0, 16),
        (GIGABYTE, 16),
        (16_000 * MEGABYTE, 16),
        (16_000 * MEGABYTE + 1, 17),
        (25 * GIGABYTE, 26),
        (63_000 * MEGABYTE, 63),
    ],
)
def test_blocks_grow_with_the_file(size: int, megabytes: int):
    # Prevents: a large file fails after its thousandth block, or a small one takes much memory.
    assert block_size(size) == megabytes * MEGABYTE
    assert -(-size // block_size(size)) <= 1000


def test_file_that_nobody_takes():
    # Prevents: the pipeline uploads a file for hours although the file is too large.
    with pytest.raises(RefusedError, match=r"66,060\.3 MB.*1000 blocks of 66\.06 MB.*fewer"):
        block_size(63_000 * MEGABYTE + 1)


def test_size_that_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    # Prevents: an administrator cannot lower the block size for a proxy with a limit.
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "5")
    assert block_size(GIGABYTE) == 5 * MEGABYTE
    with pytest.raises(RefusedError, match=r"TSC_CHUNK_SIZE_MB is .5.: .*11 or more"):
        block_size(10 * GIGABYTE)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "16 MB"])
def test_size_that_is_none(monkeypatch: pytest.MonkeyPatch, value: str):
    # Prevents: a wrong setting ends in a ValueError that does not name the setting.
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", value)
    with pytest.raises(RefusedError, match=f"TSC_CHUNK_SIZE_MB is '{value}'"):
        block_size(1)
