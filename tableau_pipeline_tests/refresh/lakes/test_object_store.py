"""Lake tables in an object store."""

import random
import re
from collections.abc import Callable, Generator
from functools import partial
from itertools import count
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from tableau_pipeline.core.lake_table import InCatalog, LakeFormat, LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.lake import delta as delta_tables
from tableau_pipeline.lake import files as lake_files
from tableau_pipeline.lake.tables import current_version
from tableau_pipeline.objects import arrow_files
from tableau_pipeline.objects.stores import StoreError, bucket_and_key, store_at
from tableau_pipeline_tests.deployment.conftest import STORES
from tableau_pipeline_tests.deployment.object_stores import BUCKET, Network, ObjectServer, S3Server
from tableau_pipeline_tests.refresh.lakes.delta_writer import DeltaWriter
from tableau_pipeline_tests.refresh.lakes.ledger import SCHEMA, drawn_rows
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_catalog,
    in_order,
    published,
    rows_of,
    sql_catalog,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

pytestmark = pytest.mark.timeout(300)
PLAIN = {"allow_http": "true"}


@pytest.fixture(scope="module", params=STORES)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ObjectServer]:
    with request.param(tmp_path_factory.mktemp("store") / "server").running() as store:
        yield store


# The Iceberg catalog of the tests, and hyperd's own reads, are set up only for S3.
ON_S3 = pytest.mark.parametrize(
    "store", [pytest.param(S3Server, id="S3", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(autouse=True)
def settings(store: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    for name, value in store.settings.items():
        monkeypatch.setenv(name, value)
    # Stores that were opened before belong to the servers of other tests.
    store_at.cache_clear()
    yield
    store_at.cache_clear()


@pytest.fixture
def catalog(store: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    # Spark uses this scheme for S3.
    warehouse = f"s3a://{BUCKET}/{tmp_path.name}"
    endpoint = {"s3.endpoint": store.settings["AWS_ENDPOINT_URL"]}
    return sql_catalog(monkeypatch, tmp_path, warehouse, **endpoint)


def test_delta(pipeline: Pipeline, store: ObjectServer, tmp_path: Path):
    """Prevents: a Delta table in an object store cannot be read, or its objects are not found."""
    url = f"{store.url}/{tmp_path.name}/orders"
    write_deltalake(url, values_of_all_types(), partition_by=["word"], storage_options=PLAIN)
    table = DeltaTable(url, storage_options=PLAIN)
    follow(pipeline, "delta", url)
    pipeline.run()
    assert published(pipeline) == in_order(table.to_pyarrow_table())
    before = current_version(LakeTable(delta=url))
    table.delete("id = 1")
    assert pipeline.run().tables["flights"] == RowCounts(deleted=1, inserted=0)
    assert published(pipeline) == in_order(table.to_pyarrow_table())
    assert current_version(LakeTable(delta=url)) != before


@pytest.mark.slow
def test_deletes(pipeline: Pipeline, store: ObjectServer, tmp_path: Path):
    """Prevents: deleted rows are published because a deletion vector's object is not found."""
    writer = DeltaWriter(tmp_path / "orders", random.Random(1), by=["word"])
    writer.kinds = "iu"
    url = f"{store.url}/{tmp_path.name}/orders"
    bucket, key = bucket_and_key(url)
    follow(pipeline, "delta", url)
    writer.add(drawn_rows(writer.draw, range(40)))
    writer.commit()
    for deleted in (range(0), range(1, 2), range(3)):
        for name in [*writer.ledger.held]:
            writer.delete(name, frozenset({*deleted} & {*range(len(writer.ledger.held[name]))}))
        writer.commit()
        for file in (path for path in writer.location.rglob("*") if path.is_file()):
            name = file.relative_to(writer.location).as_posix()
            obstore.put(store_at(bucket), f"{key}/{name}", file)
        pipeline.run()
        assert published(pipeline) == in_order(pa.Table.from_pylist(writer.ledger.rows(), SCHEMA))


def test_at_the_root_of_a_bucket(pipeline: Pipeline, store: ObjectServer):
    """Prevents: files at the root of a bucket count as missing, so that no update is ever sent."""
    write_deltalake(store.url, rows_of(range(10)), storage_options=PLAIN)
    follow(pipeline, "delta", store.url)
    pipeline.run()
    write_deltalake(store.url, rows_of([10]), mode="append", storage_options=PLAIN)
    assert pipeline.run().tables["flights"] == RowCounts(deleted=0, inserted=1)
    assert published(pipeline) == in_order(
        DeltaTable(store.url, storage_options=PLAIN).to_pyarrow_table()
    )


def test_vacuumed(pipeline: Pipeline, store: ObjectServer, tmp_path: Path):
    """Prevents: a refresh sends an update although the published files are gone."""
    url = f"{store.url}/{tmp_path.name}/orders"
    write_deltalake(url, values_of_all_types(), partition_by=["word"], storage_options=PLAIN)
    follow(pipeline, "delta", url)
    pipeline.run()
    table = DeltaTable(url, storage_options=PLAIN)
    for id_ in (1, 2):
        table.delete(f"id = {id_}")
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert f"a file of the snapshot that is published is gone ({store.url}/" in pipeline.decide()
    # Act like a new process, which has not read the footers before.
    lake_files._footer.cache_clear()
    assert "the snapshot that is published is gone" in pipeline.decide()


@ON_S3
def test_iceberg(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: the pipeline does not find the metadata that pyiceberg writes to a store."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    for start in (0, 10):
        table.append(rows_of(range(start, start + 10)))
    follow(pipeline, "iceberg", in_catalog(table))
    pipeline.run()
    assert published(pipeline) == in_order(table.scan().to_arrow())
    table.append(rows_of([20, 21]))
    table.delete("id = 3")
    assert pipeline.run().tables["flights"] == RowCounts(deleted=1, inserted=2)
    assert published(pipeline) == in_order(table.scan().to_arrow())


@pytest.fixture
def network(store: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Generator[Network]:
    """The network between the store and its clients. The clients soon give up."""
    monkeypatch.setattr(arrow_files, "_RETRY", {"max_retries": 1})
    monkeypatch.setattr(delta_tables, "_OPTIONS", {**PLAIN, "max_retries": "1"})
    with Network(store.port).running() as between:
        for name, value in store.settings_at(between.port).items():
            monkeypatch.setenv(name, value)
        yield between


@ON_S3
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_store_that_is_away(
    pipeline: Pipeline, network: Network, catalog: SqlCatalog, tmp_path: Path, format_: LakeFormat
):
    """Prevents: an unreachable store counts as a store that has lost the published files."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    location: str | InCatalog = in_catalog(table)
    write: Callable[[pa.Table], None] = table.append
    if format_ == "delta":
        location = f"s3://{BUCKET}/{tmp_path.name}/delta"
        write = partial(write_deltalake, location, mode="append", storage_options=PLAIN)
    write(rows_of(range(10)))
    follow(pipeline, format_, location)
    pipeline.run()
    write(rows_of([10]))
    failures: list[str] = []
    for passed in count():
        network.down_after(passed)
        # Forget all files and footers that were read before.
        pipeline.copies.release()
        lake_files._footer.cache_clear()
        try:
            decision = pipeline.decide()
        except StoreError as error:
            failures.append(str(error))
        else:
            break
        finally:
            network.up()
    assert len(failures) > 3
    one_line = re.compile(r"(Reading|Listing) s3://\S+ failed: [^\n]+\. Check the network[^\n]+\.")
    assert [each for each in failures if not one_line.fullmatch(each)] == []
    assert "update" in decision


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_there_is_no_such_table(store: ObjectServer, format_: str):
    """Prevents: a mistyped URL passes for a table without rows."""
    with pytest.raises(RefusedError, match=f"{store.url}/nothing does not exist"):
        current_version(LakeTable(**{format_: f"{store.url}/nothing"}))
