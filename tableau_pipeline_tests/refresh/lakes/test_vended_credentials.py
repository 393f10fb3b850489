"""Iceberg tables whose files are read with the credentials of their catalog."""

import logging
import time
from collections.abc import Generator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tableau_pipeline.core.lake_table import InCatalog, LakeTable
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.lake import iceberg
from tableau_pipeline.lake.tables import current_version
from tableau_pipeline.objects import lent
from tableau_pipeline.objects.arrow_files import open_store
from tableau_pipeline.objects.stores import StoreError, read_object, store_at
from tableau_pipeline_tests.deployment.conftest import STORES
from tableau_pipeline_tests.deployment.object_stores import S3Server
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_catalog,
    in_order,
    published,
    rows_of,
    sql_catalog,
    table_of,
)
from tableau_pipeline_tests.refresh.lakes.vending import (
    Gate,
    StoreIO,
    VendingCatalog,
    gate_before,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

pytestmark = pytest.mark.timeout(300)
ORDERS = InCatalog("rest", "db.orders")
ON_S3 = pytest.mark.parametrize(
    "gate", [pytest.param(S3Server, id="S3", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(scope="module", params=STORES)
def gate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Gate]:
    with (
        request.param(tmp_path_factory.mktemp("store") / "server").running() as server,
        gate_before(server) as gate,
    ):
        yield gate


@pytest.fixture
def written(
    gate: Gate, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Generator[SqlCatalog]:
    """The catalog with which tests write tables. The writes go to the store, past the gate."""
    with pytest.MonkeyPatch.context() as direct:
        for name, value in gate.server.settings.items():
            direct.setenv(name, value)
        monkeypatch.setattr(StoreIO, "store", open_store(gate.server.url), raising=False)
    for name, value in gate.settings.items():
        monkeypatch.setenv(name, value)
    # A client that does not sign its requests would need no credentials at all.
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "false")
    folder = tmp_path_factory.mktemp("lake")
    store_at.cache_clear()
    lent._loans.clear()
    gate.guarded, gate.seconds, gate.accepts = f"{folder.name}/db/orders", 3600, True
    gate.refused.clear()
    io = {"py-io-impl": f"{StoreIO.__module__}.StoreIO"}
    yield sql_catalog(monkeypatch, folder, f"{gate.server.url}/{folder.name}", **io)
    store_at.cache_clear()
    lent._loans.clear()


@pytest.fixture
def catalog(
    gate: Gate, written: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> Generator[VendingCatalog]:
    """A catalog that hands out credentials for one of its two tables."""
    with VendingCatalog(gate).running() as catalog:
        for name in ("orders", "others"):
            catalog.tables[name] = table_of(written, rows_of([1, 2]), name)
        catalog.vends = {"orders"}
        monkeypatch.setenv("PYICEBERG_CATALOG__REST__URI", catalog.url)
        yield catalog


@pytest.fixture
def orders(catalog: VendingCatalog) -> Table:
    return catalog.tables["orders"]


def no_secret_in(text: str, gate: Gate) -> bool:
    return bool(gate.secrets) and not any(secret in text for secret in gate.secrets)


def test_a_publish_and_an_update(
    pipeline: Pipeline,
    gate: Gate,
    orders: Table,
    catalog: VendingCatalog,
    caplog: pytest.LogCaptureFixture,
):
    """Prevents: a table is read with wrong credentials, or a log shows the catalog's secrets."""
    caplog.set_level(logging.DEBUG)
    # At DEBUG, the gate itself would log the requests that it passes on.
    caplog.set_level(logging.INFO, "urllib3")
    follow(pipeline, "iceberg", ORDERS)
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1, 2]))
    orders.append(rows_of([3, 4, 5]))
    assert pipeline.run().tables["flights"] == RowCounts(deleted=0, inserted=3)
    assert published(pipeline) == in_order(rows_of(range(1, 6)))
    loans = [*lent._loans.values()]
    assert read_object(catalog.tables["others"].metadata_location)
    follow(pipeline, "iceberg", InCatalog("rest", "db.others"))
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1, 2]))
    assert gate.refused == []
    assert no_secret_in(caplog.text, gate)
    assert no_secret_in(repr([loan.credentials for loan in loans]), gate)


