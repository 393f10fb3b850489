"""What ran where."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from tableau_pipeline.demo.story import Chapter
from tableau_pipeline_tests.cluster.deployment import Deployment
from tableau_pipeline_tests.cluster.transfers import Transfer

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
        hosts=tuple(
            host.name for host in running.hosts.values() if run_id in host.log("code").read_text()
        ),
        application=application,
        workers=tuple(running.spark.ran_on(application[0])),
        store=running.transfers.since_last(),
        seconds=record.end_time - record.start_time,
    )


def what_failed(run_id: str, running: Deployment) -> str:
    """The causes that Dagster knows, and the ends of the logs of its processes."""
    events = running.instance.all_logs(
        run_id, {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    )
    causes = [record.user_message for record in events]
    logs = [host.log("code") for host in running.hosts.values()]
    ends = [f"{log}:\n{log.read_text()[-2000:]}" for log in logs]
    return "\n\n".join([f"Run {run_id} failed", *causes, *ends])


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
