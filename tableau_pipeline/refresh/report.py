"""What a refresh did, and how long it took."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.extracts.compare import Reconciliation
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.refresh.plan.decide import Plan


@dataclass(frozen=True, slots=True)
class Report:
    """What a refresh did.

    Attributes:
        plan: None if only the file was to be built.
        extract: the file that was built: the whole data source, or the payload of an update.
            For a split update, the last payload with the rows and bytes of all. None if nothing
            had to be built.
        tables: what an update did to each table that it changed.
        orphans: number of rows without a partner in the other table, by relationship; only if
            any.
        reconciliation: how the published data compares with the models; None if nothing was
            sent.
        checkpoint: None if the data source was not refreshed.
        warnings: what a person should know although nothing is wrong.
        sent: bytes of all files that were sent.
        job_id: the id of the server's job that carried it out, if there was one.
        seconds: by phase; "total" once the refresh has ended.
        before: rows by table that were published before; empty if they are not known.
        summary: all of this in one line.
    """

    plan: Plan | None
    extract: Extract | None = None
    tables: Mapping[str, RowCounts] = field(default_factory=dict)
    orphans: Mapping[str, int] = field(default_factory=dict)
    reconciliation: Reconciliation | None = None
    checkpoint: Checkpoint | None = None
    remote: RemoteDatasource | None = None
    sent: int = 0
    warnings: tuple[str, ...] = ()
    job_id: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    summary: str = ""


@contextmanager
def phase(seconds: dict[str, float], name: str) -> Generator[None]:
    """Add the time that the block takes to the seconds of a phase."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[name] = round(seconds.get(name, 0) + time.monotonic() - started, 3)
