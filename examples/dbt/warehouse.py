"""An example of a dbt code location that another team owns."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster_dbt import DbtCliResource, DbtProject, dbt_assets

PROJECT = DbtProject(Path(__file__).with_name("transform"))
PROJECT.prepare_if_dev()


@dbt_assets(manifest=PROJECT.manifest_path)
def shop(context: dg.AssetExecutionContext, dbt: DbtCliResource) -> Iterator:
    """Build dbt's seeds, models and tests, among them the assets shop/orders and shop/customers."""
    yield from dbt.cli(["build"], context=context).stream()


defs = dg.Definitions(assets=[shop], resources={"dbt": DbtCliResource(PROJECT)})
