from typing import Any

import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline_tests.components.support.declarations import STAR

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "value out of range": (
        {"tables": {"orders": {"guard": {"max_shrink": 50}}, "customers": {}}},
        ["attributes.tables.orders.guard.max_shrink", "less than or equal to 1"],
    ),
    "no table": ({"tables": {}, "relationships": []}, ["attributes.tables", "at least 1 item"]),
    "unknown start of a window": (
        {
            "tables": {
                "orders": {"retain": {"column": "day", "days": 90, "as_of": "now"}},
                "customers": {},
            }
        },
        ["attributes.tables.orders.retain.as_of", "'run' or 'max'"],
    ),
    "unknown schema policy": (
        {"on_schema_change": "ignore"},
        ["attributes.on_schema_change", "'additive', 'refuse' or 'publish'"],
    ),
    "relationship without columns": (
        {"relationships": [{"from": "orders", "to": "customers", "on": {}}]},
        ["attributes.relationships.0.on", "at least 1 item"],
    ),
    "two fact tables": (
        {"relationships": []},
        ["exactly one fact table", '"orders"', '"customers"'],
    ),
    "unknown timestamps": (
        {"timestamps": "local"},
        ["attributes.timestamps", "utc, with_time_zone, {zone: Europe/Paris}", "'local'"],
    ),
    "a file version that never was": (
        {"max_database_version": 1},
        ["attributes.max_database_version", "greater than or equal to 2"],
    ),
    "a list of triggers": (
        {"trigger": [{"after": "any"}, {"cron": "0 6 * * *"}]},
        ["attributes.trigger", "trigger is one of", "{dbt: .../run_results.json"],
    ),
    "dbt without a file": ({"trigger": {"dbt": ""}}, ["trigger.dbt", "at least 1 character"]),
    "no dbt model": (
        {"trigger": {"dbt": "run_results.json", "models": []}},
        ["trigger.models", "at least 1 item"],
    ),
    "empty part of a project path": ({"project": "A//B"}, ["attributes.project", "empty part"]),
    "a source of no known format": (
        {"tables": {"orders": {"source": {"hudi": "/lake/orders"}}, "customers": {}}},
        ["attributes.tables.orders.source", "unknown key", "delta, iceberg"],
    ),
    "a source of two formats": (
        {"tables": {"orders": {"source": {"delta": "/a", "iceberg": "/b"}}, "customers": {}}},
        ["attributes.tables.orders.source", "source is one of: {delta: /lake/orders}"],
    ),
    "a source that is only a path": (
        {"tables": {"orders": {"source": "/lake/orders"}, "customers": {}}},
        ["attributes.tables.orders.source", "source is one of", "'/lake/orders'"],
    ),
    "a relative source": (
        {"tables": {"orders": {"source": {"delta": "lake/orders"}}, "customers": {}}},
        ["attributes.tables.orders.source", '"lake/orders" is neither an absolute path'],
    ),
    "a relative Iceberg table": (
        {"tables": {"orders": {"source": {"iceberg": "db.orders"}}, "customers": {}}},
        ["attributes.tables.orders.source", '"db.orders" is neither an absolute path'],
    ),
    "a catalog without a table": (
        {"tables": {"orders": {"source": {"iceberg": {"catalog": "prod"}}}, "customers": {}}},
        ["attributes.tables.orders.source.iceberg.table", "required"],
    ),
    "a table without a namespace": (
        {
            "tables": {
                "orders": {"source": {"iceberg": {"catalog": "prod", "table": "orders"}}},
                "customers": {},
            }
        },
        ["attributes.tables.orders.source.iceberg.table", '"orders" is not a namespace and'],
    ),
    "an unknown key of a catalog": (
        {
            "tables": {
                "orders": {"source": {"iceberg": {"catlog": "prod", "table": "db.orders"}}},
                "customers": {},
            }
        },
        ["attributes.tables.orders.source.iceberg", 'did you mean "catalog"?'],
    ),
    "partitions of a lake": (
        {
            "tables": {
                "orders": {
                    "source": {"delta": "/lake/orders"},
                    "refresh": {"partitions": {"column": "day"}},
                },
                "customers": {},
            }
        },
        ["attributes.tables.orders.refresh", "has no Dagster partitions", "diff"],
    ),
    "key of nothing": ({"name": "日本"}, ["asset key", "set `key`"]),
    "key of a model": ({"name": "CRM", "key": "orders"}, ['"orders"', "set `key`"]),
    "extract's key of a model": (
        {"key": "x", "tables": {"x_extract": {}}, "relationships": []},
        ['"x_extract"', "set `key`"],
    ),
}


TWO_TRIGGERS = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    orders: {}
  trigger: {after: any}
  trigger: {cron: "0 6 * * *"}
"""
TWO_FOLDERS = """type: tableau_pipeline.components.FileDrop
attributes:
  folder: one
  folder: other
"""


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (TWO_TRIGGERS, "defs.yaml:8: `trigger` is set here and on line 7"),
        (TWO_FOLDERS, "defs.yaml:4: `folder` is set here and on line 3"),
    ],
)
def test_a_key_that_stands_twice(declared: str, expected: str):
    """Prevents: the last of two triggers, or policies, taken silently."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "shop"
        folder.mkdir()
        (folder / "defs.yaml").write_text(declared, "utf-8")
        with (
            pytest.raises(ComponentTreeException) as raised,
            sandbox.load_component_and_build_defs(defs_path=folder),
        ):
            pass
    assert expected in str(raised.value.__cause__)


def test_several_data_sources_in_one_file():
    """Prevents: only one of them found, or a mistake in a later one laid to the first."""
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


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_error_names_file_and_key(changes: dict[str, Any], expected: list[str]):
    """Prevents: a mistake in YAML that is ignored, or whose place a person has to guess."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PublishedDatasource,
            defs_path="sales",
            defs_yaml_contents={
                "type": "tableau_pipeline.components.PublishedDatasource",
                "attributes": {**STAR, **changes},
            },
        )
        with (
            pytest.raises(ComponentTreeException) as raised,
            sandbox.load_component_and_build_defs(defs_path=path),
        ):
            pass
    message = f"{raised.value} {raised.value.__cause__}"
    for text in ["defs.yaml:", *expected]:
        assert text in message
