"""The figures of nights: a JSON file and a plot."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class Night:
    """The figures of one night.

    Attributes:
        seconds: the time from new rows until all data sources have them.
        killed: the name of the killed process.
        faults: how many faults have hit a call or a job.
        by_hand: how often the soak test started refreshes itself, because no trigger did.
        runs: how many runs Dagster has started.
        failed: how many runs have failed.
        retried: how many runs Dagster has started in place of runs that died.
        load: the load of the whole machine over five minutes.
        processes: how many processes remain when all runs have ended.
        memory: MB of resident memory, by process.
        descriptors: open descriptors, by process.
        disk: MB on the disk, by kind of data.
    """

    number: int
    began: datetime
    seconds: float
    killed: str
    faults: int
    by_hand: int
    runs: int
    failed: int
    retried: int
    processes: int
    load: float
    memory: dict[str, float]
    descriptors: dict[str, int]
    disk: dict[str, float]

    def line(self) -> str:
        """Return all figures as text."""
        memory = ", ".join(f"{name} {value:.0f}" for name, value in self.memory.items())
        open_ = ", ".join(f"{name} {value}" for name, value in self.descriptors.items())
        disk = ", ".join(f"{name} {value:.1f}" for name, value in self.disk.items())
        return (
            f"night {self.number}: {self.seconds:.0f} s; killed: {self.killed}; "
            f"{self.faults} faults; runs: {self.runs}, {self.failed} failed, {self.retried} "
            f"restarted, {self.by_hand} by hand; {self.processes} processes; load "
            f"{self.load:.0f}\n"
            f"  MB in memory: {memory}\n  descriptors: {open_}\n  MB on disk: {disk}"
        )


def save(file: Path, nights: Sequence[Night], *, datasources: int) -> None:
    """Write all figures as JSON."""
    found = {"data sources": datasources, "nights": [asdict(night) for night in nights]}
    file.write_text(json.dumps(found, indent=1, default=str) + "\n", "utf-8")


_COLORS = ("#2563eb", "#f97316", "#16a34a", "#9333ea")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _GAP = 520, 90, 60, 130, 50


def draw(file: Path, nights: Sequence[Night]) -> None:
    """Plot the figures that must not grow: a panel for each kind, with one or more lines."""
    panels: dict[str, dict[str, list[float]]] = {
        "seconds": {"a night": [night.seconds for night in nights]},
        "MB of memory": _by_name([night.memory for night in nights]),
        "descriptors": _by_name([night.descriptors for night in nights]),
        "MB on disk": _by_name([night.disk for night in nights]),
    }
    width, height = _LEFT + _WIDTH + _RIGHT, len(panels) * (_HEIGHT + _GAP) + 10
    drawn = "\n".join(
        _panel(name, lines, top=number * (_HEIGHT + _GAP) + 35)
        for number, (name, lines) in enumerate(panels.items())
    )
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="t" font-family="system-ui, sans-serif" font-size="12" fill="#475569">\n'
        f'<title id="t">What each of {len(nights)} nights took</title>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n{drawn}\n</svg>\n',
        "utf-8",
    )


def _by_name(values: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [value[name] for value in values] for name in values[0]}


def _panel(name: str, lines: Mapping[str, Sequence[float]], *, top: float) -> str:
    """Return a panel: lines from zero to the largest value, with their names at the right."""
    largest, right = max(map(max, lines.values())), _LEFT + _WIDTH
    found = [
        f'<text x="{_LEFT}" y="{top - 10}" font-weight="600" fill="#0f172a">{name}</text>',
        f'<path d="M{_LEFT} {top}V{top + _HEIGHT}H{right}" fill="none" stroke="#cbd5e1"/>',
        f'<text x="{_LEFT - 6}" y="{top + 6}" text-anchor="end">{largest:.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{top + _HEIGHT}" text-anchor="end">0</text>',
    ]
    # Sort the names by their last values, since names next to close lines would overlap.
    ends = sorted(lines, key=lambda each: -lines[each][-1])
    for color, (each, values) in zip(_COLORS, lines.items(), strict=False):
        step = _WIDTH / max(1, len(values) - 1)
        points = " ".join(
            f"{_LEFT + number * step:.0f},{top + _HEIGHT * (1 - value / largest):.1f}"
            for number, value in enumerate(values)
        )
        found += [
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{right + 8}" y="{top + 12 + 22 * ends.index(each)}" fill="{color}">'
            f"{each}: {values[-1]:.0f}</text>",
        ]
    return "\n".join(found)