def test_expiry_in_the_middle(
    pipeline: Pipeline, gate: Gate, catalog: VendingCatalog, orders: Table
):
    """Prevents: a long refresh fails when its first credentials expire."""
    orders.append(rows_of([3]))
    gate.seconds = 2
    snapshot = iceberg.read(ORDERS, asset_key="orders", number=None, copies=pipeline.copies)
    assert snapshot
    loads, names = catalog.loads, [file.name for file in snapshot.parts[0].files]
    time.sleep(gate.seconds + 0.1)
    assert snapshot.folder.missing(names) == []
    assert len(snapshot.folder.paths(names)) == 2
    assert gate.refused == []
    assert catalog.loads > loads


def test_credentials_in_the_settings(
    pipeline: Pipeline, gate: Gate, written: SqlCatalog, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: the pipeline ignores the credentials for files in pyiceberg's settings."""
    table = table_of(written, rows_of([1]))
    for name, value in gate.issue().items():
        # The name of a variable cannot contain the name of a host.
        name = name.partition(".dfs")[0].partition(".devstore")[0]
        variable = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{variable}", value)
    follow(pipeline, "iceberg", in_catalog(table))
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1]))
    assert gate.refused == []


@ON_S3
@pytest.mark.parametrize("is_asked", [True, False])
def test_no_credentials_of_the_catalog(
    pipeline: Pipeline,
    gate: Gate,
    catalog: VendingCatalog,
    monkeypatch: pytest.MonkeyPatch,
    is_asked: bool,
):
    """Prevents: credentials in the environment are not used when a catalog gives none."""
    current_version(LakeTable(iceberg=ORDERS))
    assert lent._loans
    gate.guarded = ""
    if is_asked:
        catalog.vends = set()
    else:
        header = "PYICEBERG_CATALOG__REST__HEADER__X_ICEBERG_ACCESS_DELEGATION"
        monkeypatch.setenv(header, "")
    follow(pipeline, "iceberg", ORDERS)
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1, 2]))
    assert gate.refused == []


def test_credentials_that_the_store_refuses(
    pipeline: Pipeline, gate: Gate, catalog: VendingCatalog
):
    """Prevents: an error shows credentials, or blames variables that are not in use."""
    gate.accepts = False
    follow(pipeline, "iceberg", ORDERS)
    remedy = (
        "does not accept the credentials .* Correct the credentials of pyiceberg's catalog \"rest"
    )
    with pytest.raises(StoreError, match=remedy) as caught:
        pipeline.run()
    assert no_secret_in(str(caught.value), gate)
    assert catalog.loads


@ON_S3
def test_a_renewal_that_fails(
    pipeline: Pipeline, gate: Gate, catalog: VendingCatalog, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a failed renewal shows secrets or a library's exception, or has no remedy."""
    gate.seconds = 30
    snapshot = iceberg.read(ORDERS, asset_key="orders", number=None, copies=pipeline.copies)
    assert snapshot
    names = [file.name for file in snapshot.parts[0].files]
    # obstore keeps credentials for a tenth of a second, even if they expire soon.
    time.sleep(0.2)
    catalog.failure = '{"config": {"s3.session-token": "handed-out-then"}}'
    why = r"Reading s3://\S+ failed: The catalog rest cannot be asked for the Iceberg table db.ord"
    with pytest.raises(StoreError, match=why) as caught:
        snapshot.folder.paths(names)
    message = str(caught.value)
    assert '"s3.session-token": "***"' in message
    assert message.endswith("then run again")
    assert "\n" not in message
    catalog.failure, catalog.vends = "", set()
    with pytest.raises(StoreError, match=r"hands out none in their place\. Let it hand"):
        snapshot.folder.paths(names)
