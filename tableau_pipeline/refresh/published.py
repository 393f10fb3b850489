"""Save a data source with the work of people before that work may be lost."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore

from tableau_pipeline.core.checkpoint import Habits, Intent
from tableau_pipeline.core.declaration import (
    INSTANCE_TAG_PREFIX,
    TAG_PREFIX,
    Declaration,
    file_name,
)
from tableau_pipeline.core.package import unpack
from tableau_pipeline.core.server import Metadata, RemoteDatasource
from tableau_pipeline.errors import DriftError, RefreshError
from tableau_pipeline.hyper.hyper_file import HyperFileError, table_columns
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA
from tableau_pipeline.objects.local import scratch
from tableau_pipeline.objects.stores import opened, store_errors
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.observe import Change, Window
from tableau_pipeline.refresh.plan import work_in

# How many times the size of its package a file may unpack to: its pages are compressed already.
_LARGEST = 50


@dataclass
class Keeper:
    """Saves data sources where they outlive the run.

    Attributes:
        location: a folder, or the URL of one in an object store.
        saved: the path or URL of the newest file; None until there is one.
    """

    location: Path | str
    declaration: Declaration
    server: TableauSite
    now: Callable[[], datetime]
    saved: Path | str | None = field(default=None, init=False)

    def keep(self, remote: RemoteDatasource) -> str:
        """Save the data source as it is; return where, in a sentence.

        Raises:
            RefreshError: it cannot be saved.
        """
        name = f"{file_name(self.declaration.key)} {self.now():%Y-%m-%d %H%M%S}"
        try:
            with TemporaryDirectory(prefix="keep ", dir=scratch()) as folder:
                package = self.server.download(remote.luid, Path(folder))
                self.saved = self._stored(package, f"{name}{package.suffix}")
        except OSError as error:
            raise RefreshError(
                f'"{remote.name}" cannot be saved in {self.location} before it is replaced: '
                f"{error}. Nothing was sent"
            ) from error
        return f'"{remote.name}" was saved as {self.saved} before it was replaced'

    def _stored(self, package: Path, name: str) -> Path | str:
        if isinstance(self.location, str):
            url = f"{self.location}/{name}"
            with store_errors("Writing", url):
                obstore.put(opened(self.location), name, package)
            return url
        self.location.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(package, self.location / name))

    def check_kept(self, remote: RemoteDatasource, before: Metadata | None) -> None:
        """Check that the server has kept the metadata over a publish in mode Replace.

        Raises:
            RefreshError: it has not.
        """
        if before and self.server.metadata(remote.luid).digest == before.digest:
            return
        raise RefreshError(
            f'"{remote.name}" was taken over by a publish in mode Replace, which should keep the '
            f"metadata, but the server changed it. It held {work_in(before)}. The data source as "
            f"it was before is in {self.saved}: copy that work back with Tableau Desktop. Its rows "
            "are those of the models now, and the next run goes on from there"
        )


def published_tables(
    server: TableauSite, remote: RemoteDatasource, hyper: Callable[[], Hyperd]
) -> Mapping[str, Mapping[str, str]]:
    """Return the SQL types of the columns of the published file, by table and column.

    Raises:
        ValueError: the published file has other schemas than an extract, or cannot be read.
    """
    with TemporaryDirectory(prefix="take over ", dir=scratch()) as folder:
        package = server.download(remote.luid, Path(folder))
        extract = Path(folder) / "published.hyper"
        try:
            with extract.open("wb") as file:
                unpack(package, ".hyper", file, limit=_LARGEST * package.stat().st_size)
            found = table_columns(hyper(), extract)
        except HyperFileError as error:
            raise ValueError(str(error)) from error
    schemas = {table.schema_name.name.unescaped for table in found if table.schema_name}
    if others := schemas - {EXTRACT_SCHEMA}:
        raise ValueError(f'it has the schema "{min(others)}"')
    return {table.name.unescaped: columns for table, columns in found.items()}


# Find a data source on the server, and change its tags, its name and its project.


def tag(
    server: TableauSite, remote: RemoteDatasource, tags: frozenset[str]
) -> tuple[RemoteDatasource, str | None]:
    """Tag a data source as ours, and remove the tags of other deployments and keys.

    Returns:
        The data source, and why somebody else may have changed it meanwhile; None if nobody
        has.
    """
    prefixes = (TAG_PREFIX, INSTANCE_TAG_PREFIX)
    others = {tag for tag in remote.tags - tags if tag.startswith(prefixes)}
    if tags <= remote.tags and not others:
        return remote, None
    began = server.now()
    # A takeover has to last: their tag would make our next refresh stop and ask again.
    if others:
        server.untag(remote.luid, others)
    server.tag(remote.luid, tags)
    return _changed(server, remote, began)


def move(
    server: TableauSite, remote: RemoteDatasource, *, name: str, project_id: str
) -> RemoteDatasource:
    """Rename a data source, or move it to another project.

    Raises:
        RefusedError: the name is taken there, or the user lacks permission.
        DriftError: somebody changed the data source meanwhile.
    """
    # The server moves it without asking, so a change by somebody else must be noticed before.
    if place(found(server, remote.luid)) != place(remote):
        raise DriftError(f'"{remote.name}" was changed before it could be renamed or moved.')
    began = server.now()
    server.move(remote.luid, name=name, project_id=project_id)
    remote, doubt = _changed(server, remote, began)
    if doubt:
        raise DriftError(f'"{name}" was renamed or moved, and {doubt}.')
    return remote


def _changed(
    server: TableauSite, remote: RemoteDatasource, began: datetime
) -> tuple[RemoteDatasource, str | None]:
    """The data source after a change that began at that time, and what may be others' work."""
    now = found(server, remote.luid)
    # The server's time stamps have whole seconds, and may be rounded up.
    window = Window(began, server.now() + timedelta(seconds=1))
    # Tags, a name or a project make no revision, so a new one is somebody else's.
    change = Change(window, remote.stamp, now.stamp, revisions=(0,))
    return now, change.unexplained(Habits())


def located(server: TableauSite, intent: Intent) -> RemoteDatasource:
    """The data source of a request that has taken effect.

    Raises:
        RefreshError: the data source was removed since.
    """
    if intent.luid:
        return found(server, intent.luid)
    remote = server.find_by_name(intent.name, project_id=intent.project_id)
    if remote is None:
        raise RefreshError(
            f'"{intent.name}" was published, but no longer exists. The next run publishes it again.'
        )
    return remote


def found(server: TableauSite, luid: str) -> RemoteDatasource:
    """The data source with this LUID.

    Raises:
        RefreshError: the data source was removed from the server meanwhile.
    """
    remote = server.find_by_luid(luid)
    if remote is None:
        raise RefreshError(
            f"Data source {luid} was removed from the server during the refresh. The next run "
            "publishes it again."
        )
    return remote


def place(remote: RemoteDatasource) -> tuple[object, ...]:
    """The values that show whether somebody changed, renamed or moved a data source."""
    return remote.luid, remote.name, remote.project_id, remote.stamp
