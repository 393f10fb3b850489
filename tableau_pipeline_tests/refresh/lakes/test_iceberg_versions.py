"""Which version of an Iceberg table is current: its catalog says so, or the names of its files."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tableau_pipeline.core.lake_table import InCatalog
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline_tests.refresh.lakes.iceberg import folder_of, in_catalog
from tableau_pipeline_tests.refresh.lakes.support import follow, in_order, published, rows_of
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


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
