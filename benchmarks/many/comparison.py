"""Hundreds of declared data sources against the same definitions in bare Dagster."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.fresh_process import in_fresh_process
from benchmarks.many.locations import BARE, DECLARED, write_bare, write_declared
from benchmarks.many.measure import Figures, measure

COUNTS = (125, 500)
_STEPS = {
    "load": "loading the location",
    "first_tick": "the sensor's first tick",
    "idle_tick": "a tick with nothing new",
    "busy_tick": "a tick with every model new",
}


def compare_many(runs: int) -> None:
    """Print a table: medians, each run in a process of its own, the locations in turns."""
    found: dict[tuple[str, int], list[Figures]] = defaultdict(list)
    with TemporaryDirectory() as name:
        for count in COUNTS:
            folder = Path(name) / str(count)
            write_declared(folder, count)
            write_bare(folder, count)
        for _ in range(runs):
            for count in COUNTS:
                for module in (DECLARED, BARE):
                    folder = Path(name) / str(count)
                    figures = in_fresh_process(measure, folder, module, count)
                    found[module, count].append(figures)
    least, most = COUNTS
    print(f"\n{runs} runs; processor seconds, in brackets those on the clock")
    print(
        f"| step | {least} declared | {most} declared | {most} bare | declared / bare at {least} "
        f"| at {most} | growth of declared, of bare (linear: {most / least:g}) |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for step, words in _STEPS.items():
        cpu = {key: _median(each, step, "cpu") for key, each in found.items()}
        wall = {key: _median(each, step, "wall") for key, each in found.items()}
        seconds = [
            f"{cpu[key]:.2f} ({wall[key]:.2f})"
            for key in ((DECLARED, least), (DECLARED, most), (BARE, most))
        ]
        ratios = [f"{cpu[DECLARED, count] / cpu[BARE, count]:.2f}" for count in COUNTS]
        growth = ", ".join(f"{cpu[name, most] / cpu[name, least]:.1f}" for name in (DECLARED, BARE))
        print(f"| {words} | {' | '.join([*seconds, *ratios, growth])} |")
    requested = {key: {each.requested for each in every} for key, every in found.items()}
    print(f"requested by the last tick: {requested}")


def _median(figures: Sequence[Figures], step: str, clock: str) -> float:
    return statistics.median(getattr(getattr(each, step), clock) for each in figures)
