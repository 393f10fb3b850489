"""Play histories that no run has played before: their seeds derive from the commit.

`python -m tableau_pipeline_tests.refresh.stateful.fresh --minutes 60` plays such histories on all
processors. It adds their results to ledger.md.
"""

import argparse
import inspect
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import wraps
from itertools import islice
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any
from unittest import mock

from tableau_pipeline.outcome import Code, Doubt
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.refresh.stateful import events
from tableau_pipeline_tests.refresh.stateful.mutations import MUTATIONS
from tableau_pipeline_tests.refresh.stateful.replay import Case, play

LEDGER = Path(__file__).with_name("ledger.md")
# Seeds of fixed histories are smaller.
_SMALLEST, _LARGEST = 10**6, 10**9
# How many histories a worker plays between two looks at the clock.
_PORTION = 4


def commit() -> str:
    """The commit of this checkout, or "no commit" in an archive without a Git history."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


def fresh_seeds(commit: str) -> Iterator[int]:
    """Yield the seeds of a commit, without end."""
    chance = Random(commit)
    while True:
        yield chance.randrange(_SMALLEST, _LARGEST)


def counting(tally: Counter[str]) -> ExitStack:
    """Count how often histories reach each safeguard that a mutation can remove."""
    stack = ExitStack()
    for name, mutation in MUTATIONS.items():
        patch: Any = mutation.without()
        owner, attribute = patch.getter(), patch.attribute
        original = inspect.getattr_static(owner, attribute)
        # Settings are no functions, and cannot be counted.
        if isinstance(original, FunctionType):
            counted = _counted(original, f"safeguard: {name}", tally)
            stack.enter_context(mock.patch.object(owner, attribute, counted))
    return stack


def _counted(function: Callable, name: str, tally: Counter[str]) -> Callable:
    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        tally[name] += 1
        return function(*args, **kwargs)

    return counted


def _play(seeds: Sequence[int]) -> tuple[Counter[str], list[tuple[int, str]], float]:
    """Play histories in a process of its own.

    Returns:
        The counts of events and outcomes, the failures by seed, and the processor seconds.
    """
    tally, failures, began = Counter[str](), list[tuple[int, str]](), _processor_seconds()
    with counting(tally):
        for seed in seeds:
            if failure := play(Case.of(seed), tally):
                failures.append((seed, str(failure)))
    return tally, failures, _processor_seconds() - began


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def never_met(tally: Mapping[str, int]) -> list[str]:
    """The events, refusals, doubts and safeguards that no history met."""
    drawn = [
        name
        for name, function in vars(events).items()
        if inspect.isfunction(function)
        and function.__module__ == events.__name__
        and next(iter(inspect.signature(function).parameters), "") == "history"
        and not name.startswith("_")
    ]
    expected = [
        *(f"event: {name.replace('_', ' ')}" for name in drawn),
        *(f"refusal: {code}" for code in Code),
        *(f"doubt: {code}" for code in Doubt),
        *(f"safeguard: {name}" for name in MUTATIONS),
    ]
    return [name for name in expected if not tally.get(name)]


_KINDS = ("event", "status", "refusal", "doubt", "error", "safeguard")
_ROW = re.compile(r"\| (\w+) \| [\d,]+ \| [\d.]+ \|.*\|")
_MET = re.compile(r"(.+?) ([\d,]+)(?:, |\.$)")


def with_entry(ledger: str, row: str, tally: Mapping[str, int]) -> str:
    """Return the ledger's text with one more row, and with the new histories' counts added."""
    rows, met = [*_ROW.finditer(ledger)], Counter(tally)
    for kind in _KINDS:
        start = f"* {kind.capitalize()}: "
        for line in ledger.splitlines():
            if line.startswith(start):
                for name, number in _MET.findall(line.removeprefix(start)):
                    met[f"{kind}: {name}"] += int(number.replace(",", ""))
    lines = [
        "| commit | histories | processor hours | failed seeds |",
        "| --- | --- | --- | --- |",
        *(found.group() for found in rows),
        f"{row}\n",
        "All of them together have met:\n",
    ]
    for kind in _KINDS:
        names = {
            name.partition(": ")[2]: number
            for name, number in sorted(met.items())
            if name.startswith(f"{kind}: ")
        }
        shown = ", ".join(f"{name} {number:,}" for name, number in names.items())
        lines.append(f"* {kind.capitalize()}: {shown}.")
    lines.append(f"* Never met: {', '.join(never_met(met)) or 'nothing'}.")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Play until the time is over; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, required=True)
    until, name = time.monotonic() + 60 * parser.parse_args().minutes, commit()
    seeds, workers = fresh_seeds(name), os.cpu_count() or 1
    tally, failures, seconds, count = Counter[str](), list[tuple[int, str]](), 0.0, 0
    with ProcessPoolExecutor(workers) as executor:
        while time.monotonic() < until:
            portions = [[*islice(seeds, _PORTION)] for _ in range(workers)]
            for met, failed, used in executor.map(_play, portions):
                tally += met
                seconds += used
                failures += failed
                for _, text in failed:
                    print(text, flush=True)  # noqa: T201
            count += _PORTION * workers
    seeds_failed = ", ".join(str(seed) for seed, _ in failures)
    row = f"| {name[:12]} | {count:,} | {seconds / 3600:.1f} | {seeds_failed} |"
    ledger = LEDGER.read_text("utf-8")
    introduction = ledger.partition("\n| commit")[0]
    text = with_entry(ledger, row, tally)
    print(text)  # noqa: T201
    LEDGER.write_text(f"{introduction}\n{text}", "utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
