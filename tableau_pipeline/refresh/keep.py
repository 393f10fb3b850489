"""Keep what people made in a data source: save it, and check that it stayed."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore

from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.metadata.digest import Metadata
from tableau_pipeline.objects.local import scratch
from tableau_pipeline.objects.stores import opened, store_errors
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.plan import work_in


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
