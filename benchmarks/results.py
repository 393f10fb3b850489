"""Keep the figures of benchmarks: as text for tables, and as values in `results.json`."""

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).with_name("results.json")
# Figures differ by this much from run to run. A smaller change says nothing.
_NOISE = 0.05


@dataclass(frozen=True)
class Figure:
    """The median, minimum and maximum of one measured quantity in several runs."""

    median: float
    least: float
    most: float
    runs: int
    more_is_better: bool = False


_figures: dict[str, Figure] = {}


def figure(
    name: str, values: Sequence[float], digits: int = 2, *, more_is_better: bool = False
) -> str:
    """Keep a figure under its name; return its median, minimum and maximum as text."""
    middle, low, high = statistics.median(values), min(values), max(values)
    _figures[name] = Figure(middle, low, high, len(values), more_is_better)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def entry(benchmark: str, options: Mapping[str, str]) -> str:
    """Return the key of a benchmark's results, with the options that change the benchmark.

    So the results of scale 1 and of scale 10 are separate entries.
    """
    return " ".join([benchmark, *(f"--{name} {value}" for name, value in options.items())])


def write(benchmark: str, file: Path = RESULTS, *, load: float) -> None:
    """Replace the stored figures of a benchmark by the figures that were kept since the last call.

    Args:
        benchmark: see `entry`.
        load: the load of the machine before the benchmark began.

    Raises:
        RuntimeError: the benchmark has kept no figure.
    """
    if not _figures:
        raise RuntimeError(f"{benchmark} has kept no figure: there is nothing to compare it by")
    stored = json.loads(file.read_text("utf-8")) if file.exists() else {}
    figures = {name: asdict(found) for name, found in sorted(_figures.items())}
    _figures.clear()
    conditions = {"commit": _commit(), "machine": _machine(), "load before": round(load, 1)}
    stored[benchmark] = {**conditions, "figures": figures}
    text = json.dumps(dict(sorted(stored.items())), indent=1, ensure_ascii=False)
    file.write_text(f"{text}\n", "utf-8")


def _commit() -> str:
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}"


def worse(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each figure whose median in `after` is worse than in `before`."""
    for benchmark, found in after.items():
        old = before.get(benchmark, {}).get("figures", {})
        for name, now in found["figures"].items():
            if name not in old:
                continue
            was, median = old[name]["median"], now["median"]
            # Growth from 0 has no percentage: count it as infinite.
            change = median / was - 1 if was else (math.inf if median else 0.0)
            if (-change if now["more_is_better"] else change) > _NOISE:
                yield f"{benchmark}: {name}: {was:.3g} -> {median:.3g} ({change:+.0%})"
