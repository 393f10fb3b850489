"""The same code location twice: declared in YAML, and written by hand in bare Dagster."""

from pathlib import Path

DECLARED, BARE = "many_declared.definitions", "many_bare"

_PROJECT = """
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "many_declared"
"""
_DEFINITIONS = """
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
_AUTOMATION = """
from tableau_pipeline.components.automation import automation

__all__ = ["automation"]
"""
_RESOURCES = """
import dagster as dg

from tableau_pipeline.resources import resources_from_env


@dg.definitions
def resources() -> dg.Definitions:
    from_env = resources_from_env()
    return dg.Definitions(
        resources={**from_env, "io_manager": from_env["snapshots"]},
        executor=dg.in_process_executor,
    )
"""
_MODEL_IMPORTS = """
import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.resources import SparkResource
"""
_MODEL = '''

@dg.asset
def orders_{number}(spark: SparkResource) -> DataFrame:
    """Every order."""
    return spark.spark_session.read.parquet("/lake/orders_{number}")
'''
_DECLARATION = """
type: dagster.DefsFolderComponent

---
type: tableau_pipeline.components.PublishedDatasource

attributes:
  name: Shop {number}
  project: Sales/Curated
  tables:
    orders:
      model: orders_{number}
      refresh: {{diff: {{key: [order_id]}}}}
  trigger: {trigger}
"""


def cron_of(number: int) -> str | None:
    """Every fifth data source has a schedule, at one of four times; the others follow models."""
    return f"0 {number % 4 + 3} * * *" if number % 5 == 0 else None


def write_declared(folder: Path, count: int) -> None:
    """A project with `count` data sources, each a folder of a `defs.yaml` and its model."""
    package = folder / "many_declared"
    defs = package / "defs"
    defs.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PROJECT)
    for parent in (package, defs):
        (parent / "__init__.py").touch()
    (package / "definitions.py").write_text(_DEFINITIONS)
    (defs / "automation.py").write_text(_AUTOMATION)
    (defs / "resources.py").write_text(_RESOURCES)
    for number in range(count):
        cron = cron_of(number)
        trigger = f'{{cron: "{cron}"}}' if cron else "{after: any}"
        of_one = defs / f"shop_{number}"
        of_one.mkdir()
        (of_one / "__init__.py").touch()
        (of_one / "models.py").write_text(_MODEL_IMPORTS + _MODEL.format(number=number))
        (of_one / "defs.yaml").write_text(_DECLARATION.format(number=number, trigger=trigger))


def write_bare(folder: Path, count: int) -> None:
    """One Python file with the same models, steps, checks, conditions and schedules."""
    models = "".join(_MODEL.format(number=number) for number in range(count))
    rest = Path(__file__).with_name("by_hand.py").read_text()
    calls = f"\n\ndefs = location({count})\n"
    (folder / f"{BARE}.py").write_text(_MODEL_IMPORTS + models + rest + calls)
