import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import (
    LOG,
    VIEWER,
    SignIn,
    finished,
    published,
)
from tableau_pipeline_tests.publishing.test_publish import rows
from tableau_sandbox.faults import Drop, Refuse
from tableau_sandbox.testing import Sandbox, running_sandbox

TABLE = {"target-schema": "Extract", "target-table": "Extract"}
SOURCE = {"source-schema": "Extract", "source-table": "Extract"}
CLEAR = json.dumps({"actions": [{"action": "delete", **TABLE, "condition": True}]})
INSERT = json.dumps({"actions": [{"action": "insert", **TABLE, **SOURCE}]})
DATA = "sites/*/datasources/*/data"


def fresh() -> str:
    return str(uuid4())


@contextmanager
def site_on(folder: Path, **options) -> Generator[TableauSite]:
    """A session on a server with settings of its own."""
    with (
        running_sandbox(folder / "server", **options) as sandbox,
        signed_in(
            sandbox.url,
            site="",
            credentials=Password(sandbox.user, sandbox.password),
            ca_bundle=None,
            log=LOG,
        ) as site,
    ):
        yield site


def test_refusal_of_what_was_sent_again(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: an update that was received passes for refused, since its second sending was.
    with (
        sandbox.armed(Drop(method="PATCH", path=DATA, when="after")),
        sandbox.armed(Refuse(method="PATCH", path=DATA, status=401, nth=2)),
        pytest.raises(
            RefreshError, match=r"answered 401 when asked again.*may have received"
        ) as caught,
    ):
        tableau.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())
    assert not isinstance(caught.value, RefusedError)


def test_update_through_a_connection(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: data sources with several connections cannot be updated, or the wrong one is.
    item = tableau.tsc.datasources.get_by_id(sales.luid)
    tableau.tsc.datasources.populate_connections(item)
    connection = str(item.connections[0].id)
    with sandbox.armed(Refuse(method="PATCH", path=DATA, status=500)) as by_data_source:
        job = tableau.update(
            sales.luid, batch=CLEAR, upload=None, request_id=fresh(), connection=connection
        )
    assert job
    assert finished(tableau, job)[0] is Outcome.DONE
    assert (rows(sandbox, sales.luid), by_data_source.fired) == (0, 0)


def test_unknown_connection(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a misspelt connection shows as a number only, after the payload was uploaded.
    with pytest.raises(
        RefusedError, match=f'"{sales.name}" has no connection nix. It has: [0-9a-f]'
    ):
        tableau.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh(), connection="nix")


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("version", "product", "limit"),
    [
        ("3.27", "2025.3.0", 95_000_000),
        ("3.15", "2022.1.0", 95_000_000),
        ("3.14", "2021.4.0", 9_500_000),
        ("3.13", "2021.3.0", 9_500_000),
        ("3.11", "2021.1.0", 0),
    ],
)
def test_payload_limit(tmp_path: Path, version: str, product: str, limit: int):
    # Prevents: an old server is sent more than it takes, or a new one a whole file for a few rows.
    with site_on(tmp_path, rest_version=version, product_version=product) as site:
        assert site.payload_limit == limit


def test_payload_above_the_limit(tmp_path: Path, small: Path):
    # Prevents: nobody knows which setting of the server to raise, or that there is a way around.
    with site_on(tmp_path, update_limit_mb=0.001) as site:
        project = site.project("Default", create=False)
        sales = published(site, small, name="Sales", project_id=project)
        with pytest.raises(RefusedError, match=r"400000.*max_size_in_mb.*full: true"):
            site.update(sales.luid, batch=INSERT, upload=site.upload(small), request_id=fresh())


def test_upload_that_the_server_lost(tableau: TableauSite, sales: RemoteDatasource, small: Path):
    # Prevents: what another try would fix passes for something that somebody has to decide.
    gone = f"{tableau.upload(small)}-gone"
    with pytest.raises(RefreshError, match=r"404015.*run again") as caught:
        tableau.update(sales.luid, batch=INSERT, upload=gone, request_id=fresh())
    assert not isinstance(caught.value, RefusedError)


def test_server_without_updates(tmp_path: Path, small: Path):
    # Prevents: an old server shows as an error of the client library.
    with site_on(tmp_path, rest_version="3.11", product_version="2021.1.0") as site:
        project = site.project("Default", create=False)
        sales = published(site, small, name="Sales", project_id=project)
        with pytest.raises(RefusedError, match=r"too old.*Requires 3\.13"):
            site.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())


def test_viewer_may_not_update(sign_in: SignIn, sales: RemoteDatasource):
    # Prevents: a missing permission shows as a number only.
    expected = pytest.raises(RefusedError, match=r"403004.*Overwrite")
    with sign_in(Password(VIEWER.name, VIEWER.password)) as viewer, expected:
        viewer.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())


def test_deleted_data_source(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a data source that somebody deleted shows as a failure of the server.
    tableau.tsc.datasources.delete(sales.luid)
    with pytest.raises(RefusedError, match=f"Updating data source {sales.luid} failed: 404004"):
        tableau.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())
