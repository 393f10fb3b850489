import pytest
import yaml
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import ValidationError

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline_tests.components.support.declarations import declared

# What is changed of a declaration, the key of the mistake, and what is said of it. How files and
# lines are named, the tests of mistakes show.
CASES = [
    ("tables: {orders: {guard: {max_shrink: 50}}, customers: {}}",
        "tables.orders.guard.max_shrink", "less than or equal to 1"),
    ("{tables: {}, relationships: []}", "tables", "at least 1 item"),
    ("tables: {orders: {retain: {column: day, days: 90, as_of: now}}, customers: {}}",
        "tables.orders.retain.as_of", "'run' or 'max'"),
    ("tables: {orders: {name: sold}, customers: {}}", "tables.orders.name", "unknown key"),
    ("tables: {orders: {policy: replace}, customers: {}}", "tables.orders.policy", "unknown key"),
    ("on_schema_change: ignore", "on_schema_change", "'additive', 'refuse' or 'publish'"),
    ("relationships: [{from: orders, to: customers, on: {}}]",
        "relationships.0.on", "at least 1 item"),
    ("relationships: []", "relationships", 'exactly one fact table, which no relationship points '
        'to; here: "orders", "customers"'),
    ("timestamps: local", "timestamps",
        "one of: utc, with_time_zone, {zone: Europe/Paris}; not 'local'"),
    ("timestamps: {zone: Europe/Pariss}", "timestamps.zone", '"Europe/Pariss" is not a time zone'),
    ("max_database_version: 1", "max_database_version", "greater than or equal to 2"),
    ("trigger: [{after: any}, {cron: 0 6 * * *}]", "trigger", "trigger is one of: {after: any}"),
    ("trigger: {dbt: ''}", "trigger.dbt", "at least 1 character"),
    ("trigger: {dbt: run_results.json, models: []}", "trigger.models", "at least 1 item"),
    ("project: A//B", "project", "empty part"),
    ("tables: {orders: {source: {hudi: /lake/orders}}, customers: {}}",
        "tables.orders.source.hudi", "unknown key: The known keys are delta, iceberg"),
    ("tables: {orders: {source: {delta: /a, iceberg: /b}}, customers: {}}",
        "tables.orders.source", "source is one of: {delta: /lake/orders}"),
    ("tables: {orders: {source: /lake/orders}, customers: {}}",
        "tables.orders.source", "s3://lake/orders}; not '/lake/orders'"),
    ("tables: {orders: {source: {delta: lake/orders}}, customers: {}}",
        "tables.orders.source", '"lake/orders" is neither an absolute path'),
    ("tables: {orders: {source: {iceberg: db.orders}}, customers: {}}",
        "tables.orders.source", '"db.orders" is neither an absolute path'),
    ("tables: {orders: {source: {iceberg: {catalog: prod}}}, customers: {}}",
        "tables.orders.source.iceberg.table", "required"),
    ("tables: {orders: {source: {iceberg: {catalog: prod, table: orders}}}, customers: {}}",
        "tables.orders.source.iceberg.table", '"orders" is not a namespace and'),
    ("tables: {orders: {source: {iceberg: {catlog: prod, table: db.orders}}}, customers: {}}",
        "tables.orders.source.iceberg.catlog", 'did you mean "catalog"?'),
    ("tables: {orders: {source: {delta: /a}, refresh: {partitions: {column: a}}}, customers: {}}",
        "tables.orders.refresh", "has no Dagster partitions: use {diff: {key: [...]}}"),
    ("name: 日本", "name", "set `key`"),
    ("{name: CRM, key: orders}", "key", 'the asset key "orders", which a model already has'),
    ("{key: x, tables: {x_extract: {}}, relationships: []}", "key", '"x_extract"'),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "key", "words"), CASES)
def test_error_names_the_key(changes: str, key: str, words: str):
    """Prevents: a mistake in YAML that is ignored, or whose place a person has to guess."""
    with pytest.raises(ValidationError) as raised:
        declared(**yaml.safe_load(changes))
    found = {".".join(map(str, each["loc"])): each["msg"] for each in raised.value.errors()}
    assert words in found[key]


TWO_TRIGGERS = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    orders: {}
  trigger: {after: any}
  trigger: {cron: "0 6 * * *"}
"""


def test_several_data_sources_in_one_file():
    """Prevents: only one of them found; the last of two triggers, or policies, taken silently, or
    a mistake in a later one laid to the first."""
    first = "".join(line for line in TWO_TRIGGERS.splitlines(keepends=True) if "cron" not in line)
    stock = first.replace("Shop", "Stock")
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "shop"
        folder.mkdir()
        (folder / "defs.yaml").write_text(f"{first}\n---\n{stock}", "utf-8")
        with sandbox.build_component_tree() as tree:
            found = tree.get_all_components(of_type=PublishedDatasource)
        assert {each.key for each in found} == {"shop", "stock"}
        (folder / "defs.yaml").write_text(f"{stock}\n---\n{TWO_TRIGGERS}", "utf-8")
        with (
            pytest.raises(ComponentTreeException) as raised,
            sandbox.load_component_and_build_defs(defs_path=folder),
        ):
            pass
    assert "defs.yaml:17: `trigger` is set here and on line 16" in str(raised.value.__cause__)
