"""Write one code location in four ways: in folders or one file, declared or by hand.

A declared data source uses the component `PublishedDatasource`.
"""

from pathlib import Path

# FOLDERS has a folder for each data source and its model. FILE has all data sources in one file,
# and all models in another. The variants with BARE are written by hand.
FOLDERS, FOLDERS_BARE = "many_folders.definitions", "many_folders_bare.definitions"
FILE, FILE_BARE = "many_file.definitions", "many_file_bare.definitions"

_PROJECT = """
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{package}"
"""
_DEFINITIONS = """
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
_PIPELINE = """
type: tableau_pipeline.components.TableauPipeline

attributes:
  resources: false
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
_STEP = """
from benchmarks.many.by_hand import refreshed

shop = refreshed("shop_{number}", "orders_{number}", follows={follows})
"""
_STEPS = """
from benchmarks.many.by_hand import refreshed
from benchmarks.many.locations import cron_of

shops = [
    refreshed(f"shop_{{number}}", f"orders_{{number}}", follows=not cron_of(number))
    for number in range({count})
]
"""
_BARE_AUTOMATION = """
from benchmarks.many.by_hand import schedules, sensor

at_fixed_times = schedules({count})
after_models = sensor()
"""
_WITH_FOLDER = """
type: dagster.DefsFolderComponent

---
"""
_DECLARATION = """
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
    """Return a schedule for every fifth data source; None for the others, which follow models."""
    return f"0 {number % 4 + 3} * * *" if number % 5 == 0 else None


def write_folders(folder: Path, count: int) -> None:
    """Write a project of `count` folders, each with a `defs.yaml` and a model."""
    defs = _project_of_folders(folder, FOLDERS, count)
    _add_pipeline(defs)
    for number in range(count):
        (defs / f"shop_{number}" / "defs.yaml").write_text(_WITH_FOLDER + _declared(number))


def write_folders_bare(folder: Path, count: int) -> None:
    """Write the same project of folders, with a Python file in place of each `defs.yaml`."""
    defs = _project_of_folders(folder, FOLDERS_BARE, count)
    (defs / "automation.py").write_text(_BARE_AUTOMATION.format(count=count))
    for number in range(count):
        step = _STEP.format(number=number, follows=not cron_of(number))
        (defs / f"shop_{number}" / "datasource.py").write_text(step)


def write_file(folder: Path, count: int) -> None:
    """Write a project with one `defs.yaml` of `count` documents, and one file of all models."""
    defs = _project(folder, FILE)
    _add_pipeline(defs)
    (defs / "models.py").write_text(_MODEL_IMPORTS + _models(count))
    (defs / "shops").mkdir()
    (defs / "shops" / "defs.yaml").write_text("\n---\n".join(map(_declared, range(count))))


def write_file_bare(folder: Path, count: int) -> None:
    """Write the same project of two files, with a Python file in place of the `defs.yaml`."""
    defs = _project(folder, FILE_BARE)
    (defs / "automation.py").write_text(_BARE_AUTOMATION.format(count=count))
    (defs / "models.py").write_text(_MODEL_IMPORTS + _models(count))
    (defs / "shops.py").write_text(_STEPS.format(count=count))


def _add_pipeline(defs: Path) -> None:
    (defs / "tableau").mkdir()
    (defs / "tableau" / "defs.yaml").write_text(_PIPELINE)


def _declared(number: int) -> str:
    cron = cron_of(number)
    trigger = f'{{cron: "{cron}"}}' if cron else "{after: any}"
    return _DECLARATION.format(number=number, trigger=trigger)


def _models(count: int) -> str:
    return "".join(_MODEL.format(number=number) for number in range(count))


def _project_of_folders(folder: Path, module: str, count: int) -> Path:
    """Write a project with a folder for each model; return the folder of its definitions."""
    defs = _project(folder, module)
    for number in range(count):
        of_one = defs / f"shop_{number}"
        of_one.mkdir()
        (of_one / "__init__.py").touch()
        (of_one / "models.py").write_text(_MODEL_IMPORTS + _MODEL.format(number=number))
    return defs


def _project(folder: Path, module: str) -> Path:
    """Write a project that defines resources only; return the folder of its definitions."""
    package = folder / module.split(".")[0]
    defs = package / "defs"
    defs.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PROJECT.format(package=package.name))
    for parent in (package, defs):
        (parent / "__init__.py").touch()
    (package / "definitions.py").write_text(_DEFINITIONS)
    (defs / "resources.py").write_text(_RESOURCES)
    return defs
