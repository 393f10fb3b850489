"""A location whose models another IO manager stores says so when it is loaded."""

import pytest

from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline_tests.components.support.projects import Project, project

__all__ = ["project"]

SHOP = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    sold: {model: orders}
"""
IMPORTS = """import dagster as dg
from pyspark.sql import DataFrame
"""
ASSET = f"""{IMPORTS}
@dg.asset
def orders() -> DataFrame: ...
"""
RELATED = "  relationships: [{from: sold, to: raw, on: {id: id}}]\n"
STORED = {
    "by its key": ASSET.replace("asset", 'asset(io_manager_key="snapshots")'),
    "by another key": ASSET.replace("asset", 'asset(io_manager_key="mine")'),
    "by one that a function makes": ASSET.replace("asset", "asset(io_manager_def=mine)")
    .replace("@", "@dg.io_manager\ndef mine(): ...\n\n@", 1),
    "by its own code": ASSET.replace("DataFrame:", "dg.MaterializeResult:"),
    "as a graph": """import dagster as dg
from pyspark.sql import DataFrame

@dg.op(out=dg.Out(io_manager_key="snapshots"))
def rows() -> DataFrame: ...

@dg.graph_asset
def orders() -> DataFrame: return rows()
""",
    "with others": """import dagster as dg
from pyspark.sql import DataFrame

@dg.multi_asset(
    outs={
        "orders": dg.AssetOut(io_manager_key="snapshots", dagster_type=DataFrame),
        "other": dg.AssetOut(dagster_type=DataFrame),
    }
)
def several(): ...
""",
    "with others, as specs": """import dagster as dg

@dg.multi_asset(specs=[dg.AssetSpec("orders"), dg.AssetSpec("other")])
def several(): ...
""",
    "elsewhere": 'import dagster as dg\n\norders = dg.AssetSpec("orders")\n',
}  # fmt: skip
MINE = """import dagster as dg

from tableau_pipeline.resources import resources_from_env

@dg.definitions
def mine() -> dg.Definitions:
    return dg.Definitions(resources={"mine": resources_from_env()["snapshots"]})
"""
DEFAULT = MINE.replace('"mine"', '"io_manager"')


@pytest.mark.parametrize("returned", ["DataFrame", "DataFrame | None", "dg.Output[DataFrame]"])
def test_by_another_io_manager(project: Project, returned: str):
    """Prevents: a run that fails with an error of Spark's about a broadcast variable."""
    project.write("models.py", ASSET.replace("DataFrame:", f"{returned}:"))
    project.add_pipeline()
    file = project.write("shop/defs.yaml", SHOP)
    with pytest.raises(DeclarationError) as raised:
        load_definitions(project.package)
    assert str(raised.value) == (
        f'{file}:6: attributes.tables.sold.model: "Shop" publishes the model "orders", whose asset '
        'has the IO manager "io_manager", which stores no snapshots: set '
        'io_manager_key="snapshots" in its @dg.asset'
    )


def test_in_a_graph_by_another_io_manager(project: Project):
    """Prevents: the same, where the step that returns the rows is not the asset's own function."""
    project.write("models.py", STORED["as a graph"].replace('"snapshots"', '"pickles"'))
    pickles = MINE.replace('resources_from_env()["snapshots"]', "dg.FilesystemIOManager()")
    project.write("pickles.py", pickles.replace('"mine"', '"pickles"'))
    project.add_pipeline()
    project.write("shop/defs.yaml", SHOP)
    with pytest.raises(DeclarationError, match='IO manager "pickles", which stores no snapshots'):
        load_definitions(project.package)


@pytest.mark.parametrize("models", STORED.values(), ids=STORED)
def test_as_snapshots(project: Project, models: str):
    """Prevents: a location that no longer loads although its models have snapshots."""
    project.write("models.py", models)
    project.write("mine.py", MINE)
    project.add_pipeline()
    project.write("shop/defs.yaml", SHOP)
    load_definitions(project.package)


def test_by_default(project: Project):
    """Prevents: a location like the shipped one, whose default stores snapshots, does not load."""
    project.write("models.py", ASSET)
    project.write("default.py", DEFAULT)
    project.add_pipeline()
    project.write("shop/defs.yaml", SHOP)
    load_definitions(project.package)


def test_kinds_of_models(project: Project):
    """Prevents: a lineage in which only the models of the example show what they are."""
    own = ASSET.replace("asset", 'asset(kinds={"csv"})').replace("orders", "raw_orders")
    project.write("models.py", ASSET + own.removeprefix(IMPORTS))
    project.write("default.py", DEFAULT)
    project.add_pipeline()
    project.write("shop/defs.yaml", SHOP + "    raw: {model: raw_orders}\n" + RELATED)
    specs = load_definitions(project.package).resolve_all_asset_specs()
    kinds = {spec.key.to_user_string(): spec.kinds for spec in specs}
    assert (kinds["orders"], kinds["raw_orders"]) == ({"pyspark", "parquet"}, {"csv"})
