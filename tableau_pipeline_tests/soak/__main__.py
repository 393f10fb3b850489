"""`make soak`: refresh many data sources for many nights, with edits, faults and kills."""

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from tableau_pipeline_tests.soak.deployment import deployment
from tableau_pipeline_tests.soak.figures import Night, draw, save
from tableau_pipeline_tests.soak.nights import Nights
from tableau_pipeline_tests.soak.project import Lake, write_project

# A simulated night takes minutes instead of a day. Snapshots are kept for longer than any run
# takes.
_KEEP_DAYS = 20 / (24 * 60)


def main() -> int:
    """Return 0 on success, 1 after a difference or an error, and 130 after an interrupt."""
    chosen = _arguments()
    # Both signals raise KeyboardInterrupt, which ends all processes that the soak has started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = (chosen.folder or Path(mkdtemp(prefix="soak-"))).absolute()
    try:
        _soak(chosen, folder)
    except (AssertionError, RuntimeError) as error:
        _write(f"{error}\n\nAll disks and logs are in {folder}")
        return 1
    except KeyboardInterrupt:
        return 130
    if not chosen.folder:
        shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tableau_pipeline_tests.soak")
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no night after this time")
    parser.add_argument("--data-sources", type=int, default=40, help="at least 4")
    parser.add_argument("--seed", type=int, default=1, help="the seed of all random choices")
    parser.add_argument("--keep-nights", type=int, default=10, help="nights whose runs to keep")
    parser.add_argument("--folder", type=Path, help="a new folder, which is kept")
    parser.add_argument("--figures", type=Path, help="a new .json file; a plot is saved as .svg")
    return parser.parse_args()


def _soak(chosen: argparse.Namespace, folder: Path) -> None:
    """Let nights pass, and write all figures after each night."""
    passed, until = list[Night](), time.monotonic() + 60 * chosen.minutes
    count = chosen.data_sources
    lake = Lake(folder / "lake", count)
    write_project(folder / "project", count, lake=folder / "lake", keep_days=_KEEP_DAYS)
    with deployment(folder) as (running, instance):
        nights = Nights(running, instance, lake, Random(chosen.seed))
        while len(passed) < chosen.nights and time.monotonic() < until:
            passed.append(nights.passed(len(passed)))
            _write(passed[-1].line())
            if chosen.figures:
                chosen.figures.parent.mkdir(parents=True, exist_ok=True)
                save(chosen.figures, passed, datasources=count)
                draw(chosen.figures.with_suffix(".svg"), passed)
            nights.forget_runs(before=passed[-chosen.keep_nights :][0].began)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
