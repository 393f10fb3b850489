"""Iceberg's catalogs, the versions of its tables, and files that pyiceberg never writes."""

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType

from tableau_pipeline.core.lake_table import InCatalog
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.lakes.support import (
    HadoopTable,
    add_hive_files,
    commit_files,
    folder_of,
    follow,
    in_catalog,
    in_order,
    published,
    rows_of,
    table_of,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import refused


@pytest.fixture
def lake(pipeline: Pipeline, catalog: SqlCatalog) -> HadoopTable:
    """A table without a catalog, with one version."""
    made = HadoopTable(catalog, "orders", rows_of([1]))
    follow(pipeline, "iceberg", made.path)
    return made


@pytest.mark.slow
def test_a_hint_that_lags(pipeline: Pipeline, lake: HadoopTable):
    """Prevents: new versions are never published because the hint names an old version."""
    lake.append(rows_of([2]), hint=1)
    pipeline.run()
    assert published(pipeline) == lake.rows()
    lake.append(rows_of([3]), hint=1)
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=1)}
    assert published(pipeline) == lake.rows()


def test_versions_beyond_a_gap(pipeline: Pipeline, lake: HadoopTable):
    """Prevents: a refresh publishes a version that Iceberg itself would not find from the hint."""
    lake.table.append(rows_of([2]))
    lake.write("v3.metadata.json")
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1]))


@pytest.mark.parametrize("name", ["v10.gz.metadata.json", "v10.metadata.json.gz"])
def test_no_hint(pipeline: Pipeline, lake: HadoopTable, name: str):
    """Prevents: a table without a hint, or with compressed metadata, cannot be read."""
    lake.table.append(rows_of([2]))
    lake.write(name)
    (lake.metadata / "version-hint.text").unlink()
    # Hadoop may leave two such files behind, which are no versions of the table.
    lake.table.append(rows_of([3]))
    lake.write(f"{uuid4()}.metadata.json")
    lake.write(".v99.metadata.json.crc")
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1, 2]))


@pytest.mark.parametrize("name", ["v2.metadata.json", "v2.gz.metadata.json"])
def test_metadata_that_are_cut_off(pipeline: Pipeline, lake: HadoopTable, name: str):
    """Prevents: damaged metadata end in an exception that does not name the file."""
    lake.write(name)
    file = lake.metadata / name
    file.write_bytes(file.read_bytes()[:-20])
    refused(pipeline.run, "The Iceberg table ", f"cannot be read: {file}: ")


NO_VERSION = 'version-hint.text says "{}", but there is no'
CATALOG = ["has a catalog, as ", " shows", "declare source: {ice"]


@pytest.mark.parametrize(
    ("file", "hint", "parts"),
    [
        *(("", hint, [NO_VERSION.format(hint)]) for hint in ("7", "00001-abc", "")),
        ("v1.gz.metadata.json", "1", ["two files of metadata of version 1: v1.gz"]),
        ("00001-{}.metadata.json", "1", CATALOG),
        *((name, "1", CATALOG) for name in ("1.metadata.json", "v-x.metadata.json")),
    ],
)
def test_no_version_for_certain(
    pipeline: Pipeline, lake: HadoopTable, file: str, hint: str, parts: list[str]
):
    """Prevents: the pipeline guesses a table's version although only a catalog can know it."""
    lake.hint(hint)
    if file:
        lake.write(file.format(uuid4()))
    refused(pipeline.run, *parts)


