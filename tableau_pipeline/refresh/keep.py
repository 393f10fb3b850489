"""Keep what people made in a data source: look at its tables, save it, check that it stayed."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore

from tableau_pipeline.core.server import Metadata, RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.hyper_file import HyperFileError, table_columns
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA
from tableau_pipeline.objects.local import scratch
from tableau_pipeline.objects.stores import opened, store_errors
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.plan import work_in
from tableau_pipeline.refresh.reconcile import published_file


def published_tables(
    server: TableauSite, remote: RemoteDatasource, hyper: Callable[[], Hyperd]
) -> Mapping[str, Mapping[str, str]]:
    """Return the SQL types of the columns of the published file, by table and column.

    Raises:
        ValueError: the published file has other schemas than an extract, or cannot be read.
    """
    with published_file(server, remote) as extract:
        try:
            found = table_columns(hyper(), extract)
        except HyperFileError as error:
            raise ValueError(str(error)) from error
    schemas = {table.schema_name.name.unescaped for table in found if table.schema_name}
    if others := schemas - {EXTRACT_SCHEMA}:
        raise ValueError(f'it has the schema "{min(others)}"')
    return {table.name.unescaped: columns for table, columns in found.items()}


def keep(
    server: TableauSite, remote: RemoteDatasource, *, location: Path | str, name: str
) -> Path | str:
    """Save a data source as it is; return the path or URL of the file.

    Args:
        location: a folder, or the URL of one in an object store.
        name: of the file, without its suffix.

    Raises:
        RefreshError: it cannot be saved.
    """
    try:
        with TemporaryDirectory(prefix="keep ", dir=scratch()) as folder:
            package = server.download(remote.luid, Path(folder))
            file = f"{name}{package.suffix}"
            if isinstance(location, str):
                url = f"{location}/{file}"
                with store_errors("Writing", url):
                    obstore.put(opened(location), file, package)
                return url
            location.mkdir(parents=True, exist_ok=True)
            return Path(shutil.move(package, location / file))
    except OSError as error:
        raise RefreshError(
            f'"{remote.name}" cannot be saved in {location} before it is replaced: {error}. '
            "Nothing was sent"
        ) from error


def check_kept(
    server: TableauSite,
    remote: RemoteDatasource,
    before: Metadata | None,
    *,
    saved: Path | str | None,
) -> None:
    """Check that the server has kept the metadata over a publish in mode Replace.

    Raises:
        RefreshError: it has not.
    """
    if before and server.metadata(remote.luid).digest == before.digest:
        return
    raise RefreshError(
        f'"{remote.name}" was taken over by a publish in mode Replace, which should keep the '
        f"metadata, but the server changed it. It held {work_in(before)}. The data source as "
        f"it was before is in {saved}: copy that work back with Tableau Desktop. Its rows "
        "are those of the models now, and the next run goes on from there"
    )
