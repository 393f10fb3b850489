"""Lake tables in Dagster: external assets, a sensor on their versions, and a refresh."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import write_deltalake
from pyiceberg.table import Table

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.automation import lake_sensors
from tableau_pipeline.lake import delta as delta_tables
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.components.support.location import Location
from tableau_pipeline_tests.refresh.lakes.support import CATALOG, rows_of, sql_catalog

ORDERS = dg.AssetKey("orders")


def declared(path: Path | None, **more: object) -> PublishedDatasource:
    return PublishedDatasource.from_attributes_dict(
        attributes={
            "name": "Orders",
            "key": "shop",
            "project": "Default",
            "tables": {"orders": {"source": {"delta": str(path)}}},
            "trigger": {"after": "any"},
            **more,
        }
    )


class Lake:
    """A location with one data source on a Delta table, and the sensor for the table."""

    def __init__(self, path: Path, instance: dg.DagsterInstance) -> None:
        self.path, self.instance = path, instance
        datasource = declared(path)
        (self.sensor,) = lake_sensors([datasource])
        self.definitions = dg.Definitions.merge(
            datasource.build_defs(dg.ComponentTree.for_test().load_context),
            dg.Definitions(sensors=[self.sensor], resources=resources_from_env()),
        )
        self._automation: dg.AssetDaemonCursor | None = None
        self._cursor: str | None = None
        self.requested()

    def append(self, *ids: int) -> None:
        write_deltalake(self.path, rows_of(ids), mode="append")

    def tick(self) -> list[str]:
        """The versions that a tick of the sensor reports."""
        context = dg.build_sensor_context(self.instance, cursor=self._cursor)
        found = self.sensor.evaluate_tick(context)
        self._cursor = found.cursor or self._cursor
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        return [str(event.metadata["version"].value) for event in found.asset_events]

    def requested(self) -> int:
        """The number of assets that automation requests."""
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self._automation
        )
        self._automation = result.cursor
        return result.total_requested


def test_a_new_version_starts_a_refresh(tmp_path: Path):
    """Prevents: a lake table changes, but its data source is not refreshed."""
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "orders", instance)
        lake.append(1)
        (first,) = lake.tick()
        assert first.endswith("@0")
        assert lake.requested() == 2
        assert lake.tick() == []
        assert lake.requested() == 0
        lake.append(2)
        assert lake.tick() == [first.replace("@0", "@1")]
        assert lake.requested() == 2
        event: Any = instance.get_latest_materialization_event(ORDERS)
        assert event.asset_materialization.tags["dagster/data_version"].endswith("@1")


@pytest.mark.parametrize("source", ["/gone", "s3://lake/away"])
def test_a_missing_table_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
):
    """Prevents: one unreadable table stops the refreshes of all other tables."""
    # No store listens at this address.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    monkeypatch.setattr(delta_tables, "_OPTIONS", {"allow_http": "true", "max_retries": "0"})
    here, tables = declared(tmp_path / "orders"), {"gone": {"source": {"delta": source}}}
    gone = declared(tmp_path, name="Gone", key="gone_shop", tables=tables)
    (sensor,) = lake_sensors([here, gone])
    write_deltalake(tmp_path / "orders", rows_of([1]))
    with dg.DagsterInstance.ephemeral() as instance:
        found = sensor.evaluate_tick(dg.build_sensor_context(instance))
        assert [event.asset_key for event in found.asset_events] == [ORDERS]
        assert list(json.loads(found.cursor or "")) == [f"orders: delta {tmp_path}/orders"]


def test_two_tables_of_one_model(tmp_path: Path):
    """Prevents: the sensor ignores a table because another table has the same model."""
    paths = [tmp_path / "one", tmp_path / "other"]
    for path in paths:
        write_deltalake(path, rows_of([1]))
    one, other = declared(paths[0]), declared(paths[1], name="Other", key="other")
    (sensor,) = lake_sensors([one, other])
    with dg.DagsterInstance.ephemeral() as instance:
        found = sensor.evaluate_tick(dg.build_sensor_context(instance))
        assert [event.metadata["location"].value for event in found.asset_events] == [
            *map(str, paths)
        ]
        write_deltalake(paths[0], rows_of([2]), mode="append")
        found = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=found.cursor))
        (event,) = found.asset_events
    assert (event.asset_key, event.metadata["location"].value) == (ORDERS, str(paths[0]))


def test_a_table_of_two_data_sources(tmp_path: Path):
    """Prevents: a location fails to load because two data sources read the same table."""
    one, other = declared(tmp_path), declared(tmp_path, name="Other", key="other")
    context = dg.ComponentTree.for_test().load_context
    merged = dg.Definitions.merge(one.build_defs(context), other.build_defs(context))
    resources = dg.Definitions(resources=resources_from_env())
    graph = dg.Definitions.merge(merged, resources).resolve_asset_graph()
    assert graph.get(ORDERS).kinds == {"delta"}
    assert len(graph.get(ORDERS).child_keys) == 2


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of a catalog in SQLite; `of_catalog` declares a data source on this table."""
    catalog = sql_catalog(monkeypatch, tmp_path, f"file://{tmp_path}/lake")
    return catalog.create_table("db.orders", schema=rows_of([]).schema)


def of_catalog(catalog: str = CATALOG, table: str = "db.orders") -> PublishedDatasource:
    source = {"iceberg": {"catalog": catalog, "table": table}}
    return declared(None, tables={"orders": {"source": source}})


@pytest.mark.slow
def test_a_table_of_a_catalog(location: Location, iceberg: Table):
    """Prevents: the sensor or a refresh ignores a declared table of a catalog."""
    iceberg.append(rows_of([1]))
    datasource = of_catalog()
    (sensor,) = lake_sensors([datasource])
    cursor = None
    for _ in range(2):
        with dg.DagsterInstance.ephemeral() as instance:
            found = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
        cursor = found.cursor
        (event,) = found.asset_events
        assert event.metadata["location"].value == f"db.orders of the catalog {CATALOG}"
        iceberg.append(rows_of([2]))
    assert location.refresh("shop", declared={"tables": datasource.tables}).success
    assert location.checkpoint("shop").rows == {"orders": 3}


def test_a_sensor_names_what_a_catalog_lacks(iceberg: Table):
    """Prevents: for a mistyped name, the sensor fails or stays silent."""
    names = {("prod", "db.orders"): 'knows no catalog "prod"', (CATALOG, "db.x"): 'table "db.x"'}
    for (catalog, table), why in names.items():
        (sensor,) = lake_sensors([of_catalog(catalog, table)])
        with dg.DagsterInstance.ephemeral() as instance:
            found = sensor.evaluate_tick(dg.build_sensor_context(instance))
        assert why in str(found.skip_message)
    assert iceberg.name() == ("db", "orders")