def test_a_version_that_the_catalog_refused(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: rows of a failed commit are published."""
    table = table_of(catalog, rows_of([1]))
    location = table.metadata_location
    table.append(rows_of([2]))
    # The files of the second version stay, but the catalog knows only the first version.
    catalog.drop_table("db.orders")
    catalog.register_table("db.orders", location)
    follow(pipeline, "iceberg", in_catalog(table))
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1]))


def test_another_place(pipeline: Pipeline, lake: HadoopTable, tmp_path: Path):
    """Prevents: a refresh of a copied table reads the files of the original table."""
    link, copy = tmp_path / "link", tmp_path / "copy"
    link.symlink_to(lake.path)
    follow(pipeline, "iceberg", link)
    pipeline.run()
    assert published(pipeline) == lake.rows()
    copy.mkdir()
    (copy / "metadata").symlink_to(lake.metadata)
    follow(pipeline, "iceberg", copy)
    refused(pipeline.run, f"states that it is at {lake.path}: declare")


@pytest.mark.parametrize("place", ["elsewhere", "lake/db/orders/../elsewhere"])
def test_files_elsewhere(pipeline: Pipeline, catalog: SqlCatalog, tmp_path: Path, place: str):
    """Prevents: a table makes the pipeline publish any file that this machine may read."""
    table, file = table_of(catalog, rows_of([1])), tmp_path / place / "x.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(rows_of([2]), file)
    table.add_files([f"file://{tmp_path}/{place}/x.parquet"])
    follow(pipeline, "iceberg", in_catalog(table))
    refused(pipeline.run, "files elsewhere", f"Only files below {folder_of(table)} are read")


@pytest.mark.usefixtures("catalog")
def test_no_such_table_or_catalog(pipeline: Pipeline):
    """Prevents: a mistyped name or an unknown catalog ends in an exception of pyiceberg."""
    for name in ("db.orders", "nowhere.orders"):
        follow(pipeline, "iceberg", InCatalog("lake", name))
        refused(pipeline.run, f'catalog lake has no Iceberg table "{name}": cor')
    follow(pipeline, "iceberg", InCatalog("prod", "db.orders"))
    remedy = ("; it knows lake. ", "PYICEBERG_CATALOG__PROD__URI")
    refused(pipeline.run, 'knows no catalog "prod"', *remedy)


def test_a_catalog_that_is_away(
    pipeline: Pipeline, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: an unreachable catalog counts as empty, or its error shows a password."""
    table = table_of(catalog, rows_of([]))
    uris = {
        "postgresql+psycopg2://reader:geheim@127.0.0.1:9/lake": "OperationalError",
        "postgresql+psycopg2://reader:geheim@127.0.0.1:port/lake": "",
        "sqlite:////nowhere/catalog.db": "unable to open database file",
        f"sqlite:///{folder_of(table)}/none.db": "no such table",
        "oracle://reader:geheim@there/lake": "Could not infer the catalog type from the uri",
    }
    follow(pipeline, "iceberg", in_catalog(table))
    for uri, why in uris.items():
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
        error = refused(pipeline.run, why, error=RefreshError)
        # A refusal would not be tried again, and would mean that the table is gone.
        assert type(error) is RefreshError
        assert error.__suppress_context__
        message = str(error)
        assert message.startswith("The catalog lake cannot be asked for the Iceberg table db.ord")
        assert "geheim" not in message
        assert "\n" not in message


TOKEN = "the-token-of-the-catalog"


@dataclass
class Rest:
    """A catalog with one table, which answers over HTTP.

    Attributes:
        more: further fields of the catalog's answer, besides the metadata.
        page: a page that answers every request; "" for no page.
        delegations: the kinds of access for which requests have asked.
    """

    table: Table
    more: dict[str, Any] = field(default_factory=dict)
    page: str = ""
    delegations: set[str | None] = field(default_factory=set)

    def answer(self, path: str) -> str:
        if self.page:
            return self.page
        if "/config" in path:
            return json.dumps({"defaults": {}, "overrides": {}})
        metadata = json.loads(self.table.metadata.model_dump_json())
        location = self.table.metadata_location
        return json.dumps({"metadata": metadata, "metadata-location": location, **self.more})


@pytest.fixture
def rest(
    catalog: SqlCatalog, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> Generator[Rest]:
    """A catalog with the table that the pipeline publishes."""
    rest = Rest(table_of(catalog, rows_of([1])))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            rest.delegations.add(self.headers["X-Iceberg-Access-Delegation"])
            body = rest.answer(self.path).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    follow(pipeline, "iceberg", InCatalog("rest", "db.orders"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__REST__URI", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("PYICEBERG_CATALOG__REST__TOKEN", TOKEN)
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield rest
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_catalog_that_is_asked_over_http(pipeline: Pipeline, rest: Rest):
    """Prevents: a table of a REST catalog cannot be published, or useless credentials stop it."""
    given = {"s3.access-key-id": "secret"}
    vended = {"storage-credentials": [{"prefix": "file:", "config": given}]}
    for number, more in enumerate(({}, {"config": given}, vended)):
        rest.more = more
        rest.table.append(rows_of([10 + number]))
        pipeline.run()
        assert published(pipeline) == in_order(rest.table.scan().to_arrow())
    assert rest.delegations == {"vended-credentials"}


def test_a_page_is_no_answer(pipeline: Pipeline, rest: Rest):
    """Prevents: a proxy's page ends in an exception of pyiceberg, or an error shows the token."""
    rest.page = f"<html>Sign in, {TOKEN}"
    error = refused(pipeline.run, "The catalog rest cannot be asked", error=RefreshError)
    assert type(error) is RefreshError
    assert TOKEN not in str(error)


def is_published(pipeline: Pipeline, table: Table) -> bool:
    follow(pipeline, "iceberg", in_catalog(table))
    pipeline.run()
    return published(pipeline) == in_order(table.scan().to_arrow())


@pytest.mark.slow
def test_an_empty_table(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: a table without rows cannot be published."""
    made = table_of(catalog, rows_of([]))
    assert is_published(pipeline, made)
    assert published(pipeline) == []
    made.append(rows_of([1]))
    assert is_published(pipeline, made)


@pytest.mark.slow
def test_wider_types(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: old files cannot be read after a column has got a wider type."""
    narrow = {
        "id": pa.array([1, 2], pa.int32()),
        "price": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
        "single": pa.array([0.1, 2.5], pa.float32()),
    }
    made = table_of(catalog, pa.table(narrow))
    assert is_published(pipeline, made)
    with made.update_schema() as change:
        for name, wider in zip(narrow, (LongType(), DecimalType(12, 2), DoubleType()), strict=True):
            change.update_column(name, wider)
    ids = pa.array([2**40, 2**40 + 1], pa.int64())
    made.append(made.scan().to_arrow().set_column(0, "id", ids))
    assert is_published(pipeline, made)


def test_files_without_field_ids(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: a file without field ids is read by the order of its columns."""
    made = table_of(catalog, rows_of([]))
    file = folder_of(made) / "others.parquet"
    pq.write_table(rows_of([1, 2]).select(["word", "id"]), file)
    made.add_files([f"file://{file}"])
    assert is_published(pipeline, made)


# Iceberg has no whole numbers of fewer than 32 bits.
ROWS = values_of_all_types().drop_columns(["tiny", "small"])


@pytest.mark.slow
@pytest.mark.parametrize("column", [name for name in ROWS.schema.names[1:] if name != "double"])
def test_partition_columns_that_files_lack(pipeline: Pipeline, catalog: SqlCatalog, column: str):
    """Prevents: a partition value that a Hive table's file lacks is published as NULL."""
    made = table_of(catalog, ROWS.slice(0, 0))
    with made.update_spec() as change:
        change.add_identity(column)
    add_hive_files(made, ROWS)
    assert is_published(pipeline, made)
    made.append(ROWS.slice(0, 2).set_column(0, "id", [[11, 12]]))
    assert is_published(pipeline, made)


def test_a_partition_column_that_pyiceberg_rounds(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: 0.1 is published as 0.10000000149, and 1e300 as infinity."""
    made = table_of(catalog, ROWS.slice(0, 0))
    with made.update_spec() as change:
        change.add_identity("double")
    # These files have the column "double", so its rounded partition value is not used.
    made.append(ROWS)
    follow(pipeline, "iceberg", in_catalog(made))
    pipeline.run()
    assert published(pipeline) == in_order(ROWS)
    add_hive_files(made, ROWS)
    refused(pipeline.run, 'lacks the partition column "double"', "rewrite_data_files")


def test_a_month_is_no_value(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: the month of a partition is published in place of a day that a file lacks."""
    rows = pa.table({"id": [1], "day": pa.array([None], pa.date32())})
    made = table_of(catalog, rows.slice(0, 0))
    with made.update_spec() as change:
        change.add_field("day", MonthTransform(), "month")
    with made.transaction() as change:
        mapping = made.schema().name_mapping.model_dump_json()
        change.set_properties({"schema.name-mapping.default": mapping})
    commit_files(made, [(rows.drop_columns(["day"]), Record(600))])
    assert is_published(pipeline, made)
    assert published(pipeline) == in_order(rows)
