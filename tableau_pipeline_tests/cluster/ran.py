"""What ran where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._utils.error import SerializableErrorInfo

from tableau_pipeline.demo.story import Chapter
from tableau_pipeline_tests.cluster.deployment import Deployment, Transfer

_WIDTHS = (17, 8, 8, 33, 21, 8, 9, 10, 7)
_HEADINGS = (
    *("data", "run", "host", "Spark application", "executors on", "MB read", "MB written"),
    *("requests", "seconds"),
)


@dataclass(frozen=True)
class Ran:
    """A run, and where it was.

    Attributes:
        hosts: those whose code server tells of it in its log.
        application: the id and the name of its Spark application. The name is that of a host.
        workers: those that computed its models.
        store: what was read from the object store meanwhile, and written to it.
    """

    chapter: Chapter
    run_id: str
    hosts: tuple[str, ...]
    application: tuple[str, str]
    workers: tuple[str, ...]
    store: Transfer
    seconds: float


def ran(chapter: Chapter, run_id: str, running: Deployment) -> Ran:
    """Look at the run that has just ended, the only one since the last look."""
    record = running.instance.get_run_record_by_id(run_id)
    assert record
    assert record.start_time
    assert record.end_time
    application = [*running.spark.applications().items()][-1]
    return Ran(
        chapter=chapter,
        run_id=run_id,
        hosts=tuple(_logs(run_id, running)),
        application=application,
        workers=tuple(running.spark.ran_on(application[0])),
        store=running.transfers.since_last(),
        seconds=record.end_time - record.start_time,
    )


def what_failed(run_id: str, running: Deployment) -> str:
    """The causes that Dagster knows, and the end of the log of the run's host."""
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
    """The logs of code servers that tell of a run, by host."""
    logs = {name: host.log("code") for name, host in running.hosts.items()}
    return {name: log for name, log in logs.items() if run_id in log.read_text()}


def table_of_runs(runs: Sequence[Ran]) -> str:
    """Return a line for each run."""
    rows = [
        (
            each.chapter.title,
            each.run_id[:8],
            " and ".join(each.hosts),
            "{} of {}".format(*each.application),
            " and ".join(each.workers),
            f"{each.store.read / 1e6:.2f}",
            f"{each.store.written / 1e6:.2f}",
            f"{each.store.requests}",
            f"{each.seconds:.1f}",
        )
        for each in runs
    ]
    under = tuple("-" * width for width in _WIDTHS)
    return "\n".join(["", *map(_row, (_HEADINGS, under, *rows))])


def _row(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
