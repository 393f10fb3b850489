"""Refresh data sources from a Python script, without Dagster.

A process that only refreshes needs no Spark. The functions that write models with Spark are in
`tableau_pipeline.scripting.spark`.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NotRequired, TypedDict, Unpack

from tableau_pipeline.core.declaration import (
    Declaration,
    Guard,
    Reconcile,
    Republish,
    Retain,
    Table,
)
from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.core.fields import Calculation, FieldMetadata, Members, MetadataPolicy
from tableau_pipeline.core.journal_store import script_journal
from tableau_pipeline.core.lake_table import InCatalog, LakeTable
from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, ReplaceAll
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.lake.tables import with_lakes
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.outcome import Accept
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Password,
    PersonalAccessToken,
    signed_in,
)
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh import refresh as refreshes
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.report import Built, Refreshed
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.snapshots.version_store import SnapshotStore

__all__ = [
    "Accept",
    "Append",
    "Built",
    "Calculation",
    "ConnectedApp",
    "Declaration",
    "Diff",
    "Feed",
    "FieldMetadata",
    "Guard",
    "InCatalog",
    "LakeTable",
    "Members",
    "MetadataPolicy",
    "Options",
    "Partitions",
    "Password",
    "PersonalAccessToken",
    "Planned",
    "Reconcile",
    "RefreshError",
    "Refreshed",
    "RefusedError",
    "Relationship",
    "ReplaceAll",
    "Republish",
    "Retain",
    "Table",
    "Timeouts",
    "build",
    "plan",
    "refresh",
    "signed_in",
]

_LOG = logging.getLogger(__name__)
_OPTIONS, _TIMEOUTS = Options(), Timeouts()
# The largest total size of local copies of files in object stores, in bytes.
_COPIES_LIMIT = 10 * 10**9


class Place(TypedDict):
    """The arguments that locate a data source, its models and its records; see `refresh`."""

    server: Callable[[], AbstractContextManager[TableauSite]]
    snapshots: Path
    journal: Path
    folder: Path
    timeouts: NotRequired[Timeouts]
    log: NotRequired[logging.Logger]


def refresh(
    declaration: Declaration,
    *,
    server: Callable[[], AbstractContextManager[TableauSite]],
    snapshots: Path,
    journal: Path,
    folder: Path,
    options: Options = _OPTIONS,
    timeouts: Timeouts = _TIMEOUTS,
    log: logging.Logger = _LOG,
) -> Refreshed:
    """Make the published data source equal to the newest versions of its models.

    The effect and the guarantees are the same as with `components.PublishedDatasource` in Dagster.
    The journal records the published content, and each request before it is sent. If `journal` is
    the folder `journal` in the data folder of a Dagster project, the script and the project share
    one history.

    Args:
        server: a function that opens a session with `signed_in`. A refresh calls this function when
            it first needs a session.
        snapshots: the folder of all snapshots; `scripting.spark.write_snapshot` writes them.
        journal: the folder with the records of all data sources; the first refresh creates it.
        folder: the folder for built files. Pass the same folder to every refresh of this data
            source. A refresh saves users' edits in the subfolder `kept` before it replaces them.

    Raises:
        RefusedError: the declaration is wrong, or the refresh would be unsafe. Nothing was changed.
        RefreshError: the refresh failed. The next refresh finds out what the server has done.
    """
    setup = _setup(
        declaration,
        server=server,
        snapshots=snapshots,
        journal=journal,
        folder=folder,
        timeouts=timeouts,
        log=log,
    )
    return refreshes.refresh(setup, options)


def plan(
    declaration: Declaration, *, options: Options = _OPTIONS, **place: Unpack[Place]
) -> Planned:
    """Return what `refresh` with these arguments would do, even if it would refuse; change nothing.

    Raises:
        RefusedError: the declaration is wrong, or a model is missing or cannot be published.
        RefreshError: the server failed, or did not answer.
    """
    return refreshes.plan(_setup(declaration, **place), options)


def build(
    declaration: Declaration, *, options: Options = _OPTIONS, **place: Unpack[Place]
) -> Built:
    """Build the full `.hyper` file, and send nothing. For arguments and errors, see `refresh`."""
    return refreshes.build(_setup(declaration, **place), options)


def _setup(
    declaration: Declaration,
    *,
    server: Callable[[], AbstractContextManager[TableauSite]],
    snapshots: Path,
    journal: Path,
    folder: Path,
    timeouts: Timeouts = _TIMEOUTS,
    log: logging.Logger = _LOG,
) -> Setup:
    copies = LocalCopies(folder / "copies", limit=_COPIES_LIMIT)
    return Setup(
        declaration=declaration,
        snapshots=with_lakes(SnapshotStore(snapshots), declaration, copies),
        journal=script_journal(journal, declaration.key),
        server=server,
        hyper=hyper_process,
        folder=folder.resolve(),
        backups=folder.resolve() / "kept",
        log=log,
        timeouts=timeouts,
    )
