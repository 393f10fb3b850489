"""`make cluster`: the demo on two hosts, a Spark cluster and an object store."""

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp

import dagster as dg
from dagster._utils.error import SerializableErrorInfo

from tableau_pipeline.demo.story import CHAPTERS, Line, datasources, lines, table
from tableau_pipeline_tests.cluster.deployment import Deployment, deployment, write


def ran(run_id: str, running: Deployment) -> str:
    """Describe a run that has just ended: its hosts, its Spark application and its Spark workers.

    The application has the name of the host that started it.
    """
    hosts = " and ".join(_logs(run_id, running))
    id_, name = [*running.spark.applications().items()][-1]
    return (
        f"  {run_id[:8]} on {hosts}: {id_} of {name} on {' and '.join(running.spark.ran_on(id_))}"
    )


def what_failed(run_id: str, running: Deployment) -> str:
    """The causes that Dagster recorded, and the end of each host's log that mentions the run."""
    records = running.instance.all_logs(run_id, dg.DagsterEventType.STEP_FAILURE)
    failures = [
        record.dagster_event.step_failure_data for record in records if record.dagster_event
    ]
    causes = [cause for failure in failures for cause in _causes(failure.error)]
    ends = [f"{log}:\n{log.read_text()[-2000:]}" for log in _logs(run_id, running).values()]
    return "\n\n".join([f"Run {run_id} failed", *causes, *ends])


def _causes(error: SerializableErrorInfo | None) -> Iterator[str]:
    while error:
        yield error.message.strip()
        error = error.cause


def _logs(run_id: str, running: Deployment) -> dict[str, Path]:
    """The logs of the code servers that mention a run, by host."""
    logs = {name: host.log("code") for name, host in running.hosts.items()}
    return {name: log for name, log in logs.items() if run_id in log.read_text()}


# The limit for a run, which starts three JVMs, perhaps on a busy machine.
_RUN_SECONDS = 1800


def main() -> int:
    """Play the chapters of the demo; return 0 if every data source then equals its models."""
    parser = argparse.ArgumentParser(prog="python -m tableau_pipeline_tests.cluster")
    parser.add_argument(
        "--folder", type=Path, help="a new folder for the disks and logs of all hosts; it is kept"
    )
    kept: Path | None = parser.parse_args().folder
    # SIGTERM must end all started processes as Ctrl-C does.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = kept or Path(mkdtemp(prefix="cluster-"))
    try:
        results = _results(folder.absolute())
    except (AssertionError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n\nThe disks and logs of all hosts are in {folder}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    write(table(results))
    if any(line.differences for line in results):
        return 1
    if not kept:
        shutil.rmtree(folder)
    return 0


def _results(folder: Path) -> list[Line]:
    write("Starting everything. The first time, the S3 server is built, which takes some minutes")
    results = []
    with deployment(folder) as running:
        for chapter, host in zip(CHAPTERS, cycle(running.hosts), strict=False):
            write(f"As of {chapter.as_of} ({chapter.title}), launched on {host}")
            run_id = running.web.launched(host, config=chapter.run_config)
            if running.web.ended(run_id, seconds=_RUN_SECONDS) != "SUCCESS":
                raise RuntimeError(what_failed(run_id, running))
            write(ran(run_id, running))
            results += lines(chapter, datasources(), running.instance)
    return results


if __name__ == "__main__":
    sys.exit(main())
