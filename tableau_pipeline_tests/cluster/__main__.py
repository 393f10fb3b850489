"""`make cluster`: the demo on two hosts, a Spark cluster and an object store."""

import argparse
import shutil
import signal
import sys
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp

from tableau_pipeline.demo.story import CHAPTERS, Line, datasources, lines, table
from tableau_pipeline_tests.cluster.deployment import deployment, write
from tableau_pipeline_tests.cluster.ran import Ran, ran, table_of_runs, what_failed

# Its three JVMs start cold, and a machine may be busy.
_RUN_SECONDS = 1800


def main() -> int:
    """Return 0 if every data source ended equal to its models."""
    parser = argparse.ArgumentParser(prog="python -m tableau_pipeline_tests.cluster")
    parser.add_argument(
        "--folder", type=Path, help="a new folder for the disks and logs of all hosts; it is kept"
    )
    kept: Path | None = parser.parse_args().folder
    # As Ctrl-C does, both end what was started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = kept or Path(mkdtemp(prefix="cluster-"))
    try:
        told, runs = _told(folder.absolute())
    except (AssertionError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n\nThe disks and logs of all hosts are in {folder}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    write(table(told))
    write(table_of_runs(runs))
    if any(line.differences for line in told):
        return 1
    if not kept:
        shutil.rmtree(folder)
    return 0


def _told(folder: Path) -> tuple[list[Line], list[Ran]]:
    write("Starting everything. The first time, the S3 server is built, which takes some minutes")
    told, runs = [], []
    with deployment(folder) as running:
        for chapter, host in zip(CHAPTERS, cycle(running.hosts), strict=False):
            write(f"As of {chapter.as_of} ({chapter.title}), launched on {host}")
            run_id = running.web.launched(host, config=chapter.run_config)
            if running.web.ended(run_id, seconds=_RUN_SECONDS) != "SUCCESS":
                raise RuntimeError(what_failed(run_id, running))
            runs.append(ran(chapter, run_id, running))
            told += lines(chapter, datasources(), running.instance)
            # What the comparison has read belongs to no run.
            running.transfers.since_last()
    return told, runs


if __name__ == "__main__":
    sys.exit(main())
