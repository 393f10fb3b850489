"""Refresh a data source from a version of lineitem, in a fresh process, and measure the cost."""

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from benchmarks.fresh_process import peak_memory
from benchmarks.waits import waits
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.journal_store import script_journal
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.process import Hyperd, hyper_process
from tableau_pipeline.publishing.session import PersonalAccessToken, signed_in
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.snapshots.version_store import SnapshotStore


@dataclass(frozen=True)
class Cost:
    """What a refresh took.

    Attributes:
        decision: what the refresh did.
        shipped: the bytes of the file that it sent.
        phases: seconds by phase.
        wall: seconds from the start to the end, with the sign-in.
        uplink: the part of `wall` that went into requests with a file.
        server: the part of `wall` that went into other requests, and into pauses between two
            requests for the state of a job.
        cpu: processor seconds of this process and its hyperd.
        peak: the most bytes of memory that this process held, without hyperd's memory.
        opened: the Parquet and `.hyper` files that Python opened.
        hyperd: whether the refresh asked for hyperd, which may have opened files too.
    """

    decision: str
    shipped: int
    phases: Mapping[str, float]
    wall: float
    uplink: float
    server: float
    cpu: float
    peak: int
    opened: tuple[str, ...]
    hyperd: bool

    @property
    def client(self) -> float:
        """The part of `wall` without the seconds of `uplink` and `server`."""
        return self.wall - self.uplink - self.server


def refreshed(
    declaration: Declaration,
    model: Snapshot,
    *,
    folder: Path,
    environment: Mapping[str, str],
    full: bool = False,
) -> Cost:
    """Make the published data source equal to `model`, as if `model` were the newest version."""
    opened: list[str] = []
    sys.addaudithook(lambda event, args: _note_data_file(opened, event, args))
    asked: list[Hyperd] = []

    def hyper() -> Hyperd:
        asked.append(hyper_process())
        return asked[-1]

    token = PersonalAccessToken(
        environment["TABLEAU_TOKEN_NAME"], environment["TABLEAU_TOKEN_VALUE"]
    )
    journal = script_journal(folder / "journal", declaration.key)
    work = Setup(
        declaration=declaration,
        snapshots=_Chosen(model, SnapshotStore(folder)),
        journal=journal,
        server=lambda: signed_in(environment["TABLEAU_SERVER_URL"], credentials=token),
        hyper=hyper,
        folder=folder,
        backups=folder / "kept",
        log=logging.getLogger(__name__),
    )
    started, cpu = time.perf_counter(), _cpu()
    with waits() as waited:
        report = refresh(work, Options(full=full))
    wall = time.perf_counter() - started
    for process in asked:
        process.close()
    return Cost(
        decision=report.plan.decision if report.plan else "",
        shipped=report.extract.size if report.extract else 0,
        phases=report.seconds,
        wall=wall,
        uplink=waited.uplink,
        server=waited.answers + waited.pauses,
        cpu=_cpu() - cpu,
        peak=peak_memory(),
        opened=tuple(opened),
        hyperd=bool(asked),
    )


@dataclass(frozen=True)
class _Chosen:
    """A store that returns the chosen version as the newest, even if a newer version exists."""

    model: Snapshot
    store: SnapshotStore

    def newest(self, asset_key: str) -> Snapshot | None:
        return self.model

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        return self.store.version(asset_key, number)


def _note_data_file(opened: list[str], event: str, args: tuple) -> None:
    if event == "open" and str(args[0]).endswith((".parquet", ".hyper")):
        opened.append(str(args[0]))


def _cpu() -> float:
    """Return the processor seconds of this process and of its ended children.

    hyperd counts only once it has ended.
    """
    usages = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
