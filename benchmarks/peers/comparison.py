"""Compare this pipeline ("ours") with its peers and with the least possible work (the floor)."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.inputs import Input, write_flights, write_lineitem
from benchmarks.peers.measure import Contender, Cost, measure
from benchmarks.results import figure

OURS = Contender("ours", "ours")
FLOOR = Contender("floor: Spark's write and a bare CTAS", "floor")
HASHED_FLOOR = Contender("floor that writes a hash of each row along", "floor", "hash")
DEFAULT = Contender("hyperleaup PARQUET (its default)", "hyperleaup", "PARQUET", "hyperleaup")
COPY = Contender("hyperleaup COPY", "hyperleaup", "COPY", "hyperleaup")
INSERT = Contender("hyperleaup INSERT", "hyperleaup", "INSERT", "hyperleaup")
KOHEESIO = Contender("koheesio", "koheesio", environment="koheesio")
PANTAB = Contender("pantab on Arrow", "pantab_arrow")
INSERTER = Contender("Inserter, row by row", "inserter")

_BY_FILES = (OURS, FLOOR, HASHED_FLOOR, DEFAULT, COPY, KOHEESIO)
_COLLECTING = (PANTAB, INSERT, INSERTER)

# The costs of each contender in the order of the turns; for a failed contender, the reason.
Costs = Mapping[Contender, Sequence[Cost] | str]


def compare_with_peers(scale: float, runs: int) -> None:
    """Print a table for each input.

    Contenders that collect all rows in Python run on a tenth of the scale, and ours runs there too.
    On so few rows, ours spends most of the time until the JVM is warm. So the seconds per row of
    these contenders are also compared with the seconds per row of ours at the whole scale.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        large, small = write_lineitem(folder, scale), write_lineitem(folder, scale / 10)
        flights = write_flights(folder)
        by_files = _in_turns(large, _BY_FILES, runs)
        collecting = _in_turns(small, (OURS, *_COLLECTING), runs)
        print("\n" + table(large, by_files) + "\n\n" + table(small, collecting) + "\n")
        for contender in _COLLECTING:
            per_row = [
                (slow.wall / small.rows) / (ours.wall / large.rows)
                for slow, ours in _pairs(collecting[contender], by_files[OURS])
            ]
            if per_row:
                what = f"seconds per row, {contender.name} on a tenth / ours"
                print(f"{what}: {figure(what, per_row, more_is_better=True)}")
        everyone = (*_BY_FILES, *_COLLECTING)
        print("\n" + table(flights, _in_turns(flights, everyone, runs)), flush=True)


def compare_small_tables(runs: int) -> None:
    """Print a table for each input that is so small that a build ends before the JVM is warm."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (write_flights(folder), write_lineitem(folder, 0.1)):
            costs = _in_turns(rows, (OURS, HASHED_FLOOR, PANTAB), runs)
            print(f"\n{table(rows, costs)}\n", flush=True)


def table(rows: Input, costs: Costs) -> str:
    """Return the costs as Markdown.

    If a contender's file has the right rows, add the ratios to the costs of ours in the same turn.
    """
    lines = [
        f"{rows.name}; median (min to max), the last three as ratios to ours of the same turn",
        "",
        "| contender | seconds | MB of file | seconds | processor | peak memory | runs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for contender, own in costs.items():
        if isinstance(own, str):
            lines.append(f"| {contender.name} | failed: {own} | | | | | |")
            continue
        if differing := max(cost.differing for cost in own):
            ratios = [f"contents differ: {differing:,} rows", "", ""]
        else:
            ratios = [_ratios(rows, contender, costs, what) for what in ("wall", "cpu", "peak")]
        name = f"{rows.name}: {contender.name}"
        figure(f"{name}: rows that differ", [cost.differing for cost in own])
        seconds = figure(f"{name}: seconds", [cost.wall for cost in own])
        size = figure(f"{name}: MB of file", [cost.size / 1e6 for cost in own], 1)
        cells = [contender.name, seconds, size, *ratios]
        lines.append(f"| {' | '.join(cells)} | {len(own)} |")
    return "\n".join([*lines, "", _verdict(rows, costs)])


def _verdict(rows: Input, costs: Costs) -> str:
    """State in how many turns ours was faster than the fastest peer with equal contents."""
    peers = [
        own
        for contender, own in costs.items()
        if contender not in (OURS, FLOOR, HASHED_FLOOR)
        and not isinstance(own, str)
        and not any(cost.differing for cost in own)
    ]
    if not peers or isinstance(costs[OURS], str):
        return ""
    best = [min(turn, key=lambda cost: cost.wall) for turn in zip(*peers, strict=True)]
    faster = [ours.wall < peer.wall for peer, ours in _pairs(best, costs[OURS])]
    share = sum(faster) / len(faster)
    figure(
        f"{rows.name}: share of turns in which ours was the fastest", [share], more_is_better=True
    )
    return f"Ours was faster than the fastest peer in {sum(faster)} of {len(faster)} turns."


def _pairs(own: Sequence[Cost] | str, ours: Sequence[Cost] | str) -> list[tuple[Cost, Cost]]:
    """Pair the costs of a contender and of ours by turn; return [] if either failed."""
    if isinstance(own, str) or isinstance(ours, str):
        return []
    return list(zip(own, ours, strict=True))


def _ratios(rows: Input, contender: Contender, costs: Costs, what: str) -> str:
    pairs = _pairs(costs[contender], costs[OURS])
    ratios = [getattr(own, what) / getattr(ours, what) for own, ours in pairs]
    # The ratio rates ours: the more a contender takes, the better for ours.
    name = f"{rows.name}: {contender.name} / ours: {what}"
    return figure(name, ratios, more_is_better=True)


def _in_turns(rows: Input, contenders: Sequence[Contender], runs: int) -> Costs:
    """Run all contenders in each turn, and let each turn begin with another contender.

    The first contender of a turn may find the machine in another state than the rest.
    """
    costs: dict[Contender, list[Cost]] = {contender: [] for contender in contenders}
    failed: dict[Contender, str] = {}
    for run in range(runs):
        first = run % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            if contender in failed:
                continue
            try:
                cost = measure(contender, rows)
            except RuntimeError as error:
                if contender is OURS:
                    raise
                print(error, flush=True)
                failed[contender] = str(error).strip().splitlines()[-1]
                continue
            if contender is OURS and cost.differing:
                raise RuntimeError(f"{rows.name}: ours differs in {cost.differing:,} rows")
            costs[contender].append(cost)
            print(
                f"{rows.name}, run {run + 1}, {contender.name}: {cost.wall:.2f} s, processor "
                f"{cost.cpu:.2f} s, peak {cost.peak / 1e6:.0f} MB, differing {cost.differing:,} "
                f"(load {os.getloadavg()[0]:.1f})",
                flush=True,
            )
    return costs | failed
