"""`make bench`: compare the costs of alternative ways to the same result."""

import argparse
import json
import os
import sys
from pathlib import Path

from benchmarks.build_extract import compare_with_bare_sql
from benchmarks.change.cases import CASES
from benchmarks.change.comparison import compare_changes
from benchmarks.change.several_hosts import compare_with_several_hosts
from benchmarks.choices import compare_choices
from benchmarks.files import compare_files
from benchmarks.hours import measure_hours
from benchmarks.idle import compare_idle
from benchmarks.increments import compare_with_full_refresh
from benchmarks.journal_requests import measure_journal
from benchmarks.many.comparison import compare_many
from benchmarks.peers.comparison import compare_small_tables, compare_with_peers
from benchmarks.publish import compare_publish
from benchmarks.results import entry, worse, write
from benchmarks.upload import compare_uploads

_WHICH = {
    "build": lambda _: compare_with_bare_sql(),
    "increments": lambda chosen: compare_with_full_refresh(chosen.scale, chosen.runs),
    "change": lambda chosen: compare_changes(chosen.scale, chosen.runs, cases=chosen.cases),
    "choices": lambda chosen: compare_choices(chosen.scale, chosen.runs),
    "peers": lambda chosen: compare_with_peers(chosen.scale, chosen.runs),
    "small": lambda chosen: compare_small_tables(chosen.runs),
    "many": lambda chosen: compare_many(chosen.runs),
    "files": lambda chosen: compare_files(chosen.runs),
    "publish": lambda chosen: compare_publish(chosen.runs),
    "idle": lambda chosen: compare_idle(chosen.runs),
    "upload": lambda chosen: compare_uploads(chosen.runs),
    "hours": lambda chosen: measure_hours(chosen.runs),
    "journal": lambda _: measure_journal(),
    "hosts": lambda chosen: compare_with_several_hosts(chosen.scale),
}

# This benchmark needs PostgreSQL, which pip does not install. So it runs only if it is named.
_WITH_SERVERS = "hosts"
_SCALED = ("increments", "change", "choices", "peers", "hosts")
_SCALE = 1.0


def _options(benchmark: str, chosen: argparse.Namespace) -> dict[str, str]:
    """Return the options that change what a benchmark does and differ from their defaults."""
    options = {}
    if benchmark in _SCALED and chosen.scale != _SCALE:
        options["scale"] = f"{chosen.scale:g}"
    if benchmark == "change" and chosen.cases != [*CASES]:
        options["cases"] = ",".join(chosen.cases)
    return options


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "which", nargs="?", choices=_WHICH, help=f"(default: all but {_WITH_SERVERS})"
    )
    parser.add_argument("--scale", type=float, default=_SCALE, help="scale of TPC-H (default: 1)")
    parser.add_argument("--runs", type=int, default=5, help="repetitions (default: 5)")
    parser.add_argument(
        "--cases",
        type=lambda letters: letters.split(","),
        default=[*CASES],
        help=f"cases of `change`, for instance a,b (default: {','.join(CASES)})",
    )
    parser.add_argument(
        "--worse",
        nargs=2,
        type=Path,
        metavar=("OLD", "NEW"),
        help="only compare two results.json: print the medians that got worse by more than 5 %%",
    )
    parsed = parser.parse_args()
    if parsed.worse:
        lines = [*worse(*(json.loads(file.read_text("utf-8")) for file in parsed.worse))]
        print("\n".join(lines) or "No median got worse by more than 5 %.")
        sys.exit(bool(lines))
    for name, compare in _WHICH.items():
        if parsed.which == name or (not parsed.which and name != _WITH_SERVERS):
            load = os.getloadavg()[0]
            compare(parsed)
            write(entry(name, _options(name, parsed)), load=load)
