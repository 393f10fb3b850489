"""A user's project: each data source has one table, whose model reads a file of a lake."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PACKAGE = "soak"
_ROWS = 2_000

_DEFINITIONS = """
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
_PROJECT = f"""
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{PACKAGE}"
"""
# The models do not need Spark, whose start would take most of a night.
_MODELS = '''
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg

from tableau_pipeline.ingest.file_store import store_rows
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.rows import read_rows
from tableau_pipeline.resources import SnapshotIOManager

LAKE = Path({lake!r})


def model(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"orders_{{number}}")
    def orders(
        context: dg.AssetExecutionContext, snapshots: dg.ResourceParam[SnapshotIOManager]
    ) -> dg.MaterializeResult:
        name = f"orders_{{number}}"
        with TemporaryDirectory() as folder:
            rows = read_rows(Files((LAKE / f"{{number}}.parquet",), "parquet"), Path(folder))
            stored = store_rows(rows, snapshots.store, asset_key=name, run_id=context.run_id)
        return dg.MaterializeResult(data_version=dg.DataVersion(stored.data_version))

    return orders


models = [model(number) for number in range({count})]


@dg.sensor(
    target=models,
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def nights(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Run the models when the lake has the files of a new night."""
    night = LAKE / "night"
    number = night.read_text() if night.exists() else None
    if number == context.cursor:
        return dg.SkipReason("The lake is as before")
    return dg.SensorResult([dg.RunRequest(run_key=number)], cursor=number)
'''
_PIPELINE = """
type: tableau_pipeline.components.TableauPipeline

attributes:
  resources: true
  in_process: true
  keep_days: {keep_days}
"""
# The data sources differ in their policies. With a large `growth`, even small files take updates.
_DECLARATION = """
type: tableau_pipeline.components.PublishedDatasource

attributes:
  name: {name}
  project: Default
  tables:
    orders:
      model: orders_{number}
      refresh: {refresh}
      fields: {{amount: {{caption: Amount}}}}
  republish: {{growth: {growth}}}
  trigger: {{after: any}}
"""


def name_of(number: int) -> str:
    """Return the name of a data source, whose key is `key_of(number)`."""
    return f"Shop {number}"


def key_of(number: int) -> str:
    return f"shop_{number}"


def model_of(number: int) -> str:
    return f"orders_{number}"


def assets_of(number: int) -> list[str]:
    """Return the assets that a refresh of a data source makes."""
    return [key_of(number), f"{key_of(number)}_extract"]


def write_project(folder: Path, count: int, *, lake: Path, keep_days: float) -> None:
    """Write a code location with `count` data sources."""
    defs = folder / PACKAGE / "defs"
    for name in ("tableau", "shops"):
        (defs / name).mkdir(parents=True)
    for package in (folder / PACKAGE, defs):
        (package / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(_PROJECT)
    (folder / PACKAGE / "definitions.py").write_text(_DEFINITIONS)
    (defs / "models.py").write_text(_MODELS.format(lake=str(lake), count=count))
    (defs / "tableau" / "defs.yaml").write_text(_PIPELINE.format(keep_days=keep_days))
    declarations = (
        _DECLARATION.format(
            number=number,
            name=name_of(number),
            refresh="replace" if number % 4 == 3 else "{diff: {key: [order_id]}}",
            growth=1 if number % 4 == 2 else 1000,
        )
        for number in range(count)
    )
    (defs / "shops" / "defs.yaml").write_text("\n---\n".join(declarations))


class Lake:
    """The files that the models read.

    Attributes:
        rows: the rows of each model, by the number of the model.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self.rows = {number: _orders(range(_ROWS), amount=number) for number in range(count)}
        for number in self.rows:
            self._store(number)

    def change(self, chance: Random, night: int) -> None:
        """Update, insert and delete rows of about three models in four."""
        for number in self.rows:
            if chance.random() < 0.75:
                self.rows[number] = _changed(self.rows[number], chance, night)
                self._store(number)

    def begin(self, night: int) -> None:
        """Announce a new night, so that the sensor runs the models."""
        # The rename keeps the sensor from reading half of the file.
        whole = self._folder / "night.new"
        whole.write_text(str(night))
        whole.rename(self._folder / "night")

    def _store(self, number: int) -> None:
        whole = self._folder / f"{number}.new"
        pq.write_table(self.rows[number], whole)
        whole.rename(self._folder / f"{number}.parquet")


def _orders(ids: range, *, amount: int) -> pa.Table:
    columns = {
        "order_id": pa.array(ids, pa.int64()),
        "amount": pa.array([amount] * len(ids), pa.int64()),
        "place": pa.array([f"Place {id_ % 97}" for id_ in ids], pa.string()),
    }
    return pa.table(columns)


def _changed(rows: pa.Table, chance: Random, night: int) -> pa.Table:
    """Change one row in a hundred, remove twenty rows and add twenty new rows."""
    ids = rows["order_id"].to_pylist()
    gone = pa.array(chance.sample(ids, 20), pa.int64())
    kept = rows.filter(pc.invert(pc.is_in(rows["order_id"], value_set=gone)))
    updated = pa.array(chance.sample(ids, len(ids) // 100), pa.int64())
    amounts = pc.if_else(pc.is_in(kept["order_id"], value_set=updated), night, kept["amount"])
    kept = kept.set_column(1, "amount", amounts)
    first = max(ids) + 1
    return pa.concat_tables([kept, _orders(range(first, first + 20), amount=night)])
