"""Compare hundreds of declared data sources with the same definitions in bare Dagster."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.fresh_process import in_fresh_process
from benchmarks.many.locations import (
    FILE,
    FILE_BARE,
    FOLDERS,
    FOLDERS_BARE,
    write_file,
    write_file_bare,
    write_folders,
    write_folders_bare,
)
from benchmarks.many.measure import Figures, measure
from benchmarks.results import figure

COUNTS = (125, 500)
_LOCATIONS = {
    FOLDERS: write_folders,
    FOLDERS_BARE: write_folders_bare,
    FILE: write_file,
    FILE_BARE: write_file_bare,
}
_BY_HAND = {FOLDERS: FOLDERS_BARE, FILE: FILE_BARE}
_STEPS = {
    "load": "loading the location",
    "first_tick": "the sensor's first tick",
    "idle_tick": "a tick with nothing new",
    "apart_tick": "the same by a sensor for each data source",
    "busy_tick": "a tick with every model new",
}


def compare_many(runs: int) -> None:
    """Print medians of all steps. Each run is a fresh process, and the locations take turns."""
    found: dict[tuple[str, int], list[Figures]] = defaultdict(list)
    with TemporaryDirectory() as name:
        for count in COUNTS:
            for location, write in _LOCATIONS.items():
                folder = Path(name) / location / str(count)
                folder.mkdir(parents=True)
                write(folder, count)
        for _ in range(runs):
            for count in COUNTS:
                for location in _LOCATIONS:
                    folder = Path(name) / location / str(count)
                    figures = in_fresh_process(measure, folder, location, count)
                    print(location, count, figures, flush=True)  # to survive an abort
                    found[location, count].append(figures)
    _print(found, runs)


def _print(found: Mapping[tuple[str, int], Sequence[Figures]], runs: int) -> None:
    least, most = COUNTS
    print(f"\n{runs} runs; processor seconds at {most}, in brackets those on the clock; ratios")
    print(
        f"| step | folders | by hand | ratio at {least}, {most} | one file | by hand | ratio at "
        f"{least}, {most} | from {least} to {most} (linear: {most / least:g}) |"
    )
    print(f"{'| --- ' * 8}|")
    for step, words in _STEPS.items():
        cpu = {key: _median(words, key, each, step, "cpu") for key, each in found.items()}
        wall = {key: _median(words, key, each, step, "wall") for key, each in found.items()}
        cells = []
        for layout, by_hand in _BY_HAND.items():
            cells += [
                f"{cpu[each, most]:.2f} ({wall[each, most]:.2f})" for each in (layout, by_hand)
            ]
            ratios = [cpu[layout, count] / cpu[by_hand, count] for count in COUNTS]
            cells.append(", ".join(f"{ratio:.2f}" for ratio in ratios))
            for count, ratio in zip(COUNTS, ratios, strict=True):
                figure(f"{words}: {layout} / {by_hand}, {count} data sources", [ratio])
        growth = [cpu[each, most] / cpu[each, least] for each in _LOCATIONS]
        cells.append(", ".join(f"{each:.1f}" for each in growth))
        for location, ratio in zip(_LOCATIONS, growth, strict=True):
            figure(f"{words}: {location}, from {least} to {most}", [ratio])
        print(f"| {words} | {' | '.join(cells)} |")
    requested = {key: sorted({each.requested for each in every}) for key, every in found.items()}
    print(f"requested by the last tick: {requested}")


def _median(
    words: str, key: tuple[str, int], figures: Sequence[Figures], step: str, clock: str
) -> float:
    """Keep the seconds of a step as figures, and return the median."""
    location, count = key
    values = [getattr(getattr(each, step), clock) for each in figures]
    figure(f"{words}: {location}, {count} data sources: {clock}", values)
    return statistics.median(values)
