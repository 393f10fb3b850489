"""Which version of an Iceberg table is current: its catalog says so, or the names of its files."""

import json
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tableau_pipeline.core.lake_table import InCatalog
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.lakes.iceberg import HadoopTable, folder_of, in_catalog
from tableau_pipeline_tests.refresh.lakes.support import follow, in_order, published, rows_of
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


@pytest.fixture
def lake(pipeline: Pipeline, catalog: SqlCatalog) -> HadoopTable:
    """A table without a catalog, with one version."""
    made = HadoopTable(catalog, "orders", rows_of([1]))
    follow(pipeline, "iceberg", made.path)
    return made


def test_a_hint_that_lags(pipeline: Pipeline, lake: HadoopTable):
    """Prevents: no change for ever, because a hint names an old version."""
    lake.append(rows_of([2]), hint=1)
    pipeline.run()
    assert published(pipeline) == lake.rows()
    lake.append(rows_of([3]), hint=1)
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=1)}
    assert published(pipeline) == lake.rows()


def test_versions_beyond_a_gap(pipeline: Pipeline, lake: HadoopTable):
    """Prevents: a version is published that Iceberg itself does not find from the hint."""
    lake.table.append(rows_of([2]))
    lake.write("v3.metadata.json")
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1]))


def test_no_hint(pipeline: Pipeline, lake: HadoopTable):
    """Prevents: a table that cannot be read because its hint was not copied along."""
    lake.table.append(rows_of([2]))
    lake.write("v10.gz.metadata.json")
    (lake.metadata / "version-hint.text").unlink()
    # Both of these, Hadoop leaves behind.
    lake.table.append(rows_of([3]))
    lake.write(f"{uuid4()}.metadata.json")
    lake.write(".v99.metadata.json.crc")
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1, 2]))


@pytest.mark.parametrize("hint", ["7", "00001-abc", ""])
def test_a_hint_of_no_version(pipeline: Pipeline, lake: HadoopTable, hint: str):
    """Prevents: a version is guessed where the hint names none."""
    lake.hint(hint)
    with pytest.raises(RefusedError, match=f'version-hint.text says "{hint}", but there is no'):
        pipeline.run()


def test_two_files_of_one_version(pipeline: Pipeline, lake: HadoopTable):
    """Prevents: a version is published that lost against another one."""
    lake.write("v1.gz.metadata.json")
    with pytest.raises(RefusedError, match=r"two files of metadata of version 1: v1\.gz"):
        pipeline.run()


@pytest.mark.parametrize("name", ["00001-{}.metadata.json", "1.metadata.json", "v-x.metadata.json"])
def test_a_catalog_shows(pipeline: Pipeline, lake: HadoopTable, name: str):
    """Prevents: a version is published that was refused, or old, as only the catalog knows."""
    lake.write(name.format(uuid4()))
    with pytest.raises(RefusedError, match=r"has a catalog, as .* shows.* declare source: \{ice"):
        pipeline.run()


def test_a_version_that_the_catalog_refused(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: rows of a commit that failed are published."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    table.append(rows_of([1]))
    committed, location = table.metadata.model_dump_json(), table.metadata_location
    table.append(rows_of([2]))
    # The files of the second version stay, and the catalog knows the first one.
    catalog.drop_table("db.orders")
    catalog.register_table("db.orders", location)
    assert json.loads(committed)["table-uuid"] == str(table.metadata.table_uuid)
    follow(pipeline, "iceberg", in_catalog(table))
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1]))


def test_another_place(pipeline: Pipeline, lake: HadoopTable, tmp_path: Path):
    """Prevents: a copy of a table whose files are read where the original has them."""
    link, copy = tmp_path / "link", tmp_path / "copy"
    link.symlink_to(lake.path)
    follow(pipeline, "iceberg", link)
    pipeline.run()
    assert published(pipeline) == lake.rows()
    copy.mkdir()
    (copy / "metadata").symlink_to(lake.metadata)
    follow(pipeline, "iceberg", copy)
    with pytest.raises(RefusedError, match=f"says of itself that it is at {lake.path}: declare"):
        pipeline.run()


@pytest.mark.parametrize("place", ["elsewhere", "lake/db/orders/../elsewhere"])
def test_files_elsewhere(pipeline: Pipeline, catalog: SqlCatalog, tmp_path: Path, place: str):
    """Prevents: a table that publishes any file that this machine may read."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    table.append(rows_of([1]))
    file = tmp_path / place / "x.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(rows_of([2]), file)
    table.add_files([f"file://{tmp_path}/{place}/x.parquet"])
    follow(pipeline, "iceberg", in_catalog(table))
    folder = folder_of(table)
    with pytest.raises(RefusedError, match=f"files elsewhere.*Only files below {folder} are read"):
        pipeline.run()


def test_no_such_table(pipeline: Pipeline, catalog: SqlCatalog):
    """Prevents: an exception of pyiceberg where a name is mistyped."""
    for name in ("db.orders", "nowhere.orders"):
        follow(pipeline, "iceberg", InCatalog("lake", name))
        with pytest.raises(RefusedError, match=f'catalog lake has no Iceberg table "{name}": cor'):
            pipeline.run()


@pytest.mark.usefixtures("catalog")
def test_no_such_catalog(pipeline: Pipeline):
    """Prevents: an exception of pyiceberg where a catalog is not configured."""
    follow(pipeline, "iceberg", InCatalog("prod", "db.orders"))
    with pytest.raises(
        RefusedError,
        match=r"knows no catalog \"prod\".*; it knows lake\. .*PYICEBERG_CATALOG__PROD__URI",
    ):
        pipeline.run()


def test_a_catalog_that_is_away(
    pipeline: Pipeline, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: an error that shows a password; a catalog that is away counts as one without the
    table, or is created."""
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
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
        with pytest.raises(RefreshError) as caught:
            pipeline.run()
        # A refusal would not be tried again, and would count as a table that is gone.
        assert type(caught.value) is RefreshError
        assert caught.value.__suppress_context__
        message = str(caught.value)
        assert message.startswith("The catalog lake cannot be asked for the Iceberg table db.ord")
        assert why in message
        assert "geheim" not in message
        assert "\n" not in message
