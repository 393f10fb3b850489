"""Download published data sources as packages (`.tdsx`), and unpack them."""

import shutil
import zlib
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import requests
import tableauserverclient as TSC

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.publishing.deadlines import downloads_up_to
from tableau_pipeline.publishing.rest import items_named
from tableau_pipeline.rendering import megabytes

# The largest allowed size in bytes of all members except the extract: the `.tds` and images.
_OTHER_BYTES = 10**7
# A `.hyper` file may be at most this many times as large as its package. The pages of the file are
# already compressed, so packing shrinks them little.
_MOST_EXPANSION = 50
# How many bytes of a download are in memory at a time.
_PIECE = 2**16
_PACKAGE = b"PK\x03\x04"


@contextmanager
def open_content(
    server: TSC.Server,
    luid: str,
    *,
    limit: int,
    extract: bool = True,
    revision: int | None = None,
) -> Generator[requests.Response]:
    """Open the content of a data source; read the content by `iter_content` of the response.

    Open and read within one call of `TableauSite.ask`, which translates the errors of both steps.

    Args:
        limit: the largest allowed number of bytes. Reading more bytes raises an error.
        extract: whether to include the rows.
        revision: the number of an earlier revision; None for the current content.
    """
    endpoint = server.datasources
    place = luid if revision is None else f"{luid}/revisions/{revision}"
    url = f"{endpoint.baseurl}/{place}/content" + ("" if extract else "?includeExtract=False")
    # Avoid TSC's own call: it takes the file name from the server, and fails if this name is
    # invalid.
    with downloads_up_to(limit):
        answer = endpoint.get_request(url, parameters={"stream": True})
    with closing(answer):
        yield answer


def save_content(answer: requests.Response, file: Path) -> Path:
    """Write opened content to a file; return the final path, with the suffix of the format."""
    with file.open("wb") as opened:
        for piece in answer.iter_content(_PIECE):
            opened.write(piece)
    with file.open("rb") as opened:
        is_package = opened.read(len(_PACKAGE)) == _PACKAGE
    return file.rename(file.with_suffix(".tdsx" if is_package else ".tds"))


def unpack(package: Path, suffix: str, into: IO[bytes], *, limit: int) -> None:
    """Unpack the only file with this suffix, such as ".hyper", into an open file.

    Raises:
        ValueError: there is no such file, or there are several. Or the package is damaged, or
            compressed in a way that Tableau does not use.
        RefreshError: the file unpacks to more than `limit` bytes.
    """
    try:
        with ZipFile(package) as opened:
            members = [item for item in opened.infolist() if item.filename.lower().endswith(suffix)]
            if len(members) != 1:
                raise ValueError(f"the package holds {len(members)} {suffix} files, not one")
            # Accept only the compression methods that Tableau uses. With other methods, zipfile may
            # unpack any amount of data at once.
            if members[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ValueError(
                    f"its {suffix} file is compressed in a way that Tableau does not use"
                )
            # It is enough to check the size that the package announces, because zipfile unpacks at
            # most that many bytes.
            if (size := members[0].file_size) > limit:
                raise RefreshError(
                    f"its {suffix} file unpacks to {megabytes(size)}, more than {megabytes(limit)}"
                )
            with opened.open(members[0]) as file:
                shutil.copyfileobj(file, into)
    # zipfile raises RuntimeError if a package has a password. It raises the subclass
    # NotImplementedError if a package uses a feature that zipfile lacks.
    except (BadZipFile, EOFError, RuntimeError, zlib.error) as error:
        raise ValueError(f"the package is damaged: {error}") from error


def megabytes_of(server: TSC.Server, luid: str) -> int | None:
    """Return a data source's size in units of 2^20 bytes; None if the server hides the size."""
    item = server.datasources.get_by_id(luid)
    if item.size is not None:
        return item.size
    # Look in the list of data sources: by Tableau's documentation, only lists include the size.
    matches = items_named(server.datasources, str(item.name), in_full=True)
    return next((listed.size for listed in matches if str(listed.id) == luid), None)


class Downloads(Protocol):
    """Downloads data sources; `TableauSite` is one implementation."""

    def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
        """Download a data source into a folder; return the path of the package."""
        ...


@contextmanager
def published_file(
    server: Downloads, remote: RemoteDatasource, *, limit: int | None = None
) -> Generator[Path]:
    """Download a data source; yield its `.hyper` file, of at most `limit` bytes.

    Raises:
        RefreshError: the data source cannot be downloaded, or its file is larger than `limit`.
        ValueError: the package has no `.hyper` file or several, or is damaged.
    """
    with TemporaryDirectory(prefix="read back ", dir=scratch()) as folder:
        most = None if limit is None else limit + _OTHER_BYTES
        package = server.download(remote.luid, Path(folder), limit=most)
        yield unpacked(package, Path(folder) / "published.hyper", limit=limit)


def unpacked(package: Path, extract: Path, *, limit: int | None = None) -> Path:
    """Write the `.hyper` file of a package to `extract`; return this path.

    Args:
        limit: the largest allowed number of bytes; by default, `_MOST_EXPANSION` times the size of
            the package.

    Raises:
        RefreshError: the file is larger than `limit`.
        ValueError: there is no `.hyper` file, or there are several, or the package is damaged.
    """
    with extract.open("wb") as file:
        unpack(package, ".hyper", file, limit=limit or _MOST_EXPANSION * package.stat().st_size)
    return extract
