"""Publish files from any process. Environment variables name the deployment.

Neither Dagster nor Spark is needed.
"""

import logging
import os
import platform
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from tableau_pipeline.core.declaration import in_environment
from tableau_pipeline.core.identity import key_below
from tableau_pipeline.core.journal_store import StoredJournal, owner_here
from tableau_pipeline.hyper.process import Hyperd, hyper_process
from tableau_pipeline.ingest.errors import BadRows
from tableau_pipeline.ingest.file_store import FileStore
from tableau_pipeline.ingest.publication import FilePublication, published_version
from tableau_pipeline.objects.storage import ObjectStorage
from tableau_pipeline.publishing.settings import ServerSettings
from tableau_pipeline.refresh import refresh as refreshes
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.report import Done
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.scripting.environment import (
    cache_bytes,
    journal_place,
    local_copies,
    shared_place,
    tableau_project_root,
    work_dir,
)
from tableau_pipeline.scripting.retention import collect_unneeded
from tableau_pipeline.snapshots.version_store import SnapshotStore

_LOG = logging.getLogger(__name__)
_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """The result of `publish_files`; `bad` has the rows that were left out, or is None."""

    done: Done
    bad: BadRows | None = None


def publish_files(
    publication: FilePublication,
    *,
    options: Options = _OPTIONS,
    samples: bool = False,
    dry_run: bool = False,
    build_only: bool = False,
    log: logging.Logger = _LOG,
) -> PublishedFiles:
    """Make a published data source equal to files, like the Dagster job `publish_file`.

    Args:
        samples: whether refusals may show values of rows.
        dry_run: whether to plan and report, but change nothing.
        build_only: whether to build the full `.hyper` file in the data folder, and stop.

    Raises:
        RefusedError: the files cannot be read exactly, or the refresh would be unsafe.
        RefreshError: see `scripting.refresh`.
    """
    run_id = f"script {uuid4()}"
    server, root, store = ServerSettings.from_environment(), tableau_project_root(), _store()
    declaration, session = publication.declaration(), partial(server.session, log)
    placed, journal = in_environment(declaration, root), _journal(declaration.key, root, run_id)
    asked = None if build_only else session
    published = partial(published_version, declaration, journal, root=root, server=asked)
    files = publication.store(store, run_id=run_id, published=published, log=log)
    setup = Setup(
        declaration=placed,
        snapshots=files,
        journal=journal,
        server=partial(session, counts=declaration.needs_counts),
        hyper=_hyper,
        folder=work_dir(keep=build_only),
        backups=shared_place("kept"),
        log=log,
        timeouts=server.timeouts,
        takeover=server.takeover,
        samples=samples,
    )
    if dry_run or build_only:
        done = _tried(setup, files, options, dry_run=dry_run)
    else:
        done = refreshes.refresh(setup, options)
        collect_unneeded(store, run_id=run_id, log=log)
    return PublishedFiles(done, files.rows.bad if files.rows else None)


def _tried(setup: Setup, files: FileStore, options: Options, *, dry_run: bool) -> Done:
    try:
        return refreshes.plan(setup, options) if dry_run else refreshes.build(setup, options)
    finally:
        files.forget()


def _journal(key: str, root: str, run_id: str) -> StoredJournal:
    label = f"process {os.getpid()} on {platform.node()}"
    return StoredJournal(journal_place(), key_below(key, root), owner_here(run_id, label=label))


def _hyper() -> Hyperd:
    return hyper_process(memory_limit=os.environ.get("HYPER_MEMORY_LIMIT") or "50%")


def _store() -> SnapshotStore:
    place = shared_place("snapshots")
    if isinstance(place, Path):
        return SnapshotStore(place)
    return SnapshotStore(ObjectStorage(place, local_copies(cache_bytes())))
