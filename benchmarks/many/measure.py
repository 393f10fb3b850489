"""What a code location of many data sources costs its code server and Dagster's daemon."""

import importlib
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import dagster as dg

# Import these modules before the clock starts: every location needs them.
import pyspark.sql  # noqa: F401

import tableau_pipeline.components
import tableau_pipeline.resources  # noqa: F401

_R = TypeVar("_R")


@dataclass(frozen=True)
class Took:
    """The seconds of a step, on the clock and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Figures:
    """What each step took for one code location, and what the last step requested.

    Attributes:
        load: from the import of the module to a repository that Dagster has validated.
        first_tick: the first tick of the location's automation sensor.
        idle_tick: the second tick, when nothing is new.
        apart_tick: one tick for each data source, as if each had a sensor; nothing is new.
        busy_tick: the last tick, when every model is new. It requests all data sources that follow
            their models.
        requested: the number of assets that the busy tick requested.
    """

    load: Took
    first_tick: Took
    idle_tick: Took
    apart_tick: Took
    busy_tick: Took
    requested: int


def measure(folder: Path, module: str, count: int) -> Figures:
    """Load the code location `module` from a folder, and time the ticks of its sensor.

    Call this in a fresh process.
    """
    warnings.simplefilter("ignore", dg.BetaWarning)
    sys.path.insert(0, str(folder))
    # Dagster imports each installed library of components. Import them before the clock starts,
    # because dbt's library takes seconds.
    for library in entry_points(group="dagster_dg_cli.registry_modules"):
        library.load()
    definitions, load = _timed(lambda: _load(module))
    with TemporaryDirectory() as home:
        instance = dg.DagsterInstance.local_temp(home)
        first, first_tick = _timed(lambda: _tick(definitions, instance, after=None))
        idle, idle_tick = _timed(lambda: _tick(definitions, instance, after=first))
        apart_tick = _apart(definitions, instance, count)
        for number in range(count):
            model = dg.AssetKey(f"orders_{number}")
            instance.report_runless_asset_event(dg.AssetMaterialization(model))
        busy, busy_tick = _timed(lambda: _tick(definitions, instance, after=idle))
    return Figures(load, first_tick, idle_tick, apart_tick, busy_tick, busy.total_requested)


def _load(module: str) -> dg.Definitions:
    found = importlib.import_module(module).defs
    definitions = found if isinstance(found, dg.Definitions) else found()
    dg.Definitions.validate_loadable(definitions)
    definitions.get_repository_def().load_all_definitions()
    return definitions


def _tick(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    *,
    after: dg.EvaluateAutomationConditionsResult | None,
) -> dg.EvaluateAutomationConditionsResult:
    return dg.evaluate_automation_conditions(
        definitions, instance, cursor=after.cursor if after else None
    )


def _apart(definitions: dg.Definitions, instance: dg.DagsterInstance, count: int) -> Took:
    """Tick twice for each data source alone; return what all second ticks took together."""
    both = [
        dg.AssetSelection.assets(f"shop_{number}", f"shop_{number}_extract")
        for number in range(count)
    ]

    def tick(cursors: Sequence[Any]) -> Sequence[Any]:
        return [
            dg.evaluate_automation_conditions(
                definitions, instance, asset_selection=each, cursor=cursor
            ).cursor
            for each, cursor in zip(both, cursors, strict=True)
        ]

    _, took = _timed(partial(tick, tick([None] * count)))
    return took


def _timed(work: Callable[[], _R]) -> tuple[_R, Took]:
    wall, cpu = time.perf_counter(), time.process_time()
    done = work()
    return done, Took(time.perf_counter() - wall, time.process_time() - cpu)
