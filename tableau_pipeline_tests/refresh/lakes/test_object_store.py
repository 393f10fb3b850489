"""Tables of lakes in an object store."""

import re
from collections.abc import Callable, Generator
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from tableau_pipeline.core.declaration import LakeFormat, LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake import delta_tables
from tableau_pipeline.lake import files as lake_files
from tableau_pipeline.lake.current_version import current_version
from tableau_pipeline.objects import arrow_files
from tableau_pipeline.objects.opening import StoreError, opened
from tableau_pipeline_tests.deployment.s3 import BUCKET, S3Server
from tableau_pipeline_tests.deployment.stores.network import Network
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_order,
    published,
    rows_of,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PLAIN = {"allow_http": "true"}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Server]:
    made = S3Server(tmp_path_factory.mktemp("s3") / "server")
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def settings(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.settings.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def catalog(s3: S3Server, tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog(
        "lake",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        # As Spark has it.
        warehouse=f"s3a://{BUCKET}/{tmp_path.name}",
        **{"s3.endpoint": s3.settings["AWS_ENDPOINT_URL"]},
    )
    made.create_namespace("db")
    return made


def test_delta(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a table that needs a mounted path; names of partitions that no object has."""
    url = f"s3://{BUCKET}/{tmp_path.name}/orders"
    write_deltalake(url, values_of_all_types(), partition_by=["word"], storage_options=PLAIN)
    table = DeltaTable(url, storage_options=PLAIN)
    follow(pipeline, "delta", url)
    pipeline.run()
    assert published(pipeline) == in_order(table.to_pyarrow_table())
    before = current_version(LakeTable("delta", url))
    table.delete("id = 1")
    report = pipeline.run()
    assert (report.tables["flights"].deleted, report.tables["flights"].inserted) == (1, 0)
    assert published(pipeline) == in_order(
        DeltaTable(url, storage_options=PLAIN).to_pyarrow_table()
    )
    assert current_version(LakeTable("delta", url)) != before
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.delete("id = 2")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert "a file of the snapshot that is published is gone (s3://" in pipeline.decide()
    # Another process has not read the footers before.
    lake_files._footer.cache_clear()
    assert "the snapshot that is published is gone" in pipeline.decide()


@pytest.mark.parametrize("in_place", [True, False])
def test_in_place(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
):
    """Prevents: a disk that fills although no copies are wanted; a table that cannot be read
    because hyperd lacks a setting that other clients find elsewhere."""
    if not in_place:
        monkeypatch.delenv("AWS_REGION")
    pipeline.copies.limit = 0
    url = f"s3://{BUCKET}/{tmp_path.name}/a b é'x"
    write_deltalake(url, values_of_all_types(), storage_options=PLAIN)
    follow(pipeline, "delta", url)
    pipeline.run()
    table = DeltaTable(url, storage_options=PLAIN)
    table.delete("id = 1")
    pipeline.run()
    table.update_incremental()
    assert published(pipeline) == in_order(table.to_pyarrow_table())
    assert pipeline.copies.folder.exists() != in_place


def test_iceberg(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: metadata of pyiceberg that only its own ways to read find."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    url = table.location().replace("s3a://", "s3://")
    for start in (0, 10):
        table.append(rows_of(range(start, start + 10)))
    follow(pipeline, "iceberg", url)
    pipeline.run()
    assert published(pipeline) == in_order(table.scan().to_arrow())
    table.append(rows_of([20, 21]))
    table.delete("id = 3")
    report = pipeline.run()
    assert (report.tables["flights"].deleted, report.tables["flights"].inserted) == (1, 2)
    assert published(pipeline) == in_order(table.scan().to_arrow())


@pytest.fixture
def network(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Generator[Network]:
    """What lies between the store and its clients, which soon give up."""
    monkeypatch.setattr(arrow_files, "_RETRY", {"max_retries": 1})
    monkeypatch.setattr(delta_tables, "_OPTIONS", {**PLAIN, "max_retries": "1"})
    with Network(s3.port).running() as between:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{between.port}")
        # Stores that were opened before know another way.
        opened.cache_clear()
        yield between
    opened.cache_clear()


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_store_that_is_away(
    pipeline: Pipeline, network: Network, catalog: SqlCatalog, format_: LakeFormat
):
    """Prevents: a store that is away for a while counts as one that has lost what is published."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    url = table.location().replace("s3a://", "s3://")
    write: Callable[[pa.Table], None] = table.append
    if format_ == "delta":
        url = f"{url}_delta"
        write = partial(write_deltalake, url, mode="append", storage_options=PLAIN)
    write(rows_of(range(10)))
    follow(pipeline, format_, url)
    pipeline.run()
    write(rows_of([10]))
    failures: list[str] = []
    for passed in count():
        network.down_after(passed)
        # What was read before is kept.
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
def test_there_is_no_such_table(format_: str):
    """Prevents: a table of no rows where a URL is mistyped."""
    with pytest.raises(RefusedError, match=f"s3://{BUCKET}/nothing does not exist"):
        current_version(LakeTable(format_, f"s3://{BUCKET}/nothing"))
