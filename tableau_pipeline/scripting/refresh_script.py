import logging
import os
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tableau_pipeline.core.declaration import Declaration, tree_problem
from tableau_pipeline.core.server import Server
from tableau_pipeline.core.timeouts import Timeouts
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.refresh.plan.decide import Options
from tableau_pipeline.refresh.refresh import Refresh
from tableau_pipeline.refresh.report import Report
from tableau_pipeline.scripting.file_journal import FileJournal
from tableau_pipeline.snapshots.store import SnapshotStore

_LOG = logging.getLogger(__name__)
_OPTIONS, _TIMEOUTS = Options(), Timeouts()


def refresh(
    declaration: Declaration,
    *,
    server: Callable[[], AbstractContextManager[Server]],
    snapshots: Path,
    journal: Path,
    folder: Path,
    options: Options = _OPTIONS,
    timeouts: Timeouts = _TIMEOUTS,
    log: logging.Logger = _LOG,
) -> Report:
    """Make the published data source equal to the newest versions of its models, or say why not.

    What `components.PublishedDatasource` does in Dagster, with the same effect and guarantees;
    where Dagster keeps what was published, and what is about to be, a JSON file does.

    Args:
        server: opens a session when it is first needed, by `signed_in`.
        snapshots: the folder of all snapshots; `scripting.spark.write_snapshot` writes them.
        journal: that JSON file, one for each data source; made by the first refresh.
        folder: for the files that are sent; the same for every refresh of this one.

    Raises:
        RefusedError: it would be wrong or unsafe, or the declaration is; nothing was sent.
        RefreshError: it could not be carried out; the next refresh finds out what is open.
    """
    _check(declaration)
    return Refresh(
        declaration=declaration,
        snapshots=SnapshotStore(snapshots),
        journal=FileJournal(journal),
        server=server,
        hyper=hyper_process,
        folder=folder.resolve(),
        run_id=f"{platform.node()}:{os.getpid()}",
        log=log,
        timeouts=timeouts,
    ).run(options)


def _check(declaration: Declaration) -> None:
    """What a declaration in YAML is told when it is loaded."""
    names = [table.name for table in declaration.tables]
    for edge in declaration.relationships:
        if unknown := {edge.many, edge.one}.difference(names):
            raise RefusedError(
                f'Relationship {edge}: "{unknown.pop()}" is not a table of this data source; its '
                f"tables are {', '.join(names)}"
            )
    if problem := tree_problem(names, declaration.relationships):
        raise RefusedError(f"Relationships: {problem}")
