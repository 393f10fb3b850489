"""`make bench`: alternatives side by side, on equal contents, as ratios."""

import argparse

from benchmarks.build_extract import compare_with_bare_sql
from benchmarks.increments import compare_with_full_refresh

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("which", nargs="?", choices=["build", "increments"], help="(default: both)")
    parser.add_argument("--scale", type=float, default=1, help="of TPC-H (default: 1)")
    parser.add_argument("--runs", type=int, default=5, help="of the increments (default: 5)")
    parsed = parser.parse_args()
    if parsed.which != "increments":
        compare_with_bare_sql()
    if parsed.which != "build":
        compare_with_full_refresh(parsed.scale, parsed.runs)
